"""Jobs under held clocks: what a suite's runs and a tune job keep of them, what fails, what is compared with what.

The driver's library is a stand-in (`stand_in_nvml.c`), the processes that time are those of tests without a GPU.
"""

import pytest
from django.conf import settings
from django.db import transaction
from django.urls import reverse

from tests.workers.clocks.library import REFUSE_GRAPHICS, UUID, ImaginaryGpu
from tests.workers.gate.test_suite_on_child import CHILD, CONFIG, suite_of
from tuner.cache.entries.services import config_put
from tuner.clocks.wish import ClockWish, locked_text, told_text
from tuner.gate.suites import job_services
from tuner.gate.verdicts.selectors import gate_document
from tuner.models import CachedConfig, Gate, GpuClockRule, KernelRun, TuneJob
from tuner.texts import measured_with
from tuner.tuning.measure.runner import Session
from tuner.tuning.trial import Measured
from workers.clocks import held, hold
from workers.core import gpu
from workers.core.periodic import Stop
from workers.gate import suite
from workers.tune import assist, runner

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
CARD = gpu.Gpu(0, UUID, "Imaginary GPU", "9.0", "1.0", 1)


@pytest.fixture
def card(library, tmp_path, monkeypatch):
    """The imaginary GPU of this host; the guardian finds the library as any process of the worker would."""
    found = ImaginaryGpu(library, tmp_path / "gpu")
    found.set()
    for name, value in found.environ(tmp_path, tmp_path / "home" / "clocks" / f"{UUID}.json").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(suite, "continue_followers", lambda job_id: None)
    monkeypatch.setattr(settings, "HOME", tmp_path / "home")
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    for module in (gpu, held):
        monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / "builds" / "a").mkdir(parents=True)
    (tmp_path / "builds" / "a" / "speeds.py").write_text("US = {'softmax': 10.0}\nHASH = 'a' * 64")
    return found


def allow(graphics="75%", **fields):
    wish = ClockWish.read(graphics, fields.pop("memory_mhz", None), **fields)
    return GpuClockRule.objects.update_or_create(uuid=UUID, defaults=wish.as_json())[0]


def measure(row):
    job = job_services.job_create(row, builds=["a"], runs=1)
    suite.run(job.pk, "worker-1", module=CHILD)
    job.refresh_from_db()
    return job, KernelRun.objects.filter(job=job).first()


def test_a_suite_keeps_at_which_clocks_it_was_measured(card, tmp_path):
    allow()
    job, run = measure(suite_of(tmp_path, "softmax"))
    assert (job.status, job.error) == ("done", None) and card.now == (0, 0, 0) and card.changes == 4
    lock = job.environment["clock_lock"]
    assert (lock["locked"], lock["sm_mhz"], lock["persistence"]) == (True, 1485, True)
    assert lock["by"] == f"suite job {job.pk} on worker-1" and lock["found"]["persistence"] == 0
    assert run.environment["timing"].endswith(", SM clock locked at 1485 MHz")
    assert run.facts["clock_lock"] == {"locked": True, "sm_mhz": 1485, "persistence": True, "by": lock["by"]}
    assert told_text(lock) == f"SM clock locked at 1485 MHz, persistence mode on, by suite job {job.pk} on worker-1"


def test_a_refusal_is_kept_and_the_runs_count_as_unlocked(card, tmp_path):
    card.set(refuse=REFUSE_GRAPHICS)
    allow("1410")
    job, run = measure(suite_of(tmp_path, "softmax"))
    assert job.status == "done" and "SM clock" not in run.environment["timing"] and card.now == (0, 0, 0)
    assert "no permission" in job.environment["clock_lock"]["why"] and run.facts["clock_lock"]["locked"] is False
    assert told_text(job.environment["clock_lock"]).startswith("not locked: graphics clock: no permission")


def test_what_is_required_and_refused_fails_the_job(card, tmp_path):
    card.set(refuse=REFUSE_GRAPHICS)
    allow("1410", required=True)
    job, run = measure(suite_of(tmp_path, "softmax"))
    assert job.status == "failed" and run is None and "no permission" in job.error["what"] and job.error["hint"]


def test_a_gate_is_not_compared_with_runs_under_other_clocks(card, tmp_path):
    """The way of a timing policy: what was timed otherwise is no baseline, and says so."""
    from tuner.gate.baselines.selectors import Baseline
    from tuner.gate.verdicts.sides_selectors import _without_other_timings

    row = suite_of(tmp_path, "softmax")
    _, unlocked = measure(row)
    allow()
    _, locked = measure(row)
    assert (unlocked.gpu, unlocked.toolkit, unlocked.driver) == (locked.gpu, locked.toolkit, locked.driver), "one environment"
    stored = Baseline(unlocked.kernel, "rolling", [unlocked], [unlocked.build])
    now = _without_other_timings(stored, {locked.environment["timing"]})
    assert now.runs == [] and "timed otherwise than now" in now.reason and "locked at 1485 MHz" in now.reason
    assert _without_other_timings(stored, {unlocked.environment["timing"]}).runs == [unlocked]


class Runner:
    """Keeps what it was made with."""

    def __init__(self, *args, **options):
        self.options = options

    def stop(self):
        pass

    close = stop


def tune_job(**fields):
    return TuneJob.objects.create(operator="softmax", shape={"R": 64, "C": 64}, dtype="fp16", device="gpu", strategy="random",
                                  budget_trials=1, budget_seconds=1, **fields)


