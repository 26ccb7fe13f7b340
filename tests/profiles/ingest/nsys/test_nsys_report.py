"""`.nsys-rep` and `.qdrep`: recognised by content, exported where there is an `nsys`, explained where there is none.

NVIDIA's tool cannot be shipped with the tests; a program that takes the same arguments stands where it would be, so that
the child, its limits and its end are the real ones.
"""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pytest

from profiles import ingest
from profiles.analysis.core.kernels import kernel_table
from profiles.ingest.nsys import report
from profiles.ingest.trace import TraceError
from tests.profiles.ingest.corpus import CORPUS

REPORT = CORPUS / "nsys/fuser_h200_report1.nsys-rep.gz"


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Puts a script in the place of nsys; `{export}` is the export that belongs to the report."""
    export = tmp_path / "its.sqlite"
    export.write_bytes(gzip.decompress((CORPUS / "nsys/fuser_h200_report1.sqlite.gz").read_bytes()))

    def put(script: str) -> Path:
        path = tmp_path / "nsys"
        path.write_text("#!/bin/sh\n" + script.replace("{export}", str(export)).replace("{here}", str(tmp_path)))
        path.chmod(0o755)
        monkeypatch.setenv("RIDGEPOINT_NSYS", str(path))
        return path
    return put


@pytest.mark.parametrize(("head", "version"), [
    (b"NVIDIA Tegra Profiler Report 2025@1@1@110-251135451612v0.\n\x00", "2025.1.1.110"),
    (b"NVIDIA Tegra Profiler Report 2023@4@1@97-234133557503v0.\n", "2023.4.1.97"),
    (b"NVIDIA Tegra Profiler Report 1.\n", ""), (b"NVIDIA Tegra Profiler Report \xff\xff", "")])
def test_the_version_that_wrote_it_is_read_from_its_head(head, version):
    assert report.sniff(head) and report.version_of(head) == version


def test_without_nsys_the_error_names_the_version_and_the_one_command(monkeypatch):
    monkeypatch.setattr(report, "nsys_path", lambda: None)
    with pytest.raises(TraceError) as raised:
        ingest.read(REPORT)
    assert raised.value.what.startswith("an Nsight Systems report written by nsys 2025.1.1.110")
    assert "`nsys export --type sqlite -o out.sqlite file.nsys-rep`" in raised.value.hint
    assert "nsys 2025.1.1.110 or newer" in raised.value.hint


def test_a_qdrep_is_recognised_too(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "nsys_path", lambda: None)
    path = tmp_path / "x.bin"
    path.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n" + bytes(100))
    with pytest.raises(TraceError, match=r"before 2021\.4"):
        ingest.read(path)


def test_with_nsys_the_export_is_read_and_nothing_stays(tool, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    tool('printf "%s\\n" "$@" > {here}/arguments; env > {here}/environment; ulimit -f > {here}/limit; cp {export} "$7"')
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "x")
    phases: list[str] = []
    trace = ingest.read(REPORT, lambda phase, *_: phases.append(phase))
    assert sum(row.total_ns for row in kernel_table(trace)) == 10_167_602 and trace.format == "nsys-rep"
    assert trace.metadata["written by nsys"] == "2025.1.1.110"
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:6] == ["export", "--type", "sqlite", "--force-overwrite", "true", "--output"]
    assert arguments[7].endswith("report.nsys-rep") and not Path(arguments[6]).parent.exists()
    assert "SECRET_OF_THE_WORKER" not in (tmp_path / "environment").read_text()
    assert (tmp_path / "limit").read_text().strip() != "unlimited"
    assert "nsys export" in phases and "reading" in phases


def test_what_nsys_says_when_it_refuses_is_the_error(tool):
    tool('echo "Importer error status: report was created by a newer version of Nsight Systems." >&2; exit 1')
    with pytest.raises(TraceError, match="newer version of Nsight Systems") as raised:
        ingest.read(REPORT)
    assert raised.value.where == "nsys export" and "nsys export --type sqlite" in raised.value.hint


def test_an_export_that_hangs_is_ended_with_its_helpers(tool, monkeypatch, tmp_path):
    monkeypatch.setattr(report, "TIME_S", 1.0)
    tool("sleep 300 & echo $! > {here}/helper; wait")
    started = time.monotonic()
    with pytest.raises(TraceError, match="ran longer than 1 s"):
        ingest.read(REPORT)
    assert time.monotonic() - started < 20
    helper = int((tmp_path / "helper").read_text())
    deadline = time.monotonic() + 5
    while Path(f"/proc/{helper}").exists() and "Z" not in Path(f"/proc/{helper}/stat").read_text().split(")")[-1][:3]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_export_that_grows_beyond_its_limit_is_an_error(tool, monkeypatch):
    monkeypatch.setattr(report, "_FREE_BYTES", 1 << 20)
    monkeypatch.setattr(report, "EXPANSION", 1)
    tool('exec cat /dev/zero > "$7"')
    with pytest.raises(TraceError, match="could not export"):
        ingest.read(REPORT)


def test_a_superseded_ingest_ends_the_export(tool, tmp_path):
    tool("echo $$ > {here}/child; exec sleep 300")

    def stop(phase: str, *_: int) -> None:
        if phase == "nsys export" and (tmp_path / "child").exists():
            raise KeyError("superseded")

    with pytest.raises(KeyError):
        ingest.read(REPORT, stop)
    assert not os.path.exists(f"/proc/{int((tmp_path / 'child').read_text())}")
