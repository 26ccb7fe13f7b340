"""Whether files are the ranks of one job, by what they state themselves, and what the job is called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from profiles.trace import Trace

_RANK = re.compile(r"(?i)[-_. ]*(?:global[-_ ]?)?(?:rank|worker|node|gpu|host|proc(?:ess)?)[-_ ]?\d+(?!\d)"
                   r"|[-_. ]\d+(?:of|[-_])\d+\b")
_ENDS = re.compile(r"(?i)(?:\.(?:json|gz|zst|pt|trace|pftrace|nsys-rep|sqlite|db|zip|bin|txt|log))+$")
_EDGE = "-_. ()[]"


def job_name(files: Sequence[str]) -> str:
    """Return what names of a job's files share, without ranks and endings: "train_rank0.json.gz", "train_rank1.json.gz" -> "train".

    "" where that is less than three letters.
    """
    stems = [_RANK.sub("", _ENDS.sub("", name)) for name in files]
    shared = stems[0]
    for stem in stems[1:]:
        while shared and not stem.startswith(shared):
            shared = shared[:-1]
    if shared != stems[0] or len(set(stems)) > 1:
        shared = re.sub(r"[-_. ]?\d+$", "", shared)         # first digits of a number that differs are shared by chance
    shared = shared.strip(_EDGE)
    return shared if sum(each.isalpha() for each in shared) >= 3 else ""


def why_not(traces: Sequence[tuple[str, Trace]]) -> tuple[str, str] | None:
    """Return (file, reason) where a file states that it belongs to another job than those before it; None where none does.

    Kineto states rank and size of the world ("distributedInfo" of its output_json.cpp); groups and clocks are not compared.
    """
    first_of_rank: dict[int, str] = {}
    world: tuple[str, int] | None = None
    for name, trace in traces:
        stated = _info(trace)
        size = stated.get("world_size")
        if isinstance(size, int):
            if world is not None and size != world[1]:
                return name, f"it is of a job of {size} ranks, {world[0]} of one of {world[1]}"
            world = world or (name, size)
            if trace.rank is not None and trace.rank >= size:
                return name, f"it states rank {trace.rank} of {size}"
            if trace.rank is not None and trace.rank in first_of_rank:
                return name, f"it is rank {trace.rank}, as {first_of_rank[trace.rank]} is: two runs, or two captures of one rank"
        if trace.rank is not None:
            first_of_rank.setdefault(trace.rank, name)
    return None


def _info(trace: Trace) -> dict[str, Any]:
    found = trace.metadata.get("distributedInfo")
    return found if isinstance(found, dict) else {}
