"""Why ranks wait in collectives: followed to the rank that came last, and to what made it come last.

Two ranks leave one collective together and meet again in the next. What the late one did in between, less what the waiting one
did in the same stretch, is why it came later: the differences by cause add up to how much later it came. They are summed over
all meetings of the two, so that what varies from step to step cancels, and the wait belongs to the causes with more time in
proportion. More time in kernels is told apart (`pace`): the same launches for longer (a slower GPU), or more and other launches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.account.causes import CAUSES
from profiles.analysis.trace.account.gpu import GpuTime, Names
from profiles.analysis.trace.communication.collectives import Collectives, collectives_of
from profiles.analysis.trace.communication.meetings import Meetings, meetings_of, wait_ns_of, without_start
from profiles.analysis.trace.time.tiling import DeviceWork
from profiles.ingest.arrays import Ints, stable_order
from profiles.ingest.trace import Category

# How fast one GPU runs beside another: the same kernels on both, launch by launch, with an interval over the steps.
#
# The n-th launch of a kernel and grid on one is compared with the n-th on the other. What some kernels take longer and others
# shorter cancels: only the net difference says something of a GPU. It varies from step to step (clocks, neighbours, which kernels
# share the GPU), so it counts only where its interval over the steps (Student's t, 95 %) lies above zero.

FEWEST_STEPS, MOST_STEPS = 3, 30
MOST_NAMES = 20
# Student's t at 97.5 % for 2, 3, … degrees of freedom (NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2)
_T = (4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
      2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045)


@dataclass(frozen=True)
class Pace:
    """What one GPU took longer than another over a whole trace, ns; negative: shorter."""

    slower_ns: int                  # for launches that both made, net
    low_ns: int                     # interval of `slower_ns` over the steps
    high_ns: int
    shared_ns: int                  # what these launches took on the other GPU
    steps: int
    extra_ns: int                   # for launches that only one made, net
    slower: Names                   # kernels that took longer, the most first
    extra: Names

    @property
    def is_slower(self) -> bool:
        return self.low_ns > 0


def pace_of(frame: Frame, other: DeviceWork, own: DeviceWork, steps: int) -> Pace | None:
    """Compare `own` GPU with `other`; None where either ran no kernel. `steps` of one rank; fewer than FEWEST_STEPS say nothing
    of what varies, so that nothing is called slower then."""
    mine, theirs = _launches(frame, own), _launches(frame, other)
    if not mine or not theirs:
        return None
    steps = min(steps, MOST_STEPS)
    by_step = np.zeros(max(steps, 1))
    slower: list[tuple[int, int]] = []
    extra: list[tuple[int, int]] = []
    shared_ns = 0
    for key in mine.keys() | theirs.keys():
        a, b = mine.get(key, _NONE), theirs.get(key, _NONE)
        both = min(a.size, b.size)
        more = a[:both] - b[:both]
        by_step += np.bincount(np.arange(both) * by_step.size // max(both, 1), more, by_step.size)
        shared_ns += int(b[:both].sum())
        slower.append((key[0], int(more.sum())))
        extra.append((key[0], int(a[both:].sum() - b[both:].sum())))
    net, half = float(by_step.sum()), float("inf")
    if steps >= FEWEST_STEPS:
        half = float(np.sqrt(steps) * _T[steps - FEWEST_STEPS] * by_step.std(ddof=1))
    low, high = (round(float(np.clip(bound, -2.0**62, 2.0**62))) for bound in (net - half, net + half))
    return Pace(round(net), low, high, shared_ns, steps, sum(ns for _, ns in extra), _named(frame, slower), _named(frame, extra))


Key = tuple[int, int, int, int]             # name and grid: the same kernel with another grid is other work
_NONE = np.empty(0, np.int64)


def _launches(frame: Frame, work: DeviceWork) -> dict[Key, Ints]:
    """Durations of each kernel and grid, in order of start."""
    rows = work.rows[frame["category"][work.rows] == Category.COMPUTE]
    if not rows.size:
        return {}
    table = np.stack([frame["name"][rows], *(frame[f"grid_{axis}"][rows] for axis in "xyz")], axis=1).astype(np.int64)
    kinds, place, counts = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    order = stable_order(place.reshape(-1))
    parts = np.split(frame["dur_ns"][rows][order].astype(np.int64), np.cumsum(counts)[:-1])
    keys: list[Key] = [tuple(kind) for kind in kinds.tolist()]
    return dict(zip(keys, parts, strict=True))


def _named(frame: Frame, more: list[tuple[int, int]]) -> Names:
    """By name what is positive, the most first."""
    total: dict[int, int] = {}
    for code, ns in more:
        total[code] = total.get(code, 0) + ns
    named = [(frame.names[code] if code >= 0 else "", ns) for code, ns in total.items() if ns > 0]
    return sorted(named, key=lambda pair: (-pair[1], pair[0]))[:MOST_NAMES]


KERNEL_CAUSES = ("compute", "no_tensor_cores", "memory_traffic", "unknown_kernels", "small_kernels", "serial_streams")
_NOT = ("communication", "outside", "launch_latency")
MOST_PAIRS = 256                    # of GPUs, those that wait the most: what others wait stays communication
LEAST_NS = 20_000                   # of one wait: less is the way of the data (the slack of `critical.links`)


@dataclass(frozen=True)
class RankWait:
    """Exposed time of a GPU in collectives that waited for another: by cause of the late one."""

    waiting: int                    # GPU
    late: int                       # GPU that came last
    operation: str                  # of the collective with the most of it: "all-reduce"
    causes: dict[str, int]          # ns, the sum is the exposed wait at most: what no cause explains is communication
    meetings: int
    kernels: dict[str, Names]       # of "slow_gpu" and "more_work": which kernels of the late one, by what they took more
    pace: Pace | None = None        # how fast the late one's GPU is beside the waiting one's


def rank_waits(frame: Frame, times: list[GpuTime], steps: int) -> list[RankWait]:
    """Return every pair of GPUs of which one waited for the other, the most time first. `steps` of one rank, 0: unknown."""
    alignment = frame.metadata.get("alignment") or {}
    aligned = alignment.get("rule") != "none"
    launches = collectives_of(frame)
    if launches.on_host or len(launches.labels) < 2:
        return []
    slack_ns = (alignment.get("residual_ns") or 0.0) if aligned else None
    everyone = meetings_of(launches, aligned)
    met, start_ns = without_start(frame, launches, everyone, wait_ns_of(launches, everyone, slack_ns), aligned)
    wait_ns = wait_ns_of(launches, met, slack_ns)
    by_index = {time.work.index: time for time in times}
    pairs = _pairs(launches, met, wait_ns)
    out = _start(launches, everyone, start_ns, by_index)
    for (waiting, late), mine in pairs.items():
        here, there = (by_index.get(launches.devices[participant]) for participant in (waiting, late))
        if here is None or there is None or here is there:
            continue
        exposed = _exposed_ns(here, launches, mine, wait_ns)
        if not exposed:
            continue
        more = _differences(launches, met, mine, waiting, late, here, there)
        pace = pace_of(frame, here.work, there.work, steps)
        apart, kernels = _kernels_apart(pace, more)
        causes = _in_proportion(exposed, apart)
        kinds = [launches.kinds[kind].operation for kind in launches.kind[mine].tolist()]
        most = max(dict.fromkeys(kinds), key=lambda kind: sum(int(wait_ns[i]) for i, name in zip(mine, kinds, strict=True)
                                                              if name == kind))
        out.append(RankWait(here.work.index, there.work.index, most, causes, int(mine.size), kernels, pace))
    return sorted(out, key=lambda each: (-sum(each.causes.values()), each.waiting, each.late))


def _start(launches: Collectives, met: Meetings, start_ns: Ints, by_index: dict[int, GpuTime]) -> list[RankWait]:
    """The waits in the first collective until all recordings had begun: nothing that the run does."""
    out = []
    for i in np.flatnonzero(start_ns > LEAST_NS).tolist():
        here = by_index.get(launches.devices[launches.participant[i]])
        late = launches.devices[launches.participant[met.late[met.of[i]]]]
        exposed = _exposed_ns(here, launches, np.array([i]), start_ns) if here else 0
        if here and late in by_index and exposed:
            out.append(RankWait(here.work.index, late, launches.kinds[launches.kind[i]].operation, {"outside": exposed}, 1, {}))
    return out


def _pairs(launches: Collectives, met: Meetings, wait_ns: Ints) -> dict[tuple[int, int], Ints]:
    """Launches that waited, by (waiting, late) participant."""
    mine = np.flatnonzero((met.of >= 0) & (wait_ns > LEAST_NS))
    late = launches.participant[met.late[met.of[mine]]]
    waiting = launches.participant[mine]
    key = waiting * len(launches.labels) + late
    apart = waiting != late
    keys, place = np.unique(key[apart], return_inverse=True)
    most = stable_order(-np.bincount(place, wait_ns[mine][apart], keys.size))[:MOST_PAIRS]
    return {(pair // len(launches.labels), pair % len(launches.labels)): mine[key == pair] for pair in keys[most].tolist()}


def _exposed_ns(here: GpuTime, launches: Collectives, mine: Ints, wait_ns: Ints) -> int:
    """Of the waits the time in which the GPU did nothing else."""
    waits = intervals.union(launches.start_ns[mine], launches.start_ns[mine] + wait_ns[mine])
    return intervals.intersect(waits, here.tiles.of("communication")).length_ns


def _differences(launches: Collectives, met: Meetings, mine: Ints, waiting: int, late: int, here: GpuTime,
                 there: GpuTime) -> dict[str, int]:
    """By cause what the late GPU spent more than the waiting one since the two last met, over all meetings; may be negative."""
    total = np.zeros(len(CAUSES), np.int64)
    for participant, gpu, sign in ((late, there, 1), (waiting, here, -1)):
        own = np.flatnonzero((launches.participant == participant) & (met.of >= 0))
        came = np.full(met.present.size, -1, np.int64)
        came[met.of[own]] = own
        other = waiting if participant == late else late
        partner = np.zeros(met.present.size, np.bool_)
        partner[met.of[(launches.participant == other) & (met.of >= 0)]] = True
        shared = np.flatnonzero((came >= 0) & partner)
        position = np.searchsorted(shared, met.of[mine])
        start = launches.start_ns[came[shared[position]]]
        ended = np.maximum.accumulate(launches.end_ns[came[shared]])
        since = np.where(position > 0, ended[np.maximum(position - 1, 0)], min(int(start.min()), _first_ns(gpu)))
        total += sign * gpu.tiles.within(np.minimum(since, start), start).sum(axis=1)
    return {cause: int(ns) for cause, ns in zip(CAUSES, total.tolist(), strict=True) if cause not in _NOT}


def _first_ns(gpu: GpuTime) -> int:
    return int(gpu.tiles.start_ns[0]) if gpu.tiles.start_ns.size else 0


def _kernels_apart(pace: Pace | None, more: dict[str, int]) -> tuple[dict[str, int], dict[str, Names]]:
    """The same with the differences of kernels as a slower GPU and as more work, and the kernels of both.

    No more than what the kernels of the whole trace say, what one takes less subtracted from what another takes more: the rest of
    the difference is of one stretch, and made up in another. A GPU is slower only where it is so from step to step.
    """
    out = {cause: ns for cause, ns in more.items() if cause not in KERNEL_CAUSES}
    if pace is None:
        return out, {}
    kernels = max(0, sum(more[cause] for cause in KERNEL_CAUSES))
    slower_ns, extra_ns = max(0, pace.slower_ns) if pace.is_slower else 0, max(0, pace.extra_ns)
    share = min(1.0, kernels / max(1, slower_ns + extra_ns))
    out["slow_gpu"], out["more_work"] = round(slower_ns * share), round(extra_ns * share)
    return out, {"slow_gpu": pace.slower, "more_work": pace.extra}


def _in_proportion(whole: int, more: dict[str, int]) -> dict[str, int]:
    """Divide a number of ns in proportion to what is positive.

    No cause has more of it than it has itself: what none explains is left out.
    """
    positive = {cause: ns for cause, ns in more.items() if ns > 0}
    total = sum(positive.values())
    if total <= whole:
        return positive
    out = {cause: whole * ns // total for cause, ns in positive.items()}
    largest = max(out, key=lambda cause: (out[cause], cause))
    out[largest] += whole - sum(out.values())
    return {cause: ns for cause, ns in out.items() if ns}
