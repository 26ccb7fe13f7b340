"""Who a token is, and what of its day is left."""

from __future__ import annotations

from typing import Any, TypedDict

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp.agents.services import budget_of, spent_today
from webapp.models import ApiToken, Project


class PersonJson(TypedDict):
    id: int
    name: str


class TokenJson(TypedDict):
    id: str
    name: str
    scope: str


class TokenProjectJson(TypedDict):
    id: int
    slug: str
    name: str


class BudgetJson(TypedDict):
    """Jobs and captures that a token may begin in a day, and their GPU-seconds; null: no limit."""

    writes_per_day: int | None
    writes_today: int
    gpu_s_per_day: float | None
    gpu_s_today: float


class MeJson(TypedDict):
    person: PersonJson
    token: TokenJson
    project: TokenProjectJson
    budget: BudgetJson


class MeApi(APIView):
    @extend_schema(operation_id="agents_me", responses=MeJson)
    def get(self, request: Request) -> Response:
        """The token's person, project and scope, and what it may begin today: jobs and captures, and their GPU-seconds."""
        token: Any = request.auth
        if not isinstance(token, ApiToken):
            raise PermissionDenied("this address is for API tokens")
        budget, spent, project = budget_of(token), spent_today(token), Project.objects.get(tokens=token)
        return Response({
            "person": {"id": request.user.pk, "name": request.user.get_username()},
            "token": {"id": token.pk, "name": token.name, "scope": token.scope},
            "project": {"id": project.pk, "slug": project.slug, "name": project.name},
            "budget": {"writes_per_day": budget.writes_per_day, "writes_today": spent["writes"],
                       "gpu_s_per_day": budget.gpu_s_per_day, "gpu_s_today": round(spent["gpu_s"], 3)}})
