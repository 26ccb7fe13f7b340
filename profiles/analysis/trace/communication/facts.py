"""What the topic "communication" knows, before anything is said of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from profiles.analysis.core.frame import Frame, Ints
from profiles.analysis.trace.communication.collectives import Collectives
from profiles.analysis.trace.communication.meetings import Meetings
from profiles.analysis.trace.communication.sizes import Rest, Size
from profiles.analysis.trace.communication.stragglers import LateRank, Waits
from profiles.analysis.trace.time.work import DeviceWork


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
        return 100 * (self.busy_ns - self.exposed_ns) / self.busy_ns if self.busy_ns else 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"hidden_pct": self.hidden_pct}
