"""Advice over HTTP: a kernel's list, decisions in and out."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.advice import selectors, services
from profiles.base.answers import Paged
from profiles.exports.api import FORMAT, asked_format
from profiles.exports.files import flat_response
from profiles.models import AdviceDecision, KernelStat, Profile
from workers.list_api import PAGED, read_page, validated


class DecisionSerializer(serializers.Serializer[AdviceDecision]):
    cause = serializers.CharField(max_length=60)
    state = serializers.ChoiceField(AdviceDecision.State.choices)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=services.NOTE_CHARS)
    assignee = serializers.CharField(required=False, allow_blank=True, default="", max_length=150)


def _decide(request: Request, profile: Profile, kernel: KernelStat | None) -> Response:
    fields = validated(DecisionSerializer, request.data)
    decision = services.decide(profile=profile, kernel=kernel, by=request.user, **fields)
    return Response(selectors.decision_json(decision), status=201)


class KernelAdviceApi(APIView):
    write_permission = "profiles.change_advicedecision"

    @extend_schema(operation_id="kernel_advice", responses=selectors.AdviceJson)
    def get(self, request: Request, pk: int, kernel_pk: int) -> Response:
        """Ranked advice about one kernel of a profile, with what was decided."""
        return Response(selectors.advice_json(get_object_or_404(KernelStat, pk=kernel_pk, profile=pk)))

    @extend_schema(operation_id="kernel_advice_decide", request=DecisionSerializer, responses={201: selectors.DecisionJson})
    def post(self, request: Request, pk: int, kernel_pk: int) -> Response:
        """Take a piece of advice up, assign or dismiss it. A later profile of another build closes what was taken up."""
        kernel = KernelStat.find_or_404(pk, kernel_pk)
        return _decide(request, kernel.profile, kernel)


class RunAdviceApi(APIView):
    write_permission = "profiles.change_advicedecision"

    @extend_schema(operation_id="run_advice_decide", request=DecisionSerializer, responses={201: selectors.DecisionJson})
    def post(self, request: Request, pk: int) -> Response:
        """The same about a finding of the whole run; `cause` is its rule."""
        return _decide(request, get_object_or_404(Profile, pk=pk, status=Profile.Status.READY), None)


class DecisionsJson(Paged):
    decisions: list[selectors.DecisionJson]


class AdviceListApi(APIView):
    @extend_schema(operation_id="advice_decisions", responses=DecisionsJson,
                   parameters=[OpenApiParameter("show", str, enum=list(selectors.FILTERS)), *PAGED, FORMAT])
    def get(self, request: Request) -> Response | HttpResponse:
        """Every decision, the last changed first."""
        kind = asked_format(request)
        decisions = selectors.decisions(request.query_params)
        if kind:
            return flat_response(kind, "advice", [selectors.decision_json(decision) for decision in decisions])
        page = read_page(request, decisions)
        return page.answer({"decisions": [selectors.decision_json(decision) for decision in page.rows]})


class DecisionApi(APIView):
    write_permission = "profiles.change_advicedecision"

    @extend_schema(operation_id="advice_decision_delete", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """As if nothing had been decided."""
        services.decision_delete(get_object_or_404(AdviceDecision, pk=pk))
        return Response(status=204)
