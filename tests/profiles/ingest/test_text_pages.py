"""What tools print for people (nsys stats, ncu, folded stacks, logs of lines), against the same numbers in other forms."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profiles import ingest
from profiles.ingest.core.text_lines import cells_of, spans_of
from profiles.ingest.other import memory_timeline
from profiles.ingest.trace import Report, Summary, Trace, TraceError
from tests.profiles.ingest.corpus import CORPUS, DATA

CASES = DATA / "cases"


def ruled(header: list[str], rows: list[list[str]], left: frozenset[int], indent: str = " ") -> str:
    """A table as nsys prints it: right-aligned but for `left`, dashes below the header."""
    widths = [max(len(row[at]) for row in [header, *rows]) for at in range(len(header))]
    line = lambda row: indent + "  ".join(                                                  # noqa: E731
        cell.ljust(width) if at in left else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths, strict=True)))
    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)]) + "\n\n"


def test_the_text_of_nsys_stats() -> None:
    summary = ingest.read(CASES / "nsys_stats_text.txt")
    assert isinstance(summary, Summary)
    assert [(kernel.name, kernel.launches, kernel.total_ns) for kernel in summary.kernels] == [
        ("sgemm_a", 900, 2_991_054_425), ("sgemm_b", 100, 396_000_000)]
    assert summary.tables[0].title.endswith("(cuda_gpu_kern_sum)")


@pytest.mark.parametrize("grouped", [False, True])
def test_a_table_of_nsys_stats_is_the_same_as_text_and_as_csv(grouped: bool, tmp_path: Path) -> None:
    path = next((CORPUS / "nsys_stats").glob("*kern_sum.csv"))
    header, *rows = list(csv.reader(io.StringIO(path.read_text())))
    if grouped:                                                       # newer releases group digits where they print
        rows = [[f"{int(cell):,}" if cell.isdecimal() else cell for cell in row] for row in rows]
    text = tmp_path / "stats.txt"
    title = "Processing [a.sqlite] with [/opt/cuda_gpu_kern_sum.py]... \n\n ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n"
    text.write_text(title + ruled(header, rows, frozenset({len(header) - 1})) + "a line of the program\n")
    as_csv, as_text = ingest.read(path), ingest.read(text)
    assert isinstance(as_csv, Summary) and isinstance(as_text, Summary) and len(as_csv.kernels) > 5
    # the printed names are as the csv module reads them, without spaces at their ends
    assert as_text.kernels == as_csv.kernels and as_text.integrity.records_kept == as_csv.integrity.records_kept


def test_cells_wider_than_their_dashes_and_broken_names(tmp_path: Path) -> None:
    spans = spans_of(" ----  ------  ----")
    assert cells_of("    1  123456  name of more", spans) == ["1", "123456", "name of more"]
    assert cells_of("    1  1234567890  name", spans) == ["1", "1234567890", "name"]
    assert not spans_of("-----") and not spans_of("--x  ---") and not spans_of(" - - ")
    text = tmp_path / "stats.txt"
    text.write_text("\n ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n Total Time (ns)  Instances   Name   \n"
                    " ---------------  ---------  --------\n             100          2  void add\n"
                    "                              <float>\n")
    summary = ingest.read(text)
    assert isinstance(summary, Summary)
    assert [(kernel.name, kernel.total_ns) for kernel in summary.kernels] == [("void add<float>", 100)]


def printed(path: Path) -> str:
    """A details page of ncu in CSV as ncu prints it without `--csv`."""
    out, launch, section = ["==PROF== Connected to process 1"], None, None
    groups: list[tuple[dict[str, str], list[dict[str, str]]]] = []
    for row in csv.DictReader(line for line in path.read_text().splitlines() if not line.startswith("==")):
        if not groups or groups[-1][0]["ID"] != row["ID"] or groups[-1][0]["Section Name"] != row["Section Name"]:
            groups.append((row, []))
        groups[-1][1].append(row)
    for first, rows in groups:
        if first["ID"] != launch:
            launch, section = first["ID"], None
            out.append(f"  {first['Kernel Name']} {first['Grid Size']}x{first['Block Size']}, Context {first['Context']}, "
                       f"Stream {first['Stream']}, Device {first['Device']}, CC {first['CC']}")
        if first["Section Name"] != section:
            section = first["Section Name"]
            out.append(f"    Section: {section}")
        metrics = [[row["Metric Name"], row["Metric Unit"], row["Metric Value"]] for row in rows if row["Metric Name"]]
        if metrics:
            lines = ruled(["Metric Name", "Metric Unit", "Metric Value"], metrics, frozenset({0}), "    ").rstrip().split("\n")
            out += [lines[1], *lines, lines[1]]
        for row in rows:
            if row["Rule Name"]:
                speedup = f"Est. {row['Estimated Speedup Type'].title()} Speedup: {row['Estimated Speedup']}%" if row[
                    "Estimated Speedup"] else ""
                words = f"{speedup} {row['Rule Description']}".split()
                out += ["", f"    {row['Rule Type']}   {' '.join(words[:9])}", *(
                    f"          {' '.join(words[at:at + 9])}" for at in range(9, len(words), 9)), ""]
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("name", ["llmperfopt_rtx5090_k0001.details.csv", "hyperspec_rtx2060maxq.details.csv"])
def test_a_page_of_ncu_is_the_same_as_text_and_as_csv(name: str, tmp_path: Path) -> None:
    as_csv = ingest.read(CORPUS / "ncu_csv" / name)
    (tmp_path / "page.txt").write_text(printed(CORPUS / "ncu_csv" / name))
    as_text = ingest.read(tmp_path / "page.txt")
    assert isinstance(as_csv, Report) and isinstance(as_text, Report) and as_text.format == "ncu-text"
    assert [(launch.kernel, launch.grid, launch.block, launch.metrics) for launch in as_text.launches] == [
        (launch.kernel, launch.grid, launch.block, launch.metrics) for launch in as_csv.launches]
    rules = [[(rule.severity, re.sub(r"\s+", " ", rule.text).strip(), rule.speedup_pct) for rule in launch.rules]
             for report in (as_text, as_csv) for launch in report.launches]
    assert rules[:len(rules) // 2] == rules[len(rules) // 2:]


def test_the_default_output_of_ncu() -> None:
    report = ingest.read(CASES / "ncu_default_text.txt")
    assert isinstance(report, Report)
    launch, = report.launches
    assert (launch.kernel, launch.grid) == ("void mm<float, 4>(float *)", (132, 1, 1))
    assert launch.metrics["gpu__time_duration.sum"] == 1250


def test_a_launch_that_ncu_could_not_profile_stands_in_its_text_too(tmp_path: Path) -> None:
    path = tmp_path / "failed.txt"
    page = (CASES / "ncu_default_text.txt").read_text()
    path.write_text('==ERROR== Failed to profile "flash_fwd_kernel" in process 1234\n' + page)
    report = ingest.read(path)
    assert isinstance(report, Report)
    assert [(launch.kernel, bool(launch.incomplete)) for launch in report.launches][-1] == ("flash_fwd_kernel", True)
    assert report.integrity.repaired["kept out of sums: ncu says that it failed to profile this launch"] == 1


def test_folded_stacks(tmp_path: Path) -> None:
    path = tmp_path / "run.folded"
    path.write_text("main (a.py:1);step;mm 30\nmain (a.py:1);step;step;add 10\nmain (a.py:1) 5\n# a comment\n")
    summary = ingest.read(path)
    assert isinstance(summary, Summary)
    functions = {row[0]: (row[1], row[3]) for row in summary.tables[0].rows}
    assert functions == {"mm": (30, 30), "add": (10, 10), "main (a.py:1)": (5, 45), "step": (0, 40)}, "recursion counts once"
    assert summary.tables[1].rows[0] == ["main (a.py:1) → step → mm", 30]


@pytest.mark.parametrize("text", ["just words 12\nmore words 13\n", "a;b;c\nd;e\n", "time;value\n1;2\n", "1 2\n3 4\n"])
def test_other_texts_are_no_stacks(text: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(text)
    with pytest.raises(TraceError):
        ingest.read(tmp_path / "notes.txt")


def test_the_memory_timeline_is_what_pytorch_counts(tmp_path: Path) -> None:
    """PyTorch's own code writes both forms of the same events; each moment's sizes are added up here by hand."""
    torch = pytest.importorskip("torch")
    profiler = pytest.importorskip("torch.profiler._memory_profiler")
    action, device = profiler.Action, torch.device("cuda:0")
    kinds = {1: profiler.Category.PARAMETER, 2: profiler.Category.ACTIVATION, 3: profiler.Category.GRADIENT}
    key = lambda number, on=device: profiler.TensorKey(on, number, None)               # noqa: E731
    events = [(-1, action.PREEXISTING, (key(1), 0), 1000), (5_000_000, action.CREATE, (key(2), 0), 512),
              (5_000_400, action.CREATE, (key(3), 0), 256), (7_000_000, action.INCREMENT_VERSION, (key(2), 0), 512),
              (8_000_000, action.CREATE, (key(9, torch.device("cpu")), 0), 7), (9_000_000, action.DESTROY, (key(2), 1), 512)]
    profile = SimpleNamespace(timeline=events, _categories=SimpleNamespace(get=lambda each, version: kinds.get(each.id)))
    timeline = profiler.MemoryProfileTimeline(profile)
    timeline.export_memory_timeline(str(tmp_path / "memory.json"), "cuda:0")
    timeline.export_memory_timeline_raw(str(tmp_path / "memory.raw.json"), "cuda:0")
    (tmp_path / "memory.raw.json.gz").write_bytes(gzip.compress((tmp_path / "memory.raw.json").read_bytes()))
    assert len(memory_timeline.CATEGORIES) == len(profiler._CATEGORY_TO_INDEX)
    for name in ("memory.json", "memory.raw.json.gz"):
        trace = ingest.read(tmp_path / name)
        assert isinstance(trace, Trace)
        tracks: dict[str, list[float]] = {}
        for row in trace.samples.to_pylist():
            tracks.setdefault(trace.tracks[row["track"]].name, []).append(row["value"])
        assert (max(tracks["total"]), tracks["total"][-1]) == (1768, 1256)
        assert {each: values[-1] for each, values in tracks.items()} == {
            "parameters": 1000, "activations": 0, "gradients": 256, "total": 1256}
        assert {track.unit for track in trace.tracks} == {"bytes"}


@pytest.mark.parametrize("content", [
    "[[1, 2, 3], [4, 5, 6]]", "[[1, 2], [[0, 1], [0, 2]]]", "[[1, 9, 3, 4], [1, 9, 3, 4]]", "[[1]]"])
def test_other_lists_of_numbers_are_no_memory_timeline(content: str, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(content)
    with pytest.raises(TraceError):
        ingest.read(tmp_path / "list.json")


def test_the_picture_of_a_memory_timeline_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.html").write_text('<html><head><meta charset="utf-8" /><title>GPU Memory Timeline HTML</title></head>')
    with pytest.raises(TraceError, match="export_memory_timeline"):
        ingest.read(tmp_path / "m.html")


def test_a_log_of_tritonparse(tmp_path: Path) -> None:
    metadata: dict[str, Any] = {"hash": "abcdef0123456789", "name": "add_kernel", "num_warps": 4, "num_stages": 3, "shared": 0,
                                "target": {"backend": "cuda", "arch": 90}}
    lines = [{"event_type": "compilation", "pid": 1, "payload": {"metadata": metadata, "file_content": {"add.ttir": "x" * 9000},
                                                                 "python_source": {"file_path": "add.py", "code": "…"}}},
             *({"event_type": "launch", "name": "add_kernel", "grid": [grid, 1, 1], "compilation_metadata": metadata}
               for grid in (98, 98, 128)), {"event_type": "launch_diff", "name": "add_kernel"}]
    path = tmp_path / "log.ndjson"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n{cut")
    summary = ingest.read(path)
    assert isinstance(summary, Summary) and summary.format == "tritonparse"
    tables = {table.title: table.rows for table in summary.tables}
    assert tables["Launches"] == [["add_kernel", "abcdef012345", f"{grid} × 1 × 1", 4, 3, count]
                                  for grid, count in ((98, 2), (128, 1))]
    assert tables["Compilations"] == [["add_kernel", "abcdef012345", 4, 3, None, 0, "cuda 90", "add.py", 1]]
    assert summary.integrity.not_kept == {"launch_diff: not read yet": 1, "a line that is no JSON object": 1}
