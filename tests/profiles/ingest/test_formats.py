"""docs/formats.md against the code, and what the recorders of an H200 say of their own files."""

from __future__ import annotations

import gzip
import importlib
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from operator import attrgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import zstandard

from profiles import ingest
from profiles.analysis.core.frame import frame_of
from profiles.analysis.core.kernels import kernel_table
from profiles.ingest.trace import Category, Report, Trace
from tests.fuzzing.seeds import seeds
from tests.profiles.ingest.corpus import CORPUS, DATA, mostly_deep

PAGE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
RECORDED = DATA / "recorded"


@pytest.mark.parametrize("reader", ingest.READERS, ids=lambda reader: reader.name)
def test_every_reader_has_its_row(reader: ingest.Reader) -> None:
    row, = (row for row in ROWS if row[0] == reader.name)
    assert len(row) == 4 and all(row), "known by, versions, verified against"
    module = importlib.import_module(reader.module)
    assert callable(module.sniff) and callable(module.read)


def test_every_limit_is_the_codes() -> None:
    limits = [row for row in ROWS if row[-1].startswith("`profiles.") and re.fullmatch(r"[\d,]+", row[1])]
    assert len(limits) > 12
    for _, stated, path in limits:
        module, _, name = path.strip("`").partition(":")
        assert attrgetter(name)(importlib.import_module(module)) == int(stated.replace(",", "")), path


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`((?:profiles|tests)/[\w/]+\.py|test_\w+\.py)`", PAGE))
    root = Path(__file__).parents[3]
    assert named and all((root / name).is_file() or (root / "tests/profiles" / name).is_file() for name in named), named


def test_kernels_are_those_of_pytorchs_own_averages() -> None:
    """key_averages() of the same run, device time by name; operators and annotations of the same list are no kernels."""
    trace = ingest.read(RECORDED / "torch_graph_stack_memory.json.gz")
    assert isinstance(trace, Trace)
    said = {row["key"]: (row["count"], round(row["device_us"] * 1000))
            for row in json.loads((RECORDED / "torch_graph_stack_memory_truth.json").read_text())}
    found = {row.name: (row.launches, row.total_ns) for row in kernel_table(trace)}
    assert len(found) == 26 and {name: said.get(name) for name in found} == found


def test_three_forms_of_one_jax_profile_agree() -> None:
    sums = []
    for name in ("jax_xplane.pb", "jax_trace.json.gz", "jax_perfetto_trace.json.gz"):
        trace = ingest.read(RECORDED / name)
        assert isinstance(trace, Trace)
        sums.append({row.name: (row.launches, row.total_ns) for row in kernel_table(trace)})
    assert sums[0] == sums[1] == sums[2] and sum(launches for launches, _ in sums[0].values()) == 15


@pytest.mark.slow
@pytest.mark.parametrize("path", mostly_deep(       # test_kineto.py has the launches and the time of the others
    sorted((CORPUS / "kineto").iterdir()), "tracelens_h100_qwen1.5-0.5b.json.gz", "vllm_mi300_decode_full_graph_execution.json.gz",
    "hta_alexnet_a100_critical_path.json.gz", "hta_cuda_event_sync_multi_stream_a100.json.gz", "hta_large_integer.json.gz",
    "kineto_docs_out_of_order_h100.json", "tracelens_mi300_torch_compile_triton.json.gz"), ids=lambda path: path.name)
def test_every_kernel_name_device_and_stream_is_the_files(path: Path) -> None:
    """All of them, not only the largest: read here by the json module, added as decimals."""
    data = path.read_bytes()
    events = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data, parse_float=Decimal)["traceEvents"]
    kernels = [each for each in events if each.get("ph") == "X" and str(each.get("cat")).lower() == "kernel"]
    sums: dict[str, tuple[int, int]] = {}
    for each in kernels:
        launches, total = sums.get(each["name"], (0, 0))
        sums[each["name"]] = launches + 1, total + round(each["dur"] * 1000)
    trace = ingest.read(path)
    assert isinstance(trace, Trace)
    assert {row.name: (row.launches, row.total_ns) for row in kernel_table(trace)} == sums
    wanted = Counter((each["args"].get("device"), each["args"].get("stream")) for each in kernels if "args" in each)
    work = trace.slices.filter(pc.is_in(trace.slices["category"], pa.array([Category.COMPUTE, Category.COMMUNICATION], pa.uint8())))
    found = Counter(zip(work["device"].to_pylist(), work["stream"].to_pylist(), strict=True))
    assert all(found[place] == count for place, count in wanted.items() if None not in place)
    assert {(trace.tracks[number].device, trace.tracks[number].stream) for number in set(work["track"].to_pylist())} == set(found)


def zipped(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("notes.txt", "words")
        archive.writestr("run/profile.csv", data)
    return out.getvalue()


MISNAMED: dict[str, Callable[[bytes], bytes]] = {
    "a.pdf": lambda data: data, "a.json": lambda data: gzip.compress(data, 1),
    "a.zst": lambda data: gzip.compress(gzip.compress(data, 1), 1),
    "a.pickle": lambda data: gzip.compress(gzip.compress(gzip.compress(data, 1), 1), 1),
    "a.zip": zstandard.compress, "a.gz": zipped, "a.ncu-rep": lambda data: zipped(gzip.compress(data, 1))}


@pytest.mark.parametrize("kind", mostly_deep(        # test_containers.py wraps every format
    ["xprof", "xplane", "proton", "nsys-stats", "cutlass", "snapshot", "perfetto"], "xplane", "nsys-stats", "proton"))
def test_wrappings_and_names_change_nothing(kind: str, tmp_path: Path) -> None:
    """Names, launches, times, devices, tracks and the integrity report are those of the bare file."""
    data, seen = seeds(kind)[-1], []
    for name, wrap in MISNAMED.items():
        (tmp_path / name).write_bytes(wrap(data))
        found = ingest.read(tmp_path / name)
        assert not isinstance(found, Report)
        rows = [found.slices.to_pylist(), found.tracks] if isinstance(found, Trace) else found.kernels
        seen.append(repr((found.format, rows, found.devices, found.integrity)))
    assert len(set(seen)) == 1


@pytest.mark.parametrize("mark", [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/host:CPU"}},
    {"ph": "X", "cat": "cpu_op", "name": "AscendCL@launch", "pid": 1, "tid": 1, "ts": 0, "dur": 1, "args": {"Physic Stream Id": 2}},
    {"ph": "X", "cat": "Node", "name": "model_run", "pid": 1, "tid": 1, "ts": 0, "dur": 1},
    {"ph": "X", "cat": "cpu_op", "name": "f", "pid": 1, "tid": 1, "ts": 0, "dur": 1, "args": {"DurationNs": "1000"}}],
    ids=("XProf", "Ascend", "ONNX Runtime", "rocprof"))
def test_what_was_exported_is_in_pytorchs_dialect_whatever_it_names(tmp_path: Path, mark: dict[str, object]) -> None:
    path = tmp_path / "exported.json"
    path.write_text(json.dumps({"schemaVersion": 1, "exportedBy": {"program": "Ridgepoint", "profile": 1}, "traceEvents": [
        mark, {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 2, "dur": 1,
               "args": {"correlation": 7}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 4, "dur": 3,
         "args": {"correlation": 7, "device": 0, "stream": 7}}]}))
    trace = ingest.read(path)
    assert isinstance(trace, Trace) and trace.format == "kineto"
    frame = frame_of(trace)
    assert [frame.text(int(frame.call[row])) for row in frame.kernels] == ["cudaLaunchKernel"]
