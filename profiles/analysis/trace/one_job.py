"""Whether traces are of the ranks of one job, by what they state themselves.

Kineto states rank, size of the world, backend and process groups ("distributedInfo" of its output_json.cpp, filled in by
torch.distributed's `_world.pg_config_info`) and the clock ("baseTimeNanoseconds").
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.analysis.core.sentences import time_text
from profiles.ingest.trace import Trace

# What names say of several files: whether they are the ranks of one job, and what the job is called.

# rank, worker, …; parallel groups as SGLang and vLLM write them ("-TP-0"); "0of8", "3-8" (but not the middle of a date)
_RANK = re.compile(r"(?i)[-_. ]*(?:(?:global[-_ ]?)?(?:rank|worker|node|gpu|host|proc(?:ess)?)|(?<![a-z])(?:tp|pp|dp|cp|ep))"
                   r"[-_ ]?\d+(?!\d)"
                   r"|(?<!\d)[-_. ]\d+(?:of|[-_])\d+(?![-_]?\d)\b")
# "<worker>.<time>.pt.trace.json" of torch.profiler's tensorboard_trace_handler, "_<process>.<time>" of vLLM: the clock tells ranks
# of one job apart as well, and is no part of its name
_CLOCK = re.compile(r"(?:_\d+)?[-_.]\d{10,19}(?!\d)")
_ENDS = re.compile(r"(?i)(?:\.(?:json|gz|zst|pt|trace|pftrace|nsys-rep|sqlite|db|zip|bin|txt|log))+$")
_TEMPORARY = re.compile(r"(?i)^(?:tmp[a-z0-9_]{6,}|libkineto_.*|file|trace|profile|\d*)$")
_EDGE = "-_. ()[]"
LEAST_LETTERS = 3


def like_ranks(files: Sequence[str]) -> bool:
    """Tell whether the names of several files differ in nothing but rank and time, and each states a rank of its own."""
    ranks = [tuple(match.group().strip(_EDGE).lower() for match in _RANK.finditer(_ENDS.sub("", name))) for name in files]
    rest = {_CLOCK.sub("", _RANK.sub("#", name)) for name in files}
    return len(files) > 1 and all(ranks) and len(set(ranks)) == len(ranks) and len(rest) == 1


def job_name(files: Sequence[str]) -> str:
    """Return what names of a job's files share, without ranks and endings: "train_rank0.json.gz", "train_rank1.json.gz" -> "train".

    "" where that is less than three letters.
    """
    if not files:
        return ""
    stems = [_CLOCK.sub("", _RANK.sub("", _ENDS.sub("", name))) for name in files]
    shared = os.path.commonprefix(stems)          # noqa: RUF071 - names, letter by letter
    if shared != stems[0] or len(set(stems)) > 1:
        shared = re.sub(r"[-_. ]?\d+$", "", shared)         # first digits of a number that differs are shared by chance
    shared = shared.strip(_EDGE)
    return shared if sum(letter.isalpha() for letter in shared) >= LEAST_LETTERS else ""


def stated_name(traces: Sequence[Trace]) -> str:
    """Return what a job is called by what its files state, where their own names do not say; "" where they state nothing.

    Kineto writes the path that it was told to export to ("traceName") and the ranks' process groups ("distributedInfo"): the paths'
    shared name, else a group's description, else ranks and backend.
    """
    paths = [str(trace.metadata.get("traceName") or "").replace("\\", "/").rpartition("/")[2][:300] for trace in traces]
    if not any(_TEMPORARY.match(_ENDS.sub("", path)) for path in paths) and (name := job_name(paths)):
        return name
    info = [distributed(trace) for trace in traces]
    backends = {str(entry["backend"])[:40] for entry in info if entry.get("backend")}
    sizes = {entry["world_size"] for entry in info if isinstance(entry.get("world_size"), int)}
    if len(backends) != 1 and len(sizes) != 1:
        return ""
    ranks = f"{len(traces)} of {sizes.pop()} ranks" if len(sizes) == 1 and sizes != {len(traces)} else f"{len(traces)} ranks"
    return ", ".join([ranks, *backends] if len(backends) == 1 else [ranks])


def distributed(trace: Trace) -> dict[str, Any]:
    """Return the file's "distributedInfo"; {} where it states none."""
    info = trace.metadata.get("distributedInfo")
    return info if isinstance(info, dict) else {}


CLOCKS_APART_NS = 5_000_000_000     # hosts' clocks may be wrong by so much: recordings farther apart are of two runs
MOST_GROUPS = 4096


@dataclass(frozen=True)
class _Stated:
    """What one file says; None and {} where it says nothing."""

    name: str
    rank: int | None
    size: int | None
    backend: str | None
    nccl: str | None
    groups: dict[str, tuple[frozenset[int] | None, str | None]]        # name -> (ranks, backend)
    span_ns: tuple[int, int] | None                                    # begin and end, since 1970


