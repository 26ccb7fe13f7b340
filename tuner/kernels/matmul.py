"""C[M, N] = A[M, K] · B[K, N], float32 accumulation: the kernel of the recorded H200 landscape.

Parameters: BM, BN, BK tile; GM rows of tiles that share B's columns in L2; num_warps; num_stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from tuner.kernels.problem import check_elements, full_precision, generator_on, normal, sizes, torch_dtype
from tuner.trial import Config


@triton.jit
def matmul(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr):
    pid = tl.program_id(0)
    nm, nn = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GM * nn)
    first = group * GM
    rows = min(nm - first, GM)
    pm = first + (pid % (GM * nn)) % rows
    pn = (pid % (GM * nn)) // rows
    rm = (pm * BM + tl.arange(0, BM)) % M
    rn = (pn * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    ap = a + rm[:, None] * sam + rk[None, :] * sak
    bp = b + rk[:, None] * sbk + rn[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        av = tl.load(ap, mask=rk[None, :] < K - k * BK, other=0.0)
        bv = tl.load(bp, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(av, bv, acc)
        ap += BK * sak
        bp += BK * sbk
    cm = pm * BM + tl.arange(0, BM)
    cn = pn * BN + tl.arange(0, BN)
    tl.store(c + cm[:, None] * scm + cn[None, :] * scn, acc.to(c.dtype.element_ty),
             mask=(cm[:, None] < M) & (cn[None, :] < N))


class Matmul:
    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.M, self.N, self.K = sizes(shape, "M", "N", "K")
        check_elements(A=self.M * self.K, B=self.K * self.N, C=self.M * self.N)
        kind = torch_dtype(dtype)
        self.a = torch.empty((self.M, self.K), device=device, dtype=kind)
        self.b = torch.empty((self.K, self.N), device=device, dtype=kind)
        self.out = torch.empty((self.M, self.N), device=device, dtype=kind)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        generator = generator_on(self.out.device, seed)
        normal(generator, self.a)
        normal(generator, self.b)

    def reference(self) -> torch.Tensor:
        full_precision()
        return self.a.float() @ self.b.float()

    def library(self) -> torch.Tensor:
        return self.a @ self.b

    def _call(self, config: Config) -> tuple[tuple[int], tuple[Any, ...], dict[str, Any]]:
        grid = (triton.cdiv(self.M, config["BM"]) * triton.cdiv(self.N, config["BN"]),)
        args = (self.a, self.b, self.out, self.M, self.N, self.K,
                *self.a.stride(), *self.b.stride(), *self.out.stride())
        return grid, args, {name: config[name] for name in ("BM", "BN", "BK", "GM", "num_warps", "num_stages")}

    def compile(self, config: Config) -> Any:
        grid, args, options = self._call(config)
        return matmul.warmup(*args, grid=grid, **options)

    def launch(self, config: Config) -> Any:
        grid, args, options = self._call(config)
        return matmul[grid](*args, **options)


PROBLEMS = {"matmul": Matmul}
