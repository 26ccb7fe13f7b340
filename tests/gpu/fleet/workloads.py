"""Four jobs, each a function that does one step and waits for it, as a server waits for its token and a trainer for its loss."""

from __future__ import annotations

from collections.abc import Callable

import torch

NAMES = ("graph", "gemm", "eager", "training")
LAUNCHES_OF_EAGER, GEMMS = 200, 20


def make(name: str) -> Callable[[], None]:
    """Return the step of a workload, warmed up."""
    torch.manual_seed(0)
    step = {"gemm": _gemm, "graph": _graph, "eager": _eager, "training": _training}[name]()
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    return step


def _gemm() -> Callable[[], None]:
    """GPU-bound: products of 2048 x 2048 in bfloat16, some 26 µs each."""
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        for _ in range(GEMMS):
            torch.mm(a, a)
        torch.cuda.synchronize()

    return step


def _decode(hidden: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    for _ in range(32):
        residual = hidden
        hidden = torch.nn.functional.rms_norm(hidden, (4096,))
        query, key = hidden @ weights[0], hidden @ weights[1]
        hidden = torch.softmax(query.float(), -1).to(hidden.dtype) * key
        hidden = torch.nn.functional.silu(hidden @ weights[2]) @ weights[3] + residual
    return hidden


def _graph() -> Callable[[], None]:
    """Decode-like: one CUDA graph of some 480 kernels of 2 to 5 µs a token."""
    weights = [torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64 for _ in range(4)]
    hidden = torch.randn(8, 4096, device="cuda", dtype=torch.bfloat16)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            _decode(hidden, weights)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = _decode(hidden, weights)

    def step(_out: torch.Tensor = out) -> None:
        graph.replay()
        torch.cuda.synchronize()

    return step


def _eager() -> Callable[[], None]:
    """Launch-bound: additions of 4096 numbers, one after the other."""
    x = torch.zeros(1 << 12, device="cuda")

    def step() -> None:
        for _ in range(LAUNCHES_OF_EAGER):
            x.add_(1.0)
        torch.cuda.synchronize()

    return step


def _training() -> Callable[[], None]:
    """A small transformer trained with AdamW, its loss read each step."""
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0, device="cuda", dtype=torch.bfloat16)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(16, 512, 1024, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).float().square().mean()
        loss.backward()
        optimizer.step()
        loss.item()

    return step
