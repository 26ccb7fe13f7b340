"""Teams' packages on this machine: found without importing; loaded in a child only."""

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

from profiles.base.refused import Refused
from tuner.tuning import operators
from tuner.tuning.cuda.nvrtc import headers_hash
from tuner.tuning.operators.operator import Operator
from tuner.tuning.sources import beside, hash_sources
from tuner.tuning.team.adapter import ENTRY_POINTS, CudaOperator, TritonOperator
from tuner.tuning.team.description import make_operator

ENABLED = "RIDGEPOINT_OPERATOR_PACKAGES"     # set by a worker for its children: the packages that owners enabled
_loaded: dict[str, TritonOperator] = {}


def installed_packages() -> list[dict[str, str]]:
    """Return {"package", "version"} of distributions with our entry points, from metadata alone."""
    versions = {}
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        if entry.dist is not None:
            versions[normal_name(entry.dist.name)] = entry.dist.version
    return [{"package": name, "version": version} for name, version in sorted(versions.items())]


def normal_name(name: str) -> str:
    """Return the normal form: Acme_Kernels and acme-kernels are the same distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def load_adapters(package: str) -> dict[str, TritonOperator]:
    """Import a package's adapters, by name: only in a child, for an enabled package."""
    entries = [entry for entry in metadata.entry_points(group=ENTRY_POINTS)
               if entry.dist and normal_name(entry.dist.name) == package]
    if not entries:
        raise Refused(f"{package} is not installed here, or names no entry point {ENTRY_POINTS}")
    adapters: dict[str, TritonOperator] = {}
    for entry in entries:
        offered = entry.load()
        for adapter in [offered] if isinstance(offered, TritonOperator) else list(offered):
            if not isinstance(adapter, TritonOperator):
                raise Refused(f"{entry.value} offers {type(adapter).__name__}, not TritonOperator")
            if adapter.name in {**operators.OPERATORS, **operators.VENDORS} or adapter.name in adapters:
                raise Refused(f"the name {adapter.name} is taken")
            adapters[adapter.name] = adapter
    return adapters


def provide() -> None:
    """Let `operators.find` know, in a child, what the packages named in its environment offer."""
    if os.environ.get(ENABLED):
        operators.provide(_load_operators)


def _load_operators() -> Mapping[str, Operator]:
    for package in os.environ.get(ENABLED, "").split(","):
        try:
            _loaded.update(load_adapters(package))
        except Exception as error:       # one team's fault must not take another team's kernels away
            sys.stderr.write(f"{package}: {type(error).__name__}: {error}\n")
    return {name: make_operator(describe_adapter(adapter)) for name, adapter in _loaded.items()}


def offer(adapter: TritonOperator) -> None:
    """Let `adapter_of` know an operator of no package: that of a kernel file."""
    _loaded[adapter.name] = adapter


def adapter_of(name: str) -> TritonOperator:
    """Return the adapter of an operator."""
    return _loaded[name]


def describe_adapter(adapter: TritonOperator) -> dict[str, Any]:
    """Return everything about an operator but its code, as description.py reads it."""
    configs = [config_json(config) for config in getattr(adapter.kernel, "configs", ())]
    params = {name: list(values) for name, values in adapter.params.items()} if adapter.params else None
    first = configs[0] if configs else {name: values[0] for name, values in (params or {}).items()}
    if params and configs:
        configs = []                       # the wider space holds; the listed ones are where a search may begin
    kernel, (function, place) = adapter.kernel, _named(adapter)
    top_k = getattr(kernel, "configs_top_k", None) if getattr(kernel, "perf_model", None) else None
    return {
        "name": adapter.name, "title": adapter.title or adapter.name,
        "dims": [{"name": d.name, "meaning": d.meaning, "low": d.low, "high": d.high, "exact": d.exact, "only": list(d.only)}
                 for d in adapter.dims],
        "dtypes": list(adapter.dtypes), "presets": [dict(preset) for preset in adapter.presets], "configs": configs,
        "params": params, "constraints": dict(adapter.constraints), "default": dict(adapter.default or first),
        "flops": adapter.flops, "bytes": adapter.bytes, "tolerance": dict(adapter.tolerance), "unit": adapter.unit,
        "kernel_names": list(dict.fromkeys([function, *adapter.kernel_names])),
        "kernel": place, "key": list(getattr(kernel, "keys", ())),
        "prunes": {"early": getattr(kernel, "early_config_prune", None) is not None, "top_k": top_k},
        "source_hash": source_hash(adapter)}


def _named(adapter: TritonOperator) -> tuple[str, str]:
    """Return the name of the kernel's function, and where it stands."""
    if isinstance(adapter, CudaOperator):
        return adapter.kernel.function, f"{Path(adapter.kernel.file).name}:{adapter.kernel.function}"
    fn = python_function(adapter.kernel)
    return fn.__name__, f"{fn.__module__}.{fn.__qualname__}"


def config_json(config: Any) -> dict[str, Any]:
    """Return a triton.Config as parameters: its own, warps, stages, other non-defaults."""
    params = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    if config.num_ctas != 1:
        params["num_ctas"] = config.num_ctas
    if config.maxnreg is not None:
        params["maxnreg"] = config.maxnreg
    return params


def python_function(kernel: Any) -> Any:
    """Return the Python function under @triton.autotune, @triton.heuristics and @triton.jit."""
    while not inspect.isfunction(kernel):
        kernel = kernel.fn
    return kernel


def source_hash(adapter: TritonOperator) -> str:
    """Return the hash of the files that hold the kernel's code; of CUDA C++ with the headers beside it. Raises OSError."""
    if isinstance(adapter, CudaOperator):
        file = Path(adapter.kernel.file)
        return hashlib.sha256(file.read_bytes() + headers_hash(file.parent).encode()).hexdigest()
    module = importlib.import_module(python_function(adapter.kernel).__module__)
    return hash_sources(module, beside(module))
