"""What a tool may say of itself beyond one file: several results, steps after the program, a stop that lets it finish."""

import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

import pytest
from django.conf import settings
from django.core.files.storage import default_storage

from profiles.capture import forms, selectors, services
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.options import Options, whole_number
from profiles.capture.tools.tool import KEPT, LINKED, OWNERS, TIME_LIMIT, CaptureTool, Result, Stop
from profiles.models import Capture, CaptureTarget, Profile
from tests.workers.capture.test_capture import wait_for
from tests.workers.tune import stand_ins
from workers import jobs
from workers.capture import run

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
assert "recorder" not in forms.FORMS         # imported before a tool of these tests stands in the table
EVENT = {"ph": "X", "name": "step", "ts": 1, "dur": 5, "pid": 1, "tid": 1}


@dataclass(frozen=True)
class RecorderOptions(Options):
    """Of a recorder that is a shell script."""

    TOOL = "recorder"
    READ = {"time_limit_s": whole_number(1, 60)}


RESULTS = (Result("trace*.json", what="timeline"), Result("more.json", LINKED, "second view"), Result("*.raw", KEPT, "as recorded"),
           Result("secret.*", OWNERS, "for owners"))


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    """Put a tool into the table whose program is the given shell text; it needs no GPU."""
    monkeypatch.setattr(jobs, "publish", lambda *message: None)

    def put(body, **changes):
        program = stand_ins.executable(tmp_path / "recorder", f"#!/bin/sh\ncd $1\n{body}\n")
        trace = stand_ins.executable(tmp_path / "trace.json", json.dumps({"traceEvents": [EVENT]}))
        monkeypatch.setitem(CAPTURE_TOOLS, "recorder", CaptureTool(
            name="recorder", title="Recorder", heading="", purpose="", note="", options=RecorderOptions, form=(TIME_LIMIT,),
            installed=lambda: {"path": str(program), "version": "1"}, label=lambda options: "recorder", failures=(),
            **{"results": RESULTS, "needs_gpu": lambda options: False, "environ": lambda options, paths: {"TRACE": str(trace)},
               "argv": lambda options, target, report, paths: [paths.program, paths.folder, *target], **changes}))

    return put


def queued(alice, **options):
    target = CaptureTarget.objects.create(name="target", argv=["true"])
    return Capture.objects.create(target=target, tool="recorder", options=options, owner=alice, build="4f2c1e", tags=["a"])


def ran(row):
    run.run(row.pk, "worker-1")
    row.refresh_from_db()
    return row


def started(row):
    thread = threading.Thread(target=run.run, args=(row.pk, "worker-1"))
    thread.start()
    wait_for(lambda: "up" in Capture.objects.get(pk=row.pk).log.splitlines())
    return thread


def test_each_file_goes_where_the_tool_says(alice, recorder, tmp_store, client):
    recorder("cp $TRACE trace.json; cp $TRACE more.json; echo raw > a.raw; touch empty.raw; ln -s /etc/passwd b.raw; ls > other")
    row = ran(queued(alice))
    assert (row.status, row.error) == ("done", None)
    rows = selectors.file_rows(row)
    assert [(each["name"], each["role"], each["what"], each["kept"]) for each in rows] == [
        ("trace.json", "profile", "timeline", False), ("more.json", "linked", "second view", False),
        ("a.raw", "kept", "as recorded", True)]
    main, linked, kept = rows
    assert main["profile"] == row.profile_id != linked["profile"] and kept["profile"] is None
    assert kept["sha256"] == hashlib.sha256(b"raw\n").hexdigest() and kept["bytes"] == 4
    names = {profile.pk: (profile.name, profile.build, profile.tags) for profile in Profile.objects.all()}
    assert names[main["profile"]] == ("target: recorder", "4f2c1e", ["a"])
    assert names[linked["profile"]] == ("target: recorder · second view", "4f2c1e", ["a"])
    assert row.log.startswith("$ TRACE=")
    client.force_login(alice)
    answer = client.get(f"/captures/{row.pk}/files/{kept['id']}/")
    assert b"".join(answer.streaming_content) == b"raw\n" and "attachment" in answer["Content-Disposition"]
    assert client.get(f"/captures/{row.pk}/files/{main['id']}/").status_code == 404        # its profile has the bytes
    page = client.get(f"/captures/{row.pk}/").content.decode()
    assert f"/captures/{row.pk}/files/{kept['id']}/" in page and f"/profiles/{linked['profile']}/" in page
    assert client.get(f"/api/captures/{row.pk}/").json()["files"] == rows


def test_what_may_hold_secrets_is_for_owners(alice, olga, recorder, tmp_store, client):
    recorder("cp $TRACE trace.json; echo password > secret.rep")
    row = ran(queued(alice))
    kept = row.files.get(role="owners")
    address = f"/captures/{row.pk}/files/{kept.pk}/"
    for person, status in ((alice, 404), (olga, 200)):
        client.force_login(person)
        assert client.get(address).status_code == status
        assert (address in client.get(f"/captures/{row.pk}/").content.decode()) == (status == 200)
        assert client.get(f"/api/captures/{row.pk}/").json()["files"][1]["kept"] == (status == 200)


