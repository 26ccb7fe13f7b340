"""The collectives of a trace as columns: operation, bytes, group and participant of every launch, and what moving them needs.

Bandwidths follow nccl-tests' doc/PERFORMANCE.md: algorithm bandwidth = bytes / time, where bytes is the size of the whole
message (of an all-gather what comes out, of a reduce-scatter what goes in); bus bandwidth = algorithm bandwidth × a factor
of the operation and the number of ranks, so that it can be held against the speed of a link whatever the operation is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.ingest.arrays import Array, Ints, Rows, stable_order
from profiles.ingest.trace import Category
from profiles.ingest.windows import MISSING, MISSING32

_PLAIN = re.compile(r"[^a-z]")
# Words in a collective's name (letters only, lower case) -> operation; the first that is found. NCCL's own kernels, PyTorch's
# "Collective name", XLA's "all-reduce.7", custom all-reduces of serving engines.
_OPERATIONS = (
    ("all-reduce", ("allreduce", "crossdevicereduce")), ("all-gather", ("allgather",)),
    ("reduce-scatter", ("reducescatter",)), ("all-to-all", ("alltoall",)), ("broadcast", ("broadcast",)),
    ("send/recv", ("sendrecv", "collectivepermute", "nvshmem", "deepep", "send", "recv", "coalesced")), ("reduce", ("reduce",)),
    ("gather", ("gather",)), ("scatter", ("scatter",)), ("barrier", ("barrier",)),
)
_BUS: dict[str, Callable[[int], float]] = {
    "all-reduce": lambda n: 2 * (n - 1) / n, "all-gather": lambda n: (n - 1) / n, "reduce-scatter": lambda n: (n - 1) / n,
    "all-to-all": lambda n: (n - 1) / n, "gather": lambda n: (n - 1) / n, "scatter": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0, "reduce": lambda n: 1.0, "send/recv": lambda n: 1.0,
}
_HOST = re.compile(r"(?:gloo|mpi|ucc|xccl|hccl):")
MAX_RANKS = 4096
MOST_PARTICIPANTS = 256      # of a trace, those with the most launches; hostile files name millions of GPUs
MOST_ARGUMENTS = 20_000      # distinct (name, arguments) that are looked into; the others are told by their name


def operation(name: str) -> str:
    """Return the operation of a collective by its kernel's name, else "other".

    "ncclDevKernel_AllReduce_Sum_f32_RING_LL" -> "all-reduce". NCCL itself warns of names that say nothing: NVIDIA/nccl #739.
    """
    letters = _PLAIN.sub("", name.lower())
    return next((name_of_operation for name_of_operation, words in _OPERATIONS if any(word in letters for word in words)), "other")


def bus_factor(name: str, ranks: int | None) -> float | None:
    """Return bus bandwidth / algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md).

    None where operation or ranks are unknown.
    """
    if ranks is None or ranks < 2 or name not in _BUS:
        return None
    return _BUS[name](ranks)


@dataclass(frozen=True)
class Collectives:
    """One row per launch of a collective, in order of start."""

    rows: Rows                          # in the frame
    start_ns: Ints
    dur_ns: Ints
    participant: Ints                   # number into `labels`
    labels: list[str]
    devices: list[int]                  # GPU of each participant, -1 where none is stated
    kind: Ints                          # number into `kinds`: equal for what is the same collective
    kinds: list[Kind]
    bytes: Ints                         # of the whole message, MISSING: unknown
    on_host: bool                       # ranges of a CPU backend (gloo, MPI), not GPU kernels
    world: int | None                   # ranks of the job, as the file states it
    left_out: int                       # launches of further participants

    @property
    def end_ns(self) -> Ints:
        return self.start_ns + self.dur_ns


@dataclass(frozen=True)
class Kind:
    """What the arguments of launches have in common."""

    operation: str
    group: str                          # process group: its name and members, "" where the file does not say
    ranks: int | None                   # in the group, as the file states it
    dtype: str


def collectives_of(frame: Frame) -> Collectives:
    """GPU kernels of collectives; where there are none, the ranges of a CPU backend."""
    rows = frame.of(Category.COMMUNICATION)
    on_host = not rows.size
    if on_host:
        named = np.array([bool(_HOST.match(name)) for name in frame.names] or [False])
        rows = np.flatnonzero((frame["category"] == Category.ANNOTATION) & ~frame["instant"] & named[frame["name"]])
    place, labels, devices = _participants(frame, rows, on_host)
    every = rows.size
    if len(labels) > MOST_PARTICIPANTS:
        chosen = np.sort(stable_order(-np.bincount(place))[:MOST_PARTICIPANTS])
        number = np.full(len(labels), -1, np.int64)
        number[chosen] = np.arange(chosen.size)
        rows, place = rows[number[place] >= 0], number[place][number[place] >= 0]
        labels, devices = [labels[index] for index in chosen.tolist()], [devices[index] for index in chosen.tolist()]
    kind, kinds = _kinds(frame, rows)
    moved = frame["bytes"][rows]
    return Collectives(rows, frame["start_ns"][rows], frame["dur_ns"][rows], place, labels, devices, kind, kinds,
                       np.where(moved > 0, moved, MISSING), on_host, _world(frame), int(every - rows.size))


def _world(frame: Frame) -> int | None:
    """Ranks of the job, of which the trace may hold only some."""
    parts = frame.metadata.get("ranks")
    infos = [part.get("distributedInfo") for part in (*(parts.values() if isinstance(parts, dict) else ()), frame.metadata)
             if isinstance(part, dict)]
    sizes = [info.get("world_size") for info in infos if isinstance(info, dict)]
    return max((size for size in sizes if isinstance(size, int) and 0 < size <= MAX_RANKS), default=None)


def _participants(frame: Frame, rows: Rows, on_host: bool) -> tuple[Ints, list[str], list[int]]:
    """Whose each launch is: a GPU's, or on the host a rank's."""
    if on_host:
        ranks, place = np.unique(np.array(frame.rank_of_track, str)[frame["track"][rows]], return_inverse=True)
        return place.astype(np.int64), [str(label) or own_rank(frame) or "the process" for label in ranks], [-1] * ranks.size
    device = np.where(frame["device"][rows] == MISSING32, -1, frame["device"][rows]).astype(np.int64)
    numbers, place = np.unique(device, return_inverse=True)
    labels = device_labels(frame)
    return place.astype(np.int64), [labels.get(number, f"GPU {number}" if number >= 0 else "an unnamed GPU")
                                    for number in numbers.tolist()], numbers.tolist()


def own_rank(frame: Frame) -> str:
    """"rank 3" of a trace of one rank that states which it is, else ""."""
    stated = frame.metadata.get("distributedInfo")
    rank = stated.get("rank") if isinstance(stated, dict) else None
    return f"rank {rank}" if isinstance(rank, int) else ""


def device_labels(frame: Frame) -> dict[int, str]:
    """Return the label of each GPU by its number.

    "rank 1", "rank 1 · GPU 0" where a rank has several, "rank 0 · GPU 0" or "GPU 0" of a single trace.
    """
    stated = [str(label).removesuffix(" of its host") for label in frame.metadata.get("devices") or ()]
    ranks = [label.rsplit(" · GPU ", 1)[0] for label in stated]
    if stated:
        return dict(enumerate(ranks if len(set(ranks)) == len(ranks) else stated))
    rank = own_rank(frame)
    return {device.index: f"{rank} · GPU {device.index}" if rank else f"GPU {device.index}" for device in frame.devices}


def _kinds(frame: Frame, rows: Rows) -> tuple[Ints, list[Kind]]:
    """Numbers of (name, arguments) pairs, folded to what the arguments say."""
    pairs, inverse = np.unique(np.stack([frame["name"][rows], frame["detail"][rows]]).astype(np.int64), axis=1, return_inverse=True)
    ids: dict[Kind, int] = {}
    of_pair = np.array([ids.setdefault(_kind(frame, name, detail if number < MOST_ARGUMENTS else -1), len(ids))
                        for number, (name, detail) in enumerate(pairs.T.tolist())] or [0], np.int64)
    return of_pair[inverse.reshape(-1)] if rows.size else np.empty(0, np.int64), list(ids)


def _kind(frame: Frame, name: int, detail: int) -> Kind:
    arguments = frame.detail_arguments(detail)
    stated, text = arguments.get("Collective name"), frame.names[name] if name >= 0 else ""
    ranks, members = arguments.get("Group size"), arguments.get("Process Group Ranks", "")
    group = f"{str(arguments['Process Group Name'])[:80]} {str(members)[:200]}".strip() if "Process Group Name" in arguments else ""
    kind = operation(stated) if isinstance(stated, str) else "other"
    return Kind(kind if kind != "other" else operation(text.split("(")[0]), group,
                ranks if isinstance(ranks, int) and 0 < ranks <= MAX_RANKS else None, str(arguments.get("dtype", ""))[:40])


def rate(size: Array, time_ns: Array) -> Array:
    """Return bytes per second, NaN where either is unknown."""
    is_valid = (size > 0) & (time_ns > 0)
    return np.where(is_valid, size / np.where(is_valid, time_ns, 1) * 1e9, np.nan)
