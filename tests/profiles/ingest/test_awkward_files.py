"""Files that are right but for their form: tar, UTF-16, records far behind the start, one argument that is no JSON."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from profiles import ingest
from profiles.ingest.core.damage import mend
from profiles.ingest.core.source import Limits, SeveralProfiles
from profiles.ingest.trace import Summary, Trace, TraceError
from tests.profiles.ingest.corpus import DATA

CASES = DATA / "cases"
RECORD = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 50, "args": {"device": 0, "stream": 7}}
TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [RECORD]}).encode()


def kernels(path: Path, **more: Any) -> list[tuple[str, int]]:
    trace = ingest.read(path, **more)
    assert isinstance(trace, Trace)
    return [(row["name"], row["dur_ns"]) for row in trace.slices.to_pylist() if row["device"] is not None]


def tarred(files: dict[str, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        archive.addfile(tarfile.TarInfo("run/"), None)
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize("name", ["trace.tar.gz", "utf16.json"])
def test_wrapped_like_people_send_it(name: str) -> None:
    assert kernels(CASES / name) == [("k", 50_000)]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("wrap", [bytes, gzip.compress])
def test_the_one_profile_of_a_tar_archive(form: int, wrap: Any, tmp_path: Path) -> None:
    long_name = "run/" + "n" * 60 + "/" + "m" * 80 + ".json"
    (tmp_path / "run.tar").write_bytes(wrap(tarred({"notes.txt": b"words", long_name: TRACE, ".hidden": b"{}"}, form)))
    assert kernels(tmp_path / "run.tar") == [("k", 50_000)]


def test_ranks_in_a_tar_archive_are_several_profiles(tmp_path: Path) -> None:
    (tmp_path / "run.tgz").write_bytes(gzip.compress(tarred({f"rank{i}.json": TRACE for i in range(3)})))
    with pytest.raises(SeveralProfiles) as several:
        ingest.read(tmp_path / "run.tgz")
    assert several.value.ranks and [name for _, name in several.value.entries] == ["rank0.json", "rank1.json", "rank2.json"]
    assert kernels(tmp_path / "run.tgz", entry=2) == [("k", 50_000)]


def test_a_cut_tar_archive_gives_what_is_there(tmp_path: Path) -> None:
    whole = tarred({"trace.json": json.dumps({"schemaVersion": 1, "traceEvents": [RECORD] * 200}).encode()})
    (tmp_path / "cut.tar").write_bytes(whole[:9000])
    trace = ingest.read(tmp_path / "cut.tar")
    assert isinstance(trace, Trace) and 0 < trace.slices.num_rows < 200 and trace.integrity.truncated_at
    assert any("tar archive" in note for note in trace.integrity.notes)


@pytest.mark.parametrize("data", [tarred({}), tarred({"a": b""})[:512], b"x" * 148 + b"0000000\0" + b"y" * 400])
def test_a_tar_archive_of_nothing_is_one_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(TraceError):
        ingest.read(tmp_path / "file")


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("cut", [0, 1])
def test_text_of_two_bytes_a_character(codec: str, cut: int, tmp_path: Path) -> None:
    """PowerShell writes what it redirects in UTF-16; the last character may be cut in two."""
    data = json.dumps({"schemaVersion": 1, "traceEvents": [RECORD | {"name": "größe"}]}, ensure_ascii=False).encode(codec)
    (tmp_path / "file").write_bytes(data[:len(data) - cut])
    assert kernels(tmp_path / "file") == [("größe", 50_000)]


def test_a_csv_of_ncu_that_powershell_redirected(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_text('"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n"0","add","500"\n', encoding="utf-16")
    assert ingest.read(path).launches[0].metrics["gpu__time_duration.sum"] == 500      # type: ignore[union-attr]


@pytest.mark.parametrize("before", [
    {"blob": "x" * 3_000_000}, {"notes": ["y" * 100] * 30_000}, {"metadata": {"traceEvents": [], "pad": "z" * 2_000_000}},
    {"pad": "w" * 1_100_000, "inner": {"deep": {"traceEvents": [1, 2]}}}, {"text": '"traceEvents": [' + "v" * 1_200_000}])
def test_records_behind_any_number_of_bytes(before: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({**before, "traceEvents": [RECORD]}).encode(), 1))
    assert kernels(path) == [("k", 50_000)]


def test_a_document_without_records_is_named_within_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text(json.dumps({"notes": ["y" * 1000] * 5_000}))
    with pytest.raises(TraceError, match="not of a profiler that is known here"):
        ingest.read(path, limits=Limits(record_bytes=3_000_000))


BAD_VALUES = ["[0, 1, ..., 63]", "<object at 0x7f>", "0x10", "1.2.3", "(1, 2)", "'single'", "[0, 1", '{"a": }', "", "1 2",
              "[[0, 1], ...]", 'dtype("float")', "torch.float32", "lambda x: x, y"]


@pytest.mark.parametrize("value", BAD_VALUES)
@pytest.mark.parametrize("last", [True, False])
def test_a_record_is_kept_without_its_argument_that_is_no_json(value: str, last: bool, tmp_path: Path) -> None:
    bad = f'"bad": {value}'
    args = '"device": 0, "stream": 7, "note": "a, \\"q\\": 3"' + f", {bad}" if last else f'{bad}, "device": 0, "stream": 7'
    record = f'{{"ph": "X", "cat": "kernel", "args": {{{args}}}, "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 50}}'
    path = tmp_path / "trace.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + ", ".join([json.dumps(RECORD), record, json.dumps(RECORD)]) + "]}")
    trace = ingest.read(path)
    assert isinstance(trace, Trace)
    assert [(row["name"], row["dur_ns"], row["stream"]) for row in trace.slices.to_pylist()] == [("k", 50_000, 7)] * 3
    assert trace.integrity.repaired and not trace.integrity.not_kept


def test_shortened_lists_in_every_record_are_mended_in_bulk(tmp_path: Path) -> None:
    record = json.dumps(RECORD)[:-2] + ', "Process Group Ranks": [0, 1, ..., 63], "pad": "%s"}}' % ("p" * 700)
    path = tmp_path / "trace.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + ", ".join([record] * 9_000) + "]}")
    trace = ingest.read(path)
    assert trace.integrity.records_kept == trace.integrity.records_read == 9_000


def test_what_is_right_in_a_record_stays_as_it_is() -> None:
    record = mend(b'{"ph": "X", "args": {"bad": <x>, "o": {"x": 1, "y": [1, 2]}, "t": "a, \\"k\\": <y>"}, "name": "n", "ts": 1}')
    assert record == {"ph": "X", "args": {"o": {"x": 1, "y": [1, 2]}, "t": 'a, "k": <y>'}, "name": "n", "ts": 1}


def test_a_time_of_proton_that_is_no_number_is_unknown(tmp_path: Path) -> None:
    summary = ingest.read(CASES / "metric_nan.hatchet")
    assert isinstance(summary, Summary)
    assert [(kernel.name, kernel.launches, kernel.total_ns) for kernel in summary.kernels] == [("owner", 2, 2000)]
    tables = {table.title: table.rows for table in summary.tables}
    assert tables["Kernels without a time"] == [["nan_kernel", "nan_kernel", 1, None]]
    assert tables["Proton's own kernels"] == [["__proton_launch_metadata:owner / <metric>", 2, 400]], "in no sum of the program"
    assert sum(row[3] or 0 for row in tables["Scopes"] if row[0] == 0) == 2000
    assert summary.integrity.remarks == {"kernels whose time is no number: unknown, in no sum": 1}
    names = tmp_path / "names.hatchet"                                   # the words within a name are no numbers
    names.write_text((CASES / "metric_nan.hatchet").read_text().replace('"owner"', '"nan, Infinity \\" inf"'))
    assert [kernel.name for kernel in ingest.read(names).kernels] == ['nan, Infinity " inf']       # type: ignore[union-attr]
