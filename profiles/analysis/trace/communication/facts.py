"""What the topic "communication" knows, and what it advises. Thresholds stand here as data and on the page."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.result import Finding
from profiles.analysis.core.sentences import capital, pct_of, pct_text, plural, si_text, time_text
from profiles.analysis.trace.communication.collectives import Collectives, Kind, bus_factor
from profiles.analysis.trace.communication.meetings import Meetings
from profiles.analysis.trace.communication.stragglers import CAUSES, LateRank, Waits
from profiles.analysis.trace.time.tiling import DeviceWork
from profiles.ingest.arrays import Ints, stable_order
from profiles.ingest.naming.names import short_name
from profiles.ingest.windows import MISSING

# Collectives of one operation, type and size together: time of one, algorithm and bus bandwidth.

MOST = 200               # rows; the others are one row together


@dataclass(frozen=True)
class Size:
    """One row. Times are of kernels on all ranks together unless they say otherwise."""

    kind: Kind
    ranks: int | None                # of the group, as stated; else of the job
    bytes: int | None
    launches: int
    total_ns: int
    transfer_ns: float | None        # median of the meetings in which every rank is known: the last rank's kernel
    one_ns: float                    # that, else the median kernel, which also waits
    algorithm_bytes_s: float | None  # bytes / one_ns
    bus_bytes_s: float | None
    best_bus_bytes_s: float | None   # of the fastest one
    waiting_ns: int | None           # None: it met nobody
    still_ns: int | None             # of it while the GPU computed nothing
    exposed_ns: int                  # of total_ns, while no kernel computed
    longest: int                     # launch


@dataclass(frozen=True)
class Rest:
    """All rows beyond MOST together."""

    sizes: int
    launches: int
    total_ns: int
    exposed_ns: int


def sizes_of(launches: Collectives, met: Meetings, wait_ns: Ints, still_ns: Ints, exposed_ns: Ints) -> tuple[list[Size],
                                                                                                             Rest | None]:
    """Every distinct (kind, bytes), longest in total first. The three last are per launch."""
    if not launches.rows.size:
        return [], None
    pairs, group = np.unique(np.stack([launches.kind, launches.bytes]), axis=1, return_inverse=True)
    group = group.reshape(-1)
    order = stable_order(group)
    bounds = np.concatenate(([0], np.cumsum(np.bincount(group, minlength=pairs.shape[1]))))
    total, exposed = (np.bincount(group, weights=times_ns) for times_ns in (launches.dur_ns, exposed_ns))
    by_total = stable_order(-total)
    sizes = [_size(launches, met, launches.kinds[int(pairs[0, each])], int(pairs[1, each]), order[bounds[each]:bounds[each + 1]],
                   wait_ns,
                   still_ns, exposed_ns) for each in by_total[:MOST].tolist()]
    left = by_total[MOST:]
    rest = Rest(int(left.size), int(np.diff(bounds)[left].sum()), round(total[left].sum()), round(exposed[left].sum()))
    return sizes, rest if left.size else None


def _size(launches: Collectives, met: Meetings, kind: Kind, size: int, mine: Ints, wait_ns: Ints, still_ns: Ints,
          exposed_ns: Ints) -> Size:
    dur = launches.dur_ns[mine]
    matched = mine[met.of[mine] >= 0]
    meetings = np.unique(met.of[matched])
    transfers = met.transfer_ns[meetings[met.complete[meetings]]]
    one = float(np.median(transfers)) if transfers.size else float(np.median(dur))
    fastest = int(transfers.min()) if transfers.size else int(dur.min())
    ranks = kind.ranks or launches.world or (len(launches.labels) if len(launches.labels) > 1 else None)
    factor = bus_factor(kind.operation, ranks)
    known = size != MISSING and size > 0
    speed = size / one * 1e9 if known and one > 0 else None
    return Size(
        kind, ranks, size if known else None, int(mine.size), int(dur.sum()), one if transfers.size else None, one, speed,
        speed * factor if speed and factor else None, size / fastest * 1e9 * factor if known and fastest and factor else None,
        int(wait_ns[matched].sum()) if matched.size else None, int(still_ns[matched].sum()) if matched.size else None,
        int(exposed_ns[mine].sum()), int(mine[np.argmax(dur)]))


@dataclass(frozen=True)
class CommunicationFacts:
    """Everything that the tables, the advice and the sentence are made of."""

    frame: Frame
    launches: Collectives
    met: Meetings
    waits: Waits
    exposed_ns: Ints                 # per launch: while its GPU computes nothing
    work: list[DeviceWork]
    late: list[LateRank]
    sizes: list[Size]
    rest: Rest | None
    start_wait_ns: Ints              # per launch, of the first meeting where that is left out; else 0
    wall_ns: int


@dataclass(frozen=True)
class RankRow:
    label: str
    launches: int
    busy_ns: int                 # covered by collectives
    exposed_ns: int              # of it while nothing else ran
    kernel_ns: int               # summed durations: more than busy where streams overlap
    wait_ns: int | None          # of kernel_ns; None: met nobody
    still_ns: int | None         # of wait_ns, while the GPU computed nothing
    matched_ns: int              # kernel_ns of the launches that met others: transfer is this without waiting
    late: int                    # meetings in which it came last
    start_wait_ns: int           # in busy and kernel time, of the first meeting where that is left out of the waits

    @property
    def hidden_pct(self) -> float:
        """Holistic Trace Analysis' communication/computation overlap."""
        return pct_of(self.busy_ns - self.exposed_ns, self.busy_ns)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"hidden_pct": self.hidden_pct}


