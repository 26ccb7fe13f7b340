"""HTML of the occupancy calculator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from profiles.analysis.kernel.occupancy import DEFAULT_SMEM_BYTES, FIELDS, LIMITER_WORDS, Curve, kib_text
from profiles.occupancy import selectors

LEFT, RIGHT, TOP, BOTTOM, WIDTH, HEIGHT = 34, 8, 10, 34, 400, 214
X_TICKS = 5


@dataclass(frozen=True)
class Plateau:
    """A piece of a curve with one value."""

    first: int
    last: int
    warps: int
    blocks: int
    limiter: str


def plateaus(curve: Curve) -> list[Plateau]:
    plateaus: list[Plateau] = []
    for x, warps, blocks, limiter in zip(curve.x, curve.warps, curve.blocks, curve.limiters, strict=True):
        if plateaus and (plateaus[-1].warps, plateaus[-1].blocks, plateaus[-1].limiter) == (warps, blocks, limiter):
            plateaus[-1] = Plateau(plateaus[-1].first, x, warps, blocks, limiter)
        else:
            plateaus.append(Plateau(x, x, warps, blocks, limiter))
    return plateaus


def curve_figures(curves: Sequence[Curve], warps_per_sm: int) -> list[dict[str, Any]]:
    return [_figure(curve, warps_per_sm) for curve in curves]


def _figure(curve: Curve, warps_per_sm: int) -> dict[str, Any]:
    """Lines, ticks and pieces with their places. The value at a point holds from the point before it: resources come in steps."""
    high = curve.x[-1]

    def place(x: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * x / high, 2)

    def level(warps: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - warps / warps_per_sm), 2)

    path, pieces, before = f"M{place(0)} {level(curve.warps[0])}", [], 0
    for piece in plateaus(curve):
        path += f" V{level(piece.warps)} H{place(piece.last)}"
        pieces.append({"x": place(before), "width": max(0.5, round(place(piece.last) - place(before), 2)),
                       "text": _piece_text(curve, piece, warps_per_sm)})
        before = piece.last
    at = curve.x.index(curve.at)
    unit = 1024 if curve.unit == "bytes" else 1
    step = _step(high / unit / X_TICKS) * unit
    return {
        "name": curve.parameter, "title": f"{curve.title}{' (KiB)' if curve.unit == 'bytes' else ''}",
        "text": summary(curve, warps_per_sm), "path": path, "pieces": pieces,
        "mark": {"x": place(curve.at), "y": level(curve.warps[at])}, "width": WIDTH, "height": HEIGHT, "left": LEFT,
        "right": WIDTH - RIGHT, "top": TOP, "bottom": HEIGHT - BOTTOM, "middle": (LEFT + WIDTH - RIGHT) / 2,
        "x_ticks": [{"x": place(value), "text": f"{value // unit}"} for value in range(0, high + 1, step)],
        "y_ticks": [{"y": level(value), "text": str(value)} for value in range(0, warps_per_sm + 1, warps_per_sm // 4)],
        "plateaus": [{"range": _range(curve, piece), "piece": piece, "pct": 100.0 * piece.warps / warps_per_sm,
                      "here": piece.first <= curve.at <= piece.last} for piece in plateaus(curve)],
    }


def _step(about: float) -> int:
    """A round distance between ticks: 1, 2, 5, 10, 20, 25, 50, 100 …"""
    return next(step for step in (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000) if step >= about)


def _range(curve: Curve, piece: Plateau) -> str:
    shown = [kib_text(x) if curve.unit == "bytes" else f"{x:,}" for x in (piece.first, piece.last)]
    return shown[0] if piece.first == piece.last else f"{shown[0]} to {shown[1]}"


def _piece_text(curve: Curve, piece: Plateau, warps_per_sm: int) -> str:
    return (f"{curve.title} {_range(curve, piece)}: {piece.warps} warps ({100.0 * piece.warps / warps_per_sm:.4g} %), "
            f"{piece.blocks} block{'' if piece.blocks == 1 else 's'}, limited by {piece.limiter}")


def summary(curve: Curve, warps_per_sm: int) -> str:
    """The figure in words, for those who do not see it."""
    at, best = curve.x.index(curve.at), max(curve.warps)
    reached = [x for x, warps in zip(curve.x, curve.warps, strict=True) if warps == best]
    shown = [kib_text(x) if curve.unit == "bytes" else f"{x:,}" for x in (curve.at, reached[0], reached[-1])]
    if curve.warps[at] == best:
        return f"{curve.title}: {best} of {warps_per_sm} warps at {shown[0]}, the most there is; last at {shown[2]}."
    return f"{curve.title}: {curve.warps[at]} of {warps_per_sm} warps at {shown[0]}; the most, {best}, first at {shown[1]}."


@require_safe
def occupancy(request: HttpRequest) -> HttpResponse:
    """What would the occupancy be? A wrong value keeps the answer of the last right one, and says what would be valid."""
    page = selectors.page(request.GET)
    question, result, warps = page["question"], page["answer"].occupancy, page["limits"].warps_per_sm
    typed = {name: page["asked"].typed.get(name, getattr(question, name)) for name in FIELDS}
    page |= {
        "architectures": selectors.architectures(), "query": request.GET.urlencode(),
        "typed": {name: "" if value is None else value for name, value in typed.items()},
        "limit_rows": [{"name": LIMITER_WORDS.get(name, name), "blocks": blocks, "limits": name in result.limiters}
                       for name, blocks in sorted(result.limits.items(), key=lambda pair: pair[1])],
        "ladder": [{"rung": rung, "smem": None if rung.smem_bytes is None else kib_text(rung.smem_bytes)}
                   for rung in page["answer"].ladder],
        "texts": {name: kib_text(getattr(page["limits"], name)) for name in
                  ("smem_bytes_per_sm", "smem_bytes_per_block", "smem_unit_bytes", "smem_reserved_bytes_per_block")},
        "split": kib_text(int(page["split_bytes"])) if page["split_bytes"] else "",
        "opt_in": question.smem_bytes > DEFAULT_SMEM_BYTES,
        "figures": curve_figures(page["answer"].curves, warps),
    }
    return render(request, "profiles/kernel/occupancy.html", page, status=400 if page["asked"].errors else 200)
