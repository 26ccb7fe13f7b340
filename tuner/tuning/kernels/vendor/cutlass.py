"""GEMM kernels of CUTLASS through its profiler, a program of its own that checks and times one kernel.

Nothing is compiled or launched here: `cutlass_profiler` draws its own inputs, compares with its own reference, and times. A number
is its mean over ITERATIONS launches, which it gives other inputs in turn, so that they are not in L2 already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from profiles.capture.tools.cutlass import installed_cutlass
from tuner.tuning.kernels.problem import ProgramTime, Unavailable, check_elements, normal_tensors, sizes, torch_dtype
from tuner.tuning.kernels.vendor import cutlass_profiler
from tuner.tuning.kernels.vendor.cutlass_profiler import ITERATIONS, PROGRAM, RIGHT, Profiler, Result
from tuner.tuning.offer import Offer, values_by_size
from tuner.tuning.sources import read_source
from tuner.tuning.trial import Config, config_key
from tuner.tuning.vendor import cutlass_table
from tuner.tuning.vendor.cutlass_table import Product, run_arguments

SCALES = (1.0, 1.0)


class CutlassGemm:
    """Raises Unavailable without a GPU or the profiler."""

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.M, self.N, self.K = sizes(shape, "M", "N", "K")
        check_elements(A=self.M * self.K, B=self.K * self.N, C=self.M * self.N)
        if device.type == "meta":
            raise NotImplementedError("CUTLASS's kernels are compiled already")
        found = installed_cutlass()
        if "missing" in found:
            raise Unavailable(f"no CUTLASS profiler: {found['missing']}", f"build {PROGRAM} of NVIDIA/cutlass for this GPU and "
                              "put it on PATH, or name it by RIDGEPOINT_CUTLASS_PROFILER")
        if device.type != "cuda":
            raise Unavailable("CUTLASS needs an NVIDIA GPU", "start the job on a worker with one")
        self.device, self.profiler, self.version = device, Profiler(found["path"]), found["version"]
        columns, kind = bool(shape.get("BT", 0)), torch_dtype(dtype)
        self.product = Product(self.M, self.N, self.K, dtype, columns)
        self.a = torch.empty((self.M, self.K), device=device, dtype=kind)
        self.b = (torch.empty((self.N, self.K), device=device, dtype=kind).t() if columns
                  else torch.empty((self.K, self.N), device=device, dtype=kind))
        self.out = torch.empty((self.M, self.N), device=device, dtype=torch.bfloat16 if dtype == "fp8" else kind)
        self.scales = [torch.full((1,), scale, device=device) for scale in SCALES] if dtype == "fp8" else []
        self._results: dict[str, Result] = {}
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.a, self.b)

    def reference(self) -> torch.Tensor:
        return self.a.float() @ self.b.float()

    def library(self) -> torch.Tensor:
        """Return torch.matmul's result, or torch._scaled_mm's in fp8: what is compared with."""
        if self.scales:
            return torch._scaled_mm(self.a, self.b, *self.scales, out_dtype=self.out.dtype, use_fast_accum=True)
        return self.a @ self.b

    def environment(self) -> dict[str, Any]:
        return {"cutlass": self.version, "timed_by": f"{PROGRAM}: mean of {ITERATIONS} launches"}

    def offer(self) -> Offer:
        """Return the kernels that the profiler was built with and that compute the product, with what it can vary of each."""
        major, minor = torch.cuda.get_device_capability(self.device)
        configs, left_out = self.profiler.list(self.product, 10 * major + minor)
        return Offer.of(configs, f"CUTLASS {self.version}", pruned=left_out, about={"iterations": ITERATIONS},
                        values=values_by_size(configs, ("TILE", "CLUSTER", "WARPS")))

    def compile(self, config: Config) -> None:
        """Compile nothing; raise ValueError where the configuration names no kernel."""
        run_arguments(config, self.product)

    def check(self, config: Config, seed: int) -> tuple[str, dict[str, Any]]:
        """Let the profiler check and time a configuration; return what is wrong, "" where nothing is, and facts."""
        told = self.profiler.profile(config, self.product, seed)
        self._results[config_key(config)] = told
        wrong = "" if told.disposition == RIGHT else f"{PROGRAM}'s own verification says {told.disposition}"
        return wrong, {"disposition": told.disposition, "iterations": ITERATIONS, "inputs_seed": seed}

    def launch(self, config: Config) -> ProgramTime:
        """Return the time of the run that checked the configuration last, or of another one."""
        told = self._results.pop(config_key(config), None) or self.profiler.profile(config, self.product, 0)
        return ProgramTime(told.ms)


PROBLEMS = {"cutlass_gemm": CutlassGemm}


def source_hash(operator: str) -> str:
    """Return the hash of these files and of what the profiler says it is."""
    files = (__file__, cutlass_profiler.__file__, cutlass_table.__file__)
    return hashlib.sha256(b"".join(read_source(Path(file)) for file in files) + str(installed_cutlass()).encode()).hexdigest()
