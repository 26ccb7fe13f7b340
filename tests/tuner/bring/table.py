"""How many kernels of public files are understood: `python -m tests.tuner.bring.table CALLS.tsv FOLDER [OUT.json]`.

CALLS.tsv has a line for each call: a file below FOLDER, the call, and where it matters a dtype. Of every kernel one line is
printed: what was found by the first call that launches it, else why nothing was. `compiled` is for sm_90, each compile ended after
30 s, `asks` what the adapter of the call leaves to its author. Nothing here says that a reading is right: that is looked at by
hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.bring import process
from tuner.bring.calls.adapting import write_called
from tuner.bring.calls.expression import read_call
from tuner.bring.calls.found import found_of, read_recorded
from tuner.bring.source import kernels_of

COMPILE_S, GPU = 30.0, "sm_90"


def rows_of(folder: Path, file: str, calls: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return a row for each kernel of a file, and each that its calls launch."""
    rows: dict[str, dict[str, Any]] = {}
    try:
        listed = [each.name for each in kernels_of((folder / file).read_text())]
    except Refused as refused:
        return [{"file": file, "kernel": "?", "why": str(refused)}]
    with process.Asked(folder / file, [], COMPILE_S, calls=True) as asked:
        if "failed" in asked.imported:
            return [{"file": file, "kernel": name, "why": asked.imported["failed"]} for name in listed]
        failures = []
        for call, dtype in calls:
            told = asked.record(call, dtype)
            if "failed" in told:
                failures.append(f"{call}: {told['failed']}")
                continue
            for each, kernel in read_recorded(folder / file, told):
                found, jobs = found_of(each, kernel, told, asked.imported.get("stood_in", {}), 0)
                if found.name in rows:
                    continue
                compiled = asked.compile(jobs[:1], gpus=[GPU]).get("compiled", {}).get(found.name, []) if jobs else []
                try:
                    asks = [one for one in write_called(each, kernel, told, read_call(call), "its_module").to_do
                            if one.startswith("arguments")]
                except Refused as refused:
                    asks = [str(refused)]
                rows[found.name] = {
                    "file": file, "kernel": found.name, "call": call, "asks": asks, "parameters": {
                        one["name"]: one["values"] for one in found.parameters}, "default": found.default,
                    "arguments": {one["name"]: one["kind"] for one in found.arguments}, "grid": list(each.grid),
                    "constexprs": {name: [value.get("value"), each.chosen[name]]
                                   for name, value in each.launch["constexprs"].items()},
                    "unsure": each.unsure, "notes": found.notes[:-1], "problems": [one.what for one in found.problems],
                    "compiled": [one.get("error") or f"{one['registers']} registers" for one in compiled]}
    why = "; ".join(failures) or "no call launches it"
    rest = [{"file": file, "kernel": name, "why": why} for name in listed if name not in rows]
    return [*rows.values(), *rest, *([{"file": file, "kernel": "?", "why": why}] if not listed and not rows else [])]


def main(calls_file: str, folder: str, out: str = "") -> None:
    """Print a line for each kernel; write all as JSON where a file is named."""
    by_file: dict[str, list[tuple[str, str]]] = {}
    for file, call, dtype in read_calls(calls_file):
        by_file.setdefault(file, []).extend([(call, dtype)] if call else [])
    print_rows((row for file, calls in by_file.items() for row in rows_of(Path(folder), file, calls)), out)


def read_calls(calls_file: str) -> Iterator[tuple[str, str, str]]:
    """Yield file, call and type of each line, "" where it has none."""
    for line in Path(calls_file).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            file, call, dtype = (*line.split("\t"), "", "")[:3]
            yield file, call, dtype


def print_rows(rows: Iterable[dict[str, Any]], out: str) -> None:
    """Print each row as it is made; write all as JSON where a file is named."""
    made: list[dict[str, Any]] = []
    for row in rows:
        made.append(row)
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    if out:
        Path(out).write_text(json.dumps(made, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
