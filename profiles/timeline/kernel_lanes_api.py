"""The timeline grouped by kernel: its lanes, and their tiles beside those of the trace's own tracks."""

from __future__ import annotations

from typing import Any, TypedDict

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from profiles.timeline import kernel_lanes, selectors
from profiles.timeline.api import REFUSED, TILE, TimelineView, unchanging

MOST_AT_ONCE = 200


class KernelLanesView(TimelineView):
    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, kernel_lanes.TooMany):
            return Response({"error": str(exc), "where": "timeline", "hint": "Group by stream, or search for the kernel."},
                            status=status.HTTP_409_CONFLICT)
        return super().handle_exception(exc)


class KernelTrackJson(selectors.TrackJson):
    """A lane of a kernel on the stream `of`; `kernel` null: the further ones; times are of all lanes of the kernel."""

    of: int
    kernel: str | None
    kernel_ns: int
    kernel_launches: int


class KernelTracksJson(TypedDict):
    tracks: list[KernelTrackJson]


class KernelTracksApi(KernelLanesView):
    @extend_schema(operation_id="profiles_kernel_tracks", summary="A lane per kernel and stream, kernel of most time first",
                   responses={200: KernelTracksJson, **REFUSED})
    def get(self, request: Request, pk: int) -> Response:
        profile, timeline = self.open(pk)
        lanes = kernel_lanes.kernel_lanes(timeline)
        tracks = selectors.tracks(profile, timeline)
        return Response({"tracks": kernel_lanes.lane_documents(lanes, tracks, timeline.names, selectors.kernel_labels(profile))})


class KernelTileApi(KernelLanesView):
    @extend_schema(operation_id="profiles_kernel_tile", summary="One tile of lanes of kernels, as little-endian columns",
                   parameters=[OpenApiParameter("kernels", str, required=True,
                                                description="Numbers of lanes, as kernel-tracks/ lists them from 0: 0,3,5.")],
                   responses=TILE)
    def get(self, request: Request, pk: int, level: int, index: int) -> HttpResponse | Response:
        _, timeline = self.open(pk)
        if not selectors.tile_exists(timeline, level, index):
            raise NotFound(f"Level {level} of this timeline has no tile {index}.")
        lanes = kernel_lanes.kernel_lanes(timeline)
        numbers = _wanted(str(request.query_params.get("kernels", "")), lanes.lane_track.size)
        units = [(kernel_lanes.FIRST + lane, 0, 3) for lane in numbers]
        return unchanging(request, timeline, lambda: selectors.packed_gzip(
            units, kernel_lanes.lanes_tile(lanes, level, index, numbers)))


def _wanted(text: str, count: int) -> list[int]:
    parts: list[Any] = [part for part in text.split(",") if part]
    if not 0 < len(parts) <= MOST_AT_ONCE or not all(part.isascii() and part.isdigit() and len(part) < 9 for part in parts):
        raise serializers.ValidationError({"kernels": f"Give 1 to {MOST_AT_ONCE} numbers of lanes separated by commas: 0,3,5."})
    numbers = sorted({int(part) for part in parts})
    if numbers[-1] >= count:
        raise serializers.ValidationError({"kernels": f"This trace has {count} lanes of kernels."})
    return numbers
