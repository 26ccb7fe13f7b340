"""Kernels as lines of text, for the form: "matmul M=4096 N=4096 K=4096 bf16 cache", one a line. Standard library.

    operator DIM=value … type [default | cache | {PARAMETER=value …}] [#tag]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tuner.suites.checks import CONFIGS
from tuner.suites.definition import Definition, KernelDefinition, config_text

MAX_LINES = 3_000
_CONFIG = re.compile(r"\{([^{}]*)\}")
_TAG = re.compile(r"(?:\A|\s)#\s*(.*)\Z")
_PAIR = re.compile(r"([A-Za-z_]\w{0,59})=(\S{1,200})\Z")
_WHOLE = re.compile(r"-?\d{1,15}\Z")
_FRACTION = re.compile(r"-?\d{1,15}\.\d{1,15}\Z")


class LineError(ValueError):
    """A line that is not understood; the text says which and how it is written."""


def lines_read(text: str) -> list[dict[str, Any]]:
    """What `definition.read` takes as "kernel", one for each line that is not empty."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if len(lines) > MAX_LINES:
        raise LineError(f"at most {MAX_LINES:,} kernels, one a line")
    return [_read(number, line) for number, line in lines]


def _read(number: int, line: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if tag := _TAG.search(line):
        found["tag"], line = tag[1].strip(), line[:tag.start()]
    if config := _CONFIG.search(line):
        found["config"] = dict(_pair(number, part) for part in re.split(r"[\s,]+", config[1].strip()) if part)
        line = line[:config.start()] + " " + line[config.end():]
    op, *rest = re.split(r"[\s,]+", line.strip())
    shape: dict[str, Any] = {}
    for part in filter(None, rest):
        if "=" in part:
            name, value = _pair(number, part)
            shape[name] = value
        elif part in CONFIGS and "config" not in found:
            found["config"] = part
        elif "dtype" not in found:
            found["dtype"] = part
        else:
            raise LineError(f'line {number}: "{part[:40]}" is not understood; write it like matmul M=4096 N=4096 K=4096 bf16 cache')
    return {"op": op, "shape": shape, **found}


def _pair(number: int, part: str) -> tuple[str, Any]:
    pair = _PAIR.match(part)
    if pair is None:
        raise LineError(f'line {number}: "{part[:40]}" is not understood; write NAME=value')
    return pair[1], value_of(pair[2])


def value_of(text: str) -> Any:
    """A value as people write it: a number where it looks like one, true and false, else the text."""
    if _WHOLE.match(text):
        return int(text)
    if _FRACTION.match(text):
        return float(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def line_of(kernel: KernelDefinition) -> str:
    shape = " ".join(f"{name}={value}" for name, value in kernel.shape.items())
    config = "{" + config_text(kernel.config or {}) + "}" if kernel.config_from == "given" else kernel.config_from
    return " ".join(filter(None, (kernel.op, shape, kernel.dtype, config, f"#{kernel.tag}" if kernel.tag else "")))


def lines_of_definition(definition: Definition) -> str:
    return "\n".join(line_of(kernel) for kernel in definition.kernels if kernel.enabled)


def limits_read(text: str) -> dict[str, dict[str, Any]]:
    """"registers max_increase=0.1", one metric a line."""
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        metric, *rest = line.split()[:20] or [""]
        if metric:
            found[metric] = dict(_pair(number, part) for part in rest)
    return found


def limits_lines(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    return "\n".join(f"{name} {config_text({k: str(v).lower() if isinstance(v, bool) else v for k, v in limits.items()})}"
                     for name, limits in metrics.items())
