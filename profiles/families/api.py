"""Kernel families over HTTP: the ranking, one family, what people change about them, what the newest builds changed."""

from __future__ import annotations

from typing import Any, TypedDict

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from profiles.base.refused import Refused
from profiles.exports.api import FILE, FORMAT, JSON, asked_format
from profiles.exports.files import table_of_cells, table_response
from profiles.families import home_selectors, json_selectors, launch_selectors, page_selectors, selectors, services
from profiles.models import FamilyEdit, KernelFamily, KernelShape
from workers.list_api import PAGED, USUAL, link_header, read_number, read_page, validated

_WORDS = frozenset({"basis", "basis_text", "name", "op", "dtype", "category", "roof_side", "rule"})
_COLUMNS = [(name, "text" if name in _WORDS else "number") for name in (
    "name", "op", "dtype", "category", "total_ns", "share_pct", "launches", "profiles", "known_ns", "recoverable_ns", "expected_ns",
    "expected_low_ns", "expected_high_ns", "basis", "basis_text", "at_most_ns",
    "roof_pct", "roof_side", "rule_ns", "rule", "family")]
_FILTERS = [OpenApiParameter(name, str) for name in selectors.FILTERS]


class KernelFamiliesJson(json_selectors.RankingJson):
    next_offset: int | None


class FamilyListApi(APIView):
    @extend_schema(operation_id="kernels_list", responses={**FILE, JSON: KernelFamiliesJson},
                   parameters=[*_FILTERS, *PAGED, FORMAT])
    def get(self, request: Request) -> Response | HttpResponse:
        """Families of all profiles, most to win back first: time, what counters say of it, where to go.

        JSON comes in pages of `limit` from `offset`; `next_offset` reads on, null after the last. A file has them all.
        """
        kind = asked_format(request)
        limit, offset = read_number(request, "limit", selectors.MOST if kind else USUAL), read_number(request, "offset", 0)
        upto = min(offset + limit, selectors.MOST)
        ranking = selectors.ranking(request.query_params, upto)
        document = json_selectors.ranking_json(ranking, upto)
        next_offset = upto if limit and upto < min(ranking.count, selectors.MOST) else None
        families: Any = document["families"][offset:]
        if kind:
            rows = [[family[name] for name, _ in _COLUMNS] for family in families]
            return table_response(table_of_cells(_COLUMNS, rows), "kernels", kind)
        return Response({**document, "families": families, "next_offset": next_offset}, headers=link_header(request, next_offset))


class Refusing(APIView):
    """What a service refuses is a 400 that says what would be possible."""

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, Refused):
            return Response({"error": str(exc), "where": "family", "hint": exc.hint}, status=400)
        return super().handle_exception(exc)


class FamilyApi(APIView):
    @extend_schema(operation_id="kernels_family", responses=json_selectors.FamilyJson)
    def get(self, request: Request, pk: int) -> Response:
        """Everything known about one family."""
        return Response(json_selectors.family_json(get_object_or_404(KernelFamily, pk=pk)))


class ShapeLaunchesJson(TypedDict):
    """Launches of one grid and block, the longest first; `total`: of all."""

    profile: int
    kernel: str
    family: int | None
    grid: str
    block: str
    answer: str
    total: int
    launches: list[launch_selectors.Launch]


class ShapeApi(APIView):
    @extend_schema(operation_id="kernels_shape", responses=ShapeLaunchesJson)
    def get(self, request: Request, pk: int) -> Response:
        """Every launch of one grid and block of one kernel in one profile, the longest first."""
        shape = get_object_or_404(KernelShape.objects.select_related("kernel__profile", "kernel__family"), pk=pk)
        page = launch_selectors.shape_page(shape)
        return Response({"profile": page["profile"].pk, "kernel": page["kernel"].name, "family": page["kernel"].family_id,
                         "grid": shape.grid, "block": shape.block, "answer": page["answer"], "total": page["total"],
                         "launches": [launch_selectors.launch_json(launch) for launch in page["launches"]]})


class FamilyEditSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(FamilyEdit.Kind.choices)
    family = serializers.IntegerField(min_value=1, help_text="the family that is changed")
    into = serializers.IntegerField(min_value=1, required=False, help_text="merge: where it goes")
    names = serializers.ListField(child=serializers.CharField(max_length=100_000), max_length=services.MAX_NAMES, required=False,
                                  help_text="split: full kernel names that leave it")
    name = serializers.CharField(max_length=200, required=False, help_text="split, rename: the new name")


class FamilyEditsJson(Paged):
    edits: list[json_selectors.FamilyEditJson]


class FamilyEditsApi(Refusing):
    write_permission = "profiles.change_kernelfamily"

    @extend_schema(operation_id="kernels_edits", responses=FamilyEditsJson, parameters=PAGED)
    def get(self, request: Request) -> Response:
        """What people changed, newest first."""
        page = read_page(request, page_selectors.edit_rows())
        return page.answer({"edits": [json_selectors.edit_json(edit) for edit in page.rows]})

    @extend_schema(operation_id="kernels_edit", request=FamilyEditSerializer, responses={201: json_selectors.FamilyEditJson})
    def post(self, request: Request) -> Response:
        """Merge two families, split kernels off one, rename one."""
        payload = validated(FamilyEditSerializer, request.data)
        family = get_object_or_404(KernelFamily, pk=payload["family"])
        if payload["kind"] == FamilyEdit.Kind.MERGE:
            edit = services.family_merge(family, get_object_or_404(KernelFamily, pk=payload.get("into", 0)), by=request.user)
        elif payload["kind"] == FamilyEdit.Kind.SPLIT:
            edit = services.family_split(family, payload.get("names", []), name=payload.get("name", ""), by=request.user)
        else:
            edit = services.family_rename(family, payload.get("name", ""), by=request.user)
        return Response(json_selectors.edit_json(edit), status=201)


class FamilyUndoApi(Refusing):
    write_permission = "profiles.change_kernelfamily"

    @extend_schema(operation_id="kernels_edit_undo", request=None, responses=json_selectors.FamilyEditJson)
    def post(self, request: Request, pk: int) -> Response:
        """Put back what an edit changed."""
        return Response(json_selectors.edit_json(services.edit_undo(get_object_or_404(FamilyEdit, pk=pk), by=request.user)))


class FamilyNoteSerializer(serializers.Serializer[Any]):
    text = serializers.CharField(max_length=10 * services.MAX_TEXT, trim_whitespace=False)


class FamilyNotesApi(Refusing):
    write_permission = "profiles.add_familynote"

    @extend_schema(operation_id="kernels_note_create", request=FamilyNoteSerializer, responses={201: json_selectors.FamilyNoteJson})
    def post(self, request: Request, pk: int) -> Response:
        """Write a note about a kernel."""
        payload = validated(FamilyNoteSerializer, request.data)
        note = services.note_create(get_object_or_404(KernelFamily, pk=pk), text=payload["text"], by=request.user)
        return Response(json_selectors.note_json(note), status=201)


class BuildPairsJson(TypedDict):
    pairs: list[home_selectors.BuildPairJson]


class BuildChangesApi(APIView):
    @extend_schema(operation_id="kernels_build_changes", responses=BuildPairsJson)
    def get(self, request: Request) -> Response:
        """What the newest build of every model and GPU made slower or faster than the build before it."""
        return Response({"pairs": [home_selectors.pair_json(pair) for pair in home_selectors.pairs()]})
