"""The topic "communication" as one result."""

from __future__ import annotations

from typing import Any

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import EMPTY
from profiles.analysis.core.result import Result
from profiles.analysis.core.sentences import capital, pct_text, plural, si_text, time_text
from profiles.analysis.trace.account.account import account_of
from profiles.analysis.trace.account.words import wait_text
from profiles.analysis.trace.communication.collectives import Collectives, collectives_of
from profiles.analysis.trace.communication.facts import LIMITS, CommunicationFacts, RankRow, advice, sizes_of
from profiles.analysis.trace.communication.meetings import meetings_of, wait_ns_of, without_start
from profiles.analysis.trace.communication.stragglers import CAUSES, LateRank, late_ranks, sums_by_pair, waits_of
from profiles.analysis.trace.time.tiling import DeviceWork, devices
from profiles.ingest.arrays import Ints, stable_order
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import CellRows, SummaryTable, summary_columns, with_rows
from profiles.ingest.windows import MISSING

# Tables of the topic "communication", and the numbers of its pictures.

MOST = 200               # rows of a table and points of a picture
MOST_RANKS = 64          # in the table of who waits for whom
LONGEST = 50


def rank_rows(facts: CommunicationFacts) -> list[RankRow]:
    launches, out = facts.launches, []
    by_index = {device.index: device for device in facts.work}
    late = launches.participant[facts.met.late] if facts.met.late.size else facts.met.late
    for number, label in enumerate(launches.labels):
        mine = launches.participant == number
        met = mine & (facts.met.of >= 0)
        work = None if launches.on_host else by_index.get(launches.devices[number])
        total = int(launches.dur_ns[mine].sum())
        covered = intervals.union(launches.start_ns[mine], launches.end_ns[mine]).length_ns
        out.append(RankRow(
            label, int(np.count_nonzero(mine)), work.whole["communication"].length_ns if work else covered,
            work.exposed["communication"].length_ns if work else covered, total,
            int(facts.waits.wait_ns[met].sum()) if met.any() else None, int(facts.waits.still_ns[met].sum()) if met.any() else None,
            int(launches.dur_ns[met].sum()), int(np.count_nonzero(late == number)),
            int(facts.start_wait_ns[mine].sum())))
    return out


def rank_table(facts: CommunicationFacts, rows: list[RankRow]) -> SummaryTable:
    columns = summary_columns("Rank: text | Collectives: count | In collectives: ns | Exposed: ns | "
                              "Hidden behind compute: pct | Transfer: ns | Waiting for others: ns | Standing still: ns | "
                              "Came last: count")
    cells: CellRows = [[
        row.label, row.launches, row.busy_ns, row.exposed_ns, row.hidden_pct if not facts.launches.on_host else None,
        None if row.wait_ns is None else row.matched_ns - row.wait_ns, row.wait_ns, row.still_ns,
        row.late if facts.met.present.size else None] for row in rows[:MOST]]
    return SummaryTable("Collectives of each rank", columns, cells,
                        "Transfer and waiting add up to the kernels of the collectives that all ranks' traces have. A rank stands "
                        "still while it waits and computes nothing. Exposed: no computing kernel runs at the same time.")


def pair_cells(facts: CommunicationFacts) -> dict[str, Any]:
    """Return who (row) waited for whom (column): ns, standing still, collectives.

    The first ranks only.
    """
    if not facts.met.present.size:
        return {}
    n = min(len(facts.launches.labels), MOST_RANKS)
    waited, count = sums_by_pair(facts.launches, facts.met, facts.waits.wait_ns)
    still, _ = sums_by_pair(facts.launches, facts.met, facts.waits.still_ns)
    return {"labels": facts.launches.labels[:n], "wait_ns": waited[:n, :n].tolist(), "still_ns": still[:n, :n].tolist(),
            "collectives": count[:n, :n].tolist()}


