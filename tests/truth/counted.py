"""What a trace of PyTorch's profiler holds, counted from its JSON by nothing but `json`: the other side of every number here."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from tests.kept.folder import digest_of, keep

KERNEL, OTHER_WORK = frozenset({"kernel"}), frozenset({"gpu_memcpy", "gpu_memset", "memcpy", "memset"})
CALL = frozenset({"runtime", "cuda_runtime", "cuda_driver"})
OPERATOR = frozenset({"operator", "cpu_op"})
HOST = CALL | OPERATOR | {"python_function", "user_annotation"}       # with GPU work: what wall time is counted over
WORK = KERNEL | OTHER_WORK
Slice = tuple[int, int, str]            # start and end in ns, name


@dataclass
class Count:
    """Launches are kernels alone; `work_ns` counts copies and sets too.

    `operator_ns`: by kernel, then by the innermost operator around its launch call ("" where there is none); `work_by_operator_ns`:
    of all GPU work, by that operator.
    """

    launches: int = 0
    kernel_ns: int = 0
    work_ns: int = 0
    wall_ns: int = 0
    operator_ns: dict[str, dict[str, int]] = field(default_factory=dict)
    work_by_operator_ns: dict[str, int] = field(default_factory=dict)

    @property
    def by_kernel(self) -> dict[str, int]:
        return {name: sum(ns.values()) for name, ns in self.operator_ns.items()}


@lru_cache(maxsize=1)
def count(path: Path) -> Count:
    """Count one file, once for all runs."""
    kept = keep("counts", f"{_rules()}-{zlib.crc32(path.read_bytes())}", lambda folder: _write(_count(path), folder))
    return Count(**json.loads((kept / "count.json").read_text()))


@cache
def _rules() -> str:
    return digest_of([Path(__file__).resolve()])


def _write(counted: Count, folder: Path) -> None:
    (folder / "count.json").write_text(json.dumps(asdict(counted)))


def _count(path: Path) -> Count:
    content = path.read_bytes()
    document = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content, parse_float=Decimal, strict=False)
    events = document["traceEvents"] if isinstance(document, dict) else document
    slices = [(kind, each, _ns(each["ts"]), _ns(each["dur"])) for each in events if each.get("ph") == "X" and "dur" in each
              and (kind := str(each.get("cat", "")).lower()) in WORK | HOST]
    operators = _innermost(slices)
    out = Count(wall_ns=max((start + ns for _, _, start, ns in slices), default=0) - min((each[2] for each in slices), default=0))
    for kind, each, _, ns in slices:
        if kind not in WORK:
            continue
        operator = operators.get(_launch(each), "")
        out.work_ns += ns
        out.work_by_operator_ns[operator] = out.work_by_operator_ns.get(operator, 0) + ns
        if kind in KERNEL:
            out.launches += 1
            out.kernel_ns += ns
            mine = out.operator_ns.setdefault(str(each["name"]), {})
            mine[operator] = mine.get(operator, 0) + ns
    return out


def _ns(us: Any) -> int:
    return round(us * 1000)             # exact: an integer or a decimal number


def _launch(event: dict[str, Any]) -> tuple[str, Any] | None:
    """Return what names a launch: its correlation within its rank, which a prefix before the process's number says; 0 is none."""
    correlation = (event.get("args") or {}).get("correlation")
    pid = event.get("pid")
    return (pid.rstrip("0123456789") if isinstance(pid, str) else "", correlation) if correlation else None


def _innermost(slices: list[tuple[str, dict[str, Any], int, int]]) -> dict[Any, str]:
    """Return the innermost operator around each launch call, by correlation."""
    threads: dict[Any, tuple[list[Slice], list[tuple[int, int, Any]]]] = defaultdict(lambda: ([], []))
    for kind, each, start, ns in slices:
        operators, calls = threads[each.get("pid"), each.get("tid")]
        if kind in OPERATOR:
            operators.append((start, start + ns, str(each["name"])))
        elif kind in CALL and _launch(each) is not None:
            calls.append((start, start + ns, _launch(each)))
    return dict(pair for operators, calls in threads.values() for pair in _around(operators, calls))


def _around(operators: list[Slice], calls: list[tuple[int, int, Any]]) -> Iterator[tuple[Any, str]]:
    """Yield each call's correlation and the operator that lies closest around it on its thread."""
    operators.sort(key=lambda each: (each[0], -each[1]))
    stack: list[Slice] = []
    at = 0
    for start, end, correlation in sorted(calls, key=lambda each: each[:2]):
        while at < len(operators) and operators[at][0] <= start:
            while stack and stack[-1][1] < operators[at][0]:
                stack.pop()
            stack.append(operators[at])
            at += 1
        around = next((each for each in reversed(stack) if each[1] >= end), None)
        if around is not None:
            yield correlation, around[2]
