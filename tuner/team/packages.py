"""Teams' packages on this machine: which there are, without importing them, and, in a child only, what they offer."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tuner import operators
from tuner.operators.operator import Operator
from tuner.team.adapter import ENTRY_POINTS, TritonOperator
from tuner.team.description import operator_from

ENABLED = "RIDGEPOINT_OPERATOR_PACKAGES"     # set by a worker for its children: the packages that owners enabled
_loaded: dict[str, TritonOperator] = {}


class PackageError(Exception):
    """A package that cannot be used here; the text says why."""


def installed() -> list[dict[str, str]]:
    """Distributions with our entry points, from their metadata: {"package", "version"}. No code of theirs is run."""
    found = {}
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        if entry.dist is not None:
            found[normal(entry.dist.name)] = entry.dist.version
    return [{"package": name, "version": version} for name, version in sorted(found.items())]


def normal(name: str) -> str:
    """Acme_Kernels and acme-kernels are the same distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def load(package: str) -> dict[str, TritonOperator]:
    """Import a package's adapters: only in a child that may die, and only for a package that an owner enabled."""
    entries = [entry for entry in metadata.entry_points(group=ENTRY_POINTS) if entry.dist and normal(entry.dist.name) == package]
    if not entries:
        raise PackageError(f"{package} is not installed here, or names no entry point {ENTRY_POINTS}")
    found: dict[str, TritonOperator] = {}
    for entry in entries:
        offered = entry.load()
        for adapter in [offered] if isinstance(offered, TritonOperator) else list(offered):
            if not isinstance(adapter, TritonOperator):
                raise PackageError(f"{entry.value} offers {type(adapter).__name__}, not TritonOperator")
            if adapter.name in operators.OPERATORS or adapter.name in found:
                raise PackageError(f"the name {adapter.name} is taken")
            found[adapter.name] = adapter
    return found


def provide() -> None:
    """In a child: let `operators.find` know what the packages offer that its worker named in the environment."""
    if os.environ.get(ENABLED):
        operators.provide(_offered)


def _offered() -> Mapping[str, Operator]:
    for package in os.environ.get(ENABLED, "").split(","):
        try:
            _loaded.update(load(package))
        except Exception as error:       # one team's fault must not take another team's kernels away
            sys.stderr.write(f"{package}: {type(error).__name__}: {error}\n")
    return {name: operator_from(describe(adapter)) for name, adapter in _loaded.items()}


def adapter_of(name: str) -> TritonOperator:
    return _loaded[name]


def describe(adapter: TritonOperator) -> dict[str, Any]:
    """What tuner.team.description reads: everything about an operator but its code."""
    configs = [config_json(config) for config in getattr(adapter.kernel, "configs", ())]
    params = {name: list(values) for name, values in adapter.params.items()} if adapter.params else None
    first = configs[0] if configs else {name: values[0] for name, values in (params or {}).items()}
    if params and configs:
        configs = []                       # the wider space holds; the listed ones are where a search may begin
    fn, kernel = function(adapter.kernel), adapter.kernel
    top_k = getattr(kernel, "configs_top_k", None) if getattr(kernel, "perf_model", None) else None
    return {
        "name": adapter.name, "title": adapter.title or adapter.name,
        "dims": [{"name": d.name, "meaning": d.meaning, "low": d.low, "high": d.high, "exact": d.exact, "only": list(d.only)}
                 for d in adapter.dims],
        "dtypes": list(adapter.dtypes), "presets": [dict(preset) for preset in adapter.presets], "configs": configs,
        "params": params, "constraints": dict(adapter.constraints), "default": dict(adapter.default or first),
        "flops": adapter.flops, "bytes": adapter.bytes, "tolerance": dict(adapter.tolerance), "unit": adapter.unit,
        "kernel_names": list(dict.fromkeys([fn.__name__, *adapter.kernel_names])),
        "kernel": f"{fn.__module__}.{fn.__qualname__}", "key": list(getattr(kernel, "keys", ())),
        "prunes": {"early": getattr(kernel, "early_config_prune", None) is not None, "top_k": top_k},
        "source_hash": source_hash(adapter)}


def config_json(config: Any) -> dict[str, Any]:
    """A triton.Config as our parameters: its own, warps and stages, and what else differs from Triton's defaults."""
    found = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    if config.num_ctas != 1:
        found["num_ctas"] = config.num_ctas
    if config.maxnreg is not None:
        found["maxnreg"] = config.maxnreg
    return found


def function(kernel: Any) -> Any:
    """The Python function under @triton.autotune, @triton.heuristics and @triton.jit."""
    while not inspect.isfunction(kernel):
        kernel = kernel.fn
    return kernel


def source_hash(adapter: TritonOperator) -> str:
    """Of the file that the kernel stands in, as for the built-in operators."""
    module = importlib.import_module(function(adapter.kernel).__module__)
    return hashlib.sha256(Path(module.__file__ or "").read_bytes()).hexdigest()
