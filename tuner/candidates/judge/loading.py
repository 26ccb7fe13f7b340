"""A candidate file made into something that can be launched, on inputs that are always the operator's own.

launch   it defines `launch(inputs, out, config)`: `inputs` holds the operator's tensors and numbers by name, it writes `out`
module   it is the operator's own file, changed: the launch of PROBLEMS[operator] or of a TritonOperator of the same name
kernel   it defines `@triton.jit` kernels with names of the operator's: they are launched as the operator launches its own
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from triton.runtime.jit import KernelInterface

from tuner.tuning.kernels.problem import Problem
from tuner.tuning.operators import Operator, find
from tuner.tuning.team import packages
from tuner.tuning.team.adapter import CudaOperator, TritonOperator
from tuner.tuning.team.description import KERNEL_MODULE
from tuner.tuning.team.fences import Fences
from tuner.tuning.team.problem import TeamProblem, make_problem
from tuner.tuning.trial import Config

NAME = "ridgepoint_candidate"
FILE = f"{NAME}.py"
Launch = Callable[[Config], Any]


class ContractBroken(ValueError):
    """A file that defines nothing of what a candidate may be; the text says what would do."""


@dataclass(frozen=True)
class Own:
    """The operator's own code at one shape: where inputs, reference and tolerance come from."""

    operator: Operator
    module: ModuleType
    problem: Any                        # tuner.tuning.kernels.problem.Problem
    adapter: TritonOperator | None      # of a team's operator
    asked: tuple[Mapping[str, int], str, torch.device, int]
    fences: Fences                      # around the problem's tensors

    @property
    def left_alone(self) -> dict[str, torch.Tensor]:
        """Return the tensors that a launch must leave as they are."""
        written = {"out"}
        if self.adapter is not None:
            kernel = self.adapter.kernel
            written = {self.adapter.out, *getattr(kernel, "restore_value", ()), *getattr(kernel, "reset_to_zero", ())}
        return {name: value for name, value in _tensors(self.inputs) if name.partition("[")[0] not in written}

    @property
    def inputs(self) -> dict[str, Any]:
        """Return tensors and numbers by name, without the output."""
        if self.adapter is not None:
            return {name: value for name, value in self.problem.args.items() if name != self.adapter.out}
        of_class = {name: value for cls in reversed(type(self.problem).__mro__) for name, value in vars(cls).items()}
        return {name: value for name, value in {**of_class, **vars(self.problem)}.items()
                if not name.startswith("_") and name != "out" and _is_input(value)}


@dataclass(frozen=True)
class Loaded:
    """`form`: launch, module or kernel; `names`: of the kernels that were replaced."""

    form: str
    launch: Launch
    names: tuple[str, ...] = ()


def open_operator(name: str, shape: Mapping[str, int], dtype: str, device: torch.device, seed: int) -> Own:
    """Return the operator's own code at a shape. Raises ValueError for what it does not take."""
    operator = find(name)
    if operator is None:
        raise ValueError(f"no operator is named {name!r} on this worker")
    module = importlib.import_module(operator.kernel_module)
    fences = Fences(device)
    problem: Problem = fences.made(lambda: module.PROBLEMS[name](shape, dtype, device, seed))
    adapter = packages.adapter_of(name) if operator.kernel_module == KERNEL_MODULE else None
    return Own(operator, module, problem, adapter, (shape, dtype, device, seed), fences)


