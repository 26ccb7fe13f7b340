"""Arguments of a team's operator at one shape, drawn afresh for every check, and its right result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tuner.tuning.kernels.problem import check_elements, full_precision, generator_on, normal, torch_dtype
from tuner.tuning.team.adapter import TritonOperator


class TeamInputs:
    """`args` by name, `out` what a launch writes; `restored` names arguments that a launch changes and must find as they were:
    those of the kernel's autotuner, beside the adapter's own.
    """

    def __init__(self, adapter: TritonOperator, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int,
                 restored: Sequence[str] = ()) -> None:
        self.adapter, self.device = adapter, device
        self._put_back = [name for name in getattr(adapter, "restored", ()) if name not in restored]
        self._restored = [*restored, *self._put_back]
        self._holds: dict[str, float] = dict(getattr(adapter, "holds", {}))
        self.args = dict(adapter.arguments(shape, torch_dtype(dtype), device))
        out = self.args.get(adapter.out)
        if not isinstance(out, torch.Tensor):
            raise ValueError(f"{adapter.name}: `arguments` gives no tensor {adapter.out!r}, which `out` names")
        check_elements(**{name: value.numel() for name, value in self.args.items() if isinstance(value, torch.Tensor)})
        self.out = out
        self._kept: dict[str, torch.Tensor] = {}
        if device.type != "meta":
            self.refill(seed)

    def refill(self, seed: int) -> None:
        generator = generator_on(self.device, seed)
        if self.adapter.fill is not None:
            self.adapter.fill(self.args, generator)
        else:
            for name, value in self.args.items():
                is_read = name != self.adapter.out or name in self._restored
                if is_read and isinstance(value, torch.Tensor) and value.is_floating_point():
                    normal(generator, value)
        for name, number in self._holds.items():
            self.args[name].fill_(number)
        self._kept = {name: self.args[name].clone() for name in self._restored}

    def put_back(self) -> None:
        """Give the adapter's arguments that a launch changes what they held when inputs were drawn."""
        for name in self._put_back:
            self.args[name].copy_(self._kept[name])
        for name, number in self._holds.items():
            self.args[name].fill_(number)

    def reference(self) -> torch.Tensor:
        full_precision()
        exact = {name: value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                 for name, value in self.args.items()}
        kept = {name: value.float() if value.is_floating_point() else value for name, value in self._kept.items()}
        right: torch.Tensor = self.adapter.reference({**exact, **{name: value.clone() for name, value in kept.items()}})
        return right.float()

    def library(self) -> torch.Tensor:
        """Return the team's own comparison; without one its reference."""
        result: torch.Tensor = (self.adapter.library or self.adapter.reference)(self.args)
        return result
