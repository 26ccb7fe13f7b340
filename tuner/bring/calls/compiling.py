"""A recorded launch compiled: the very arguments that the host gave, on tensors of torch's "meta" device."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

from tuner.bring.calls.recorder import Launch


def compile_launch(launch: Launch, config: Mapping[str, Any]) -> Any:
    """Return the launch's kernel, compiled with this configuration in place of what was chosen."""
    arguments = {name: _without_mode(value) for name, value in launch.given.items()}
    if launch.hook is not None:
        launch.hook({**arguments, **config})
    options = {name: value for name, value in launch.options.items() if name not in config}
    return launch.kernel.warmup(grid=(1,), **{**arguments, **options, **config})


def _without_mode(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(tuple(value.shape), value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, tuple):
        return tuple(_without_mode(element) for element in value)
    if hasattr(value, "base") and hasattr(value, "block_shape"):
        descriptor = copy.copy(value)
        descriptor.base = _without_mode(value.base)
        return descriptor
    return value
