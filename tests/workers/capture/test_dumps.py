"""Memory snapshots on request, from the row to profiles: the real worker and launcher, over words that stand in for a GPU.

Where there is no GPU, torch records no history: `sitecustomize` puts a recorded snapshot in the place of the allocator's.
"""

import threading
import time
from datetime import timedelta
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.urls import reverse
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.capture import selectors, services
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.torch_profiler import MOST_DUMPS
from profiles.models import Capture, CaptureTarget, Profile
from profiles.upload.services import profile_ingest
from tests.profiles.ingest.corpus import DATA
from tests.workers.capture.test_capture import GPU_WORKER, host, told, wait_for  # noqa: F401
from workers import jobs
from workers.capture import dumps, run, torch_memory

BEATS_ON = timedelta(seconds=100)       # nobody beats here; further ahead it would be from before a clock was set back

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
PROGRAM = """
import time
print("up", flush=True)
for number in range(3000):
    time.sleep(0.02)
    ridgepoint_step()
    if number % 50 == 49:
        print("made", number + 1, flush=True)
"""
# Called as torch itself calls them; what they do is told in the log.
ALLOCATOR = """
import shutil, time, torch
def record(enabled="all", context="all", stacks="all", max_entries=0):
    print("history", enabled, max_entries, flush=True)
def dump(path):
    assert {fails} is False, "no room"
    shutil.copyfile({snapshot!r}, path)
torch.cuda.is_available = lambda: True
torch.cuda.memory._record_memory_history, torch.cuda.memory._dump_snapshot = record, dump
torch._C._cuda_attach_out_of_memory_observer = lambda observer: None
"""
RECORDED = DATA / "recorded" / "torch_snapshot.pickle"


@pytest.fixture
def target(tmp_path):
    pytest.importorskip("torch")

    def make(fails=False, allocator=True):
        (tmp_path / "program.py").write_text(PROGRAM)
        (tmp_path / "site").mkdir(exist_ok=True)
        if allocator:
            (tmp_path / "site" / "sitecustomize.py").write_text(ALLOCATOR.format(fails=fails, snapshot=str(RECORDED)))
        return CaptureTarget.objects.create(name="serve", argv=["{python}", str(tmp_path / "program.py")],
                                            env={"PYTHONPATH": str(tmp_path / "site")})
    return make


def started(target, alice, **options):
    row = Capture.objects.create(target=target, tool="torch", owner=alice,
                                 options={"steps": "none", "memory": "request", "memory_entries": 5000, **options})
    thread = threading.Thread(target=run.run, args=(row.pk, "worker-1"))
    thread.start()
    wait_for(lambda: "up" in Capture.objects.get(pk=row.pk).log.splitlines())
    # as the worker's heartbeat does beside it
    Capture.objects.filter(pk=row.pk).update(heartbeat=timezone.now() + BEATS_ON)
    return row, thread


def ended(row, thread):
    if Capture.objects.get(pk=row.pk).status == "running":
        services.capture_stop(row)
    thread.join(120)
    row.refresh_from_db()
    return row


def steps_made(row):
    return Capture.objects.get(pk=row.pk).log.count("made ")


def dump_files(row):
    return [each for each in selectors.file_rows(row) if each["name"].startswith("dump-")]


@pytest.mark.torch
def test_a_snapshot_comes_while_the_program_runs_on(alice, api, host, told, tmp_store, target):  # noqa: F811
    row, thread = started(target(), alice)
    answer = api(alice).post(reverse("api-capture-dump", args=[row.pk]))
    asked = time.monotonic()
    assert answer.status_code == 202 and answer.json()["dumps"] == {"asked": 1, "most": MOST_DUMPS}
    wait_for(lambda: dump_files(row))
    took_s = time.monotonic() - asked
    assert Capture.objects.get(pk=row.pk).status == "running"
    wait_for(lambda: "memory snapshot 1 written (asked for)" in Capture.objects.get(pk=row.pk).log)
    first = Profile.objects.get(pk=dump_files(row)[0]["profile"])
    assert first.name == "serve: memory snapshot · memory snapshot on request (dump-1)"
    profile_ingest(first.pk, "ingest-1")
    assert Profile.objects.get(pk=first.pk).format == "torch-snapshot"      # it can be read before the capture has ended
    assert services.capture_dump(row) == 2
    wait_for(lambda: len(dump_files(row)) == 2)
    assert [services.capture_dump(row) for _ in range(2, MOST_DUMPS)] == list(range(3, MOST_DUMPS + 1))
    refused = api(alice).post(reverse("api-capture-dump", args=[row.pk]))
    assert refused.status_code == 409 and "8 snapshots were asked for already" in refused.json()["error"]
    wait_for(lambda: len(dump_files(row)) == MOST_DUMPS)
    made = steps_made(row)
    wait_for(lambda: steps_made(row) > made)
    row = ended(row, thread)
    assert row.status == "done" and "memory snapshot written (end)" in row.log, (row.error, row.log)
    assert [each["name"] for each in selectors.file_rows(row)] == [
        *(f"dump-{number}.pickle" for number in range(1, MOST_DUMPS + 1)), "only-snapshot.pickle"]
    assert len({each["profile"] for each in dump_files(row)}) == MOST_DUMPS
    assert row.profile_id not in {each["profile"] for each in dump_files(row)}
    print(f"asked for, written and stored in {took_s:.2f} s")
    assert took_s < 15          # "within a second or two" on an idle machine


