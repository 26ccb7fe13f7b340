"""The model's operators as the client of the config cache answers: our kernel with the served configuration, or the library.

A kernel of ours is launched where an entry of the launch's own bucket serves and the client does not say to keep the library. What
an answer costs is paid when a CUDA graph is captured, not when it is replayed.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from tests.gpu.step.model import Library
from tuner.cache.client import Client, Served
from tuner.tuning.kernels.problem import Calls
from tuner.tuning.operators import OPERATORS


def serves_ours(served: Served) -> bool:
    """Return whether a launch takes our kernel: measured in this very bucket, and the library not known to be faster."""
    return served.entry is not None and served.config is not None and served.library is None and served.rule in ("exact", "bucket")


class FromClient(Library):
    """Operators by `client.best()`. Each keeps one Problem of its kernel module per shape, whose tensors a launch replaces."""

    def __init__(self, client: Client, dtype: str, device: torch.device) -> None:
        self.client, self.dtype, self.device = client, dtype, device
        self._problems: dict[tuple[Any, ...], Any] = {}

    def _ours(self, operator: str, shape: dict[str, int], **tensors: torch.Tensor) -> torch.Tensor | None:
        """Return what our kernel made of the tensors (a Problem's fields by name); None where the library is to be kept."""
        served = self.client.best(operator, self.dtype, **shape)
        if not serves_ours(served) or served.config is None:
            return None
        key = (operator, *shape.values())
        if key not in self._problems:
            module = importlib.import_module(OPERATORS[operator].kernel_module)
            self._problems[key] = module.PROBLEMS[operator](shape, self.dtype, self.device, 0)
        problem = self._problems[key]
        for name, tensor in tensors.items():
            setattr(problem, name, tensor)
        problem.out = torch.empty_like(problem.out)
        if isinstance(getattr(problem, "_calls", None), Calls):        # it describes the tensors of before
            problem._calls = Calls(problem._call)
        problem.launch(served.config)
        served.launches += 1
        made: torch.Tensor = problem.out
        return made

    def embedding(self, table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        made = self._ours("embedding", {"T": len(ids), "V": table.shape[0], "C": table.shape[1]}, table=table, ids=ids)
        return super().embedding(table, ids) if made is None else made

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        made = self._ours("matmul", {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1]}, a=a, b=b)
        return super().matmul(a, b) if made is None else made

    def rmsnorm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        made = self._ours("rmsnorm", {"R": x.shape[0], "C": x.shape[1]}, x=x, residual=x, weight=weight)
        return super().rmsnorm(x, weight) if made is None else made

    def add_rmsnorm(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = self._ours("add_rmsnorm", {"R": x.shape[0], "C": x.shape[1]}, x=x, residual=residual, weight=weight)
        return super().add_rmsnorm(x, residual, weight) if made is None else (made[0], made[1])

    def rotary(self, x: torch.Tensor, angles: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        shape = dict(zip("THD", x.shape, strict=True))
        made = self._ours("rotary", shape, x=x, table=angles, positions=positions)
        return super().rotary(x, angles, positions) if made is None else made

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Our kernel reads heads one after another: copies are part of what it costs here."""
        shape = {"B": q.shape[0], "H": q.shape[1], "KV": k.shape[1], "N": q.shape[2], "D": q.shape[3], "causal": 1}
        if not serves_ours(self.client.best("gqa_attention", self.dtype, **shape)):
            return super().attention(q, k, v)
        made = self._ours("gqa_attention", shape, q=q.contiguous(), k=k.contiguous(), v=v.contiguous())
        return super().attention(q, k, v) if made is None else made

    def decode_attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        shape = {"B": q.shape[0], "H": q.shape[1], "KV": k.shape[1], "N": k.shape[2], "D": q.shape[2]}
        if not serves_ours(self.client.best("decode_attention", self.dtype, **shape)):
            return super().decode_attention(q, k, v)
        made = self._ours("decode_attention", shape, q=q.contiguous(), k=k, v=v)
        return super().decode_attention(q, k, v) if made is None else made

    def silu_mul(self, x: torch.Tensor) -> torch.Tensor:
        made = self._ours("silu_mul", {"R": x.shape[0], "C": x.shape[1] // 2}, x=x)
        return super().silu_mul(x) if made is None else made

    def cross_entropy(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        made = self._ours("cross_entropy", {"R": x.shape[0], "C": x.shape[1]}, x=x, targets=targets)
        return super().cross_entropy(x, targets) if made is None else made
