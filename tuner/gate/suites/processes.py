"""Which process an uploaded run is of. Two uploads of a build with the same names of runs are the same processes, unless they say
that they are shard i of n, or come from another attempt of the pipeline. No rows are read here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.base.refused import Refused

MOST_SHARDS = 999
MOST_ATTEMPT = 120              # characters
SHARD = re.compile(r"(?:shard\s+)?(\d{1,3})\s*(?:/|\bof\b)\s*(\d{1,3})", re.IGNORECASE)
UPLOAD = "upload"               # of KernelRun.environment: {"shard"?: "2/4", "attempt"?: text, "process"?: the run's own name}


@dataclass(frozen=True)
class Upload:
    """What is said of all runs of one upload."""

    shard: str = ""             # "2/4"
    attempt: str = ""           # of the pipeline's job: its id and how often it was tried

    def label(self, run: str) -> str:
        """Return the name of a process: runs of two shards are never one."""
        return f"{run} of shard {self.shard}" if self.shard else run

    def facts(self, label: str, stored: str) -> dict[str, Any]:
        """Return what the row keeps of it; `stored`: its name where `label` was taken by another attempt."""
        said = {"shard": self.shard, "attempt": self.attempt, "process": label if label != stored else ""}
        return {name: value for name, value in said.items() if value}


def read_upload(shard: str, attempt: str) -> Upload:
    """Return what a request says. Raises Refused."""
    if len(attempt) > MOST_ATTEMPT or not (attempt or " ").isprintable():
        raise Refused({"attempt": f"at most {MOST_ATTEMPT} printable characters"})
    if not shard.strip():
        return Upload("", attempt.strip())
    told = SHARD.fullmatch(shard.strip())
    number, of = (int(told[1]), int(told[2])) if told else (0, 0)
    if not 1 <= number <= of <= MOST_SHARDS:
        raise Refused({"shard": f"i/n, the first is 1 and n at most {MOST_SHARDS}: 2/4"})
    return Upload(f"{number}/{of}", attempt.strip())


def missing_shards(shards: Iterable[str]) -> tuple[list[int], int]:
    """Return which of how many shards have sent nothing; `shards` of a build's runs, newest first. ([], 0) where none is said.

    A pipeline that was split anew is judged by its newest number of shards.
    """
    said = [(int(number), int(of)) for number, _, of in (each.partition("/") for each in shards if each)]
    if not said:
        return [], 0
    newest = said[0][1]
    here = {number for number, of in said if of == newest}
    return [number for number in range(1, newest + 1) if number not in here], newest


def repeated_note(repeated: int) -> str:
    """Return what is said of runs that were measured under the name of a process that is there; "" of none."""
    if not repeated:
        return ""
    lines, are = ("run", "is") if repeated == 1 else ("runs", "are")
    return (f"{repeated:,} {lines} that came {are} of processes that are there already, with other samples: the first ones count. "
            "Name new processes otherwise, or say shard i/n or the attempt")


def shards_note(missing: Sequence[int], of: int) -> str:
    """Return which shards a gate waits for; "" where none is missing."""
    if not missing:
        return ""
    named = ", ".join(map(str, missing[:10])) + (" …" if len(missing) > 10 else "")
    return f"waits for shard{'s' if len(missing) > 1 else ''} {named} of {of}"


def shard_of(environment: Mapping[str, Any]) -> str:
    """Return the shard that a stored run is of, "" without one."""
    said = environment.get(UPLOAD)
    return str(said.get("shard") or "") if isinstance(said, Mapping) else ""


def expected_kernels(rows: Iterable[tuple[str, int]]) -> dict[str, set[int]]:
    """Return shard → kernels that each of its processes should have; `rows`: (shard, kernel).

    Shards that hold kernels of their own are asked for those alone; shards of processes, for all that any of them has.
    """
    of: dict[str, set[int]] = defaultdict(set)
    for shard, kernel in rows:
        of[shard].add(kernel)
    every = set().union(*of.values())
    shared = [kernel for kernel in every if sum(kernel in one for one in of.values()) > 1]
    return {shard: every if 2 * len(shared) > len(every) else mine for shard, mine in of.items()}