@pytest.mark.torch
@pytest.mark.deep_only          # test_a_snapshot_comes_while_the_program_runs_on, test_what_the_launcher_answers
def test_eight_at_once_and_no_ninth(alice, api, host, told, tmp_store, target):  # noqa: F811
    row, thread = started(target(), alice, memory="oom")
    assert [services.capture_dump(row) for _ in range(MOST_DUMPS)] == list(range(1, MOST_DUMPS + 1))
    refused = api(alice).post(reverse("api-capture-dump", args=[row.pk]))
    assert refused.status_code == 409 and "8 snapshots were asked for already" in refused.json()["error"]
    wait_for(lambda: len(dump_files(row)) == MOST_DUMPS)
    row = ended(row, thread)
    # of the mode that waits for an out-of-memory which never came: the last state is what the capture ends as
    assert row.status == "done" and row.profile.file_name.endswith("only-snapshot.pickle"), (row.error, row.log)
    assert len({each["profile"] for each in dump_files(row)}) == MOST_DUMPS


@pytest.mark.torch
@pytest.mark.deep_only          # test_what_the_launcher_answers
def test_a_snapshot_that_cannot_be_written_ends_nothing(alice, host, told, tmp_store, target):  # noqa: F811
    row, thread = started(target(fails=True), alice, memory="oom")
    services.capture_dump(row)
    wait_for(lambda: "memory snapshot 1 could not be written: AssertionError: no room" in Capture.objects.get(pk=row.pk).log)
    wait_for(lambda: "made 200" in Capture.objects.get(pk=row.pk).log.splitlines())
    assert ended(row, thread).files.count() == 0


@pytest.mark.torch
@pytest.mark.deep_only          # test_what_the_launcher_answers, test_without_a_gpu_a_memory_snapshot_says_why_not
def test_without_a_gpu_the_log_answers(alice, host, told, tmp_store, target):  # noqa: F811
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    row, thread = started(target(allocator=False), alice)
    services.capture_dump(row)
    wait_for(lambda: "no memory snapshot 1: the allocator's history is not recorded" in Capture.objects.get(pk=row.pk).log)
    row = ended(row, thread)
    assert row.status == "cancelled" or row.error["what"] == "no memory snapshot was written"


def no_room(path):
    raise AssertionError("no room")


@pytest.mark.parametrize(("gpu", "dump", "answer", "last"), [
    (True, lambda path: Path(path).touch(), "memory snapshot 8 written (asked for)", True),
    (True, no_room, "memory snapshot 8 could not be written: AssertionError: no room", False),
    (False, no_room, "no memory snapshot 8: the allocator's history is not recorded", False)], ids=["written", "no room", "no GPU"])
def test_what_the_launcher_answers(tmp_path, gpu, dump, answer, last):
    """Waiting for an out-of-memory that never comes: eight requests are answered, nothing is raised, then the last state is due."""
    said = []
    allocator = SimpleNamespace(_record_memory_history=lambda enabled="all", max_entries=0: said.append((enabled, max_entries)),
                                _dump_snapshot=lambda path: dump(path))
    torch = SimpleNamespace(cuda=SimpleNamespace(memory=allocator, is_available=lambda: gpu), _C=None)
    memory = torch_memory.Memory(torch, "oom", 5000, lambda name: f"{tmp_path}/{name.replace('*', '')}", said.append)
    (tmp_path / dumps.ASKED).write_text("9")
    memory.start()
    wait_for(lambda: answer in said)
    assert sum("memory snapshot" in each and any(digit in each for digit in "12345678") for each in said) == MOST_DUMPS
    assert len(list(tmp_path.glob("dump-*.pickle"))) == MOST_DUMPS * last and not list(tmp_path.glob("*.part"))
    assert (("all", 5000) in said) == gpu and ("no memory snapshot: torch sees no CUDA GPU" in said) == (not gpu)
    if last or not gpu:
        memory.end()
    memory.close()
    assert memory.written == last == (tmp_path / "snapshot.pickle").exists() == ("memory snapshot written (end)" in said)


