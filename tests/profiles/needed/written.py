"""Small traces written down launch by launch, as torch.profiler writes them on an H200."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.analysis.trace.needed.needs import Claim, Needs, needs_of
from profiles.ingest.trace import Trace

TYPES = {"bf16": "c10::BFloat16", "fp16": "c10::Half", "fp32": "float", "int64": "long int"}
GEMM = "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>"


def tensors(*shapes: Sequence[int], dtype: str | Sequence[str] = "bf16", strides: Sequence[Sequence[int]] = (),
            concrete: Sequence[str] = ()) -> dict[str, Any]:
    """Return arguments as `record_shapes=True` writes them; `strides`: dense where it is not given."""
    kinds = [dtype] * len(shapes) if isinstance(dtype, str) else list(dtype)
    made = [list(each) for each in strides] or [_dense(shape) for shape in shapes]
    return {"Input Dims": [list(shape) for shape in shapes], "Input type": [TYPES[kind] for kind in kinds], "Input Strides": made,
            "Concrete Inputs": list(concrete) or [""] * len(shapes)}


def _dense(shape: Sequence[int]) -> list[int]:
    out = [1]
    for size in reversed(shape[1:]):
        out.insert(0, out[0] * size)
    return out if shape else []


@dataclass
class Program:
    """Launches one after the other; the host is 10 µs ahead of each, or late where a copy blocks it."""

    events: list[dict[str, Any]] = field(default_factory=list)
    host_us: float = 0.0
    gpu_us: float = 0.0
    number: int = 0

    def launch(self, path: str, arguments: dict[str, Any], us: float, kernel: str = ELEMENTWISE,
               outer: dict[str, Any] | None = None) -> Program:
        """`path`: operators from the outermost, "aten::linear aten::addmm"; `arguments` are the innermost one's."""
        names = path.split()
        self._operators(names, arguments, outer, 8.0)
        self.number += 1
        self.events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
                            "ts": self.host_us + 2, "dur": 3, "args": {"correlation": self.number}})
        self._work("kernel", kernel, us, {"grid": [132, 1, 1], "block": [256, 1, 1], "stream": 7, "device": 0})
        self.host_us += 10
        return self

    def operator(self, path: str, arguments: dict[str, Any] | None = None) -> Program:
        """An operator that launches nothing."""
        self._operators(path.split(), arguments or {}, None, 8.0)
        self.host_us += 10
        return self

    def copy(self, path: str, name: str, size: int, us: float, waits: bool = False) -> Program:
        self._operators(path.split(), {}, None, us + 20 if waits else 8.0)
        self.number += 1
        self.events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 1, "tid": 1, "ts": self.host_us + 2,
                            "dur": us + 10 if waits else 3, "args": {"correlation": self.number}})
        self._work("gpu_memcpy", name, us, {"bytes": size, "stream": 7, "device": 0})
        self.host_us = max(self.host_us + us + 30, self.gpu_us + 10) if waits else self.host_us + 10
        return self

    def _operators(self, names: Sequence[str], arguments: dict[str, Any], outer: dict[str, Any] | None, us: float) -> None:
        for depth, name in enumerate(names):
            kind = "cpu_op" if "::" in name or name.islower() else "user_annotation"
            args = arguments if depth == len(names) - 1 else (outer or {}) if not depth else {}
            self.events.append({"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": self.host_us + 0.1 * depth,
                                "dur": us - 0.2 * depth, "args": args})

    def _work(self, category: str, name: str, us: float, args: dict[str, Any]) -> None:
        start = max(self.gpu_us + 0.5, self.host_us + 6)
        self.gpu_us = start + us
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": start, "dur": us,
                            "args": {**args, "correlation": self.number}})

    def frame(self, folder: Path) -> Frame:
        file = folder / "written.json"
        gpu = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_000_000_000, "computeMajor": 9, "numSms": 132}
        file.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [gpu], "traceEvents": self.events}))
        trace = ingest.read(str(file))
        assert isinstance(trace, Trace)
        return frame_of(trace)

    def needs(self, folder: Path) -> Needs:
        return needs_of(self.frame(folder))

    def claims(self, folder: Path) -> dict[str, Claim]:
        """Return what every kind claims, those of too little time too."""
        needs = self.needs(folder)
        for gpu in needs.gpus:
            assert sum(gpu.parts.values()) == gpu.wall_ns and min(gpu.parts.values()) >= 0
        return {claim.kind.name: claim for claim in needs.claims}


def product(program: Program, rows: int, columns: int, inner: int, us: float, path: str = "aten::mm",
            dtype: str = "bf16") -> Program:
    """x[rows, inner] @ w.t()[inner, columns]: the weight is read transposed, as `aten::linear` does."""
    return program.launch(path, tensors((rows, inner), (inner, columns), dtype=dtype, strides=((inner, 1), (1, inner))), us, GEMM)