LIMITS = {
    "late_medium_pct": 2.0,          # of wall time that all others stand still for one rank
    "late_high_pct": 10.0,
    "late_times_fair": 1.2,          # … while it comes last this many times more often than by chance (collectives / ranks)
    "exposed_medium_pct": 5.0,       # of wall time in exposed transfers
    "exposed_high_pct": 25.0,
    "small_bytes": 256 << 10,        # messages below are bound by latency (nccl-tests: bandwidth grows with size up to some MiB)
    "small_count": 50,
    "small_pct": 1.0,                # of wall time on one rank
}
_FIXES = {
    "computing": "Give all ranks the same work: balance what each rank gets (sequence lengths, experts, pipeline stages, batch). "
                 "Where the same kernel is slower there, look at that GPU's clocks and at who else uses it.",
    "behind": "It does the same work as the others and began later: look at the timeline before its first collective of a step for "
              "what held it up (data, host, a transfer).",
    "copying": "Its copies stand in the way: pin the memory, copy on another stream, before the step needs it.",
    "communicating": "It was in a collective of another group: order the groups alike on all ranks, or give them streams of "
                     "their own.",
    "host_late": "Its host launches too late: load data ahead (`num_workers`, `prefetch_factor`, `pin_memory`), keep `.item()`, "
                 "prints and checkpoints off the step, check that the process has CPU cores of its own (`numactl`, affinity).",
    "queued": "The launch was in time and waited in its stream: look at what it depends on (event waits, another stream).",
    "unknown": "The trace has no launch call for it: record CPU activity as well to see what the host did.",
    "": "Its window is too short to say why.",
}


def advice(facts: CommunicationFacts, ranks: list[RankRow]) -> list[Finding]:
    return [*_find_late_ranks(facts), *_find_exposed(facts, ranks), *_find_small(facts)]


