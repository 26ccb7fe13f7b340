"""What the judge times and compares with, taken before the candidate is imported, and whether it was replaced since.

A candidate runs in the same Python: it can alter what is taken as well, by ways that no check here sees. So this finds what is
altered in the ways that are known, and a person reviews the rest.
"""

from __future__ import annotations

import inspect
import json
import os
import time
from typing import Any

import torch

from tuner.tuning.measure import accuracy, flush, timing

_TENSOR = ("fill_", "copy_", "clone", "normal_", "float", "abs_", "max", "sum", "item", "data_ptr")
_WATCHED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (torch, ("equal", "isfinite", "empty", "empty_like")), (torch.linalg, ("vector_norm",)), (torch.Tensor, _TENSOR),
    (accuracy, ("compare_output", "Verdict")), (accuracy.Verdict, ("right", "message")),
    (timing.Sampler, ("measure_in_turn", "_take_batch", "_warm_up")), (timing.Times, ("as_json", "as_facts")),
    (flush.Flush, ("__call__", "begin")), (time, ("perf_counter", "monotonic")), (json, ("dumps",)), (os, ("write", "fdopen")))
_ON_GPU = (
    (torch.cuda, ("Event", "synchronize", "current_stream", "_sleep")),
    (torch.cuda.Event, ("record", "elapsed_time", "synchronize")))


class Taken:
    """Functions of the clock and the device, and a list of what must still be what it was."""

    def __init__(self, problem: Any, device: torch.device) -> None:
        self.device = device
        self.now_s = time.perf_counter
        self.is_gpu = device.type == "cuda"
        watched = (*_WATCHED, *(_ON_GPU if self.is_gpu else ()), (type(problem), ("refill", "reference", "library", "launch")))
        self._was = [(owner, name, inspect.getattr_static(owner, name)) for owner, names in watched for name in names]
        if self.is_gpu:
            self.event, self.record, self.elapsed_ms = torch.cuda.Event, torch.cuda.Event.record, torch.cuda.Event.elapsed_time
            self.wait_for_event, self._synchronize = torch.cuda.Event.synchronize, torch.cuda.synchronize
            self._sleep, self._stream = torch.cuda._sleep, torch.cuda.current_stream

    def synchronize(self) -> None:
        """Wait until nothing runs on the device, on whichever stream."""
        if self.is_gpu:
            self._synchronize(self.device)

    def delay(self, cycles: int) -> None:
        """Let the current stream wait, in cycles of the GPU's clock."""
        if self.is_gpu:
            self._sleep(cycles)

    def stream(self) -> Any:
        """Return the current stream."""
        return self._stream(self.device).cuda_stream if self.is_gpu else 0

    def replaced(self) -> list[str]:
        """Return the names of what is not what it was before the candidate was imported."""
        names = []
        for owner, name, was in self._was:
            try:
                same = inspect.getattr_static(owner, name) is was
            except AttributeError:
                same = False
            if not same:
                names.append(f"{getattr(owner, '__name__', type(owner).__name__)}.{name}")
        return names