def import_text(text: str, folder: Path, own: Own) -> ModuleType:
    """Write the text into the folder and import it; what stands in it runs. Raises whatever it raises."""
    path = folder / FILE
    path.write_text(text, encoding="utf-8")
    package = ""
    if own.adapter is not None and not isinstance(own.adapter, CudaOperator):       # its own relative imports hold
        package = sys.modules[packages.python_function(own.adapter.kernel).__module__].__package__ or ""
    spec = importlib.util.spec_from_file_location(f"{package}.{NAME}" if package else NAME, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(module: ModuleType, own: Own) -> Loaded:
    """Return how the candidate is launched on the operator's inputs. Raises ContractBroken."""
    if callable(getattr(module, "launch", None)):
        return Loaded("launch", _launch_of(module.launch, own))
    return _load_team(module, own, own.adapter) if own.adapter is not None else _load_built_in(module, own)


def _load_built_in(module: ModuleType, own: Own) -> Loaded:
    name = own.operator.name
    problems = getattr(module, "PROBLEMS", None)
    if isinstance(problems, Mapping) and name in problems:
        return Loaded("module", Bound(problems[name](*own.asked), own).launch)
    replacements = {key: kernel for key, kernel in vars(module).items()
                    if isinstance(kernel, KernelInterface) and isinstance(getattr(own.module, key, None), KernelInterface)
                    and kernel is not getattr(own.module, key)}
    if not replacements:
        kernels = [key for key, kernel in vars(own.module).items() if isinstance(kernel, KernelInterface)]
        raise ContractBroken(f"the file defines neither launch(inputs, out, config), nor PROBLEMS[{name!r}], nor a @triton.jit "
                             f"kernel named {', '.join(kernels)}")
    copy = _copy_of(own.module)
    for key, kernel in replacements.items():
        setattr(copy, key, _without_unknown(kernel, getattr(own.module, key)))
    return Loaded("kernel", Bound(copy.PROBLEMS[name](*own.asked), own).launch, tuple(replacements))


class _WithoutConstants(KernelInterface):                # type: ignore[misc]
    """A kernel that is launched without some of the operator's constants."""

    def __init__(self, kernel: Any, constants: frozenset[str]) -> None:
        self._kernel, self._constants = kernel, constants

    def run(self, *args: Any, **options: Any) -> Any:
        return self._kernel.run(*args, **{name: value for name, value in options.items() if name not in self._constants})


def _without_unknown(kernel: Any, own: Any) -> Any:
    """Return the kernel, launched without constants that only the operator's own names: it may be older than they are."""
    unknown = frozenset(own.arg_names) - frozenset(kernel.arg_names)
    return _WithoutConstants(kernel, unknown) if unknown else kernel


def _load_team(module: ModuleType, own: Own, adapter: TritonOperator) -> Loaded:
    listed = [entry for value in vars(module).values() for entry in (value if isinstance(value, list | tuple) else [value])]
    theirs = next((entry for entry in listed if isinstance(entry, TritonOperator) and entry.name == adapter.name), None)
    if theirs is not None:
        changed = replace(adapter, kernel=theirs.kernel, grid=theirs.grid)
        return Loaded("module", Bound(make_problem(changed, *own.asked), own).launch)
    if isinstance(adapter, CudaOperator):
        raise ContractBroken(f"{adapter.name} is written in CUDA C++: define launch(inputs, out, config)")
    name = packages.python_function(adapter.kernel).__name__
    kernel = getattr(module, name, None)
    if not isinstance(kernel, KernelInterface) or kernel is adapter.kernel:
        raise ContractBroken(f"the file defines neither launch(inputs, out, config), nor a TritonOperator named {adapter.name}, "
                             f"nor a @triton.jit kernel named {name}")
    return Loaded("kernel", Bound(make_problem(replace(adapter, kernel=kernel), *own.asked), own).launch, (name,))


class _Called:
    """Stands where a team's kernel would be launched: its resets and restores happen as before every launch of theirs."""

    def __init__(self, launch: Callable[..., Any], own: Own) -> None:
        self._launch, self._own = launch, own
        self._inputs = own.inputs
        self.config: Config = {}

    def run(self, **_: Any) -> Any:
        return self._launch(self._inputs, self._own.problem.out, self.config)


def _launch_of(launch: Callable[..., Any], own: Own) -> Launch:
    inputs, problem = own.inputs, own.problem
    if own.adapter is None or isinstance(own.adapter, CudaOperator):
        return lambda config: launch(inputs, problem.out, dict(config))
    called = _Called(launch, own)
    theirs: Any = TeamProblem(own.adapter, *own.asked)
    theirs._launcher = called
    bound = Bound(theirs, own)

    def run(config: Config) -> Any:
        called.config = dict(config)
        return bound.launch(config)
    return run


class Bound:
    """A problem whose tensors are the operator's own, whatever it made itself."""

    def __init__(self, problem: Any, own: Own) -> None:
        self._problem, self._own = problem, own.problem
        if own.adapter is not None:
            problem.args.update(own.problem.args)
            problem.out = own.problem.out
            return
        for name, value in vars(own.problem).items():
            if hasattr(problem, name) and _tensors({name: value}):
                setattr(problem, name, value)

    def launch(self, config: Config) -> Any:
        if hasattr(self._own, "_kept"):             # what a team's kernel must find as it was, drawn anew by each refill
            self._problem._kept = self._own._kept
        return self._problem.launch(config)


def _copy_of(module: ModuleType) -> ModuleType:
    """Return the module executed once more, so that replacing a kernel in it changes nothing of the operator's own."""
    spec = importlib.util.spec_from_file_location(f"ridgepoint_own_{module.__name__.rpartition('.')[2]}", module.__file__ or "")
    assert spec is not None and spec.loader is not None
    copy = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


def _is_input(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(element, torch.Tensor | int) for element in value)
    return value is None or isinstance(value, torch.Tensor | bool | int | float)


def _tensors(inputs: Mapping[str, Any]) -> list[tuple[str, torch.Tensor]]:
    tensors: list[tuple[str, torch.Tensor]] = []
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            tensors.append((name, value))
        elif isinstance(value, list):
            tensors += [(f"{name}[{index}]", element) for index, element in enumerate(value) if isinstance(element, torch.Tensor)]
    return tensors
