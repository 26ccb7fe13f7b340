"""Every line of TOPICS keeps the promise of all topics: a page, an API, files, a command, and a reason where nothing applies."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.core.files.base import File
from django.core.management import CommandError, call_command
from django.template.loader import get_template
from django.test import Client

from profiles.analysis.core.frame import frame_of
from profiles.analysis.core.result import SEVERITIES, Result
from profiles.analysis.core.result import Finding as Found
from profiles.analysis.trace.account.causes import COVERED
from profiles.ingest.trace import SummaryColumn, SummaryTable
from profiles.models import Finding, Profile
from profiles.store.objects import topic_read, topic_write
from profiles.topics import services
from profiles.topics.table import TOPICS, Topic, topic_of
from profiles.upload.services import profile_ingest
from tests.builders import trace
from tests.profiles.ingest.corpus import DATA
from tests.profiles.pages.test_services import create, recording, upload

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store")]
EACH = pytest.mark.parametrize("topic", TOPICS, ids=[topic.name for topic in TOPICS])
MOST_BYTES = 2_000_000          # of a document
UNITS = re.compile(r"ns|bytes|pct|count|slice|window||[A-Za-z/]+")
CPU_ONLY = {"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "other", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 5}]}




# A recording in which a topic finds something, where kineto_train.json.gz (one GPU, no collectives, no memory) is none.
RANKS = ("h200/ddp_even_rank0.json.gz", "h200/ddp_even_rank1.json.gz")
APPLIES_TO: dict[str, tuple[str, ...]] = {
    "gpu-metrics": ("corpus/nsys/nways_jacobi_gh200_gpu_metrics_40ms.sqlite.gz",),
    "communication": RANKS,
    "memory": ("recorded/torch_graph_stack_memory.json.gz",),
}


@pytest.fixture
def train(db: None, tmp_store: Any) -> Profile:
    return profile_ingest(recording("kineto_train.json.gz").pk, "test")


@pytest.fixture
def fitting(db: None, tmp_store: Any, topic: Topic) -> Profile:
    """A stored trace to which `topic` applies."""
    with ExitStack() as stack:
        first, *more = [File(stack.enter_context((DATA / path).open("rb")), name=Path(path).name)
                        for path in APPLIES_TO.get(topic.name, ("h200/kineto_train.json.gz",))]
        return profile_ingest(create(first, more_files=more).pk, "test")


def get(person: Any, url: str, status: int = 200) -> Any:
    client = Client()
    client.force_login(person)
    answer = client.get(url)
    assert answer.status_code == status, (url, answer.status_code, answer.content[:300])
    return answer


def text_of(markup: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", markup))).replace("\xa0", " ")


def test_names_are_those_of_urls_templates_and_findings():
    names = [topic.name for topic in TOPICS]
    assert names and len(set(names)) == len(names)
    for topic in TOPICS:
        assert re.fullmatch(r"[a-z][a-z-]{2,30}", topic.name) and topic.version >= 1
        assert topic.title and topic.question.endswith("?") and topic_of(topic.name) is topic
        get_template(topic.template)
    assert topic_of("no-such") is None


@EACH
@pytest.mark.parametrize("text", ["", "main (1) / main: aten::mm 0-10", "main (1) / main: mark 5"],
                         ids=["empty", "one operator", "one mark"])
def test_what_does_not_apply_says_why(topic: Topic, text: str):
    result = topic.compute(frame_of(trace(text)))
    assert not result.applies and not result.findings
    assert re.fullmatch(r"[A-Z].{20,}\.", result.answer), result.answer


def check_result(result: Result) -> None:
    assert re.fullmatch(r"(?s)\S.*[.)]", result.answer) and len(result.answer) < 700, result.answer
    assert result.answer.count("`") % 2 == 0
    for table in result.tables:
        assert table.title and all(UNITS.fullmatch(column.unit) and column.name for column in table.columns)
        for row in table.rows:
            assert len(row) == len(table.columns), table.title
            for cell, column in zip(row, table.columns, strict=True):
                right = isinstance(cell, str) if column.text or column.unit == "window" else isinstance(cell, int | float)
                assert cell is None or (right and not isinstance(cell, bool)), (table.title, column, cell)
    for found in result.findings:
        assert found.severity in SEVERITIES and found.title and found.advice and found.numbers, found
        assert (found.title + found.advice).count("`") % 2 == 0 and not found.title.endswith(".")


@EACH
def test_page_files_api_and_findings_of_a_recorded_trace(topic: Topic, fitting: Profile, alice: Any):
    document = services.document_of(fitting, topic)
    assert document is not None and document["applies"], document["answer"]
    assert len(json.dumps(document)) < MOST_BYTES
    url = f"/profiles/{fitting.pk}/analysis/{topic.name}/"
    page = get(alice, url).content.decode()
    shown = text_of(page)
    assert text_of(html.escape(document["answer"])).replace("`", "") in shown and topic.question in shown
    assert f'href="{url}" aria-current="page"' in page and all(f"/analysis/{each.name}/" in page for each in TOPICS)
    for image in re.findall(r"<svg[^>]*>|<[^>]*role=\"img\"[^>]*>", page):       # a picture has a text
        assert "aria-label" in image or "aria-hidden" in image or "aria-labelledby" in image, image
    api = f"/api/profiles/{fitting.pk}/analysis/{topic.name}/"
    said = get(alice, api).json()
    assert said == json.loads(json.dumps(document))
    assert said["tables"], "a topic without a table shows nothing to check"
    for number, table in enumerate(said["tables"]):
        assert f'id="table-{number}"' in page and table["title"] in html.unescape(page)
        rows = list(csv.reader(io.StringIO(get(alice, f"{api}?table={number}&format=csv").content.decode("utf-8-sig"))))
        names = [column["name"] for column in table["columns"]]
        assert rows[0] == names and len(set(names)) == len(names) and len(rows) == len(table["rows"]) + 1
        stored = pq.read_table(io.BytesIO(get(alice, f"{api}?table={number}&format=parquet").content))
        assert stored.num_rows == len(table["rows"]) and stored.column_names == names
        for at, column in enumerate(names):                 # the file holds what the document says
            kept = stored[column].to_pylist()
            assert kept == [row[at] for row in table["rows"]] or all(
                (a is None) == (b is None) and (a is None or str(a) == str(b) or float(a) == pytest.approx(float(b)))
                for a, b in zip(kept, [row[at] for row in table["rows"]], strict=True)), (table["title"], column)
        assert get(alice, f"{api}?table={number}&format=json").json()
    get(alice, f"{api}?table={len(said['tables'])}", 404)
    get(alice, f"{api}?table=x", 404)
    get(alice, f"{api}?table={'9' * 5000}", 404)
    tables = [SummaryTable(**{**table, "columns": [SummaryColumn(**column) for column in table["columns"]]})
              for table in said["tables"]]
    check_result(Result(said["answer"], said["numbers"], tables, [Found(**found) for found in said["findings"]], said["applies"]))
    services.topic_make(fitting, topic)                     # made again, there are not twice as many findings
    rows = Finding.objects.filter(profile=fitting, source=topic.name)
    kept = [found for found in said["findings"][:services.MOST_FINDINGS] if found["rule"] not in COVERED]
    assert rows.count() == len(kept) and {row.title for row in rows} == {found["title"] for found in kept}
    assert topic.name in services.GAINS or not any(row.worth_ns for row in rows)             # what there is to win is said once


@EACH
def test_a_trace_without_anything_of_the_kind_has_a_page_that_says_so(topic: Topic, alice: Any):
    profile = profile_ingest(create(upload(content=CPU_ONLY)).pk, "test")
    page = get(alice, f"/profiles/{profile.pk}/analysis/{topic.name}/").content.decode()
    document = services.document_of(profile, topic)
    assert document is not None and not document["applies"] and document["answer"].replace("`", "") in text_of(page)
    assert 'id="table-0"' not in page


def test_commands_and_the_profile_page_say_every_answer(train: Profile, alice: Any, capsys: Any):
    call_command("analyse", str(train.pk))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [topic.title for topic in TOPICS]
    call_command("analyse", str(train.pk), TOPICS[0].name, "--json", "--again")
    documents = json.loads(capsys.readouterr().out)
    assert list(documents) == [TOPICS[0].name] and documents[TOPICS[0].name]["applies"]
    page = text_of(get(alice, f"/profiles/{train.pk}/").content.decode())
    for topic in TOPICS:
        document = services.document_of(train, topic)
        assert document is not None and document["answer"].replace("`", "") in page
    call_command("analyse", str(train.pk), "--json")
    printed = capsys.readouterr().out
    whole = json.loads(printed)
    assert list(whole) == ["wall_ns", "lead", "causes", "topics"] and whole["wall_ns"] == 37_396_352
    assert set(whole["lead"]) == {"cause", "where", "rank", "wall_ns", "share_pct", "recoverable_ns", "text"}
    assert all({"cause", "where", "rank", "gpu", "wall_ns", "share_pct", "recoverable_ns", "evidence"} == set(row)
               for row in whole["causes"]) and sum(row["wall_ns"] for row in whole["causes"]) == whole["wall_ns"]
    assert set(whole["topics"]) == {topic.name for topic in TOPICS} - {services.ACCOUNT}
    call_command("analyse", str(train.pk), "--json", "--again")
    assert capsys.readouterr().out == printed               # the same each time
    for wrong in (["999999"], [str(train.pk), "no-such"]):
        with pytest.raises(CommandError):
            call_command("analyse", *wrong)


def test_a_document_of_another_version_is_made_again(train: Profile):
    topic = TOPICS[0]
    document = services.document_of(train, topic)
    assert document is not None
    topic_write(train.pk, topic.name, {**document, "version": topic.version + 1, "answer": "of another version."})
    assert topic_read(train.pk, topic.name, topic.version, document["written"]) is None
    again = services.document_of(train, topic)
    assert again is not None and again["answer"] == document["answer"]


def test_the_worker_makes_all_of_them_and_one_that_fails_stops_none(train: Profile, monkeypatch: pytest.MonkeyPatch, caplog: Any):
    def fails(frame: Any) -> Result:
        raise ZeroDivisionError("on purpose")

    broken = Topic("broken", "Broken", "Does it fail?", 1, fails)
    monkeypatch.setattr(services, "TOPICS", (broken, *TOPICS))
    services.topics_make(train.pk)
    assert "the analysis broken failed" in caplog.text
    written = json.loads(json.dumps(services.document_of(train, TOPICS[0])))["written"]
    assert all(topic_read(train.pk, topic.name, topic.version, written) for topic in TOPICS)


def test_a_profile_that_is_deleted_meanwhile_is_no_fault(train: Profile, monkeypatch: pytest.MonkeyPatch, caplog: Any):
    tried = []

    def deleted(profile: Profile, topic: Topic, frame: Any) -> None:
        tried.append(topic.name)
        Profile.objects.filter(pk=profile.pk).delete()
        raise FileNotFoundError("timeline.json")

    monkeypatch.setattr(services, "topic_read", lambda *key: None)
    monkeypatch.setattr(services, "topic_make", deleted)
    services.topics_make(train.pk)
    assert len(tried) == 1 and not [each for each in caplog.records if each.levelname == "ERROR"]


def test_a_large_trace_waits_for_a_worker(train: Profile, alice: Any, monkeypatch: pytest.MonkeyPatch):
    from workers import jobs

    asked: list[Any] = []
    monkeypatch.setattr(services, "AT_ONCE_SLICES", 10)
    monkeypatch.setattr(jobs, "waiting", lambda _: [])
    monkeypatch.setattr(jobs, "enqueue", lambda *arguments: asked.append(arguments))
    name = TOPICS[0].name
    assert "Analysing: the trace is large" in text_of(get(alice, f"/profiles/{train.pk}/analysis/{name}/").content.decode())
    assert get(alice, f"/api/profiles/{train.pk}/analysis/{name}/", 202).json()["state"] == "a worker makes it"
    assert asked == [("ingest", "analyse", train.pk)] * 2


def test_unknown_names_and_other_profiles_are_refused(train: Profile, alice: Any):
    assert TOPICS[0].name in get(alice, f"/api/profiles/{train.pk}/analysis/no-such/", 404).content.decode()
    get(alice, f"/profiles/{train.pk}/analysis/no-such/", 404)
    get(alice, f"/profiles/{train.pk + 99}/analysis/{TOPICS[0].name}/", 404)


def test_the_log_of_nccl_lies_beside_the_communication_of_its_traces(alice, db, tmp_store):
    log = (DATA / "logs/nccl_two_ranks.log").read_bytes()
    half = b"\n".join(line for line in log.split(b"\n") if b"node7:4101" in line) + b"\n"
    with ExitStack() as stack:
        first, second = [File(stack.enter_context((DATA / path).open("rb")), name=Path(path).name) for path in RANKS]
        with_traces = profile_ingest(create(first, more_files=[second, upload("nccl.log", log)]).pk, "test")
    assert (with_traces.kind, with_traces.status) == ("trace", "ready") and with_traces.launches
    shown = get(alice, f"/profiles/{with_traces.pk}/analysis/communication/").content.decode()
    assert "From NCCL's log" in shown and "P2P/CUMEM/read" in shown
    assert "NCCL log" in get(alice, f"/profiles/{with_traces.pk}/").content.decode()
    rest = b"\n".join(line for line in log.split(b"\n") if b"node7:4101" not in line) + b"\n"
    alone = profile_ingest(create(upload("rank0.log", rest), more_files=[upload("rank1.log", half)]).pk, "test")
    assert (alone.kind, alone.status) == ("summary", "ready")
    assert alone.summary["headline"].startswith("NCCL 2.21.5, CUDA 12.4: 2 ranks on 1 node over P2P/CUMEM; 9 calls")