def test_a_tune_job_holds_them_while_its_runner_is_open(card, monkeypatch):
    monkeypatch.setattr(runner, "SandboxRunner", Runner)
    allow("1410", persistence=False)
    job = tune_job()
    with runner.open_runner(job, "worker-1", Stop(), 0.0) as (opened, _):
        assert card.now == (0, 1410, 0)
        assert opened.options["environment"]["clock_lock"]["sm_mhz"] == 1410
        assert opened.options["conditions"]["clock_lock"]["by"] == f"tune job {job.pk} on worker-1"
    assert card.now == (0, 0, 0)


def test_one_without_a_rule_says_that_nobody_asked(card, monkeypatch):
    monkeypatch.setattr(runner, "SandboxRunner", Runner)
    with runner.open_runner(tune_job(), "worker-1", Stop(), 0.0) as (opened, _):
        assert card.changes == 0 and opened.options["conditions"] == {}
        assert opened.options["environment"] == {"clock_lock": {"locked": False, "why": "not asked for"}}


def test_two_tune_jobs_on_one_gpu_leave_it_as_they_found_it(card, monkeypatch):
    monkeypatch.setattr(runner, "SandboxRunner", Runner)
    allow("1410")
    with runner.open_runner(tune_job(), "worker-1", Stop(), 0.0):
        with runner.open_runner(tune_job(), "worker-2", Stop(), 0.0) as (second, _):
            assert second.options["environment"]["clock_lock"]["by"].endswith("on worker-1")
        assert card.now == (1, 1410, 0)
    assert card.now == (0, 0, 0)


def test_a_helper_under_other_clocks_does_not_help():
    class Session:
        gpu, policy = "Imaginary GPU", {}
        environment = {"clock_lock": {"locked": True, "sm_mhz": 1410}}

    job = tune_job(gpu="Imaginary GPU", toolkit="unknown", environment={"clock_lock": {"locked": False, "why": "not asked for"}})
    assert assist._why_different(job, Session()) == "its clocks: SM clock locked at 1410 MHz, the job's: not locked"
    job.environment = Session.environment
    assert assist._why_different(job, Session()) == ""


def test_the_announcement_tells_who_holds_and_how_it_went(card):
    allow("1410")
    with hold.hold_clocks(UUID, "tune job 3 on w"):
        now = hold.present(UUID)
        assert now["held"]["by"] == "tune job 3 on w" and now["held"]["changes"] == ["persistence mode", "graphics clock"]
    now = hold.present(UUID)
    assert now["held"] is None and now["last"]["sm_mhz"] == 1410 and "left" not in now["last"]


@pytest.mark.parametrize(("lock", "words"), [
    (None, ""), ({"locked": False, "why": "x"}, ""), ({"locked": True, "sm_mhz": 1410}, "SM clock locked at 1410 MHz"),
    ({"locked": True, "sm_mhz": 1410, "memory_mhz": 1593}, "SM clock locked at 1410 MHz, memory clock at 1593 MHz")])
def test_only_locked_clocks_are_another_condition(lock, words):
    assert locked_text(lock) == words


def test_the_pages_of_jobs_gates_and_suites_say_it(card, tmp_path, client, alice):
    allow("1410")
    row = suite_of(tmp_path, "softmax")
    job, run = measure(row)
    words = f"SM clock locked at 1410 MHz, persistence mode on, by suite job {job.pk} on worker-1"
    client.force_login(alice)
    page = client.get(reverse("suite", args=[row.pk])).content.decode()
    assert words in page and ">1410 MHz</span>" in page
    gate = Gate.objects.create(suite=row, build=run.build, status=Gate.Status.DONE, verdict="PASS")
    assert gate_document(gate)["clocks_held"] == []
    type(job).objects.filter(pk=job.pk).update(gate=gate)
    assert gate_document(gate)["clocks_held"] == [words]
    assert words in client.get(reverse("gate", args=[gate.pk])).content.decode()
    tuned = tune_job(environment={"driver": "1.0", "clock_lock": job.environment["clock_lock"]}, status="done", gpu="Imaginary GPU")
    assert dict(measured_with(tuned))["clock lock"] == words
    assert words in client.get(reverse("tune", args=[tuned.pk])).content.decode()


def test_a_cached_winner_is_replaced_by_one_under_other_clocks_and_by_a_faster_one_alone_under_its_own(alice):
    def put(median_ms, lock):
        job = tune_job(status="done", gpu="Imaginary GPU", best_config=CONFIG, default_ms=9.0, environment={"clock_lock": lock})
        session = Session("Imaginary GPU", "9.0", environment={"triton": "3.6.0", "cuda": "13.0", "clock_lock": lock})
        with transaction.atomic():
            return config_put(job, session, Measured(median_ms, median_ms, median_ms, 9), "s" * 64, default=CONFIG)

    free, held_at = {"locked": False, "why": "not asked for"}, {"locked": True, "sm_mhz": 1410}
    assert put(1.0, free) is not None
    assert put(1.3, free) is None, "slower under the same clocks: the one that stands serves on"
    entry = put(1.3, held_at)
    assert entry is not None and entry.evidence["environment"]["clock_lock"] == held_at, "not comparable: the newer one stands"
    assert put(1.5, held_at) is None and CachedConfig.objects.count() == 1
