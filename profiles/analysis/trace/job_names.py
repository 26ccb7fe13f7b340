"""What names say of several files: whether they are the ranks of one job, and what the job is called."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from profiles.ingest.trace import Trace

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
    return shared if sum(each.isalpha() for each in shared) >= LEAST_LETTERS else ""


def stated_name(traces: Sequence[Trace]) -> str:
    """Return what a job is called by what its files state, where their own names do not say; "" where they state nothing.

    Kineto writes the path that it was told to export to ("traceName") and the ranks' process groups ("distributedInfo"): the paths'
    shared name, else a group's description, else ranks and backend.
    """
    paths = [str(trace.metadata.get("traceName") or "").replace("\\", "/").rpartition("/")[2][:300] for trace in traces]
    if not any(_TEMPORARY.match(_ENDS.sub("", path)) for path in paths) and (name := job_name(paths)):
        return name
    info = [distributed(trace) for trace in traces]
    backends = {str(each["backend"])[:40] for each in info if each.get("backend")}
    sizes = {each["world_size"] for each in info if isinstance(each.get("world_size"), int)}
    if len(backends) != 1 and len(sizes) != 1:
        return ""
    ranks = f"{len(traces)} of {sizes.pop()} ranks" if len(sizes) == 1 and sizes != {len(traces)} else f"{len(traces)} ranks"
    return ", ".join([ranks, *backends] if len(backends) == 1 else [ranks])


def distributed(trace: Trace) -> dict[str, Any]:
    """Return the file's "distributedInfo"; {} where it states none."""
    found = trace.metadata.get("distributedInfo")
    return found if isinstance(found, dict) else {}
