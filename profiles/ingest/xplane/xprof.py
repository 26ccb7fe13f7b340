"""Trace JSON of XProf (JAX, TensorFlow): a Chrome trace whose process and thread names say what each lane is.

Kernels lie on lanes called `Stream #…` of processes `/device:GPU:…`; the other lanes of these processes (XLA Ops, XLA
Modules, Framework Ops, Steps, …) show the same time again and are no work. On a TPU the lane XLA Ops is the work. All
arguments are texts; the last record is empty. Facts: xprof/convert/trace_viewer of openxla/xprof.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec
import numpy as np

from profiles.ingest.arrays import Bools, Bytes
from profiles.ingest.chrome.gather import Gather
from profiles.ingest.chrome.generic import assemble, is_of_tool
from profiles.ingest.chrome.records import Index, Piece
from profiles.ingest.chrome.work import LEFT_OUT, Arguments, Columns
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import decode_args, integers
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.pieces import Pieces
from profiles.ingest.core.source import Source
from profiles.ingest.trace import GPU_WORK, Category, Doubt, Integrity, Trace

# What XProf's collectors say of GPU work in one text, the same in trace JSON and in XPlane.
#
# CUPTI: `regs:38 static_shared:0 dynamic_shared:16 grid:160,1,1 block:1024,1,1 occ_pct:50`, before 2021 `shm:0`; rocprofiler:
# `grid:16,1,1 block:512,1,1 private_mem:0 group_mem:0 occ_pct:0`; copies: `kind_src:pinned kind_dst:device size:4 dest:1
# async:1` (xla/backends/profiler/gpu of openxla/xla: cupti_collector, rocm_collector).

_PAIR = re.compile(r"(\w+):([\w.,]+)")
_NONE = (MISSING, MISSING, MISSING)
_CHARS = 1000


class Shape(NamedTuple):
    """Of one launch; MISSING and NaN where it is not said."""

    grid: tuple[int, int, int] = _NONE
    block: tuple[int, int, int] = _NONE
    registers_per_thread: int = MISSING
    smem_bytes: int = MISSING
    occupancy_pct: float = float("nan")


def shape_of(text: str) -> Shape:
    """Return the shape of a launch from `kernel_details`.

    An occupancy of 0 is one that was not measured.
    """
    pairs = dict(_PAIR.findall(text[:_CHARS]))
    shared = [_whole(pairs[key]) for key in ("shm", "static_shared", "dynamic_shared", "group_mem") if key in pairs]
    occupancy = pairs.get("occ_pct", "")
    return Shape(_triple(pairs.get("grid", "")), _triple(pairs.get("block", "")), _whole(pairs.get("regs", "")),
                 sum(shared) if shared and MISSING not in shared else MISSING,
                 float(occupancy) if re.fullmatch(r"\d{1,3}(\.\d+)?", occupancy) and float(occupancy) > 0 else float("nan"))


def bytes_of(text: str) -> int:
    """Return the bytes from `memcpy_details` and `memset_details`."""
    pairs = dict(_PAIR.findall(text[:_CHARS]))
    return next((_whole(pairs[key]) for key in ("size", "num_bytes") if key in pairs), MISSING)


def _whole(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 19 else MISSING


def _triple(text: str) -> tuple[int, int, int]:
    parts = [_whole(part) for part in text.split(",")]
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(0 <= part < 2**31 for part in parts) else _NONE


_MARK = re.compile(rb'"highres-ticks"|"name"\s*:\s*"/(?:device:(?:GPU|TPU|CUSTOM):\d+|host:CPU)"')
_IDS = frozenset({"correlation_id", "flow", "device_id"})            # of one record: columns, no details
CAP = 1_000_000                                                      # events that XProf writes at most (convert/trace_viewer)
_TIES = 1_000                                                        # beyond it: what begins at the moment of the last
_REMEMBERED = 200_000                                                # sets of arguments whose text is known
_FLOW_IN, _FLOW_OUT = 1, 2                                           # the lowest two bits of a flow's number


def sniff(head: bytes) -> bool:
    return is_of_tool(head) and bool(_MARK.search(head))


def read(source: Source) -> Trace:
    """Raises TraceError where no record can be read."""
    integrity = Integrity()
    pieces = Pieces(source, integrity)
    builder = TraceBuilder(source, "xprof", integrity)
    trace = assemble(_Gather(pieces, builder, _Arguments(builder)), source, "xprof")
    events = integrity.records_read - sum(count for kind, count in integrity.kinds.items() if kind == "ph M")
    if CAP <= events <= CAP + _TIES:
        integrity.plausibility.append(Doubt("cap", events, CAP))
    return trace


class _Gather(Gather):
    def end_mark(self, phase: Any, count: int) -> bool:
        """The empty record behind the last one."""
        return phase is None and count == 1

    def _spans(self, here: Piece, rows: Index) -> None:
        super()._spans(here, rows)
        assert isinstance(self.arguments, _Arguments)
        flow = self.arguments.flow
        index = np.flatnonzero((flow != MISSING) & np.isin(flow & 3, (_FLOW_IN, _FLOW_OUT)))
        if index.size:
            self.flows.add((flow[index] >> 2).tolist(), "flow", here, rows[index], (flow[index] & 3) == _FLOW_IN, self.lanes)


class _Arguments(Arguments):
    """Knows the texts; `flow` holds the flow numbers of the rows asked for last."""

    def __init__(self, builder: TraceBuilder) -> None:
        super().__init__(builder)
        self.flow = np.empty(0, np.int64)
        self._numbers: dict[Any, int] = {}                          # what is shown of a record -> its detail

    def columns(self, raws: Any, kind: Bytes, on_gpu: Bools) -> Columns:
        out = super().columns([b""] * len(raws), kind, on_gpu)
        self.flow = np.full(len(raws), MISSING, np.int64)
        rows = np.flatnonzero(np.array([len(bytes(raw)) > 2 for raw in raws], np.bool_))
        if not rows.size:
            return out
        args, bad = decode_args(dict[str, msgspec.Raw], [raws[i] for i in rows.tolist()])
        self.misread += bad
        numbers = np.array([self._detail_of(arg) for arg in args], np.int32)
        self.left_out += int(np.count_nonzero(numbers == LEFT_OUT))
        out["detail"][rows] = np.maximum(numbers, -1)
        out["correlation"][rows] = integers([_number(arg.get("correlation_id")) for arg in args])
        self.flow[rows] = integers([_number(arg.get("flow")) for arg in args])
        for row, arg in zip(rows.tolist(), args, strict=True):
            if on_gpu[row]:
                self._work(row, arg, kind, out)
        return out

    def _detail_of(self, args: dict[str, msgspec.Raw]) -> int:
        shown = tuple((key, bytes(value)) for key, value in args.items() if key not in _IDS)
        if not shown:
            return -1
        number = self._numbers.get(shown)
        if number is None:
            if len(self._numbers) >= _REMEMBERED:
                self._numbers.clear()
            pairs = (f"{msgspec.json.encode(key).decode()}: {value.decode('utf-8', 'replace')}" for key, value in shown)
            number = self._numbers[shown] = self._detail(("{" + ", ".join(pairs) + "}").encode())
        return number

    def _work(self, offset: int, args: dict[str, msgspec.Raw], kind: Bytes, out: Columns) -> None:
        if "kernel_details" in args and kind[offset] in GPU_WORK:
            shape = shape_of(bytes(args["kernel_details"]).decode("utf-8", "replace"))
            for key, value in shape._asdict().items():
                out[key][offset] = value
            if kind[offset] != Category.COMMUNICATION:
                kind[offset] = Category.COMPUTE
        elif kind[offset] in GPU_WORK:
            for key, category in (("memcpy_details", Category.MEMCPY), ("memset_details", Category.MEMSET)):
                if key in args:
                    kind[offset] = category
                    out["bytes"][offset] = bytes_of(bytes(args[key]).decode("utf-8", "replace"))


def _number(raw: msgspec.Raw | None) -> Any:
    text = bytes(raw).strip(b'"') if raw is not None else b""
    return int(text) if text.lstrip(b"-").isdigit() and len(text) < 21 else MISSING
