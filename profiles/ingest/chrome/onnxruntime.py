"""Profiles of ONNX Runtime (`SessionOptions.enable_profiling`): a Chrome trace in which every record bears the host's pid and tid.

Kernels (category `Kernel`) say in their arguments on which stream they ran, in which grid and for which operator; on which GPU,
nothing says: they are drawn as GPU 0. Records of nodes (`…_kernel_time`) are time of the host.
Source: onnxruntime/core/providers/cuda/cupti_manager.cc and core/common/profiler_common.h of microsoft/onnxruntime.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from profiles.ingest.arrays import Bools, Rows
from profiles.ingest.chrome.gather import Gather
from profiles.ingest.chrome.generic import assemble, is_of_tool
from profiles.ingest.chrome.work import Arguments, Columns
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import decode_args, optional, triples
from profiles.ingest.core.events import Event
from profiles.ingest.core.pieces import Pieces
from profiles.ingest.core.source import Source
from profiles.ingest.trace import Integrity, Trace

FORMAT = "onnxruntime"
_CATEGORY = re.compile(rb'"cat"\s*:\s*"(?:Session|Node)"')
_NAME = re.compile(rb'"name"\s*:\s*"(?:model_loading_|session_initialization|model_run)|ExecutionProvider"'
                   rb'|_(?:kernel_time|fence_before)"')
UNNAMED_GPU = "kernels of ONNX Runtime, which names no GPU: drawn as GPU 0"


def sniff(head: bytes) -> bool:
    return is_of_tool(head) and bool(_CATEGORY.search(head)) and bool(_NAME.search(head))


def read(source: Source) -> Trace:
    """Raises TraceError where no record can be read."""
    integrity = Integrity()
    pieces = Pieces(source, integrity)
    builder = TraceBuilder(source, FORMAT, integrity)
    return assemble(_Gather(pieces, builder, _Arguments(builder)), source, FORMAT)


class KernelArgs(msgspec.Struct, gc=False):
    stream: Any = None
    grid_x: Any = None
    grid_y: Any = None
    grid_z: Any = None
    block_x: Any = None
    block_y: Any = None
    block_z: Any = None


class _Gather(Gather):
    def _add(self, records: list[Event]) -> None:
        """Put kernels on the stream that their arguments name."""
        kernels = [record for record in records if record.cat == "Kernel"]
        if kernels:
            args, _ = decode_args(KernelArgs, [record.args for record in kernels])
            for record, stream in zip(kernels, optional(arg.stream for arg in args).tolist(), strict=True):
                record.pid, record.tid = "GPU 0", f"stream {stream}" if stream >= 0 else "kernels"
            self.integrity.remark(UNNAMED_GPU, len(kernels))
        super()._add(records)


class _Arguments(Arguments):
    def work(self, raws: list[Any], rows: Rows, on_gpu: Bools, out: Columns) -> None:
        super().work(raws, rows, on_gpu, out)
        args, _ = decode_args(KernelArgs, raws)
        out["grid"][rows] = triples([[arg.grid_x, arg.grid_y, arg.grid_z] for arg in args])
        out["block"][rows] = triples([[arg.block_x, arg.block_y, arg.block_z] for arg in args])
