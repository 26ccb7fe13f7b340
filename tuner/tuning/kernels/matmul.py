"""C[M, N] = A[M, K] · B[K, N], float32 accumulation, with scale, bias and activation where the operator has them.

KERNEL  tiles        the kernel of the recorded H200 landscape: one tile per program, loads through pointers
        tma …        see tuner.tuning.kernels.matmul_tma
        warp groups  see tuner.tuning.kernels.hopper.matmul_warp_groups
BM, BN, BK tile; GM rows of tiles that share B's columns in L2; SPLIT_K programs per tile; STORE way of the epilogue;
num_warps; num_stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.tuning.kernels.extents import in_units, unit_of
from tuner.tuning.kernels.hopper.matmul_warp_groups import launch_of
from tuner.tuning.kernels.matmul_parts import came_last, finished, leave_partial, partials_summed, tile_place
from tuner.tuning.kernels.matmul_tma import matmul_persistent, matmul_specialised, matmul_tma
from tuner.tuning.kernels.problem import (
    Calls,
    Workspace,
    check_elements,
    full_precision,
    multiprocessors,
    normal_tensors,
    scratch_from_torch,
    sizes,
    torch_dtype,
)
from tuner.tuning.trial import Config

SCALES = (0.5, 0.25)        # of A and B in fp8: one number for each, as quantised weights and activations have
LEAST_BLOCKS = 4            # of K that a split sum has at least
FP8_MULTIPLE = 16           # what cuBLAS asks of fp8 matrices
ABSENT = {"KERNEL": "tiles", "SPLIT_K": 1, "STORE": "direct"}      # a recorded configuration names none of these


@triton.jit
def matmul(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, bias, scale, work, locks,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr, SPLIT_K: tl.constexpr, ACT: tl.constexpr,
           BT: tl.constexpr, UNIT: tl.constexpr):
    """B is stored by rows, or (BT) by columns."""
    N, K, sam, scm = in_units(N, UNIT), in_units(K, UNIT), in_units(sam, UNIT), in_units(scm, UNIT)
    if BT:
        sbn = in_units(sbn, UNIT)
    else:
        sbk = in_units(sbk, UNIT)
    tile, split = tl.program_id(0), tl.program_id(1)
    pm, pn = tile_place(tile, tl.cdiv(M, BM), tl.cdiv(N, BN), GM)
    rm = (pm * BM + tl.arange(0, BM)) % M
    rn = (pn * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    blocks = tl.cdiv(K, BK)
    first = 0
    if SPLIT_K > 1:
        each = tl.cdiv(blocks, SPLIT_K)
        first = split * each
        blocks = tl.minimum(blocks, first + each)
        rk += first * BK
    ap = a + rm[:, None] * sam + rk[None, :] * sak
    bp = b + rk[:, None] * sbk + rn[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, blocks - first):
        av = tl.load(ap, mask=rk[None, :] < K - k * BK, other=0.0)
        bv = tl.load(bp, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(av, bv, acc)
        ap += BK * sak
        bp += BK * sbk
    cm = pm * BM + tl.arange(0, BM)
    cn = pn * BN + tl.arange(0, BN)
    cp, inside = c + cm[:, None] * scm + cn[None, :] * scn, (cm[:, None] < M) & (cn[None, :] < N)
    if SPLIT_K == 1:
        tl.store(cp, finished(acc, cn, N, bias, scale, ACT).to(c.dtype.element_ty), mask=inside)
    else:
        leave_partial(acc, work, tile * SPLIT_K + split, BM, BN)
        if came_last(locks, tile, SPLIT_K):
            acc = partials_summed(work, tile * SPLIT_K, SPLIT_K, BM, BN)
            tl.store(cp, finished(acc, cn, N, bias, scale, ACT).to(c.dtype.element_ty), mask=inside)


class Matmul:
    act = 0
    bias: torch.Tensor | None = None

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.M, self.N, self.K = sizes(shape, "M", "N", "K")
        check_elements(A=self.M * self.K, B=self.K * self.N, C=self.M * self.N)
        kind, self.fp8 = torch_dtype(dtype), dtype == "fp8"
        if self.fp8 and (self.N % FP8_MULTIPLE or self.K % FP8_MULTIPLE):
            raise ValueError(f"shape: in fp8 N and K must be multiples of {FP8_MULTIPLE}")
        self.a = torch.empty((self.M, self.K), device=device, dtype=kind)
        if self.fp8:                                   # by columns: what fp8 tensor cores read
            self.b = torch.empty((self.N, self.K), device=device, dtype=kind).t()
        else:
            self.b = torch.empty((self.K, self.N), device=device, dtype=kind)
        self.out = torch.empty((self.M, self.N), device=device, dtype=torch.bfloat16 if self.fp8 else kind)
        self.scales = [torch.full((1,), scale, device=device) for scale in SCALES] if self.fp8 else []
        self.scale = self.scales[0] * self.scales[1] if self.fp8 else None
        self.programs = multiprocessors(device)
        self._workspace = Workspace(device)
        self._calls = Calls(self._call)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.a, self.b)

    def reference(self) -> torch.Tensor:
        full_precision()
        product = self.a.float() @ self.b.float()
        return product if self.scale is None else product * self.scale

    def library(self) -> torch.Tensor:
        if self.fp8:
            return torch._scaled_mm(self.a, self.b, *self.scales, out_dtype=self.out.dtype, use_fast_accum=True)
        return self.a @ self.b

    def compile(self, config: Config) -> Any:
        return [kernel.warmup(*args, grid=grid, **options) for kernel, grid, args, options in self._call(config)]

    def launch(self, config: Config) -> Any:
        return [kernel[grid](*args, **options) for kernel, grid, args, options in self._calls.of(config)]

    def _call(self, config: Config) -> tuple[tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]], ...]:
        """Kernel, grid, arguments and constants of each launch of a configuration."""
        config = {**ABSENT, **config}
        bm, bn, bk, name = config["BM"], config["BN"], config["BK"], config["KERNEL"]
        tiles, split = triton.cdiv(self.M, bm) * triton.cdiv(self.N, bn), config["SPLIT_K"]
        options = {"ACT": self.act, **{key: config[key] for key in ("BM", "BN", "BK", "GM", "num_warps", "num_stages")}}
        size = (self.M, self.N, self.K)
        if name == "tiles":
            args = (self.a, self.b, self.out, *size, *self.a.stride(), *self.b.stride(), *self.out.stride(), self.bias,
                    self.scale, *self._pieces(tiles, split, config))
            return ((matmul, (tiles, split), args, {**options, "SPLIT_K": split, "BT": self.fp8, "UNIT": unit_of(self.N, self.K)}),)
        if name == "warp groups":
            return (launch_of(config, self.a, self.b.t() if self.fp8 else self.b, self.out, by_columns=self.fp8, act=self.act,
                              bias=self.bias, scale=self.scale),)
        options |= {"STORE": config["STORE"], "BT": self.fp8}
        b = TensorDescriptor.from_tensor(self.b.t(), [bn, bk]) if self.fp8 else TensorDescriptor.from_tensor(self.b, [bk, bn])
        programs = (min(tiles, self.programs),)
        if name == "specialised":
            scratch_from_torch(self.out.device)
            return ((matmul_specialised, programs, (self.a, b, self.out, self.bias, self.scale, *size), options),)
        a, c = TensorDescriptor.from_tensor(self.a, [bm, bk]), self._output(config)
        if name == "tma":
            return (self._split(a, b, c, 0, tiles, split, config, options),)
        whole = tiles // self.programs * self.programs if name == "waves and split" else tiles
        waves = (matmul_persistent, programs, (a, b, c, self.bias, self.scale, *size, whole), options)
        if whole == tiles:
            return (waves,)
        split = max(1, min(self.programs // (tiles - whole), triton.cdiv(self.K, bk) // LEAST_BLOCKS))
        rest = self._split(a, b, c, whole, tiles - whole, split, config, options)
        return (waves, rest) if whole else (rest,)

    def _split(self, a: Any, b: Any, c: Any, first: int, tiles: int, split: int, config: Config,
               options: dict[str, Any]) -> tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]:
        """A launch of `split` programs for each of the tiles from `first` on."""
        args = (a, b, c, self.bias, self.scale, *self._pieces(tiles, split, config), self.M, self.N, self.K, first)
        return matmul_tma, (tiles, split), args, {**options, "SPLIT_K": split}

    def _output(self, config: Config) -> Any:
        """What the epilogue writes to: the matrix, or a descriptor of its blocks."""
        if config["STORE"] == "direct":
            return self.out
        parts = 2 if config["STORE"] == "halves" else 1
        return TensorDescriptor.from_tensor(self.out, [config["BM"], config["BN"] // parts])

    def _pieces(self, tiles: int, split: int, config: Config) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Workspace and counts of split tiles."""
        return (None, None) if split == 1 else self._workspace.of(tiles * split * config["BM"] * config["BN"], tiles)


