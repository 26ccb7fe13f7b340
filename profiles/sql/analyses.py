"""Tables of a query that analyses of a trace fill: none of their rows while a worker makes the analysis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from profiles.models import Profile
from profiles.topics.work import topic_numbers, topic_stamp

Row = dict[str, Any]
LAYER, NEEDED = "layer", "needed"


def analysed_tables(sql: str) -> frozenset[str]:
    """Return the tables of analyses that a query may read, by the words in it."""
    return frozenset(name for name in MAKERS if name in sql.lower())


def rows_of(name: str, profiles: Iterable[Profile], wanted: Collection[str]) -> Iterator[Row]:
    """Yield the rows of a table of analyses; none of one that the query does not name."""
    topic, make = MAKERS[name]
    for profile in profiles if name in wanted else ():
        for row in make(topic_numbers(profile, topic)):
            yield {"profile": profile.pk, **row}


def stamps(profiles: Iterable[Profile], wanted: Collection[str]) -> list[tuple[object, ...]]:
    """Return what tells one state of the analyses that a query reads from another: made again when a GPU is measured."""
    topics = sorted({MAKERS[name][0] for name in wanted})
    return [(topic, *topic_stamp(profile, topic)) for profile in profiles for topic in topics]


def _work(numbers: Row) -> Iterator[Row]:
    for row in numbers.get("work", ()):
        yield {"sizes": row["text"], "shapes": row["dims"], "min_bytes": row["bytes"], "flop_per_byte": row["intensity"],
               "class": row["side"], "beyond": row["mark"], **{name: row[name] for name in (
                   "kernel", "operator", "dtype", "kind", "precision", "gpu", "launches", "total_ns", "flop", "flop_s",
                   "bytes_s", "floor_ns", "roof_pct", "ceiling", "basis", "part_of")}}


def _needed(numbers: Row) -> Iterator[Row]:
    titles = {kind["kind"]: kind["title"] for kind in numbers.get("kinds", ())}
    for gpu in numbers.get("gpus", ()):
        for part, ns in gpu["parts"].items():
            yield {**{name: gpu[name] for name in ("gpu", "label", "model", "steps", "wall_ns", "needed_pct")},
                   "part": part, "title": titles.get(part), "total_ns": ns}


def _avoidable(numbers: Row) -> Iterator[Row]:
    for row in numbers.get("kinds", ()):
        yield {name: row[name] for name in (
            "kind", "title", "text", "launches", "takes_ns", "gone_ns", "gain_least_ns", "gain_most_ns", "gain_step_least_ns",
            "gain_step_most_ns", "certain", "change")}


def _slow(numbers: Row) -> Iterator[Row]:
    for row in numbers.get("slow", ()):
        yield {name: row[name] for name in ("kernel", "short_name", "operator", "sizes", "launches", "takes_ns", "least_ns",
                                            "lost_ns", "of_ceiling_pct", "choice")} | {"tuned": row["tune"].get("operator")}


def _ranges(numbers: Row) -> Iterator[Row]:
    has_least = numbers.get("has_least", False)
    for row in numbers.get("ranges", ()):
        yield {**row, "kind": numbers["range_kind"], **_least(row, has_least, "least_ns", "own_least_ns")}


def _layer_parts(numbers: Row) -> Iterator[Row]:
    has_least = numbers.get("has_least", False)
    for row in numbers.get("layer_parts", ()):
        yield {**row, "layers": numbers["layers"], **_least(row, has_least, "least_ns")}


def _least(row: Row, known: bool, *names: str) -> Row:
    return {name: row[name] if known else None for name in names}


# table -> the topic that fills it, and its rows of the topic's numbers
MAKERS: dict[str, tuple[str, Callable[[Row], Iterator[Row]]]] = {
    "work": (LAYER, _work), "needed": (NEEDED, _needed), "avoidable": (NEEDED, _avoidable), "slow_kernels": (NEEDED, _slow),
    "needed_ranges": (NEEDED, _ranges), "layer_parts": (NEEDED, _layer_parts)}
