"""What the topic "communication" knows, before anything is said of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.sentences import pct_of
from profiles.analysis.trace.communication.collectives import Collectives, Kind, bus_factor
from profiles.analysis.trace.communication.meetings import Meetings
from profiles.analysis.trace.communication.stragglers import LateRank, Waits
from profiles.analysis.trace.time.tiling import DeviceWork
from profiles.ingest.arrays import Ints, stable_order
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
    total, exposed = (np.bincount(group, weights=each) for each in (launches.dur_ns, exposed_ns))
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