def pair_table(facts: CommunicationFacts) -> SummaryTable:
    columns = summary_columns("Waiting: text | For: text | Collectives: count | Waited: ns | Standing still: ns | "
                              "Share of wall time: pct | Mostly because: text | In it: text")
    rows: CellRows = []
    labels, late = facts.launches.labels, {rank.participant: rank for rank in facts.late}
    if facts.met.present.size:
        waited, count = sums_by_pair(facts.launches, facts.met, facts.waits.wait_ns)
        still, _ = sums_by_pair(facts.launches, facts.met, facts.waits.still_ns)
        for key in np.argsort(-still, axis=None, kind="stable")[:MOST].tolist():
            a, b = divmod(key, len(labels))
            if count[a, b]:
                late_rank = late[b]
                named = late_rank.kernels if late_rank.cause == "computing" else late_rank.host
                rows.append([labels[a], labels[b], int(count[a, b]), int(waited[a, b]), int(still[a, b]),
                             100 * int(still[a, b]) / max(facts.wall_ns, 1), CAUSES.get(late_rank.cause),
                             ", ".join(short_name(name) for name, _ in named) or None])
    note = ("The rank whose kernel is the shortest came last; what another's kernel is longer, that one waited. What the late rank "
            "did between the first rank's arrival and its own is named with most of its time; what it did more than the other "
            "since the two last met, and so why it was late, is under Causes.")
    if facts.start_wait_ns.any():
        note += " The first collective is left out: its waits tell when the recordings began."
    return SummaryTable("Who waits for whom", columns, rows, note)


def size_table(facts: CommunicationFacts) -> SummaryTable:
    columns = summary_columns("Collective: text | Message: bytes | Type: text | Ranks | Group: text | Launches: count | "
                              "Total: ns | One takes: ns | Measured as: text | Algorithm bandwidth: B/s | Bus bandwidth: B/s | "
                              "Best bus bandwidth: B/s | Waiting: ns | Standing still: ns | Exposed: pct | Longest: slice")
    ids = facts.frame["id"][facts.launches.rows]
    rows: CellRows = [[
        size.kind.operation, size.bytes, size.kind.dtype or None, size.ranks, size.kind.group or None, size.launches, size.total_ns,
        size.one_ns, "transfer" if size.transfer_ns is not None else "whole kernel, waiting included", size.algorithm_bytes_s,
        size.bus_bytes_s, size.best_bus_bytes_s, size.waiting_ns, size.still_ns,
        None if facts.launches.on_host else 100 * size.exposed_ns / max(size.total_ns, 1), int(ids[size.longest])]
        for size in facts.sizes]
    if facts.rest is not None:
        rows.append([f"{facts.rest.sizes:,} further sizes", None, None, None, None, facts.rest.launches, facts.rest.total_ns,
                     *[None] * 7, 100 * facts.rest.exposed_ns / max(facts.rest.total_ns, 1), None])
    return SummaryTable(
        "Collectives by size", columns, rows,
        "Bandwidths as nccl-tests has them: message / time, and for the bus times 2(n-1)/n of an all-reduce, (n-1)/n of an "
        "all-gather, reduce-scatter or all-to-all, 1 of the others. Where not every rank is in the trace the time is of the whole "
        "kernel, which also waits: the bandwidth is at least that.")


def longest_table(facts: CommunicationFacts) -> SummaryTable:
    columns = summary_columns("Began: ns | Collective: text | Message: bytes | Last: text | Others waited: ns | Transfer: ns | "
                              "Start skew: ns | Timeline: window")
    launches, met = facts.launches, facts.met
    waited = np.bincount(met.of[met.of >= 0], weights=facts.waits.wait_ns[met.of >= 0], minlength=met.present.size)
    rows: CellRows = []
    for meeting in stable_order(-waited)[:LONGEST].tolist():
        late = int(met.late[meeting])
        begin = int(met.first_ns[meeting])
        size = int(launches.bytes[late])
        rows.append([begin, launches.kinds[int(launches.kind[late])].operation, size if size != MISSING else None,
                     launches.labels[int(launches.participant[late])], int(waited[meeting]), int(met.transfer_ns[meeting]),
                     int(met.skew_ns[meeting]), f"{begin}-{int(launches.end_ns[late])}"])
    return SummaryTable("Longest waits", columns, rows, "Start skew is by the ranks' clocks, the waits by the kernels' lengths.")


