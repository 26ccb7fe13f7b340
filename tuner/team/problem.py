"""A team's operator at one shape, as tuner.kernels.problem.Problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from tuner.kernels.problem import check_elements, full_precision, generator_on, normal, torch_dtype
from tuner.team import packages
from tuner.team.adapter import TritonOperator
from tuner.trial import Config, config_key


class TeamProblem:
    """The kernel under its autotuner, with the autotuner's resets and restores."""

    def __init__(self, adapter: TritonOperator, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.adapter, kernel = adapter, adapter.kernel
        configs = getattr(kernel, "configs", None)
        self._launcher = kernel.fn if configs is not None else kernel
        self._hooks = {config_key(packages.config_json(config)): config.pre_hook for config in configs or () if config.pre_hook}
        self._zeroed, self._restored = list(getattr(kernel, "reset_to_zero", ())), list(getattr(kernel, "restore_value", ()))
        self.args = dict(adapter.arguments(shape, torch_dtype(dtype), device))
        out = self.args.get(adapter.out)
        if not isinstance(out, torch.Tensor):
            raise ValueError(f"{adapter.name}: `arguments` gives no tensor {adapter.out!r}, which `out` names")
        check_elements(**{name: value.numel() for name, value in self.args.items() if isinstance(value, torch.Tensor)})
        self.out = out
        self._device = device
        if device.type != "meta":
            self.refill(seed)

    def refill(self, seed: int) -> None:
        generator = generator_on(self._device, seed)
        if self.adapter.fill is not None:
            self.adapter.fill(self.args, generator)
        else:
            for name, value in self.args.items():
                if name != self.adapter.out and isinstance(value, torch.Tensor) and value.is_floating_point():
                    normal(generator, value)
        self._kept = {name: self.args[name].clone() for name in self._restored}

    def reference(self) -> torch.Tensor:
        full_precision()
        exact = {name: value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                 for name, value in self.args.items()}
        right: torch.Tensor = self.adapter.reference({**exact, **{name: value.float() for name, value in self._kept.items()}})
        return right.float()

    def library(self) -> torch.Tensor:
        """Return the team's own comparison; without one its reference."""
        result: torch.Tensor = (self.adapter.library or self.adapter.reference)(self.args)
        return result

    def compile(self, config: Config) -> Any:
        return self._launcher.warmup(grid=self.adapter.grid, **self.args, **config)

    def launch(self, config: Config) -> Any:
        for name in self._zeroed:
            self.args[name].zero_()
        for name, value in self._kept.items():
            self.args[name].copy_(value)
        hook = self._hooks.get(config_key(config)) if self._hooks else None
        if hook is not None:
            hook({**self.args, **config})
        return self._launcher.run(grid=self.adapter.grid, warmup=False, **self.args, **config)


class _Problems(Mapping[str, Callable[..., TeamProblem]]):
    """Operator name → constructor, for whatever the enabled packages offer."""

    def __getitem__(self, name: str) -> Callable[..., TeamProblem]:
        return partial(TeamProblem, packages.adapter_of(name))

    def __iter__(self) -> Iterator[str]:
        return iter(packages._loaded)

    def __len__(self) -> int:
        return len(packages._loaded)


PROBLEMS = _Problems()


def source_hash(name: str) -> str:
    """Return the hash of the operator's kernel source."""
    return packages.source_hash(packages.adapter_of(name))