@pytest.fixture
def idle(sign_in_mode):
    jobs.connection().flushdb()
    jobs.announce("gpu@node7", GPU_WORKER)
    target = CaptureTarget.objects.create(name="train", argv=["{python}", "-m", "train"])

    def make(**fields):
        if fields.get("worker"):
            fields = {"heartbeat": timezone.now() + BEATS_ON, **fields}
        return Capture.objects.create(target=target, **{"tool": "torch", "options": {"memory": "end"}, **fields})
    yield make
    jobs.connection().flushdb()


ALIVE = {"status": "running", "worker": "w"}


@pytest.mark.parametrize(("fields", "words"), [
    ({"status": "done"}, "does not run"), ({"status": "queued"}, "does not run"),
    ({**ALIVE, "heartbeat": "2000-01-01T00:00:00Z"}, "does not run"),
    ({**ALIVE, "stop_asked": "2026-01-01T00:00:00Z"}, "does not run"),
    ({**ALIVE, "dumps_asked": 8}, "8 snapshots were asked for already"),
    ({**ALIVE, "options": {}}, "records no memory history"), ({**ALIVE, "tool": "ncu", "options": {}}, "records no memory history"),
    ({**ALIVE, "tool": "gone"}, "records no memory history")])
def test_what_no_snapshot_can_be_asked_of(idle, fields, words):
    row = idle(**fields)
    with pytest.raises(Refused, match=words):
        services.capture_dump(row)
    row.refresh_from_db()
    assert row.dumps_asked == fields.get("dumps_asked", 0)


def test_the_button_and_the_command(idle, client, alice, bob):
    row = idle(**ALIVE)
    client.force_login(alice)
    page = client.get(reverse("capture", args=[row.pk])).content.decode()
    assert "Memory snapshot now" in page and "0 of 8 asked for" in page
    answer = client.post(reverse("capture-dump", args=[row.pk]), follow=True)
    assert "Snapshot 1 is asked for" in answer.content.decode() and "1 of 8 asked for" in answer.content.decode()
    out = StringIO()
    call_command("capture", "dump", str(row.pk), stdout=out)
    assert out.getvalue() == f"snapshot 2 of capture {row.pk} is asked for\n"
    Capture.objects.update(status="done")
    assert "No snapshot: it does not run" in client.post(reverse("capture-dump", args=[row.pk]), follow=True).content.decode()
    with pytest.raises(CommandError, match="it does not run"):
        call_command("capture", "dump", str(row.pk))
    with pytest.raises(CommandError, match="there is no capture 999999"):
        call_command("capture", "dump", "999999")
    client.force_login(bob)
    assert client.post(reverse("capture-dump", args=[row.pk])).status_code == 403
    assert "Memory snapshot now" not in client.get(reverse("capture", args=[idle(options={}, **ALIVE).pk])).content.decode()


def test_a_capture_that_is_taken_up_again_owes_no_snapshot_of_the_program_that_died(alice, host, told, tmp_store):  # noqa: F811
    target = CaptureTarget.objects.create(name="t", argv=["sleep", "0"])
    row = Capture.objects.create(target=target, tool="ncu", owner=alice, status="running", worker="dead", dumps_asked=3)
    run.run(row.pk, "worker-1")
    row.refresh_from_db()
    assert (row.status, row.dumps_asked) == ("done", 0), row.error


def test_worker_and_launcher_agree():
    """The launcher imports nothing of ours: what both say stands in both."""
    assert dumps.ASKED == torch_memory.ASKED and torch_memory.MOST_DUMPS == MOST_DUMPS
    assert CAPTURE_TOOLS["torch"].dumps(CAPTURE_TOOLS["torch"].options.parse({"memory": "end"})) == MOST_DUMPS


@pytest.mark.parametrize(("text", "count"), [("", 0), ("x", 0), ("3", 3), ("-4", -4), ("9" * 30, MOST_DUMPS), ("2\n", 2)])
def test_a_request_of_any_kind_is_bounded(tmp_path, text, count):
    (tmp_path / "asked").write_text(text)
    assert torch_memory._asked(str(tmp_path / "asked")) == count and torch_memory._asked(str(tmp_path / "none")) == 0