def _find_late_ranks(facts: CommunicationFacts) -> list[Finding]:
    out = []
    for late in facts.late:
        share = 100 * late.cost_ns / max(facts.wall_ns, 1)
        fair = facts.met.present.size / len(facts.launches.labels)
        if share < LIMITS["late_medium_pct"] or late.meetings < LIMITS["late_times_fair"] * fair:
            continue
        label = facts.launches.labels[late.participant]
        named = late.kernels if late.cause == "computing" else late.host if late.cause == "host_late" else []
        what = " (`" + "`, `".join(short_name(name) for name, _ in named) + "`)" if named else ""
        severity = "high" if share >= LIMITS["late_high_pct"] else "medium"
        verb = "is late:" if late.cause == "behind" else "keeps"
        out.append(Finding(
            "straggler", "info" if late.cause == "behind" else severity,
            f"{capital(label)} {verb} the other ranks {'wait' if late.cause == 'behind' else 'waiting'} {time_text(late.cost_ns)} "
            f"({pct_text(share)} of the wall time), last in {late.meetings:,} of {plural(facts.met.present.size, 'collective')}",
            (f"Mostly because {CAUSES[late.cause]}{what}. " if late.cause else "") + _FIXES[late.cause],
            {"rank": label, "meetings": late.meetings, "of_meetings": int(facts.met.present.size), "waited_ns": late.waited_ns,
             "still_ns": late.still_ns, "cost_ns": late.cost_ns, "share_pct": share, "cause": late.cause, "causes_ns": late.causes,
             "host": [(short_name(name), ns) for name, ns in late.host],
             "kernels": [(short_name(name), ns) for name, ns in late.kernels]},
            worth_ns=float(late.cost_ns), kernel=late.kernels[0][0] if late.cause == "computing" and late.kernels else None))
    return out


def _find_exposed(facts: CommunicationFacts, ranks: list[RankRow]) -> list[Finding]:
    """Exposed communication that is no waiting: what overlap or faster transfers could win."""
    if facts.launches.on_host:
        return []
    of = max(ranks, key=_exposed_transfer_ns)
    left = _exposed_transfer_ns(of)
    share = 100 * left / max(facts.wall_ns, 1)
    if share < LIMITS["exposed_medium_pct"]:
        return []
    waits = "waiting for other ranks aside" if of.still_ns is not None else "waiting for other ranks may be part of it"
    return [Finding(
        "exposed_communication", "high" if share >= LIMITS["exposed_high_pct"] else "medium",
        f"{capital(of.label)} does nothing but communicate for {time_text(left)} ({pct_text(share)} of the wall time), {waits}",
        "Start transfers earlier and behind compute: smaller DDP buckets (`bucket_cap_mb`), FSDP's backward prefetch, "
        "`async_op=True` with `wait()` where the result is needed; or send less (gradient accumulation with `no_sync()`, BF16).",
        {"rank": of.label, "exposed_ns": of.exposed_ns, "still_ns": of.still_ns, "hidden_pct": of.hidden_pct, "share_pct": share},
        worth_ns=float(left))]


def _exposed_transfer_ns(rank: RankRow) -> int:
    """Exposed without waiting."""
    return max(rank.exposed_ns - rank.start_wait_ns - (rank.still_ns or 0), 0)


def _find_small(facts: CommunicationFacts) -> list[Finding]:
    launches = facts.launches
    small = (launches.bytes > 0) & (launches.bytes < LIMITS["small_bytes"])
    if not small.any():
        return []
    count = np.bincount(launches.participant[small], minlength=len(launches.labels))
    spent = np.bincount(launches.participant[small], weights=facts.exposed_ns[small] - facts.waits.still_ns[small],
                        minlength=len(launches.labels))
    most = int(np.argmax(spent))
    share = 100 * float(spent[most]) / max(facts.wall_ns, 1)
    if count[most] < LIMITS["small_count"] or share < LIMITS["small_pct"]:
        return []
    return [Finding(
        "small_collectives", "medium",
        f"{int(count[most]):,} collectives below {si_text(LIMITS['small_bytes'], 'B')} on {launches.labels[most]} take "
        f"{time_text(spent[most])} exposed: their time is latency",
        "Send them together: one flat tensor, DDP's buckets, `torch.distributed._coalescing_manager`; metrics once per some steps.",
        {"rank": launches.labels[most], "collectives": int(count[most]), "exposed_ns": float(spent[most]), "share_pct": share,
         "bytes": int(launches.bytes[small & (launches.participant == most)].sum())}, worth_ns=float(spent[most]))]
