"""The same fields for programs: what to tune and what to capture for a kernel."""

from __future__ import annotations

from typing import TypedDict

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.actions import selectors
from profiles.base.answers import Scalar
from profiles.models import KernelStat


class FilledFormJson(TypedDict):
    """Fields of a form as it would be filled in; `url` null: none can be; `said`: where they come from."""

    url: str | None
    said: str
    fields: dict[str, Scalar]


class KernelActionsJson(TypedDict):
    kernel: str
    tune: FilledFormJson
    capture: FilledFormJson


class KernelActionsApi(APIView):
    @extend_schema(operation_id="kernel_actions", responses=KernelActionsJson)
    def get(self, request: Request, pk: int, kernel_pk: int) -> Response:
        """Fields of a tune job and of a capture for one kernel, as the forms would be filled in; `url` is the form's."""
        kernel = KernelStat.find_or_404(pk, kernel_pk)
        actions = {"tune": selectors.tune(kernel), "capture": selectors.capture(kernel)}
        return Response({"kernel": kernel.name, **{name: {"url": action.url or None, "said": action.said, "fields": action.fields}
                                                   for name, action in actions.items()}})
