"""Tables of the topic "communication", and the numbers of its pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.trace.communication.facts import CommunicationFacts, RankRow
from profiles.analysis.trace.communication.stragglers import CAUSES, sums_by_pair
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import Cell, SummaryColumn, SummaryTable
from profiles.ingest.windows import MISSING

MOST = 200               # rows of a table and points of a picture
MOST_RANKS = 64          # in the table of who waits for whom
LONGEST = 50


def rank_rows(facts: CommunicationFacts) -> list[RankRow]:
    launches, out = facts.launches, []
    by_index = {each.index: each for each in facts.work}
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
    columns = [SummaryColumn("Rank", text=True), SummaryColumn("Collectives", "count"), SummaryColumn("In collectives", "ns"),
               SummaryColumn("Exposed", "ns"), SummaryColumn("Hidden behind compute", "pct"), SummaryColumn("Transfer", "ns"),
               SummaryColumn("Waiting for others", "ns"), SummaryColumn("Standing still", "ns"),
               SummaryColumn("Came last", "count")]
    cells: list[list[Cell]] = [[
        each.label, each.launches, each.busy_ns, each.exposed_ns, each.hidden_pct if not facts.launches.on_host else None,
        None if each.wait_ns is None else each.matched_ns - each.wait_ns, each.wait_ns, each.still_ns,
        each.late if facts.met.present.size else None] for each in rows[:MOST]]
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
    columns = [SummaryColumn("Waiting", text=True), SummaryColumn("For", text=True), SummaryColumn("Collectives", "count"),
               SummaryColumn("Waited", "ns"), SummaryColumn("Standing still", "ns"), SummaryColumn("Share of wall time", "pct"),
               SummaryColumn("Mostly because", text=True), SummaryColumn("In it", text=True)]
    rows: list[list[Cell]] = []
    labels, late = facts.launches.labels, {each.participant: each for each in facts.late}
    if facts.met.present.size:
        waited, count = sums_by_pair(facts.launches, facts.met, facts.waits.wait_ns)
        still, _ = sums_by_pair(facts.launches, facts.met, facts.waits.still_ns)
        for key in np.argsort(-still, axis=None, kind="stable")[:MOST].tolist():
            a, b = divmod(key, len(labels))
            if count[a, b]:
                one = late[b]
                named = one.kernels if one.cause == "computing" else one.host
                rows.append([labels[a], labels[b], int(count[a, b]), int(waited[a, b]), int(still[a, b]),
                             100 * int(still[a, b]) / max(facts.wall_ns, 1), CAUSES.get(one.cause),
                             ", ".join(short_name(name) for name, _ in named) or None])
    note = ("The rank whose kernel is the shortest came last; what another's kernel is longer, that one waited. What the late rank "
            "did between the first rank's arrival and its own is named with most of its time; what it did more than the other "
            "since the two last met, and so why it was late, is under Causes.")
    if facts.start_wait_ns.any():
        note += " The first collective is left out: its waits tell when the recordings began."
    return SummaryTable("Who waits for whom", columns, rows, note)


def size_table(facts: CommunicationFacts) -> SummaryTable:
    columns = [SummaryColumn("Collective", text=True), SummaryColumn("Message", "bytes"), SummaryColumn("Type", text=True),
               SummaryColumn("Ranks"), SummaryColumn("Group", text=True), SummaryColumn("Launches", "count"),
               SummaryColumn("Total", "ns"), SummaryColumn("One takes", "ns"), SummaryColumn("Measured as", text=True),
               SummaryColumn("Algorithm bandwidth", "B/s"), SummaryColumn("Bus bandwidth", "B/s"),
               SummaryColumn("Best bus bandwidth", "B/s"), SummaryColumn("Waiting", "ns"), SummaryColumn("Standing still", "ns"),
               SummaryColumn("Exposed", "pct"), SummaryColumn("Longest", "slice")]
    ids = facts.frame["id"][facts.launches.rows]
    rows: list[list[Cell]] = [[
        each.kind.operation, each.bytes, each.kind.dtype or None, each.ranks, each.kind.group or None, each.launches, each.total_ns,
        each.one_ns, "transfer" if each.transfer_ns is not None else "whole kernel, waiting included", each.algorithm_bytes_s,
        each.bus_bytes_s, each.best_bus_bytes_s, each.waiting_ns, each.still_ns,
        None if facts.launches.on_host else 100 * each.exposed_ns / max(each.total_ns, 1), int(ids[each.longest])]
        for each in facts.sizes]
    if facts.rest is not None:
        rows.append([f"{facts.rest.sizes:,} further sizes", None, None, None, None, facts.rest.launches, facts.rest.total_ns,
                     *[None] * 7, 100 * facts.rest.exposed_ns / max(facts.rest.total_ns, 1), None])
    return SummaryTable(
        "Collectives by size", columns, rows,
        "Bandwidths as nccl-tests has them: message / time, and for the bus times 2(n-1)/n of an all-reduce, (n-1)/n of an "
        "all-gather, reduce-scatter or all-to-all, 1 of the others. Where not every rank is in the trace the time is of the whole "
        "kernel, which also waits: the bandwidth is at least that.")


def longest_table(facts: CommunicationFacts) -> SummaryTable:
    columns = [SummaryColumn("Began", "ns"), SummaryColumn("Collective", text=True), SummaryColumn("Message", "bytes"),
               SummaryColumn("Last", text=True), SummaryColumn("Others waited", "ns"), SummaryColumn("Transfer", "ns"),
               SummaryColumn("Start skew", "ns"), SummaryColumn("Timeline", "window")]
    launches, met = facts.launches, facts.met
    waited = np.bincount(met.of[met.of >= 0], weights=facts.waits.wait_ns[met.of >= 0], minlength=met.present.size)
    rows: list[list[Cell]] = []
    for each in np.argsort(-waited, kind="stable")[:LONGEST].tolist():
        late = int(met.late[each])
        begin = int(met.first_ns[each])
        size = int(launches.bytes[late])
        rows.append([begin, launches.kinds[int(launches.kind[late])].operation, size if size != MISSING else None,
                     launches.labels[int(launches.participant[late])], int(waited[each]), int(met.transfer_ns[each]),
                     int(met.skew_ns[each]), f"{begin}-{int(launches.end_ns[late])}"])
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
