"""JSON over HTTP: submit a kernel for an operator, follow, cancel and review it; read the operator's source; let candidates run."""

from __future__ import annotations

from typing import Any, TypedDict

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.parsers import JSONParser, MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from tuner.candidates import selectors, services
from tuner.models import Candidate
from tuner.query_api import Checked, read_whole
from tuner.tuning.operators import find
from workers.list_api import PAGED, read_page, validated

MAY_SUBMIT, MAY_REVIEW, MAY_PERMIT = "tuner.add_candidate", "tuner.change_candidate", "tuner.add_candidatepermit"
MOST_LISTED = 200


def submitter_of(request: Request) -> services.Submitter:
    """Return the person, and the token that spoke for them."""
    token: Any = request.auth
    return services.Submitter(request.user, str(getattr(token, "token_key", "") or ""), str(getattr(token, "name", "") or ""))


class CandidateRequest(serializers.Serializer[None]):
    """A kernel for an operator at one shape: a whole Python file, or a unified diff against a file of the operator's."""

    operator = serializers.CharField(max_length=60)
    text = serializers.CharField(required=False, trim_whitespace=False, max_length=services.MOST_TEXT_BYTES, help_text=(
        "a file that defines launch(inputs, out, config), or @triton.jit kernels with names of the operator's, or the operator's "
        "own file changed; or a unified diff against it (docs: candidates)"))
    upload = serializers.FileField(required=False, help_text="the same as a part of a form")
    shape = Checked(lambda given: isinstance(given, dict), "an object: dimension → size", required=False)
    dtype = serializers.CharField(required=False, allow_blank=True, max_length=16)
    config = Checked(lambda given: given is None or isinstance(given, dict), "an object: parameter → value", required=False)
    note = serializers.CharField(required=False, allow_blank=True, max_length=services.MOST_NOTE, help_text="what was tried, why")
    parent = serializers.IntegerField(          # type: ignore[assignment]    # DRF takes fields out of the class
        required=False, help_text="the candidate that this one goes on from")
    gpu = serializers.CharField(required=False, allow_blank=True, max_length=120, help_text="GPU model to measure on; empty: any")


class AbilityToJudgeJson(TypedDict):
    able: bool
    why: str


class CandidatesJson(Paged):
    """`ability`: whether a living worker can judge one."""

    total: int
    candidates: list[selectors.CandidateLineJson]
    ability: AbilityToJudgeJson


class PermitsJson(TypedDict):
    permits: list[selectors.PermitJson]


class SetPermitJson(TypedDict):
    permit: selectors.PermitJson | None


class CandidateListApi(APIView):
    write_permission = MAY_SUBMIT
    parser_classes = [JSONParser, MultiPartParser]

    @extend_schema(operation_id="candidates", responses=CandidatesJson, parameters=[
        *(OpenApiParameter(name, str) for name in selectors.FILTERS),
        OpenApiParameter("series", int), *PAGED])
    def get(self, request: Request) -> Response:
        """The project's candidates, newest first: verdict, time, ratio, review; and whether a living worker can judge one."""
        series = read_whole(request, "series", 0, 2**62)
        filters = {name: request.query_params.get(name, "") for name in selectors.FILTERS}
        page = read_page(request, selectors.candidate_list({**filters, "series": series}), 50, MOST_LISTED)
        return page.answer({"total": page.count, "candidates": [selectors.row_json(row) for row in page.rows],
                            "ability": selectors.ability()})

    @extend_schema(operation_id="candidate", responses={201: selectors.CandidateJson},
                   request={"application/json": CandidateRequest, "multipart/form-data": CandidateRequest})
    def post(self, request: Request) -> Response:
        """Submit a kernel. It runs on a GPU worker behind walls, where an owner lets candidates of its operator run, else 403.

        Inputs, reference, default configuration and library are the operator's own. The verdict is FASTER, SAME, SLOWER or
        AMBIGUOUS beside the best configuration known, WRONG, or FAILED; it stands as measured, not reviewed, until a person
        accepts it.
        """
        fields = validated(CandidateRequest, request.data)
        text = fields.get("text", "")
        if upload := fields.get("upload"):
            if upload.size > services.MOST_TEXT_BYTES:
                raise ValidationError({"upload": [f"{upload.size:,} bytes; at most {services.MOST_TEXT_BYTES:,}"]})
            text = upload.read().decode(errors="replace")
        parent = Candidate.objects.filter(pk=fields["parent"]).first() if fields.get("parent") else None
        if fields.get("parent") and parent is None:
            raise ValidationError({"parent": ["there is no such candidate"]})
        candidate = services.candidate_create(
            submitter_of(request), operator=fields["operator"], text=text, shape=fields.get("shape"),
            dtype=fields.get("dtype", ""), config=fields.get("config"), note=fields.get("note", ""), parent=parent,
            gpu=fields.get("gpu", ""))
        return Response(selectors.candidate_json(candidate), status=201)


