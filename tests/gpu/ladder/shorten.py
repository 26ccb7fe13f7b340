"""Reports of a ladder as JSON, with what advice reads of them alone: a few kilobytes a launch in place of some hundred.

    .venv/bin/python -m tests.gpu.ladder.shorten TIMES OUT REPORT…

REPORT: ladder.ncu-rep.gz, TIMES: times.jsonl, both of record.sh (TIMES "-": none). OUT is packed with xz. Every metric, instruction
column and rule that is kept stands in OUT as in the report; periodic samples and source text are left out.
"""

from __future__ import annotations

import json
import lzma
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from profiles import ingest
from profiles.analysis.kernel import counters, findings_counters, findings_source
from profiles.ingest.trace import INSTRUCTIONS, CounterLaunch, Device, Integrity, Report, Rule

ALL_OF = ("smsp__average_warps_issue_stalled_", "launch__")     # read by how they begin, not by name
COLUMNS = ("inst_executed", "thread_inst_executed_true", "memory_", "derived__memory_", "smsp__branch_targets_threads_divergent",
           "smsp__pcsamp_warps_issue_stalled_")
PARTS = ("sass__inst_executed_per_opcode[", "smsp__sass_inst_executed_per_opcode[")


class Read(dict[str, Any]):
    """Metrics that remember which of them were asked for by name."""

    def __init__(self, metrics: dict[str, Any]) -> None:
        super().__init__(metrics)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


def shorten(report: Report, times: dict[str, float]) -> dict[str, Any]:
    """Return the document: launches with what the analyses read of them, and the measured times in µs."""
    launches = []
    for launch in report.launches:
        metrics = Read(dict(launch.metrics))
        counted = replace(launch, metrics=metrics, periodic=None)
        counters.launch_facts(counted)
        for module in (findings_counters, findings_source):
            module.find(replace(report, launches=[counted]))
        kept = {name: value for name, value in launch.metrics.items() if isinstance(value, int | float | str)
                and (name in metrics.names or name.startswith(ALL_OF) or name.endswith(".sum.peak_sustained"))}
        launches.append({"kernel": launch.kernel, "grid": launch.grid, "block": launch.block, "device": asdict(launch.device),
                         "us": times.get(launch.kernel.split("(")[0]), "metrics": kept,
                         "rules": [asdict(rule) for rule in launch.rules], "instructions": _columns(launch.instructions)})
    return {"launches": launches}


def _columns(table: pa.Table | None) -> dict[str, Any] | None:
    if table is None:
        return None
    kept: dict[str, Any] = {name: table[name].to_pylist() for name in ("sass", "line")}
    kept["address"] = [int(each) - int(table["address"][0].as_py()) for each in table["address"].to_pylist()]
    for name in table.column_names:
        values = table[name].to_pylist() if name.startswith(COLUMNS) and name not in INSTRUCTIONS.names else []
        if (any(values) or (values and "pcsamp" not in name)) and not name.endswith("_not_issued"):
            kept[name] = [int(each or 0) for each in values]
    return kept


def read(path: Path) -> list[tuple[Report, float | None]]:
    """Return a report of each launch, with its time without a profiler in µs where it was measured."""
    document = json.loads(lzma.decompress(path.read_bytes()))
    return [(report_of([_launch(index, each)]), each["us"]) for index, each in enumerate(document["launches"])]


def report_of(launches: list[CounterLaunch]) -> Report:
    return Report("ncu-rep", launches, {}, Integrity())


def _launch(index: int, each: dict[str, Any]) -> CounterLaunch:
    return CounterLaunch(index=index, kernel=each["kernel"], device=Device(**each["device"]), grid=tuple(each["grid"]),
                         block=tuple(each["block"]), context=None, stream=None, metrics=each["metrics"],
                         rules=[Rule(**rule) for rule in each["rules"]], instructions=_table(each["instructions"]))


def _table(columns: dict[str, Any]) -> pa.Table:
    first = 1 << 30
    made = {"address": pa.array(np.array(columns["address"], np.int64) + first, INSTRUCTIONS.field("address").type),
            "sass": pa.array(columns["sass"], INSTRUCTIONS.field("sass").type)}
    rows = len(columns["sass"])
    for field in INSTRUCTIONS:
        if field.name not in made:
            values = columns["line"] if field.name == "line" else [0 if line is not None else None for line in columns["line"]] \
                if field.name == "file" else [None] * rows
            made[field.name] = pa.array(values, field.type)
    for name, values in columns.items():
        if name not in made:
            made[name] = pa.array(values, pa.float64())
    return pa.table(made)


if __name__ == "__main__":
    measured, out, *reports = sys.argv[1:]
    lines = [] if measured == "-" else [json.loads(line) for line in Path(measured).read_text().splitlines()]
    known = {line["kernel"]: line["median_us"] for line in lines}
    short = {"launches": [launch for report in reports for launch in shorten(ingest.read(Path(report)), known)["launches"]]}
    Path(out).write_bytes(lzma.compress(json.dumps(short, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME))
