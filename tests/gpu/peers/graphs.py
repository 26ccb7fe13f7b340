"""Launches without what Python does before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WARM_UPS = 3


@dataclass(frozen=True)
class Replay:
    """A CUDA graph of one call, with that call: masks, tables and workspaces that it made are read by the graph, whose pool keeps
    only what was allocated while it was captured."""

    graph: Any
    call: Callable[[], Any]

    def __call__(self) -> None:
        self.graph.replay()


def captured(call: Callable[[], Any]) -> tuple[Replay, Any]:
    """Return the replay of a CUDA graph of one call, and what the graph writes."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = call()
    return Replay(graph, call), made
