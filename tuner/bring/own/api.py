"""JSON over HTTP: tune a kernel of a checked file; own kernels with their versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from tuner import devices
from tuner.bring.own import selectors, services
from tuner.jobs.create_services import DEFAULT_EFFORT
from tuner.jobs.selectors import TuneJobJson, job_json
from tuner.models import KernelCheck, OwnKernel
from tuner.query_api import Checked
from tuner.tuning.search.strategies import DEFAULT
from workers.list_api import PAGED, read_page, validated

CLIENT_FILE = Path(__file__).with_name("client.py")
MAY_TUNE = "tuner.add_kernelcheck"          # it runs the file on a GPU


class OwnTuneRequest(serializers.Serializer[None]):
    """All of it may be left out where the check holds one kernel that can be tuned."""

    kernel = serializers.CharField(required=False, allow_blank=True, max_length=120, help_text="of the check")
    reference = serializers.CharField(required=False, allow_blank=True, max_length=120, help_text=(
        "a function of the file that computes the same in torch; none: the default configuration's own result, not independent"))
    params = Checked(lambda given: isinstance(given, dict) and all(isinstance(choices, str | list) for choices in given.values()),
                     "an object: parameter → values", required=False, help_text="the space; none: as the check shows it")
    constraints = Checked(lambda given: isinstance(given, list) and all(isinstance(rule, str) for rule in given),
                          "a list of expressions", required=False)
    shape = Checked(lambda given: isinstance(given, dict) and all(type(size) is int for size in given.values()),
                    "an object of numbers", required=False, help_text="none: that of the call")
    device = serializers.CharField(required=False, max_length=120, help_text='"gpu", or "gpu:NVIDIA H200"')
    strategy = serializers.CharField(required=False, max_length=40)
    effort = serializers.CharField(required=False, max_length=16)
    budget_trials = serializers.IntegerField(required=False, min_value=1)
    budget_seconds = serializers.FloatField(required=False, min_value=1)
    seed = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    timing = serializers.CharField(required=False, max_length=8)


class OwnTuneJson(selectors.OwnKernelJson):
    job: TuneJobJson


class OwnKernelsJson(Paged):
    results: list[selectors.OwnKernelJson]


class WholeOwnKernelJson(selectors.OwnKernelJson):
    """`sources`: path → text."""

    sources: dict[str, str]
    adapter: str


class OwnTuneApi(APIView):
    write_permission = MAY_TUNE

    @extend_schema(operation_id="kernel_check_tune", request=OwnTuneRequest, responses={201: OwnTuneJson})
    def post(self, request: Request, pk: int) -> Response:
        """Tune a kernel of a checked file: its source travels with the job, behind walls. Owners only: it runs on a GPU."""
        check = get_object_or_404(KernelCheck, pk=pk)
        fields: dict[str, Any] = dict(validated(OwnTuneRequest, request.data))
        named = {name: fields.pop(name) for name in ("kernel", "reference", "params", "constraints", "shape") if name in fields}
        if fields.get("device", devices.GPU) != devices.GPU and not devices.is_gpu(fields["device"]):
            raise ValidationError({"device": ["an own kernel is measured on a GPU"]})
        job = {"device": devices.GPU, "strategy": DEFAULT, "effort": DEFAULT_EFFORT, **fields}
        kernel, tune_job = services.own_tune(check, **named, **job, owner=request.user)
        return Response({**selectors.kernel_json(kernel), "job": job_json(tune_job)}, status=201)


class OwnClientApi(APIView):
    @extend_schema(operation_id="own_kernels_client", responses=OpenApiTypes.BINARY)
    def get(self, request: Request) -> HttpResponse:
        """ridgepoint_tune.py, which tunes a kernel file from a terminal: one file, standard library, Python 3.8 or later."""
        return HttpResponse(CLIENT_FILE.read_bytes(), content_type="text/x-python; charset=utf-8",
                            headers={"Content-Disposition": 'attachment; filename="ridgepoint_tune.py"'})


class OwnListApi(APIView):
    @extend_schema(operation_id="own_kernels", responses=OwnKernelsJson, parameters=PAGED)
    def get(self, request: Request) -> Response:
        """Versions of own kernels, newest first."""
        page = read_page(request, OwnKernel.objects.all())
        return page.answer({"results": [selectors.kernel_json(row) for row in page.rows]})


class OwnApi(APIView):
    @extend_schema(operation_id="own_kernel", responses=WholeOwnKernelJson)
    def get(self, request: Request, name: str) -> Response:
        """One version: the texts that travel with its jobs, and its adapter."""
        kernel = selectors.kernel_named(name)
        if kernel is None:
            raise NotFound("no own kernel has this name")
        return Response({**selectors.kernel_json(kernel), "sources": kernel.sources, "adapter": kernel.adapter})
