"""The whole timeline in a strip: one line per GPU, as high as it was busy, in the colour of what it mostly did."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.analysis.core.busy import BusyLane

LANE_UNITS = 16                 # heights that a column can have


@dataclass(frozen=True)
class LanePicture:
    """One GPU: SVG paths by category, in a box of `bins` × LANE_UNITS."""

    label: str
    busy_pct: float
    bins: int
    paths: list[tuple[str, str]]        # (category, d)


def lane_pictures(lanes: list[BusyLane]) -> list[LanePicture]:
    """Return the picture of each lane; neighbouring columns of one height and category are one rectangle."""
    return [_picture(lane) for lane in lanes]


def _picture(lane: BusyLane) -> LanePicture:
    runs: dict[str, list[str]] = {}
    heights = [-(-share * LANE_UNITS // 255) for share in lane.shares]
    looks = lane.categories
    begin = 0
    for at in range(1, len(heights) + 1):
        if at < len(heights) and (heights[at], looks[at]) == (heights[begin], looks[begin]):
            continue
        if heights[begin]:
            runs.setdefault(looks[begin], []).append(f"M{begin} {LANE_UNITS}v-{heights[begin]}h{at - begin}v{heights[begin]}z")
        begin = at
    busy_pct = 100 * sum(lane.shares) / (255 * len(lane.shares)) if lane.shares else 0.0
    return LanePicture(lane.label, busy_pct, len(heights), [(look, "".join(parts)) for look, parts in sorted(runs.items())])