def wait_series(facts: CommunicationFacts) -> list[dict[str, Any]]:
    """Return, for evenly chosen meetings, when they were and who waited how long for whom.

    At most MOST stretches.
    """
    met = facts.met
    if not met.present.size:
        return []
    waited = np.bincount(met.of[met.of >= 0], weights=facts.waits.wait_ns[met.of >= 0], minlength=met.present.size)
    late = facts.launches.participant[met.late]
    out = []
    for part in np.array_split(np.arange(met.present.size), min(MOST, met.present.size)):
        worst = int(part[np.argmax(waited[part])])
        out.append({"start_ns": int(met.first_ns[worst]), "wait_ns": int(waited[part].sum()), "collectives": int(part.size),
                    "late": facts.launches.labels[int(late[worst])], "transfer_ns": int(met.transfer_ns[part].sum())})
    return out


EXPLAINED = 0.5             # of what a rank costs the others: a cause of the account with less is not why


def communication_result(frame: Frame) -> Result:
    """Collectives by size and by rank, and who waits for whom."""
    launches = collectives_of(frame)
    if not launches.rows.size:
        return Result(_no_collectives_text(frame), applies=False)
    alignment = frame.metadata.get("alignment") or {}
    aligned = alignment.get("rule") != "none"
    slack_ns = (alignment.get("residual_ns") or 0.0) if aligned else None
    everyone = meetings_of(launches, aligned)
    met, start_wait_ns = without_start(frame, launches, everyone, wait_ns_of(launches, everyone, slack_ns), aligned)
    work = devices(frame)
    waits = waits_of(launches, wait_ns_of(launches, met, slack_ns), work)
    exposed = _exposed_ns(launches, work)
    sizes, rest = sizes_of(launches, met, waits.wait_ns, waits.still_ns, exposed)
    facts = CommunicationFacts(frame, launches, met, waits, exposed, work, late_ranks(frame, launches, met, waits, work), sizes,
                               rest,
                  start_wait_ns, frame.wall[1] - frame.wall[0])
    ranks = rank_rows(facts)
    return Result(
        _answer(facts, ranks), numbers=_numbers(facts, ranks),
        tables=with_rows((rank_table(facts, ranks), pair_table(facts), size_table(facts), longest_table(facts))),
        findings=advice(facts, ranks))


def _exposed_ns(launches: Collectives, work: list[DeviceWork]) -> Ints:
    out = launches.dur_ns.copy()
    by_index = {device_work.index: device_work for device_work in work}
    for participant, device in enumerate(launches.devices):
        mine = np.flatnonzero(launches.participant == participant)
        computing = by_index[device].whole["compute"] if device in by_index and not launches.on_host else EMPTY
        out[mine] -= intervals.overlap_ns(computing, launches.start_ns[mine], launches.end_ns[mine])
    return out


def _no_collectives_text(frame: Frame) -> str:
    if not frame.work.size:
        return ("No GPU work in this trace, so no collectives either. Record kernels too (`ProfilerActivity.CUDA`, "
                "`nsys profile -t cuda`).")
    return ("No collectives (NCCL, RCCL, custom all-reduce) in this trace: it is of one GPU that works alone, or they ran outside "
            "of what was recorded.")


def _answer(facts: CommunicationFacts, ranks: list[RankRow]) -> str:
    launches, sentences = facts.launches, []
    if facts.late and facts.met.present.size:
        sentences.append(_late_text(facts, facts.late[0]))
    elif len(launches.labels) > 1:
        sentences.append("No collective could be matched between ranks: who waits for whom is not known.")
    most = max(ranks, key=lambda each: each.busy_ns - each.start_wait_ns)
    share = pct_text(100 * (most.busy_ns - most.start_wait_ns) / max(facts.wall_ns, 1))
    much = pct_text(most.hidden_pct) if most.hidden_pct >= 0.05 else "none"
    hidden = "" if launches.on_host else f", {much} of it hidden behind compute"
    start = f" (a first wait of {time_text(most.start_wait_ns)}, until all had begun, left out)" if most.start_wait_ns else ""
    verb = "takes" if most.launches == 1 else "take"
    sentences.append(f"{plural(most.launches, 'collective')} {verb} {share} of the wall time on {most.label}{hidden}{start}.")
    fast = max((size for size in facts.sizes if size.bus_bytes_s and size.bytes), key=lambda each: each.bytes or 0, default=None)
    if fast is not None and fast.bus_bytes_s:
        more = "" if fast.transfer_ns is not None else " or more: waiting is in it"
        sentences.append(f"{fast.kind.operation} of {si_text(fast.bytes or 0, 'B')} runs at {si_text(fast.bus_bytes_s, 'B/s')} bus "
                         f"bandwidth{more}.")
    if len(launches.labels) == 1:
        sentences.append("Who waits for whom needs the other ranks' traces: upload them together as one profile.")
    return " ".join(map(capital, sentences))


