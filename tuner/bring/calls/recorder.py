"""Launches kept instead of made: what Triton would be given, under its autotuner and its heuristics."""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.nvidia.compiler import CUDAOptions
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from tuner.tuning.team.packages import config_json

MOST_LAUNCHES = 64
MOST_FRAMES, MOST_ABOVE = 12, 4             # of the host above a launch that are looked at; of what stands above a kernel
LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
MOST_BITS = 63
SHARED_BYTES = 1024         # of a kernel that is not compiled: a host divides by it
_PLAIN = {"num_ctas": 1}
_NO_OPTIONS = ("debug", "instrumentation_mode", "warmup")
_KNOWN_OPTIONS = {each.name for each in dataclasses.fields(CUDAOptions)}       # others are of other GPUs: `waves_per_eu`


class TooManyLaunches(RuntimeError):
    """More launches than one call is expected to make."""


@dataclass
class Launch:
    """One launch as the host asked for it: `given` every argument by name, `options` of the launch, `grid` as it was written."""

    kernel: Any
    given: dict[str, Any]
    options: dict[str, Any]
    grid: Any
    programs: tuple[int, ...]
    autotune: dict[str, Any] | None = None
    tuned: dict[str, Any] = field(default_factory=dict)
    heuristics: dict[str, Any] = field(default_factory=dict)
    heuristics_above: bool = False          # of the autotuner: it is given what they compute
    hook: Callable[[dict[str, Any]], Any] | None = None      # of the autotuner, which sets blocks of descriptors and nothing else
    held: dict[str, dict[str, Any]] = field(default_factory=dict)       # what tensors were known to hold then, by argument
    defaulted: frozenset[str] = frozenset()         # arguments that the host does not give
    left_out: tuple[str, ...] = ()          # options that Triton does not have for this GPU

    @property
    def name(self) -> str:
        return str(self.kernel.fn.__name__)

    def programs_with(self, other: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Return the grid were these arguments others; None where the host computed it before it launched."""
        if not callable(self.grid):
            return None
        return _programs(self.grid, {**self.given, **other})


def _programs(grid: Any, given: Mapping[str, Any]) -> tuple[int, ...]:
    programs = grid(dict(given)) if callable(grid) else grid
    return tuple(int(extent) for extent in (programs if isinstance(programs, tuple | list) else (programs,)))


class Recorder:
    """Keeps the launches of this process in place of Triton's own; `stop` gives Triton back what it had."""

    def __init__(self, keeps: bool = True, look: Callable[[Any], dict[str, Any]] = lambda tensor: {}) -> None:
        self._keeps = keeps                     # False: launches are made by nobody, and forgotten
        self.look = look                        # what a tensor is known to hold as it is given to a kernel
        self.after: Callable[[Launch], None] = lambda launch: None      # what follows of a launch that is kept
        self.launches: list[Launch] = []
        self._autotune: list[dict[str, Any]] = []
        self._hooks: list[Any] = []
        self._runs: dict[Any, Any] = {}         # of autotuners of somebody's own kind
        self._heuristics: list[dict[str, Any]] = []
        self._kept = (JITFunction.run, Autotuner.run, Autotuner._bench, Heuristics.run)

    def start(self) -> None:
        recorder = self

        def run(self: Any, *args: Any, grid: Any = None, warmup: bool = False, **more: Any) -> Any:
            return recorder._launch(self, args, grid, warmup, more)

        def tune(self: Any, *args: Any, **more: Any) -> Any:
            return recorder._tune(self, args, more)

        def compute(self: Any, *args: Any, **more: Any) -> Any:
            return recorder._compute(self, args, more)

        self._runs = {subclass: subclass.run for subclass in _subclasses(Autotuner) if "run" in vars(subclass)}
        JITFunction.run = run
        for autotuner in (Autotuner, *self._runs):
            autotuner.run = tune
        Autotuner._bench = lambda self, *given, **more: [1.0, 1.0, 1.0]
        Heuristics.run = compute

    def stop(self) -> None:
        JITFunction.run, Autotuner.run, Autotuner._bench, Heuristics.run = self._kept
        for subclass, run in self._runs.items():
            subclass.run = run

    def _launch(self, kernel: Any, args: tuple[Any, ...], grid: Any, warmup: bool, more: dict[str, Any]) -> Any:
        names = list(kernel.arg_names)
        if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in inspect.signature(kernel.fn).parameters.values()):
            raise TypeError(f"Triton {triton.__version__} refuses {kernel.fn.__name__}: no kernel takes * or ** any more")
        if len(args) > len(names):
            raise TypeError(f"{kernel.fn.__name__} takes {len(names)} arguments, {len(args)} were given")
        bound = {parameter.name: parameter.default for parameter in kernel.params if parameter.has_default}
        bound |= dict(zip(names, args, strict=False)) | {name: value for name, value in more.items() if name in names}
        options = {name: value for name, value in more.items()          # num_warps may be an argument as well
                   if name not in _NO_OPTIONS and (name not in names or name in LAUNCH_OPTIONS)}
        left_out = tuple(sorted(options.keys() - _KNOWN_OPTIONS))
        options = {name: value for name, value in options.items() if name not in left_out}
        if lacking := [name for name in names if name not in bound]:
            raise TypeError(f"{kernel.fn.__name__} is launched without {', '.join(lacking)}")
        defaulted = frozenset(bound) - set(names[:len(args)]) - more.keys()
        bound = {name: value.value if type(value := bound[name]).__name__ == "constexpr" else value for name in names}
        if warmup or not self._keeps:
            return _Compiled(self, kernel, options)
        self._keep(kernel, bound, options, grid, defaulted, left_out)
        return _Compiled(self, kernel, options)

    def _keep(self, kernel: Any, bound: dict[str, Any], options: dict[str, Any], grid: Any, defaulted: frozenset[str],
              left_out: tuple[str, ...]) -> None:
        if len(self.launches) >= MOST_LAUNCHES:
            raise TooManyLaunches(f"the call launches more than {MOST_LAUNCHES} kernels")
        if long := [name for name, value in bound.items() if type(value) is int and value.bit_length() > MOST_BITS]:
            raise OverflowError(f"{kernel.fn.__name__}: {long[0]} has more than 64 bits")
        autotune = self._autotune[-1] if self._autotune else _own_autotuner(kernel)
        heuristics = {name: {**options, **bound}[name] for heuristic in self._heuristics for name in heuristic["names"]
                      if name in bound or name in options}
        tuned = {name: bound.get(name, options.get(name)) for name in (autotune or {}).get("names", ())
                 if name in bound or name in options}
        above = any(not heuristic["tuned"] for heuristic in self._heuristics) and autotune is not None
        facts = {name: fact for name, value in bound.items() if isinstance(value, torch.Tensor) and (fact := self.look(value))}
        self.launches.append(Launch(kernel, bound, options, grid, _programs(grid, bound), autotune, tuned, heuristics, above,
                                    self._hooks[-1] if self._hooks else None, facts, defaulted, left_out))
        self.after(self.launches[-1])

    def _tune(self, tuner: Any, args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        why = ""
        try:
            if not (configs := list(tuner.prune_configs(dict(more)))):
                raise ValueError("it keeps none")
        except Exception as error:
            configs, why = list(tuner.configs), f"{type(error).__name__}: {error}"[:200]
        config = configs[0]
        hook, blocks = _blocks_of(configs, {**tuner.nargs, **more})
        self._hooks.append(hook)
        written = [config_json(entry) for entry in tuner.configs]
        listed = _for_this_gpu(written, tuner.arg_names)
        self._autotune.append({
            "configs": listed, "kept": _for_this_gpu(map(config_json, configs), tuner.arg_names), "own": listed != written,
            "key": [str(key) for key in tuner.keys],
            "names": list(dict.fromkeys(name for entry in listed for name in entry)), "pruned": len(configs) < len(written),
            "prunes": bool(tuner.early_config_prune or tuner.perf_model), "prune_failed": why,
            "reset_to_zero": list(tuner.reset_to_zero), "restore_value": list(tuner.restore_value),
            "pre_hook": bool(config.pre_hook or tuner.user_defined_pre_hook), "blocks": blocks})
        try:
            chosen = config.all_kwargs()
            if config.pre_hook is not None:
                config.pre_hook({**tuner.nargs, **more, **chosen})
            return tuner.fn.run(*args, **{**more, **chosen})
        finally:
            self._autotune.pop()
            self._hooks.pop()

    def _compute(self, heuristics: Any, args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        for name, rule in heuristics.values.items():
            more[name] = rule({**dict(zip(heuristics.arg_names, args, strict=False)), **more})
        self._heuristics.append({"names": list(heuristics.values), "tuned": bool(self._autotune)})
        try:
            return heuristics.fn.run(*args, **more)
        finally:
            self._heuristics.pop()


class _Counting(TorchDispatchMode):     # type: ignore[misc]
    """Counts what is computed."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def _blocks_of(configs: Sequence[Any], given: Mapping[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
    """Return the hook that configurations share, and the blocks that it gives each descriptor with each of them.

    None and [] where there is none, or where it computes something, which then belongs to the launch.
    """
    hook = configs[0].pre_hook
    descriptors = {name: spec for name, spec in given.items() if hasattr(spec, "block_shape")}
    if hook is None or not descriptors or any(entry.pre_hook is not hook for entry in configs):
        return None, []
    blocks = []
    with _Counting() as counting:
        for config in configs[:MOST_LAUNCHES]:
            hook({**given, **config.all_kwargs()})
            blocks.append({"config": config_json(config),
                           "blocks": {name: [int(size) for size in spec.block_shape] for name, spec in descriptors.items()}})
    return (hook, blocks) if not counting.count else (None, [])


def _for_this_gpu(configs: Iterable[dict[str, Any]], arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Return configurations without options of other GPUs, each once."""
    known = {*arguments, *_KNOWN_OPTIONS}
    kept: list[dict[str, Any]] = []
    for config in configs:
        own = {name: value for name, value in config.items() if name in known}
        kept += [own] if own not in kept else []
    return kept


def _subclasses(kind: type) -> list[Any]:
    own: list[Any] = kind.__subclasses__()
    return [*own, *(descendant for child in own for descendant in _subclasses(child))]


def _own_autotuner(kernel: Any) -> dict[str, Any] | None:
    """Return the list of an autotuner of somebody's own that makes this launch: an object with `configs` above the kernel, `fn`."""
    frame: Any = sys._getframe(3)
    for _ in range(MOST_FRAMES):
        if frame is None:
            return None
        tuner = frame.f_locals.get("self")
        configs = getattr(tuner, "configs", None)
        if isinstance(configs, list | tuple) and configs and not isinstance(tuner, Autotuner) and _leads_to(tuner, kernel):
            listed = [{**config.kwargs, **{name: getattr(config, name) for name in LAUNCH_OPTIONS
                                           if getattr(config, name, None) not in (None, _PLAIN.get(name))}} for config in configs]
            names = list(dict.fromkeys(name for entry in listed for name in entry))
            return {"configs": listed, "kept": listed, "key": [], "names": names, "pruned": False, "prunes": False,
                    "prune_failed": "", "reset_to_zero": [], "restore_value": [], "blocks": [],
                    "pre_hook": any(getattr(config, "pre_hook", None) for config in configs), "own": True}
        frame = frame.f_back
    return None


def _leads_to(tuner: Any, kernel: Any) -> bool:
    for _ in range(MOST_ABOVE):
        tuner = getattr(tuner, "fn", None)
        if tuner is kernel:
            return True
    return False


class _Compiled:
    """What a launch or `warmup` returns: a binary that is not there; the host may ask its size, and launch it."""

    n_regs, n_spills, shared = 32, 0, SHARED_BYTES

    def __init__(self, recorder: Recorder, kernel: Any, options: dict[str, Any]) -> None:
        self._recorder, self._kernel, self._options = recorder, kernel, options
        self.metadata = SimpleNamespace(shared=self.shared, num_warps=options.get("num_warps", 4), num_ctas=1)
        self.asm: dict[str, str] = {}

    def _init_handles(self) -> None: ...

    def __getitem__(self, grid: Any) -> Any:
        return lambda *given, **more: self._recorder._launch(self._kernel, given, grid, False, {**self._options, **more})


def describe(value: Any) -> dict[str, Any]:
    """Return what an argument is: its kind, and what a launch or a compile needs to know of it."""
    if isinstance(value, torch.Tensor):
        return {"kind": "tensor", "dtype": str(value.dtype).removeprefix("torch."), "shape": [int(size) for size in value.shape],
                "strides": [int(stride) for stride in value.stride()], "storage": value.untyped_storage()._cdata,
                "offset": int(value.storage_offset())}
    if isinstance(getattr(value, "base", None), torch.Tensor) and hasattr(value, "block_shape"):
        return {"kind": "descriptor", "block": [int(size) for size in value.block_shape], "base": describe(value.base),
                "shape": [int(size) for size in value.shape], "strides": [int(stride) for stride in value.strides]}
    if type(value) is float and not math.isfinite(value):
        return {"kind": "float", "value": str(value)}               # JSON has no such number
    kind: Any = type(value)
    if isinstance(value, Integral) and kind not in (int, bool):
        return {"kind": "int", "value": int(value)}                 # one of an IntEnum, of numpy
    if isinstance(value, bool | int | float | str) or value is None:
        return {"kind": type(value).__name__ if value is not None else "none", "value": value}
    if type(value).__name__ == "constexpr":
        return describe(value.value)
    if type(value).__name__ == "dtype":
        return {"kind": "dtype", "value": str(value).removeprefix("triton.language.").removeprefix("torch.")}
    if isinstance(value, tuple | list):
        return {"kind": "tuple", "value": [describe(element) for element in value][:64]}
    if isinstance(value, JITFunction) and all(part.isidentifier() for part in (value.__name__, *value.__module__.split("."))) \
            and value.__name__ == value.fn.__qualname__:
        return {"kind": "function", "value": value.__name__, "module": value.__module__}
    return {"kind": "other", "value": f"{type(value).__module__}.{getattr(value, '__name__', type(value).__name__)}"[:100]}


def describe_launch(launch: Launch) -> dict[str, Any]:
    """Return a launch for programs: what each argument is, what tensors are known to hold, and who chose it."""
    if (own := getattr(launch, "describe", None)) is not None:          # one of another language
        return dict(own())
    constexprs = {parameter.name for parameter in launch.kernel.params if parameter.is_constexpr}
    return {"kernel": launch.name, "module": str(launch.kernel.fn.__module__), "grid": list(launch.programs),
            "grid_is_function": callable(launch.grid), "gluon": bool(launch.kernel.is_gluon()),
            "line": launch.kernel.fn.__code__.co_firstlineno, "file": str(launch.kernel.fn.__code__.co_filename),
            "arguments": {name: {**describe(value), **launch.held.get(name, {})}
                          for name, value in launch.given.items() if name not in constexprs},
            "constexprs": {name: describe(value) for name, value in launch.given.items() if name in constexprs},
            "options": {name: value for name, value in launch.options.items() if isinstance(value, bool | int | float | str)},
            "autotune": launch.autotune, "tuned": launch.tuned, "heuristics": sorted(launch.heuristics),
            "heuristics_above": launch.heuristics_above, "left_out": list(launch.left_out)}
