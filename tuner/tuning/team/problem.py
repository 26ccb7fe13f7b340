"""A team's operator at one shape, as tuner.tuning.kernels.problem.Problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from tuner.tuning.kernels.problem import Problem
from tuner.tuning.team import packages
from tuner.tuning.team.adapter import CudaOperator, TritonOperator
from tuner.tuning.team.cuda_problem import CudaProblem
from tuner.tuning.team.inputs import TeamInputs
from tuner.tuning.trial import Config, config_key


class TeamProblem(TeamInputs):
    """A Triton kernel under its autotuner, with the autotuner's resets and restores."""

    def __init__(self, adapter: TritonOperator, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        kernel = adapter.kernel
        super().__init__(adapter, shape, dtype, device, seed, tuple(getattr(kernel, "restore_value", ())))
        configs = getattr(kernel, "configs", None)
        self._launcher = kernel.fn if configs is not None else kernel
        self._hooks = {config_key(packages.config_json(config)): config.pre_hook for config in configs or () if config.pre_hook}
        self._zeroed = list(getattr(kernel, "reset_to_zero", ()))

    def compile(self, config: Config) -> Any:
        return self._launcher.warmup(grid=self.adapter.grid, **self.args, **config)

    def launch(self, config: Config) -> Any:
        self.put_back()
        return self.start(config)

    def start(self, config: Config) -> Any:
        """Launch on arguments that were put back: what the kernel's own autotuner resets and restores is part of it."""
        for name in self._zeroed:
            self.args[name].zero_()
        for name, value in self._kept.items():
            if name not in self._put_back:
                self.args[name].copy_(value)
        hook = self._hooks.get(config_key(config)) if self._hooks else None
        if hook is not None:
            hook({**self.args, **config})
        return self._launcher.run(grid=self.adapter.grid, warmup=False, **self.args, **config)


def make_problem(adapter: TritonOperator, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> Problem:
    """Return the problem of an adapter: in Triton or in CUDA C++."""
    kind = CudaProblem if isinstance(adapter, CudaOperator) else TeamProblem
    return kind(adapter, shape, dtype, device, seed)        # type: ignore[arg-type]


class _Problems(Mapping[str, Callable[..., Problem]]):
    """Operator name → constructor, for whatever the enabled packages offer."""

    def __getitem__(self, name: str) -> Callable[..., Problem]:
        return partial(make_problem, packages.adapter_of(name))

    def __iter__(self) -> Iterator[str]:
        return iter(packages._loaded)

    def __len__(self) -> int:
        return len(packages._loaded)


PROBLEMS = _Problems()


def source_hash(name: str) -> str:
    """Return the hash of the operator's kernel source."""
    return packages.source_hash(packages.adapter_of(name))