def _late_text(facts: CommunicationFacts, late: LateRank) -> str:
    label, share = facts.launches.labels[late.participant], 100 * late.cost_ns / max(facts.wall_ns, 1)
    others = [name for number, name in enumerate(facts.launches.labels) if number != late.participant]
    who = others[0] if len(others) == 1 else "all others"
    if share < LIMITS["late_medium_pct"]:
        return (f"No rank holds the others up: {label} costs most and comes last in {late.meetings:,} of "
                f"{plural(facts.met.present.size, 'collective')}, for which {who} stood still {time_text(late.cost_ns)} "
                f"({pct_text(share)} of the wall time).")
    return (f"{label} comes last in {late.meetings:,} of {plural(facts.met.present.size, 'collective')}: {who} stood still for it "
            f"{time_text(late.cost_ns)} ({pct_text(share)} of the wall time){why(facts, late)}.")


def why(facts: CommunicationFacts, late: LateRank) -> str:
    """", 39.2 ms of it for data loading (`dataloader`)", as the account has it.

    Where that knows a cause of less than EXPLAINED: ", mostly because it …", what the late rank did in the meantime; else "".
    """
    waited = wait_text(account_of(facts.frame), facts.launches.devices[late.participant], EXPLAINED * late.cost_ns)
    if waited or not late.cause:
        return f", {waited}" if waited else ""
    named = late.kernels if late.cause == "computing" else late.host if late.cause == "host_late" else []
    detail = ""
    if named and late.cause == "computing":
        detail = f": `{_shorten(short_name(named[0][0]))}` takes {time_text(named[0][1])} more there"
    elif named:
        detail = f", most of it in `{_shorten(short_name(named[0][0]))}`"
    return f", mostly because {CAUSES[late.cause]}{detail}"


def _with_short_names(times: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return [(short_name(name), ns) for name, ns in times]


def _shorten(name: str, chars: int = 60) -> str:
    return name if len(name) <= chars else f"{name[:chars - 21]}…{name[-20:]}"


def _numbers(facts: CommunicationFacts, ranks: list[RankRow]) -> dict[str, Any]:
    met = facts.met
    alignment = facts.frame.metadata.get("alignment") or {}
    return {
        "wall_ns": facts.wall_ns, "start_ns": facts.frame.wall[0], "launches": int(facts.launches.rows.size),
        "meetings": int(met.present.size), "unmatched": int(np.count_nonzero(met.of < 0)),
        "complete": int(np.count_nonzero(met.complete)), "ranks_of_job": facts.launches.world,
        "start_wait_ns": int(facts.start_wait_ns.sum()), "on_host": facts.launches.on_host,
        "clock": alignment.get("rule", ""), "clock_residual_ns": alignment.get("residual_ns"),
        "skew_p50_ns": float(np.median(met.skew_ns)) if met.present.size else None,
        "ranks": [rank.as_json() for rank in ranks],
        "late": [{"label": facts.launches.labels[each.participant], "meetings": each.meetings, "waited_ns": each.waited_ns,
                  "still_ns": each.still_ns, "cost_ns": each.cost_ns, "causes_ns": each.causes, "cause": each.cause,
                  "host": _with_short_names(each.host), "kernels": _with_short_names(each.kernels),
                  "window": f"{each.worst[0]}-{each.worst[1]}"}
                 for each in facts.late[:MOST]],
        "pairs": pair_cells(facts), "series": wait_series(facts),
        "sizes": [{"operation": size.kind.operation, "bytes": size.bytes, "ranks": size.ranks, "launches": size.launches,
                   "bus_bytes_s": size.bus_bytes_s, "best_bus_bytes_s": size.best_bus_bytes_s,
                   "algorithm_bytes_s": size.algorithm_bytes_s, "one_ns": size.one_ns, "at_least": size.transfer_ns is None}
                  for size in facts.sizes],
        "left_out": facts.launches.left_out}