class MatmulBiasAct(Matmul):
    """act(A · B + bias): act is 0 none, 1 ReLU, 2 GELU (tanh form), 3 SiLU."""

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.act = int(shape.get("act", 0))
        self.bias = torch.empty(sizes(shape, "N")[0], device=device, dtype=torch.bfloat16 if dtype == "fp8" else torch_dtype(dtype))
        super().__init__(shape, dtype, device, seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.a, self.b, self.bias)

    def reference(self) -> torch.Tensor:
        return _activate(super().reference() + self.bias.float(), self.act)

    def library(self) -> torch.Tensor:
        """cuBLASLt's own epilogue where it has one: bias, bias and ReLU, bias and GELU."""
        if self.fp8:
            product = torch._scaled_mm(self.a, self.b, *self.scales, bias=self.bias, out_dtype=self.out.dtype, use_fast_accum=True)
            return _activate(product, self.act)
        if self.act in (1, 2):
            return torch._addmm_activation(self.bias, self.a, self.b, use_gelu=self.act == 2)
        return _activate(torch.addmm(self.bias, self.a, self.b), self.act)


def _activate(x: torch.Tensor, act: int) -> torch.Tensor:
    functional = torch.nn.functional
    return (x, functional.relu(x), functional.gelu(x, approximate="tanh"), functional.silu(x))[act] if act else x


PROBLEMS = {"matmul": Matmul, "matmul_bias_act": MatmulBiasAct}
