"""What is read of the CUDA C++ kernels of a folder, a line each, and whether each compiles for sm_90 as it stands.

    python -m tests.tuner.bring.cuda_table FOLDER [FILE …] [--judged JUDGED.json] [--no-compile] [--json OUT.json] [--markdown]

Files are named below FOLDER; without any, every .cu and .cuh. JUDGED.json says what a person found wrong, by reading the code:
{"repository/path.cu:kernel": {"block": "why", "arguments": …, "written": …, "default": …}}; what it does not name counts as right
only where the kernel stands in it. `compiles` is measured here, by NVRTC without a GPU: the file's default for sm_90.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.bring.cuda.check import check_sources, expression_of
from tuner.bring.cuda.source import CudaSource, read_cuda
from tuner.tuning.cuda import nvrtc
from tuner.tuning.cuda.defines import as_macro

ASPECTS = ("block", "arguments", "written", "default")


def read_folder(folder: Path, files: Sequence[str], compiles: bool) -> Iterator[dict[str, Any]]:
    """Yield one line for each kernel, and one for each file that is refused as a whole."""
    paths = [folder / each for each in files] or sorted(each for pattern in ("*.cu", "*.cuh") for each in folder.rglob(pattern))
    for path in paths:
        name = str(path.relative_to(folder))
        try:
            sources = read_cuda(path)
        except (Refused, RecursionError) as error:
            yield {"file": name, "kernel": "", "problem": str(error)}
            continue
        for source in sources:
            yield {"file": name, **line_of(source, compiles)}


def line_of(source: CudaSource, compiles: bool) -> dict[str, Any]:
    """Return what is read of one kernel, and how it compiles."""
    function = source.function
    arguments = function.arguments
    found, = check_sources(source.file, [source], function.name, {}, "", False, lambda done, of: None, compiles=False)
    params = {name: list(values) for name, values in source.params.items()}
    line = {"kernel": function.qualified, "line": function.line, "block": list(source.block), "default": source.default,
            "params": params, "given": source.given,
            "arguments": [f"{each.name}:{each.kind}" for each in arguments], "launches": function.launches,
            "written": [each.name for each in arguments if each.written],
            "unsure": [each.name for each in arguments if each.unsure], "grid": list(function.grid), "smem": function.smem,
            "types": {each.name: each.launched for each in function.template},
            "asks": [each.what for each in found.problems if each.what.partition(" ")[0] != "argument"],
            "problem": function.problem}
    if compiles and not function.problem:
        line["compiles"] = compile_one(source)
    return line


def compile_one(source: CudaSource) -> str:
    """Return "" where the default compiles for sm_90, else why not."""
    if missing := [name for name, text in source.given.items() if not text]:
        return f"no value for {', '.join(missing)}"
    config: Mapping[str, Any] = source.default
    template = {each.name for each in source.function.template}
    defines = {name: as_macro(value) for name, value in config.items() if name not in template}
    try:
        nvrtc.compile_function(source.text, expression_of(source, config, ""), defines, "sm_90a", folder=source.file.parent,
                               name=source.file.name)
    except nvrtc.CompileFailed as error:
        return str(error)
    return ""


def judge(lines: Sequence[dict[str, Any]], judged: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return the lines of kernels that a person judged, with what is wrong of each."""
    return [{**line, "wrong": dict(judged[key])} for line in lines if (key := f"{line['file']}:{line['kernel']}") in judged]


def markdown(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a table: a line a kernel, then the counts."""
    yield "| file | kernel | block | arguments | written | default | compiles | why not |"
    yield "|---|---|---|---|---|---|---|---|"
    counts: Counter[str] = Counter()
    for line in lines:
        wrong = line["wrong"]
        right = {**{aspect: aspect not in wrong for aspect in ASPECTS}, "compiles": not line.get("compiles", "not tried")}
        counts.update([*(aspect for aspect, is_right in right.items() if is_right), *(["all"] if all(right.values()) else [])])
        why = "; ".join([*wrong.values(), *([line["compiles"][:120]] if line.get("compiles") else [])]).replace("|", "\\|")
        cells = " | ".join("yes" if is_right else "no" for is_right in right.values())
        yield f"| {line['file']} | {line['kernel']} | {cells} | {why} |"
    yield f"| {len(lines)} kernels | all five: {counts['all']} | " + " | ".join(
        str(counts[aspect]) for aspect in (*ASPECTS, "compiles")) + " | |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--judged", type=Path)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    lines = []
    for line in read_folder(options.folder, options.files, not options.no_compile):
        lines.append(line)
        if not options.markdown:
            print(json.dumps(line, default=str), flush=True)
    if options.judged:
        lines = judge(lines, json.loads(options.judged.read_text()))
    if options.json:
        options.json.write_text(json.dumps(lines, indent=1, default=str) + "\n")
    if options.markdown:
        print("\n".join(markdown(lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
