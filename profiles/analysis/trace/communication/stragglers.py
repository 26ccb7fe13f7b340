"""Who waits for whom in collectives, how long, and what the late rank did meanwhile.

The window of a meeting is from when its first rank came until its last one did, on the last one's GPU: whatever that GPU was
doing then made the others wait. It computed, copied, was in another collective, or was idle: until the call that launched the
collective ended the host was late, from then on the launch waited in its stream.

Of the computing only what the late GPU computes more than the others (median, over the whole trace) is a cause; the rest is
work that the others had done by then: the late one was behind before.

A wait costs time only while the waiting GPU has nothing else to do: `still` is the part of it in which that GPU computes
nothing. Of a meeting the least of the others' `still` is what the last rank alone costs everybody.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import EMPTY, Intervals
from profiles.analysis.trace.communication.collectives import Collectives
from profiles.analysis.trace.communication.meetings import Meetings
from profiles.analysis.trace.time.tiling import DeviceWork
from profiles.ingest.arrays import Ints, stable_order
from profiles.ingest.trace import Category

# Key of a cause -> what is said of the late one.
CAUSES = {"computing": "it computed more than the others", "behind": "it computed what the others had done already",
          "copying": "it copied memory", "communicating": "it was in another collective", "host_late": "its host launched late",
          "queued": "its launch waited in the stream", "unknown": "its GPU was idle (its launch call is not known)"}
ON_HOST = (Category.CPU_OP, Category.RUNTIME, Category.PYTHON, Category.ANNOTATION)
NAMES = 3                    # of CPU activities and of kernels that are named for one late rank


@dataclass(frozen=True)
class Waits:
    """Per launch of a collective; 0 where it met nobody."""

    wait_ns: Ints
    still_ns: Ints                       # the part of it in which the GPU computes nothing


@dataclass(frozen=True)
class LateRank:
    """What one rank costs the others."""

    participant: int
    meetings: int                        # in which it came last
    waited_ns: int                       # by all others together
    still_ns: int                        # the same while they computed nothing
    cost_ns: int                         # in which all others stood still for it
    causes: dict[str, int]               # ns of its windows by cause; the sum is the windows' length
    host: list[tuple[str, int]] = field(default_factory=list)        # self time of CPU slices within the host-late windows
    kernels: list[tuple[str, int]] = field(default_factory=list)     # of which it runs more than the others' median, by how much
    worst: tuple[int, int] = (0, 0)      # start and end of the meeting in which all others stood still longest

    @property
    def cause(self) -> str:
        """The one with most time, "" where there is none."""
        return max(self.causes, key=lambda each: self.causes[each]) if any(self.causes.values()) else ""


def waits_of(launches: Collectives, wait: Ints, work: list[DeviceWork]) -> Waits:
    """Waits (per launch), and of them what their GPU has nothing else to do in."""
    still = wait.copy()
    by_index = {device_work.index: device_work for device_work in work}
    for participant, device in enumerate(launches.devices):
        mine = np.flatnonzero((launches.participant == participant) & (wait > 0))
        computing = by_index[device].whole["compute"] if device in by_index else EMPTY
        still[mine] -= intervals.overlap_ns(computing, launches.start_ns[mine], launches.start_ns[mine] + wait[mine])
    return Waits(wait, still)


def sums_by_pair(collectives: Collectives, met: Meetings, ns: Ints) -> tuple[Ints, Ints]:
    """Two tables by (waiting, late) participant: sums of `ns` per launch, and collectives."""
    n = len(collectives.labels)
    launches = np.flatnonzero(met.of >= 0)
    waiting, late = collectives.participant[launches], collectives.participant[met.late[met.of[launches]]]
    other = waiting != late
    key = (waiting * n + late)[other]
    total = np.bincount(key, weights=ns[launches][other], minlength=n * n).reshape(n, n)
    return total.round().astype(np.int64), np.bincount(key, minlength=n * n).reshape(n, n)


def late_ranks(frame: Frame, launches: Collectives, met: Meetings, waits: Waits, work: list[DeviceWork]) -> list[LateRank]:
    """Return every rank that ever came last, the one that costs most first."""
    waited, still = (sums_by_pair(launches, met, ns)[0] for ns in (waits.wait_ns, waits.still_ns))
    cost = _cost_ns(met, waits)
    by = launches.participant[met.late] if met.late.size else met.late
    by_index = {device_work.index: device_work for device_work in work}
    computed = np.array([by_index[device].whole["compute"].length_ns if device in by_index else 0 for device in launches.devices])
    out = []
    for each in np.unique(by).tolist():
        mine = np.flatnonzero(by == each)
        causes, host = _causes(frame, launches, met, mine, by_index.get(launches.devices[each]),
                               round(computed[each] - float(np.median(np.delete(computed, each)))) if computed.size > 1 else 0)
        worst = int(mine[np.argmax(cost[mine])])
        out.append(LateRank(each, int(mine.size), int(waited[:, each].sum()), int(still[:, each].sum()), int(cost[mine].sum()),
                            causes,
                        _activities(frame, launches, met.late[mine], host) if host.length_ns else [],
                        _more_kernels(frame, launches, each, by_index) if causes["computing"] else [],
                        (int(met.first_ns[worst]), int(launches.end_ns[met.late[worst]]))))
    return sorted(out, key=lambda late: (-late.cost_ns, -late.waited_ns, late.participant))


def _cost_ns(met: Meetings, waits: Waits) -> Ints:
    """Per meeting the least `still` of those who came before the last."""
    launches = np.flatnonzero(met.of >= 0)
    launches = launches[launches != met.late[met.of[launches]]]
    out = np.full(met.present.size, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(out, met.of[launches], waits.still_ns[launches])
    return np.where(out == np.iinfo(np.int64).max, 0, out)


def _causes(frame: Frame, launches: Collectives, met: Meetings, mine: Ints, work: DeviceWork | None,
            more_ns: int) -> tuple[dict[str, int], Intervals]:
    """Time of the windows by cause, and where the host was late. `more_ns`: what this GPU computes more than others."""
    begin, end = met.first_ns[mine], met.last_ns[mine]
    whole = work.whole if work else {"compute": EMPTY, "memory": EMPTY, "communication": EMPTY}
    copying = intervals.join(whole["compute"], whole["memory"])
    everything = intervals.join(copying, whole["communication"])
    spent = [intervals.overlap_ns(spans, begin, end) for spans in (whole["compute"], copying, everything)]
    call = frame.call[launches.rows[met.late[mine]]]
    has_call = call >= 0
    called = np.where(has_call, np.clip(frame.end_ns[np.maximum(call, 0)], begin, end), begin)
    idle = (end - begin) - spent[2]
    host_ns = np.where(has_call, (called - begin) - intervals.overlap_ns(everything, begin, called), 0)
    causes = {"computing": spent[0], "copying": spent[1] - spent[0], "communicating": spent[2] - spent[1], "host_late": host_ns,
              "queued": np.where(has_call, idle - host_ns, 0), "unknown": np.where(has_call, 0, idle)}
    total = {name: int(ns.sum()) for name, ns in causes.items()}
    own = min(total["computing"], max(more_ns, 0))
    return ({"computing": own, "behind": total.pop("computing") - own, **total},
            intervals.without(intervals.union(begin[has_call], called[has_call]), everything))


def _activities(frame: Frame, collectives: Collectives, launches: Ints, window: Intervals) -> list[tuple[str, int]]:
    """What the threads of the launching process did within the window, by self time: a slice without what it contains."""
    calls = frame.call[collectives.rows[launches]]
    groups = {frame.tracks[track].group for track in np.unique(frame["track"][calls[calls >= 0]]).tolist()}
    tracks = [number for number, track in enumerate(frame.tracks) if track.group in groups]
    near = (frame["start_ns"] < window.end_ns[-1]) & (frame.end_ns > window.start_ns[0]) & np.isin(frame["track"], tracks)
    rows = np.flatnonzero(near & np.isin(frame["category"], [int(kind) for kind in ON_HOST]) & ~frame["instant"])
    inside = intervals.overlap_ns(window, frame["start_ns"][rows], frame.end_ns[rows])
    rows, inside = rows[inside > 0], inside[inside > 0]
    own = np.zeros(frame.rows)
    own[rows] = inside
    parent = frame.parent[rows]
    np.subtract.at(own, parent[parent >= 0], inside[parent >= 0])
    total = np.bincount(frame["name"][rows], weights=own[rows], minlength=len(frame.names))
    order = stable_order(-total)[:NAMES].tolist()
    return [(frame.names[code], round(total[code])) for code in order if total[code] > 0]


def _more_kernels(frame: Frame, launches: Collectives, participant: int, work: dict[int, DeviceWork]) -> list[tuple[str, int]]:
    """Computing kernels (full names) that take longer on this GPU than on the others (median), summed over the trace."""
    names = len(frame.names)
    by_name = np.zeros((len(launches.devices), names))
    for number, device in enumerate(launches.devices):
        rows = work[device].rows if device in work else np.empty(0, np.intp)
        rows = rows[frame["category"][rows] == Category.COMPUTE]
        by_name[number] = np.bincount(frame["name"][rows], weights=frame["dur_ns"][rows], minlength=names)
    others = np.delete(by_name, participant, axis=0)
    more = by_name[participant] - (np.median(others, axis=0) if others.size else 0)
    order = stable_order(-more)[:NAMES].tolist()
    return [(frame.names[code], round(more[code])) for code in order if more[code] > 0]
