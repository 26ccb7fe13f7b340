"""How many kernels of public CUDA C++ files one call understands.

    python -m tests.tuner.bring.cuda_calls CALLS.tsv FOLDER [OUT.json]

CALLS.tsv as that of `tests.tuner.bring.table`: file, call, dtype, and macros of a build (BF=4,Tmax=768). Of every kernel that a
call launches one line is printed, of every call that launches none one as well. `compiled` is for sm_90, `asks` what the adapter
leaves to its author. With RIDGEPOINT_HOST_HEADERS=FOLDER torch's headers are compiled once for all files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tests.tuner.bring.table import print_rows
from tuner.bring.calls.expression import read_call
from tuner.bring.calls.received import read_record
from tuner.bring.cuda.compiling import compile_one
from tuner.bring.cuda.found import drafts_of, found_of, record_call
from tuner.tuning.cuda import nvrtc

GPU = "sm_90"


def rows_of(folder: Path, file: str, call: str, dtype: str = "", macros: str = "") -> list[dict[str, Any]]:
    """Return a row for each kernel that a call launches."""
    given = {name: int(value) for name, _, value in (each.partition("=") for each in macros.split(",") if each)}
    path = folder / file
    try:
        told = read_record(json.loads(json.dumps(record_call(path, call, dtype, given))))
        drafts = drafts_of(path, told, read_call(call), macros=given)
    except Refused as refused:
        return [{"file": file, "kernel": "?", "call": call, "why": str(refused)}]
    rows = []
    for each, source, draft in drafts:
        found, jobs = found_of(each, source, told, 0, given)
        compiled = compile_one(jobs[0], GPU)
        asks = [str(draft)] if isinstance(draft, Refused) else [one for one in draft.to_do if one.startswith("arguments")]
        rows.append({
            "file": file, "kernel": found.name, "call": call, "asks": asks, "parameters": {
                one["name"]: one["values"] for one in found.parameters}, "default": found.default,
            "arguments": {one["name"]: one.get("shape", one.get("value")) for one in found.arguments}, "written": [
                one["name"] for one in found.arguments if one["written"]],
            "out": draft.text.partition('out="')[2].partition('"')[0] if not isinstance(draft, Refused) else "",
            "grid": list(each.grid), "block": list(each.block), "smem": each.smem, "template": each.template, "here": each.here,
            "notes": found.notes[:-1], "problems": [one.what for one in found.problems],
            "compiled": compiled.get("error") or f"{compiled['registers']} registers"})
    return rows or [{"file": file, "kernel": "?", "call": call, "why": "it launches nothing that can be read"}]


def main(calls_file: str, folder: str, out: str = "") -> None:
    """Print a line for each kernel; write all as JSON where a file is named."""
    nvrtc.load()
    lines = [line.split("\t") for line in Path(calls_file).read_text().splitlines() if line.strip()]
    print_rows((row for line in lines for row in rows_of(Path(folder), *line)), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
