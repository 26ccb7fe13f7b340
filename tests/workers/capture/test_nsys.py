"""Captures by the installed Nsight Systems over programs of the CPU, from the row to a profile. Skipped where there is none."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest
from django.conf import settings
from django.core.files.storage import default_storage
from django.db import connection

from profiles.capture import selectors, services
from profiles.capture.tools.nsys import installed_nsys
from profiles.models import Capture, CaptureTarget, Profile
from profiles.upload.services import profile_ingest
from tests.workers.capture.test_capture import wait_for
from tests.workers.tune import stand_ins
from workers import jobs
from workers.capture import run

pytestmark = [
    pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS),
    pytest.mark.skipif("missing" in installed_nsys(), reason="nsys is not installed here")]
PROGRAM = """
import os, sys, time
for turn in range(int(sys.argv[1])):
    print("turn", turn, flush=True)
    time.sleep(0.05)
    os.stat("/")
"""


@pytest.fixture(autouse=True)
def _told(monkeypatch):
    monkeypatch.setattr(jobs, "publish", lambda *message: None)


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


def queued(alice, argv, **options):
    target = CaptureTarget.objects.create(name="target", argv=[str(part) for part in argv])
    given = {"trace": ["osrt"], "cpuctxsw": "none", **options}
    return Capture.objects.create(target=target, tool="nsys", owner=alice, options=given)


def ran(row):
    run.run(row.pk, "worker-1")
    row.refresh_from_db()
    return row


def left(word):
    """The processes of nsys and of the program that are still there."""
    return subprocess.run(["pgrep", "-f", word], capture_output=True, text=True).stdout.split()


def test_a_report_is_exported_ingested_and_kept(alice, program, tmp_store):
    secret = subprocess.Popen(["sleep", "86.25"], env={**os.environ, "PASSWORD": "hunter2-of-another"})     # another process here
    try:
        row = ran(queued(alice, ["{python}", program, 8]))
    finally:
        secret.kill()
    assert (row.status, row.error) == ("done", None), row.log
    assert "turn 7" in row.log and "export --type=sqlite" in row.log
    files = {each["name"]: each for each in selectors.file_rows(row)}
    assert set(files) == {"report.sqlite", "report.nsys-rep"}
    assert b"hunter2-of-another" not in default_storage.open(row.profile.upload_key).read() and "environments of" in row.log
    kept = row.files.get(name="report.nsys-rep")
    assert default_storage.open(kept.key).read(29) == b"NVIDIA Tegra Profiler Report " and not files["report.nsys-rep"]["kept"]
    assert selectors.kept_file(row, kept.pk, owner=True)[0] == "report.nsys-rep"
    with pytest.raises(FileNotFoundError):                  # it holds what was taken out of the export
        selectors.kept_file(row, kept.pk, owner=False)
    profile_ingest(row.profile_id, "ingest-1")
    profile = Profile.objects.get(pk=row.profile_id)
    assert profile.status == "ready" and profile.format == "nsys-sqlite" and profile.wall_ns > 8 * 50_000_000, profile.error


def test_a_range_that_is_repeated_becomes_profiles_of_their_own(alice, tmp_path, tmp_store):
    pytest.importorskip("nvtx")
    program = tmp_path / "ranges.py"
    program.write_text("import nvtx, time\nfor turn in range(6):\n    with nvtx.annotate('turn'):\n        time.sleep(0.05)\n")
    row = ran(queued(alice, ["{python}", program], trace=["nvtx", "osrt"], capture_range="nvtx", nvtx_capture="turn",
                     capture_range_end="repeat:2"))
    assert row.status == "done", row.error
    files = selectors.file_rows(row)
    assert [(each["name"], each["role"]) for each in files] == [
        ("report.sqlite", "profile"), ("range-2-report.sqlite", "linked"), ("report.1.nsys-rep", "owners"),
        ("report.2.nsys-rep", "owners")]
    assert Profile.objects.count() == 2


def test_stop_finishes_the_report(alice, program, tmp_store):
    row = queued(alice, ["{python}", program, 4001])
    thread = threading.Thread(target=run.run, args=(row.pk, "worker-1"))
    thread.start()
    wait_for(lambda: "turn 20" in Capture.objects.get(pk=row.pk).log)
    assert services.capture_stop(row)
    thread.join(120)
    row.refresh_from_db()
    assert row.status == "done" and "ended by the stop; what it had recorded is kept" in row.log
    assert not left(f"{program} 4001") and not left(f"session-name=profile.*{program.parent}")
    profile_ingest(row.profile_id, "ingest-1")
    assert Profile.objects.get(pk=row.profile_id).wall_ns > 20 * 50_000_000


def test_a_worker_killed_in_the_middle_leaves_no_process_and_its_row_is_taken_up(alice, program, tmp_store, tmp_path):
    row = queued(alice, ["{python}", program, 4002])
    database = connection.settings_dict
    url = f"postgresql://{database['USER']}@/{database['NAME']}?host={database['HOST']}&port={database['PORT']}"
    code = ("import django, os, sys; sys.path.insert(0, os.getcwd()); django.setup()\n"
            f"from workers.capture import run; run.run({row.pk}, 'worker-0')")
    worker = subprocess.Popen([sys.executable, "-c", code], cwd=stand_ins.PROJECT, env={
        **os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "webapp.settings", "TMPDIR": str(tmp_path)})
    wait_for(lambda: "turn 5" in Capture.objects.get(pk=row.pk).log)
    agents = subprocess.run(["pgrep", "-f", "nsys --start-agent"], capture_output=True, text=True).stdout.split()
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    wait_for(lambda: not left(f"{program} 4002"))
    wait_for(lambda: not set(agents) & set(left("nsys --start-agent")))
    Capture.objects.filter(pk=row.pk).update(heartbeat=None)             # as it is 8 s later
    CaptureTarget.objects.update(argv=["{python}", str(program), "3"])
    row = ran(row)
    assert (row.status, row.worker, row.attempts) == ("done", "worker-1", 2)


@pytest.mark.parametrize(("argv", "options", "what"), [
    (["/no/such/program"], {}, "could not be started"),
    (["true"], {"delay": 30}, "nothing was recorded"),
    (["true"], {"trace": ["nvtx"], "capture_range": "nvtx", "nvtx_capture": "nowhere"}, "nothing was recorded"),
])
def test_failures_are_told_in_words(alice, tmp_store, argv, options, what):
    row = ran(queued(alice, argv, **options))
    assert row.status == "failed" and what in row.error["what"] and row.error["hint"], (row.error, row.log)
