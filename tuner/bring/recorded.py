"""Calls of kernels as the client's `record` wrote them: shapes, strides and types of tensors, numbers, constexprs, the grid."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused

MAX_BYTES = 4 << 20
DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float8_e4m3fn": "fp8"}
MOST_DIMS, MOST_NUMBER = 8, 1 << 40


@dataclass(frozen=True)
class Tensor:
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str                          # torch's name: "bfloat16"

    @property
    def is_float(self) -> bool:
        return self.dtype in DTYPES


@dataclass(frozen=True)
class Call:
    """One launch: argument → Tensor or number, constexpr → value, programs along each axis of the grid."""

    kernel: str
    arguments: dict[str, Any]
    constexprs: dict[str, Any]
    options: dict[str, int]
    grid: tuple[int, ...] = ()


def read_calls(path: Path) -> list[Call]:
    """Return the launches of a recording. Raises Refused for a file that is none."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Refused(f"{path.name}: more than {MAX_BYTES:,} bytes")
        document = json.loads(path.read_text())
        return [_read(call) for call in document["calls"]]
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"{path.name} is no recording of `record` ({type(error).__name__}: {error})"[:300]) from error


def _read(told: dict[str, Any]) -> Call:
    return Call(str(told["kernel"])[:200], {str(name): _value(argument) for name, argument in told["arguments"].items()},
                {str(name): each for name, each in told["constexprs"].items() if isinstance(each, bool | int | float | str | None)},
                {str(name): int(each) for name, each in told["options"].items()}, tuple(_whole(each) for each in told["grid"])[:3])


def _value(told: Any) -> Any:
    if isinstance(told, dict):
        shape, stride = (tuple(_whole(extent) for extent in told[name]) for name in ("shape", "stride"))
        if len(shape) != len(stride) or len(shape) > MOST_DIMS:
            raise ValueError(f"a tensor of shape {list(shape)} and strides {list(stride)}")
        return Tensor(shape, stride, str(told["dtype"])[:40])
    if told is None or isinstance(told, bool | int | float):
        return told
    raise ValueError(f"an argument is a tensor or a number, not {str(told)[:40]!r}")


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_NUMBER:
        raise ValueError(f"{str(value)[:40]!r} is no size")
    return value
