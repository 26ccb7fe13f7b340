"""The topic "communication" as one result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis import intervals
from profiles.analysis.communication import tables
from profiles.analysis.communication.advice import LIMITS, advice, upper
from profiles.analysis.communication.collectives import Collectives, collectives_of
from profiles.analysis.communication.meetings import Meetings, meetings_of, wait_ns_of, without_start
from profiles.analysis.communication.sizes import Rest, Size, sizes_of
from profiles.analysis.communication.stragglers import CAUSES, Late, Waits, late_ranks, waits_of
from profiles.analysis.found import Result
from profiles.analysis.frame import Frame, Ints
from profiles.analysis.intervals import EMPTY
from profiles.analysis.names import short_name
from profiles.analysis.sentences import pct_text, plural, si_text, time_text
from profiles.analysis.temporal.work import DeviceWork, devices


@dataclass(frozen=True)
class Found:
    """Everything that the tables, the advice and the sentence are made of."""

    frame: Frame
    launches: Collectives
    met: Meetings
    waits: Waits
    exposed_ns: Ints                 # per launch: while its GPU computes nothing
    work: list[DeviceWork]
    late: list[Late]
    sizes: list[Size]
    rest: Rest | None
    start_wait_ns: Ints              # per launch, of the first meeting where that is left out; else 0
    wall_ns: int


def communication_result(frame: Frame) -> Result:
    """Collectives by size and by rank, and who waits for whom."""
    launches = collectives_of(frame)
    if not launches.rows.size:
        return Result(_nothing(frame), applies=False)
    alignment = frame.metadata.get("alignment") or {}
    aligned = alignment.get("rule") != "none"
    slack_ns = (alignment.get("residual_ns") or 0.0) if aligned else None
    everyone = meetings_of(launches, aligned)
    met, start_wait_ns = without_start(launches, everyone, wait_ns_of(launches, everyone, slack_ns))
    work = devices(frame)
    waits = waits_of(launches, wait_ns_of(launches, met, slack_ns), work)
    exposed = _exposed(launches, work)
    sizes, rest = sizes_of(launches, met, waits.wait_ns, waits.still_ns, exposed)
    found = Found(frame, launches, met, waits, exposed, work, late_ranks(frame, launches, met, waits, work), sizes, rest,
                  start_wait_ns, frame.wall[1] - frame.wall[0])
    ranks = tables.rank_rows(found)
    return Result(
        _answer(found, ranks), numbers=_numbers(found, ranks),
        tables=[table for table in (tables.ranks(found, ranks), tables.waiting(found), tables.sizes(found), tables.longest(found))
                if table.rows],
        findings=advice(found, ranks))


def _exposed(found: Collectives, work: list[DeviceWork]) -> Ints:
    out = found.dur_ns.copy()
    by_index = {each.index: each for each in work}
    for participant, device in enumerate(found.devices):
        mine = np.flatnonzero(found.participant == participant)
        computing = by_index[device].whole["compute"] if device in by_index and not found.on_host else EMPTY
        out[mine] -= intervals.overlap_ns(computing, found.start_ns[mine], found.end_ns[mine])
    return out


def _nothing(frame: Frame) -> str:
    if not frame.work.size:
        return ("No GPU work in this trace, so no collectives either. Record kernels too (`ProfilerActivity.CUDA`, "
                "`nsys profile -t cuda`).")
    return ("No collectives (NCCL, RCCL, custom all-reduce) in this trace: it is of one GPU that works alone, or they ran outside "
            "of what was recorded.")


def _answer(found: Found, ranks: list[tables.RankRow]) -> str:
    launches, said = found.launches, []
    if found.late and found.met.present.size:
        said.append(_late(found, found.late[0]))
    elif len(launches.labels) > 1:
        said.append("No collective could be matched between ranks: who waits for whom is not known.")
    most = max(ranks, key=lambda each: each.busy_ns - each.start_wait_ns)
    share = pct_text(100 * (most.busy_ns - most.start_wait_ns) / max(found.wall_ns, 1))
    much = pct_text(most.hidden_pct) if most.hidden_pct >= 0.05 else "none"
    hidden = "" if launches.on_host else f", {much} of it hidden behind compute"
    start = f" (a first wait of {time_text(most.start_wait_ns)}, until all had begun, left out)" if most.start_wait_ns else ""
    verb = "takes" if most.launches == 1 else "take"
    said.append(f"{plural(most.launches, 'collective')} {verb} {share} of the wall time on {most.label}{hidden}{start}.")
    fast = max((each for each in found.sizes if each.bus_bytes_s and each.bytes), key=lambda each: each.bytes or 0, default=None)
    if fast is not None and fast.bus_bytes_s:
        more = "" if fast.transfer_ns is not None else " or more: waiting is in it"
        said.append(f"{fast.kind.operation} of {si_text(fast.bytes or 0, 'B')} runs at {si_text(fast.bus_bytes_s, 'B/s')} bus "
                    f"bandwidth{more}.")
    if len(launches.labels) == 1:
        said.append("Who waits for whom needs the other ranks' traces: upload them together as one profile.")
    return " ".join(map(upper, said))


def _late(found: Found, late: Late) -> str:
    label, share = found.launches.labels[late.participant], 100 * late.cost_ns / max(found.wall_ns, 1)
    others = [each for number, each in enumerate(found.launches.labels) if number != late.participant]
    who = others[0] if len(others) == 1 else "all others"
    if share < LIMITS["late_medium_pct"]:
        return (f"No rank holds the others up: {label} costs most and comes last in {late.meetings:,} of "
                f"{plural(found.met.present.size, 'collective')}, for which {who} stood still {time_text(late.cost_ns)} "
                f"({pct_text(share)} of the wall time).")
    return (f"{label} comes last in {late.meetings:,} of {plural(found.met.present.size, 'collective')}: {who} stood still for it "
            f"{time_text(late.cost_ns)} ({pct_text(share)} of the wall time){why(late)}.")


def why(late: Late) -> str:
    """", because it …", with the names that go with the cause; "" where none is known."""
    if not late.cause:
        return ""
    named = late.kernels if late.cause == "computing" else late.host if late.cause == "host_late" else []
    detail = ""
    if named and late.cause == "computing":
        detail = f": `{_cut(short_name(named[0][0]))}` takes {time_text(named[0][1])} more there"
    elif named:
        detail = f", {time_text(named[0][1])} of it in `{_cut(short_name(named[0][0]))}`"
    return f", mostly because {CAUSES[late.cause]}{detail}"


def _named(found: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return [(short_name(name), ns) for name, ns in found]


def _cut(name: str, chars: int = 60) -> str:
    return name if len(name) <= chars else f"{name[:chars - 21]}…{name[-20:]}"


def _numbers(found: Found, ranks: list[tables.RankRow]) -> dict[str, Any]:
    met = found.met
    alignment = found.frame.metadata.get("alignment") or {}
    return {
        "wall_ns": found.wall_ns, "start_ns": found.frame.wall[0], "launches": int(found.launches.rows.size),
        "meetings": int(met.present.size), "unmatched": int(np.count_nonzero(met.of < 0)),
        "complete": int(np.count_nonzero(met.complete)), "ranks_of_job": found.launches.world,
        "start_wait_ns": int(found.start_wait_ns.sum()), "on_host": found.launches.on_host,
        "clock": alignment.get("rule", ""), "clock_residual_ns": alignment.get("residual_ns"),
        "skew_p50_ns": float(np.median(met.skew_ns)) if met.present.size else None,
        "ranks": [each.as_json() for each in ranks],
        "late": [{"label": found.launches.labels[each.participant], "meetings": each.meetings, "waited_ns": each.waited_ns,
                  "still_ns": each.still_ns, "cost_ns": each.cost_ns, "causes_ns": each.causes, "cause": each.cause,
                  "host": _named(each.host), "kernels": _named(each.kernels),
                  "window": f"{each.worst[0]}-{each.worst[1]}"}
                 for each in found.late[:tables.MOST]],
        "pairs": tables.pair_cells(found), "series": tables.wait_series(found),
        "sizes": [{"operation": each.kind.operation, "bytes": each.bytes, "ranks": each.ranks, "launches": each.launches,
                   "bus_bytes_s": each.bus_bytes_s, "best_bus_bytes_s": each.best_bus_bytes_s,
                   "algorithm_bytes_s": each.algorithm_bytes_s, "one_ns": each.one_ns, "at_least": each.transfer_ns is None}
                  for each in found.sizes],
        "left_out": found.launches.left_out}
