"""C[M, N] = A[M, K] · B[K, N] by cublasLt itself: a configuration names one of its algorithms by the documented attributes.

Matrices are torch's, by rows; fp8's B is by columns, as its tensor cores read it. cublasLt thinks in columns: it computes
Cᵀ[N, M] = Bᵀ · Aᵀ, which lie in memory the same way. A configuration without parameters is what the heuristics choose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tuner.tuning.kernels.problem import (
    Unavailable,
    check_elements,
    full_precision,
    normal_tensors,
    sizes,
    torch_dtype,
)
from tuner.tuning.kernels.vendor import lt_library, lt_space
from tuner.tuning.kernels.vendor.lt_library import Algorithm, CublasLt, LibraryMissing, Matrix, Product
from tuner.tuning.kernels.vendor.lt_space import Limits, list_algorithms
from tuner.tuning.offer import Offer
from tuner.tuning.sources import read_source
from tuner.tuning.trial import Config, config_key
from tuner.tuning.vendor import lt_names
from tuner.tuning.vendor.lt_names import config_of, in_order, numbers_of

SCALES = (0.5, 0.25)                # of A and B in fp8, as in tuner.tuning.kernels.matmul
FP8_MULTIPLE = 16
WORKSPACE_BYTES = 32 << 20          # what torch gives cuBLAS on Hopper (CUBLAS_WORKSPACE_CONFIG :4096:2:16:8 is 8 MiB elsewhere)
PREFERRED = 64                      # of the heuristics' choices: they are tried first


@dataclass(frozen=True)
class LtKernel:
    """An algorithm that is ready to run, and what the library says of it."""

    algorithm: Algorithm
    facts: Mapping[str, Any] = field(default_factory=dict)


class CublasLtMatmul:
    """Raises Unavailable without a GPU or the library, ValueError for a shape that it does not take."""

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.M, self.N, self.K = sizes(shape, "M", "N", "K")
        check_elements(A=self.M * self.K, B=self.K * self.N, C=self.M * self.N)
        if device.type == "meta":
            raise NotImplementedError("cublasLt's kernels are compiled already")
        if device.type != "cuda":
            raise Unavailable("cublasLt needs an NVIDIA GPU", "start the job on a worker with one")
        kind, self.fp8 = torch_dtype(dtype), dtype == "fp8"
        if self.fp8 and (self.N % FP8_MULTIPLE or self.K % FP8_MULTIPLE):
            raise ValueError(f"shape: in fp8 N and K must be multiples of {FP8_MULTIPLE}")
        self.device = device
        self.a = torch.empty((self.M, self.K), device=device, dtype=kind)
        self.b = (torch.empty((self.N, self.K), device=device, dtype=kind).t() if self.fp8
                  else torch.empty((self.K, self.N), device=device, dtype=kind))
        self.out = torch.empty((self.M, self.N), device=device, dtype=torch.bfloat16 if self.fp8 else kind)
        self.scales = [torch.full((1,), scale, device=device) for scale in SCALES] if self.fp8 else []
        self.workspace = torch.empty(WORKSPACE_BYTES, device=device, dtype=torch.uint8)
        self._kernels: dict[str, LtKernel] = {}
        try:
            self.library_used = CublasLt()
            self.product = self._describe(dtype)
        except (LibraryMissing, RuntimeError) as error:
            raise Unavailable(str(error), "install a CUDA build of torch, which brings cublasLt, and try nvidia-smi") from error
        self.refill(seed)

    def _describe(self, dtype: str) -> Product:
        """Return cublasLt's view of the product: B and A in turn, by columns."""
        data = lt_library.DATA_TYPES
        kind, result = data[dtype], data["bf16" if self.fp8 else dtype]
        left = Matrix(kind, self.K, self.N, self.K, True) if self.fp8 else Matrix(kind, self.N, self.K, self.N)
        right, out = Matrix(kind, self.K, self.M, self.K), Matrix(result, self.N, self.M, self.N)
        return Product(self.library_used, left, right, out,
                       (self.scales[1].data_ptr(), self.scales[0].data_ptr()) if self.fp8 else None)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.a, self.b)

    def reference(self) -> torch.Tensor:
        full_precision()
        product = self.a.float() @ self.b.float()
        return product * (SCALES[0] * SCALES[1]) if self.fp8 else product

    def library(self) -> torch.Tensor:
        """Return torch.matmul's result, or torch._scaled_mm's in fp8: what is compared with."""
        if self.fp8:
            return torch._scaled_mm(self.a, self.b, *self.scales, out_dtype=self.out.dtype, use_fast_accum=True)
        return self.a @ self.b

    def environment(self) -> dict[str, Any]:
        """Return what a number depends on beside torch's versions."""
        return {"cublaslt": self.library_used.version, "workspace_bytes": WORKSPACE_BYTES}

    def offer(self) -> Offer:
        """Return every algorithm that the library accepts here, the heuristics' choices first."""
        name = self.library_used.name
        preferred = self.product.preferred(PREFERRED, WORKSPACE_BYTES)
        listing = list_algorithms(self.product, torch.cuda.get_device_capability(self.device),
                                  Limits(workspace_bytes=WORKSPACE_BYTES), {numbers[0] for numbers, _ in preferred})
        chosen, found = [config_of(numbers, name) for numbers, _ in preferred], [config_of(each, name) for each in listing.found]
        rebuilt = [self.product.algorithm(numbers) for numbers, _ in preferred]
        same = sum(bytes(each) == written for each, (_, written) in zip(rebuilt, preferred, strict=True) if each is not None)
        about = {"algorithms": len(listing.by_algorithm), "checks": listing.checks, "seconds": round(listing.seconds, 2),
                 "whole": listing.whole,
                 "preferred": len(preferred), "preferred_rebuilt": same,
                 "preferred_not_listed": len({config_key(each) for each in chosen} - {config_key(each) for each in found})}
        return Offer.of(found, name, preferred=chosen, pruned=listing.pruned, values=in_order([*chosen, *found]), about=about)

    def compile(self, config: Config) -> LtKernel:
        """Return the algorithm, checked by the library. Raises ValueError where it is none here."""
        key = config_key(config)
        if key not in self._kernels:
            self._kernels[key] = self._make_kernel(config)
        return self._kernels[key]

    def launch(self, config: Config) -> LtKernel:
        kernel = self.compile(config)
        self.product.run(kernel.algorithm, self.b.data_ptr(), self.a.data_ptr(), self.out.data_ptr(), self.workspace.data_ptr(),
                         WORKSPACE_BYTES, torch.cuda.current_stream(self.device).cuda_stream)
        return kernel

    def _make_kernel(self, config: Config) -> LtKernel:
        algorithm = self._algorithm(config)
        check = self.product.check(algorithm) if algorithm is not None else None
        if algorithm is None or check is None:
            raise ValueError(f"{self.library_used.name} does not take this algorithm for the shape on this GPU")
        if check.workspace_bytes > WORKSPACE_BYTES:
            raise ValueError(f"the algorithm needs {check.workspace_bytes:,} bytes of workspace; it gets {WORKSPACE_BYTES:,}")
        return LtKernel(algorithm, {"workspace_bytes": check.workspace_bytes, "waves": round(check.waves, 3)})

    def _algorithm(self, config: Config) -> Algorithm | None:
        if config:
            return self.product.algorithm(numbers_of(config, self.library_used.name))
        preferred = self.product.preferred(1, WORKSPACE_BYTES)
        return Algorithm.from_buffer_copy(preferred[0][1]) if preferred else None


PROBLEMS = {"cublaslt_matmul": CublasLtMatmul}


def source_hash(operator: str) -> str:
    """Return the hash of these files and the library's version: another version has other kernels under the same numbers."""
    files = (__file__, lt_library.__file__, lt_names.__file__, lt_space.__file__)
    text = b"".join(read_source(Path(file)) for file in files) + CublasLt().name.encode()
    return hashlib.sha256(text).hexdigest()
