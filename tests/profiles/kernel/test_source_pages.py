"""What is inside a launch from the report to the store, the pages, the API and files; and reports that lie."""

from __future__ import annotations

import io
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.core.files.base import File
from django.core.management import call_command
from django.test import Client

from profiles import ingest
from profiles.ingest.ncu import container as ncu_inside
from profiles.ingest.ncu import report as ncu_report
from profiles.ingest.trace import CounterLaunch, Device, Integrity, Report
from profiles.models import Finding, Profile
from profiles.source import selectors
from profiles.sql.services import query_run
from profiles.store import source as store
from profiles.upload import services

DATA = Path(__file__).resolve().parents[2] / "data"
MATMUL = "captured/matmul_full.ncu-rep.gz"


def ingested(alice: Any, name: str) -> Profile:
    path = DATA / name
    profile = services.profile_create(owner=alice, file=File(io.BytesIO(path.read_bytes()), name=path.name))
    services.profile_ingest(profile.pk, "test")
    profile.refresh_from_db()
    assert profile.status == Profile.Status.READY, profile.error
    return profile


@pytest.fixture
def matmul(alice: Any, tmp_store: Path) -> Profile:
    return ingested(alice, MATMUL)


def text_of(answer: Any) -> str:
    assert answer.status_code == 200
    html = re.sub(r"<script.*?</script>", "", answer.content.decode(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", html)))


def test_from_the_report_to_the_pages_the_api_and_files(matmul: Profile) -> None:
    kernel = matmul.kernels.get()
    client = Client()
    page = text_of(client.get(f"/profiles/{matmul.pk}/kernels/{kernel.pk}/source/"))
    hot = selectors.line_rows(selectors.launch_of(matmul, 0), 1)[0]          # type: ignore[arg-type]
    assert f"{hot['place']} holds" in page and "stall samples" in page and "add up exactly" in page
    assert "tl.dot(" in page and "Hottest lines" in page and "Hottest instructions by stall samples" in page
    other = text_of(client.get(f"/profiles/{matmul.pk}/kernels/{kernel.pk}/source/?metric=inst_executed&launch=0"))
    assert "Hottest instructions by warp instructions" in other

    found = client.get(f"/api/profiles/{matmul.pk}/source/0/").json()
    assert len(found["instructions"]["sass"]) == len(found["values"]["samples"]) == store.index_read(matmul.pk)[1][0].instructions
    assert all(each["agrees"] for each in found["checks"]) and found["files"][0]["text"]
    assert sum(map(sum, found["samples"].values())) == sum(found["values"]["samples"])
    for row, wanted in found["waits"].items():
        assert int(row) != wanted
    lines = client.get(f"/api/profiles/{matmul.pk}/source/0/?table=lines&format=csv").content.decode().splitlines()
    assert lines[0].startswith("file,line,place") and len(lines) > 10
    whole = pq.read_table(io.BytesIO(client.get(f"/api/profiles/{matmul.pk}/source/0/?format=parquet").content))
    assert whole.num_rows == len(found["instructions"]["sass"]) and "smsp__pcsamp_sample_count" in whole.column_names

    course = text_of(client.get(f"/profiles/{matmul.pk}/kernels/{kernel.pk}/sampling/"))
    assert "SMs active" in course and "busiest pipe: Tensor pipe" in course
    series = client.get(f"/api/profiles/{matmul.pk}/sampling/0/").json()
    assert len(series["series"]) == 32 and series["window"]["tail_ns"] >= 0
    samples = client.get(f"/api/profiles/{matmul.pk}/sampling/0/?format=csv").content.decode().splitlines()
    assert len(samples) - 1 == sum(len(each["values"]) for each in series["series"])


def test_what_is_not_there_is_said(matmul: Profile, alice: Any) -> None:
    client = Client()
    assert client.get(f"/api/profiles/{matmul.pk}/source/7/").status_code == 404
    assert client.get(f"/api/profiles/{matmul.pk}/sampling/7/").status_code == 404
    assert client.get(f"/api/profiles/{matmul.pk}/source/0/?table=nothing").status_code == 404
    assert client.get(f"/api/profiles/{matmul.pk}/source/0/?format=exe").status_code == 400
    kernel = matmul.kernels.get()
    assert client.get(f"/profiles/{matmul.pk + 1}/kernels/{kernel.pk}/source/").status_code == 404
    assert "holds" in text_of(client.get(f"/profiles/{matmul.pk}/kernels/{kernel.pk}/source/?launch=99999&metric=<b>"))
    plain = ingested(alice, "corpus/ncu/esmm_a10g_output.ncu-rep")
    address = f"/profiles/{plain.pk}/kernels/{plain.kernels.all()[0].pk}"
    assert "no counters of single instructions" in text_of(client.get(f"{address}/source/"))
    assert "no periodic samples" in text_of(client.get(f"{address}/sampling/"))


def test_the_kernel_page_leads_there_and_findings_name_the_line(matmul: Profile) -> None:
    kernel = matmul.kernels.get()
    address = f"/profiles/{matmul.pk}/kernels/{kernel.pk}"
    page = Client().get(f"{address}/").content.decode()
    assert f'href="{address}/source/"' in page and f'href="{address}/sampling/"' in page
    found = kernel.findings.get(rule="source.wait")
    assert " of matmul.py holds " in found.title and found.numbers["share_pct"] > 20
    assert found.title.removeprefix("matmul: ") in text_of(Client().get(f"{address}/source/"))


def test_finding_sentence_and_side_by_side_view_name_one_hottest_instruction(alice: Any) -> None:
    """That of the line that is named, with what it waits for in its own state; where that is unknown, none says anything."""
    planted = ingested(alice, "causes/causes_planted.ncu-rep.zst")
    told = []
    for finding in Finding.objects.filter(profile=planted, rule="source.wait"):
        longest = planted.counter_launches.filter(kernel=finding.kernel).order_by("-duration_ns")[0]
        launch = selectors.launch_of(planted, longest.index)
        assert launch is not None
        said, document = selectors.answer(launch, None), selectors.source_json(launch)
        samples = document["values"]["samples"]
        line = next(each for each in launch.lines if each.line is not None)
        row = max(sorted(line.rows.tolist()), key=lambda each: samples[each])           # as source_model.js has it
        behind = document["waits"].get(str(row))
        if behind is None:
            assert said["waits_for"] == "" and "likely waits" not in finding.title
            continue
        name, offset = document["instructions"]["sass"][behind], document["instructions"]["offset"][behind]
        assert (said["waits_for"], said["waits_for_offset"]) == (name, offset)
        assert f"; its hottest instruction likely waits for “{name}” at 0x{offset:x}" in finding.title
        address = f"/profiles/{planted.pk}/kernels/{finding.kernel_id}/source/?launch={launch.row.index}"
        assert f"Its hottest instruction likely waits for {name}" in text_of(Client().get(address))
        told.append(name)
    assert len(told) >= 2


def test_the_command_prints_the_hottest_lines(matmul: Profile, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("source", str(matmul.pk), "0", "--most", "3")
    said = capsys.readouterr().out
    hot = selectors.line_rows(selectors.launch_of(matmul, 0), 3)             # type: ignore[arg-type]
    assert [row["place"] for row in hot] == [line.split()[0] for line in said.splitlines()[1:4]]
    call_command("source", str(matmul.pk), "0", "--json")
    assert json.loads(capsys.readouterr().out)["launch"] == 0


def test_deleting_and_ingesting_again_leave_nothing_behind(matmul: Profile, tmp_store: Path) -> None:
    folder = tmp_store / f"profiles/{matmul.pk}/inside"
    assert {path.name for path in folder.iterdir()} == {
        "0-instructions.parquet", "0-periodic.parquet", "files.parquet", "lines.parquet", "index.json.gz"}
    assert store.instructions_read(matmul.pk, 5) is None and store.periodic_read(matmul.pk, 5) is None
    assert store.index_read(matmul.pk + 1) == ([], {})


def test_instructions_and_lines_are_tables_of_sql(matmul: Profile) -> None:
    found = selectors.launch_of(matmul, 0)
    assert found is not None

    def rows(sql: str) -> list[list[Any]]:
        return [list(row.values()) for row in query_run(sql, [matmul], "me").table.to_pylist()]

    hot = next(line for line in found.lines if line.line is not None)
    assert rows("SELECT line, sum(samples) FROM instructions WHERE line IS NOT NULL GROUP BY ALL ORDER BY 2 DESC LIMIT 1") == [
        [hot.line, hot.values["samples"]]]
    assert rows("SELECT count(*), min(offset_bytes), sum(executed), any_value(kernel), max(launch) FROM instructions") == [
        [len(found.instructions), 0, float(found.instructions.values("inst_executed").sum()), found.row.kernel.name, 0]]
    (line,) = rows("SELECT text, sum(samples) FROM instructions JOIN source_lines USING (profile, file, line) GROUP BY ALL "
                   "ORDER BY 2 DESC LIMIT 1")
    assert line[0].strip() == found.text(hot.file, hot.line) and line[1] == hot.values["samples"]
    assert rows("SELECT sum(samples) FROM instructions") == [[float(found.instructions.values("samples").sum())]]


def _launch() -> CounterLaunch:
    return CounterLaunch(0, "k", Device(0, "GPU"), (1, 1, 1), (1, 1, 1), None, None, {})


def test_a_report_keeps_the_first_launches_of_each_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"instructions": {"address": [16, 32], "sass": ["NOP", "EXIT"], "ptx": ["", ""], "file": [0, None],
                                 "line": [3, None],
                                 "metrics": {"inst_executed": {"rows": [1], "values": [4.0], "total": 4.0}, "sass": {}}, "cut": 3},
                "files": [{"number": 2, "name": "c.cu", "text": None}]}
    report = Report("ncu-rep", [], {}, Integrity())
    inside = ncu_inside.Inside(report)
    made = [_launch() for _ in range(ncu_inside.LAUNCHES_PER_KERNEL + 2)]
    for launch in made:
        inside.take(document, launch)
    kept = [launch for launch in made if launch.instructions is not None]
    assert len(kept) == ncu_inside.LAUNCHES_PER_KERNEL
    assert kept[0].instructions is not None and kept[0].instructions["inst_executed"].to_pylist() == [None, 4.0]
    assert [file.name for file in report.files] == ["(unnamed)", "(unnamed)", "c.cu"]
    assert sorted(report.integrity.remarks.values()) == [2, 3 * ncu_inside.LAUNCHES_PER_KERNEL]
    monkeypatch.setattr(ncu_inside, "MAX_ROWS", 3)
    small = ncu_inside.Inside(Report("ncu-rep", [], {}, Integrity()))
    first, second = _launch(), _launch()
    small.take(document, first)
    small.take(document, second)
    assert first.instructions is not None and second.instructions is None


@pytest.mark.slow
def test_counters_survive_where_the_code_inside_kills_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same program, but it dies as a damaged cubin would make it: once it disassembles."""
    child = tmp_path / "ncu_child.py"
    child.write_text(ncu_report.CHILD.read_text())
    (tmp_path / "ncu_child_source.py").write_text(
        "import os, signal\nclass SentFiles: pass\ndef inside(action, said): os.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setattr(ncu_report, "CHILD", child)
    report = ingest.read(DATA / MATMUL)
    assert isinstance(report, Report)
    (launch,) = report.launches
    assert launch.metrics["gpu__time_duration.sum"] and launch.instructions is None
    assert any("Instructions and source could not be read" in note and "signal 11" in note for note in report.integrity.notes)


def test_the_program_of_a_launch_over_http(matmul: Profile) -> None:
    found = Client().get(f"/api/profiles/{matmul.pk}/source/0/program/").json()
    code = Client().get(f"/api/profiles/{matmul.pk}/source/0/").json()["instructions"]
    rows = len(code["sass"])
    assert all(len(found[name]) == rows for name in ("general", "uniform", "predicates", "targets", "writers"))
    assert 0.66 * found["registers_per_thread"] < max(found["general"]) <= found["registers_per_thread"] and found["missing"] == ""
    for row, to in enumerate(found["targets"]):
        if to is not None:
            assert f"+0x{code['offset'][to]:x}" in code["sass"][row]
    row = next(row for row, text in enumerate(code["sass"]) if text.startswith("HGMMA"))
    assert found["writers"][row] and all("R24" in code["sass"][each] or "UR" in code["sass"][each] or "CS2R" in code["sass"][each]
                                         for each in found["writers"][row])
    assert Client().get(f"/api/profiles/{matmul.pk}/source/7/program/").status_code == 404


def test_a_baselines_counters_stand_beside_lines_and_instructions(alice: Any, tmp_store: Path) -> None:
    old, new = (ingested(alice, f"h200/build{name}.ncu-rep.zst") for name in "AB")
    mine, other = (profile.kernels.get(short_name="softmax_row") for profile in (new, old))
    index = mine.counter_launches.order_by("-duration_ns")[0].index
    address = f"/api/profiles/{new.pk}/source/{index}/beside/"
    found = Client().get(f"{address}?baseline={other.pk}").json()
    assert found["instructions"] == {} and "404 in the baseline" in found["instructions_missing"]
    theirs = selectors.launch_of(old, found["launch"])
    assert theirs is not None and found["totals"]["samples"] == theirs.instructions.values("samples").sum()
    lines = {(line.file, line.line): line.values["samples"] for line in theirs.lines}
    document = Client().get(f"/api/profiles/{new.pk}/source/{index}/").json()
    texts = [file["text"].splitlines() if file["text"] else [] for file in document["files"]]
    compared = 0
    for key, values in found["lines"].items():
        number, line = (int(part) for part in key.split(":"))
        there = next(at for at, file in enumerate(theirs.files) if file.name == document["files"][number]["name"])
        at = theirs.files[there].text.splitlines().index(texts[number][line - 1]) + 1        # type: ignore[union-attr]
        if texts[number].count(texts[number][line - 1]) == 1:
            assert values["samples"] == lines.get((there, at), 0.0), key
            compared += values["samples"] > 0
    assert compared >= 5
    launches = sorted(row.index for row in mine.counter_launches.all())
    same = Client().get(f"{address}?baseline={mine.pk}-{launches[0] if launches[0] != index else launches[1]}").json()
    assert same["instructions_missing"] == "" and len(same["instructions"]["samples"]) == len(document["instructions"]["sass"])
    assert Client().get(f"{address}?baseline=x").status_code == 404


def test_a_baseline_without_instructions_says_so(alice: Any, matmul: Profile) -> None:
    trace = ingested(alice, "h200/kineto_layer.json.gz").kernels.all()[0]
    found = Client().get(f"/api/profiles/{matmul.pk}/source/0/beside/?baseline={trace.pk}").json()
    assert "no counters of single instructions" in found["instructions_missing"] and found["lines"] == {}
