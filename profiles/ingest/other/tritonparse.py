"""Logs of tritonparse (`.ndjson`: an object a line for every compilation and launch of a Triton kernel) → `Summary`.

Source: tritonparse/structured_logging.py of meta-pytorch/tritonparse. The log says what was compiled and launched, with which
values; it holds no time of any launch. Texts of kernels (TTIR, PTX …) are not kept.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import msgspec

from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import read_lines
from profiles.ingest.trace import Cell, Integrity, Summary, SummaryTable, TraceError, summary_columns, with_rows

FORMAT = "tritonparse"
MAX_LINE_BYTES = 64 << 20              # a compilation holds the kernel's text in each language
MAX_KERNELS = 100_000
_MARK = re.compile(rb'\s*\{[^\n]{0,4096}?"event_type"\s*:\s*"(?:compilation|launch|launch_diff|autotune_\w+|sass)"')
_HINT = "Record it with tritonparse.structured_logging.init(…) and upload the .ndjson file."


class Event(msgspec.Struct, gc=False):
    event_type: Any = None
    name: Any = None
    grid: Any = None
    payload: msgspec.Raw = msgspec.Raw(b"")
    compilation_metadata: Any = None


class Payload(msgspec.Struct, gc=False):
    metadata: Any = None
    python_source: Any = None


def sniff(head: bytes) -> bool:
    return bool(_MARK.match(head.removeprefix(b"\xef\xbb\xbf")[:8192]))


def read(source: Source) -> Summary:
    """Raises TraceError where no line is an event."""
    integrity = Integrity()
    compiled: Counter[tuple[Cell, ...]] = Counter()
    launched: Counter[tuple[Cell, ...]] = Counter()
    for line in read_lines(source, MAX_LINE_BYTES, "tritonparse", _HINT):
        if not line.strip():
            continue
        integrity.records_read += 1
        try:
            event = msgspec.json.decode(line, type=Event)
        except (msgspec.DecodeError, RecursionError):
            integrity.drop("a line that is no JSON object")
            continue
        kind = str(event.event_type)[:80]
        integrity.count(kind)
        if kind == "compilation" and len(compiled) < MAX_KERNELS:
            compiled[_compiled(event)] += 1
        elif kind == "launch" and len(launched) < MAX_KERNELS:
            launched[_launched(event)] += 1
        else:
            integrity.drop(f"{kind}: not read yet" if kind not in ("compilation", "launch") else f"beyond {MAX_KERNELS:,} kernels")
    if not compiled and not launched:
        raise TraceError("line 1", "no compilation and no launch of tritonparse", _HINT)
    integrity.settle()
    integrity.end_early(source.damage)
    integrity.notes.append("tritonparse states no time of a launch: record a trace for times.")
    return Summary(FORMAT, [], with_rows((_launch_table(launched), _compile_table(compiled))), integrity)


def _compiled(event: Event) -> tuple[Cell, ...]:
    try:
        payload = msgspec.json.decode(event.payload, type=Payload)
    except (msgspec.DecodeError, RecursionError):
        payload = Payload()
    facts = _dict(payload.metadata)
    target, python = _dict(facts.get("target")), _dict(payload.python_source)
    return (_text(facts.get("name") or event.name), _text(facts.get("hash"))[:12], _whole(facts.get("num_warps")),
            _whole(facts.get("num_stages")), _whole(facts.get("num_ctas")), _whole(facts.get("shared")),
            f"{_text(target.get('backend'))} {_text(target.get('arch'))}".strip(), _text(python.get("file_path")))


def _launched(event: Event) -> tuple[Cell, ...]:
    facts = _dict(event.compilation_metadata)
    return (_text(event.name or facts.get("name")), _text(facts.get("hash"))[:12], _grid(event.grid),
            _whole(facts.get("num_warps")), _whole(facts.get("num_stages")))


def _compile_table(compiled: Counter[tuple[Cell, ...]]) -> SummaryTable:
    columns = summary_columns("Kernel: text | Hash: text | Warps: count | Stages: count | Blocks of a cluster: count | "
                              "Shared memory: bytes | Target: text | File: text | Compilations: count")
    return SummaryTable("Compilations", columns, [[*key, count] for key, count in compiled.most_common()], "One row per kernel "
                        "and set of values that Triton compiled it with.")


def _launch_table(launched: Counter[tuple[Cell, ...]]) -> SummaryTable:
    columns = summary_columns("Kernel: text | Hash: text | Grid: text | Warps: count | Stages: count | Launches: count")
    return SummaryTable("Launches", columns, [[*key, count] for key, count in launched.most_common()], "One row per kernel, "
                        "compiled form and grid; the log holds no times.")


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return "" if value is None else str(value).encode("utf-8", "replace").decode()[:400]


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 else None


def _grid(value: Any) -> str:
    if isinstance(value, list) and len(value) <= 3:
        return " × ".join(_text(side) for side in value)
    return "" if value is None else json.dumps(value, ensure_ascii=False)[:100]