def why_not(traces: Sequence[tuple[str, Trace]], by_file: bool = False) -> tuple[str, str] | None:
    """Return (file, reason) where a file states that it belongs to another job than those before it; None where none does.

    What only one of two files states contradicts nothing. `by_file`: ranks are numbered by file, whatever the files state.
    """
    before: list[_Stated] = []
    for name, trace in traces:
        own = _stated(name, trace)
        if not by_file and (why := _alone(own)):
            return name, why
        for other in before:
            for rule in _RULES if not by_file else _RULES_BY_FILE:
                if why := rule(own, other):
                    return name, why
        before.append(own)
    return None


def _alone(own: _Stated) -> str:
    if own.rank is not None and own.size is not None and own.rank >= own.size:
        return f"it states rank {own.rank} of {own.size}"
    return ""


def _another_size(own: _Stated, other: _Stated) -> str:
    if own.size is None or other.size is None or own.size == other.size:
        return ""
    return f"it is of a job of {own.size} ranks, {other.name} of one of {other.size}"


def _the_same_rank(own: _Stated, other: _Stated) -> str:
    """Of files that state the size of their world: Kineto writes rank 0 for a program that has none."""
    if own.size is None or own.rank is None or own.rank != other.rank:
        return ""
    return f"it is rank {own.rank}, as {other.name} is: two runs, or two captures of one rank"


def _another_backend(own: _Stated, other: _Stated) -> str:
    if own.backend and other.backend and own.backend != other.backend:
        return f"its ranks talk by {own.backend}, those of {other.name} by {other.backend}"
    if own.nccl and other.nccl and own.nccl != other.nccl:       # NCCL refuses to begin with peers of another version
        return f"it ran with NCCL {own.nccl}, {other.name} with NCCL {other.nccl}"
    return ""


def _other_groups(own: _Stated, other: _Stated) -> str:
    """A group has one set of members and one backend. Groups of one name may be disjoint: those that one is split into."""
    for name in own.groups.keys() & other.groups.keys():
        (mine, by), (theirs, their_by) = own.groups[name], other.groups[name]
        if mine is not None and theirs is not None and mine != theirs and mine & theirs:
            return f"its process group {name!r} has {_members(mine)}, that of {other.name} {_members(theirs)}"
        if mine == theirs and by and their_by and by != their_by:
            return f"its process group {name!r} is of {by}, that of {other.name} of {their_by}"
    return ""


def _another_time(own: _Stated, other: _Stated) -> str:
    if own.span_ns is None or other.span_ns is None:
        return ""
    apart_ns = max(own.span_ns[0] - other.span_ns[1], other.span_ns[0] - own.span_ns[1])
    if apart_ns <= CLOCKS_APART_NS:
        return ""
    when = "begins after" if own.span_ns[0] > other.span_ns[1] else "ends before"
    return f"it {when} {other.name} {'ends' if when == 'begins after' else 'begins'}, {_long(apart_ns)} apart: two runs"


_RULES: tuple[Callable[[_Stated, _Stated], str], ...] = (
    _another_size, _the_same_rank, _another_backend, _other_groups, _another_time)
# engines of a data-parallel job each have a world, and groups, of their own
_RULES_BY_FILE = (_another_backend, _another_time)


def _long(ns: int) -> str:
    """Two hours and more as people say them; shorter as everywhere."""
    hours = ns / 3.6e12
    return time_text(ns) if hours < 2 else f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:,.0f} days"


def _members(ranks: frozenset[int]) -> str:
    first = sorted(ranks)
    return f"{len(first)} ranks" if len(first) > 8 else "ranks " + ", ".join(map(str, first))


def _stated(name: str, trace: Trace) -> _Stated:
    info = distributed(trace)
    size, listed = info.get("world_size"), info.get("pg_config")
    base_ns = trace.base_ns
    return _Stated(
        name, trace.rank, size if isinstance(size, int) and not isinstance(size, bool) else None, _text(info.get("backend")),
        _text(info.get("nccl_version")), _groups(listed if isinstance(listed, list) else []),
        None if base_ns is None else (base_ns, base_ns + trace.parts.end_ns))


def _groups(listed: list[Any]) -> dict[str, tuple[frozenset[int] | None, str | None]]:
    return {str(group["pg_name"])[:80]: (_ranks(group.get("ranks")), _text(group.get("backend_config")))
            for group in listed[:MOST_GROUPS] if isinstance(group, dict) and "pg_name" in group}


def _ranks(stated: Any) -> frozenset[int] | None:
    """A list; of traces made on demand its text, which may be cut ("[0, 1, ...]"): unknown then."""
    if isinstance(stated, str):
        try:
            stated = json.loads(stated[:1_000_000])
        except ValueError:
            return None
    if not isinstance(stated, list) or not stated or not all(isinstance(rank, int) for rank in stated):
        return None
    return frozenset(stated)


def _text(stated: Any) -> str | None:
    return stated[:80] if isinstance(stated, str) and stated else None