def test_files_of_ranks_become_one_profile(alice, recorder, tmp_store):
    recorder("cp $TRACE trace-rank0.json; cp $TRACE trace-rank1.json")
    row = ran(queued(alice))
    assert row.status == "done" and Profile.objects.count() == 1
    stored = row.profile.metadata["files"]
    assert [each["name"] for each in stored] == [f"capture-{row.pk}-trace-rank{rank}.json" for rank in (0, 1)]
    assert [each["sha256"] for each in selectors.file_rows(row)] == [each["sha256"] for each in stored]


def test_a_step_after_the_program_makes_the_profile(alice, recorder, tmp_store):
    recorder("echo raw > a.raw", after=lambda options, files, paths: [
        ["sh", "-c", f"echo exporting {' '.join(files)}; cp $TRACE {paths.folder}/trace.json"]])
    row = ran(queued(alice))
    assert row.status == "done" and "exporting a.raw" in row.log
    assert [each["name"] for each in selectors.file_rows(row)] == ["trace.json", "a.raw"]


def test_a_step_that_fails_is_told(alice, recorder, tmp_store):
    recorder("echo raw > a.raw", after=lambda options, files, paths: [["sh", "-c", "echo no importer; exit 4"]])
    row = ran(queued(alice))
    assert row.status == "failed" and "no importer" in row.error["what"] and row.error["where"].endswith("exit status 4")
    kept = row.files.get()                      # what was recorded is not lost
    assert (kept.name, kept.role) == ("a.raw", "kept") and default_storage.open(kept.key).read() == b"raw\n"


SLEEP = f"sleep 84.{os.getpid()}"        # of this process's tests alone: others of this file run beside it
FINISHES = f"trap 'cp $TRACE trace.json; exit 0' INT; echo up; setsid {SLEEP} & while true; do sleep 0.05; done"


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["heard", "ignored"])
def interrupt(request):
    """What this process does on SIGINT: a worker that a shell started in the background, or nohup, ignores it."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupt")
def test_stop_lets_the_tool_finish_and_keeps_its_report(alice, recorder, tmp_store):
    recorder(FINISHES, stop=Stop(grace_s=30))
    row = queued(alice)
    thread = started(row)
    assert services.capture_stop(row)
    thread.join(30)
    row.refresh_from_db()
    assert row.status == "done" and row.profile and "ended by the stop; what it had recorded is kept" in row.log
    assert not subprocess.run(["pgrep", "-f", "-x", SLEEP], capture_output=True).stdout


def test_the_time_limit_lets_the_tool_finish_too(alice, recorder, tmp_store):
    recorder(FINISHES, stop=Stop(grace_s=30))
    row = ran(queued(alice, time_limit_s=1))
    assert row.status == "done" and "ended by the time limit; what it had recorded is kept" in row.log


def test_a_tool_that_does_not_finish_in_time_is_killed(alice, recorder):
    recorder("trap '' INT; echo up; while true; do sleep 0.05; done", stop=Stop(grace_s=0.5))
    row = queued(alice)
    thread = started(row)
    services.capture_stop(row)
    thread.join(30)
    row.refresh_from_db()
    assert row.status == "cancelled" and row.profile is None and row.heartbeat is None and "0.5 s later: killed" in row.log


def test_a_second_stop_ends_it_at_once(alice, recorder):
    recorder("trap '' INT; echo up; while true; do sleep 0.05; done", stop=Stop(grace_s=300))
    row = queued(alice)
    thread = started(row)
    services.capture_stop(row)
    wait_for(lambda: "signal 2 sent" in Capture.objects.get(pk=row.pk).log)
    asked = time.monotonic()
    assert services.capture_stop(row)
    thread.join(30)
    assert time.monotonic() - asked < 20
    row.refresh_from_db()
    assert row.status == "cancelled" and not services.capture_stop(row)


def test_a_stop_that_its_worker_did_not_live_to_see(alice, recorder):
    recorder("echo up; exit 1", stop=Stop(grace_s=30))
    row = queued(alice)
    Capture.objects.filter(pk=row.pk).update(status="running", worker="dead", stop_asked="2026-01-01T00:00Z")
    row = ran(row)
    assert (row.status, row.log, row.profile) == ("cancelled", "", None) and row.finished


def test_a_file_beyond_the_bound_leaves_nothing_in_the_store(alice, recorder, tmp_store, settings):
    recorder("cp $TRACE trace.json; head -c 5000 /dev/zero > a.raw")
    settings.UPLOAD_MAX_BYTES = 1000
    row = ran(queued(alice))
    assert row.status == "failed" and "1,000 bytes" in row.error["what"]
    assert not Profile.objects.exists() and not row.files.exists()
    assert sorted(path.name for path in tmp_store.rglob("*") if path.is_file()) == ["recorder", "trace.json"]     # the tool's own