class CandidateApi(APIView):
    @extend_schema(operation_id="candidate_get", responses=selectors.CandidateJson,
                   parameters=[OpenApiParameter("text", int, description="1: its file as well")])
    def get(self, request: Request, pk: int) -> Response:
        """One candidate: its verdict with the numbers behind it, what was checked, counters or why there are none, the review."""
        candidate = get_object_or_404(Candidate, pk=pk)
        text = {"text": candidate.text} if request.query_params.get("text") == "1" else {}
        return Response({**selectors.candidate_json(candidate), **text})


class CandidateTextApi(APIView):
    @extend_schema(operation_id="candidate_text", responses={(200, "text/plain"): OpenApiTypes.STR},
                   parameters=[OpenApiParameter("diff", int, description="1: the diff as it was submitted")])
    def get(self, request: Request, pk: int) -> HttpResponse:
        """The file as it was judged, or the diff that it was submitted as."""
        candidate = get_object_or_404(Candidate, pk=pk)
        as_diff = request.query_params.get("diff") == "1" and candidate.diff
        name = f"candidate-{candidate.pk}.{'diff' if as_diff else 'py'}"
        return HttpResponse(candidate.diff if as_diff else candidate.text, content_type="text/plain; charset=utf-8",
                            headers={"Content-Disposition": f'attachment; filename="{name}"'})


class CandidateCancelApi(APIView):
    write_permission = MAY_SUBMIT

    @extend_schema(operation_id="candidate_cancel", request=None, responses=selectors.CandidateJson)
    def post(self, request: Request, pk: int) -> Response:
        """Cancel a waiting or running candidate."""
        candidate = get_object_or_404(Candidate, pk=pk)
        services.candidate_cancel(candidate)
        candidate.refresh_from_db()
        return Response(selectors.candidate_json(candidate))


class ReviewRequest(serializers.Serializer[None]):
    decision = serializers.ChoiceField(choices=[Candidate.Review.ACCEPTED, Candidate.Review.DECLINED])
    note = serializers.CharField(required=False, allow_blank=True, max_length=services.MOST_REVIEW_NOTE)


class CandidateReviewApi(APIView):
    write_permission = MAY_REVIEW

    @extend_schema(operation_id="candidate_review", request=ReviewRequest, responses=selectors.CandidateJson)
    def post(self, request: Request, pk: int) -> Response:
        """Accept or decline what was measured. Owners; not by a token of the person whose token submitted it."""
        fields = validated(ReviewRequest, request.data)
        candidate = get_object_or_404(Candidate, pk=pk)
        row = services.candidate_review(candidate, fields["decision"], fields.get("note", ""), submitter_of(request))
        return Response(selectors.candidate_json(row))


class CandidateSourceApi(APIView):
    @extend_schema(operation_id="candidate_source", responses=selectors.OperatorSourceJson)
    def get(self, request: Request, operator: str) -> Response:
        """The files that an operator's kernels are written in, with their text and hash: what a diff is against."""
        if find(operator) is None:
            raise NotFound(f"choose one of {', '.join(selectors.known_operators())}")
        return Response(selectors.source_json(operator))


class PermitRequest(serializers.Serializer[None]):
    operator = serializers.CharField(max_length=60)
    allowed = serializers.BooleanField()
    per_day = serializers.IntegerField(required=False, help_text="candidates of one token, or person, a UTC day")
    seconds = serializers.IntegerField(required=False, help_text="that one may hold a GPU")


class CandidatePermitApi(APIView):
    write_permission = MAY_PERMIT

    @extend_schema(operation_id="candidate_permits", responses=PermitsJson)
    def get(self, request: Request) -> Response:
        """The operators whose candidates may run in this project, and how much of it."""
        return Response({"permits": [selectors.permit_json(permit) for permit in selectors.permits().values()]})

    @extend_schema(operation_id="candidate_permit", request=PermitRequest, responses=SetPermitJson)
    def post(self, request: Request) -> Response:
        """Let candidates of an operator run in this project, or no longer. Owners only: it is code of others on the GPU workers."""
        fields = validated(PermitRequest, request.data)
        permit = services.permit_set(fields["operator"], fields["allowed"], per_day=fields.get("per_day"),
                                     seconds=fields.get("seconds"), by=request.user)
        return Response({"permit": selectors.permit_json(permit) if permit else None})
