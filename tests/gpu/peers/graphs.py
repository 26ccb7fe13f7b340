"""Launches without what Python does before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WARM_UPS = 3


def captured(call: Callable[[], Any]) -> tuple[Callable[[], Any], Any]:
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
    return graph.replay, made
