"""A worker takes a candidate from its row to its verdict, behind walls, on the CPU by Triton's interpreter; harm is contained."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection

from tests.product import PROJECT
from tests.tuner.candidates.files import BROKEN, CHANGED, CHEATS, DIFF, HARM, KERNEL, LAUNCH, SHAPE
from tests.tuner.candidates.test_candidates import permit
from tests.warm.parent import forks_behind_walls
from tuner.cache.entries.selectors import bucket
from tuner.candidates import diffs, services
from tuner.candidates.services import Submitter
from tuner.models import CachedConfig, Candidate
from workers.core import gpu, sandboxed, warm
from workers.tune import candidate
from workers.tune import candidate as work

pytestmark = [
    pytest.mark.torch, pytest.mark.django_db(transaction=True, available_apps=django_settings.INSTALLED_APPS),
    pytest.mark.skipif(bool(sandboxed.why_not()), reason=f"no sandbox here: {sandboxed.why_not()}")]
CARD = gpu.Gpu(0, "GPU-interpreted", "Triton's interpreter", "9.0", "", 1)
SMALL = sandboxed.Bounds(wall_s=120, cpu_s=120, memory_mb=3072, data_mb=3072, processes=128, room_mb=128, files=2000, file_mb=64)
ON_CPU = work.Programs(judge="tests.tuner.candidates.interpreted_judge", read=(*sandboxed.OURS, PROJECT / "tests"))


def few(names: Iterable[str], *taken: str) -> list[Any]:
    """Return all of them, the others marked for `make test-deep`: each is a process that imports torch.

    The words of each verdict are those of test_pure.py, the walls those of tests/workers/core/test_sandboxed.py.
    """
    return [*taken, *(pytest.param(name, marks=pytest.mark.deep_only) for name in names if name not in taken)]


@pytest.fixture(scope="module", autouse=True)
def interpreting_parent() -> Iterator[warm.Keeper]:
    """As the worker of a GPU keeps one: its forks judge. A new process would import torch for three seconds, for each test."""
    with forks_behind_walls(interprets=True) as keeper:
        yield keeper


@pytest.fixture
def new_processes(interpreting_parent: warm.Keeper) -> Iterator[None]:
    """As a worker without a warm parent starts them; the compiler's stage, which no interpreter can do."""
    warm.keep(None, walled=True)
    yield
    warm.keep(interpreting_parent, walled=True)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> gpu.Gpu:
    """A worker that has a GPU, as far as leases go."""
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    monkeypatch.setattr(gpu, "device_nodes", lambda card: [])
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    return CARD


def judged(owner: Any, text: str, bounds: sandboxed.Bounds = SMALL, *, compiled: bool = True, programs: work.Programs = ON_CPU,
           **more: Any) -> Candidate:
    """A candidate at its end. `compiled`: its first stage is taken as done, which a test of its own looks at."""
    permit(more.get("operator", "softmax"))
    candidate = services.candidate_create(Submitter(owner), **{"operator": "softmax", "shape": SHAPE, "text": text, **more})
    if compiled:
        Candidate.objects.filter(pk=candidate.pk).update(stage="measure")
    work.run(candidate.pk, "here", on_gpu=True, programs=programs, compile_bounds=bounds, bounds=bounds)
    candidate.refresh_from_db()
    return candidate


def test_a_kernel_goes_from_its_row_to_its_verdict(alice: Any, card: gpu.Gpu, new_processes: None, monkeypatch: pytest.MonkeyPatch
                                                   ) -> None:
    """Compiled by a worker that takes no GPU, left alone by one that has none, measured by a third."""
    permit()
    candidate = services.candidate_create(Submitter(alice), operator="softmax", shape=SHAPE, text=DIFF)
    work.run(candidate.pk, "here", on_gpu=False, compile_bounds=SMALL)
    candidate.refresh_from_db()
    assert (candidate.status, candidate.stage, candidate.attempts, candidate.worker) == ("waiting", "measure", 0, "")
    compiled = candidate.answer["compiled"]
    assert (compiled["gpu"], compiled["kernels"], candidate.answer["loaded"]) == ("sm_90", 1, {"form": "module", "names": []})
    assert compiled["registers"] > 0 and compiled["spills"] == 0 and compiled["occupancy_pct"] > 0
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "gpus", lambda: [])
        work.run(candidate.pk, "there", on_gpu=True)
        candidate.refresh_from_db()
        assert (candidate.status, candidate.attempts) == ("waiting", 0)         # left alone, and not even claimed
    work.run(candidate.pk, "elsewhere", on_gpu=True, programs=ON_CPU, compile_bounds=SMALL, bounds=SMALL)
    candidate.refresh_from_db()
    check_verdict(candidate)


@pytest.mark.deep_only
@pytest.mark.parametrize(("text", "form"), [(DIFF, "module"), (KERNEL, "kernel")], ids=["module", "kernel"])
def test_one_worker_does_both_stages(alice: Any, card: gpu.Gpu, new_processes: None, text: str, form: str) -> None:
    candidate = judged(alice, text, compiled=False)
    check_verdict(candidate)
    assert candidate.answer["loaded"]["form"] == form


def check_verdict(candidate: Candidate) -> None:
    """A text that computes what the operator's own does is timed beside it."""
    assert (candidate.status, candidate.error) == ("done", None), candidate.reason
    answer = candidate.answer
    assert candidate.verdict in ("FASTER", "SAME", "SLOWER", "AMBIGUOUS") and "beside the default configuration" in candidate.reason
    assert answer["compiled"]["registers"] > 0
    assert [check["right"] for check in (*answer["checks"], answer["again"])] == [True, True, True] and answer["replaced"] == []
    rows = {row["name"]: row for row in answer["rows"]}
    assert list(rows) == ["candidate", "default", "library"] and rows["default"]["verdict"] == candidate.verdict
    mine = rows["candidate"]
    assert mine["n"] == 18 and mine["low_us"] <= mine["median_us"] <= mine["high_us"]
    assert answer["repeats"] == {"launches": 3, "differing": 0} and answer["times"]["candidate"]["compared"] >= 6
    assert answer["counters"]["why"] and candidate.environment["triton"] and candidate.gpu == CARD.name
    assert answer["source_differs"] is False and candidate.review == "open"


BEST = {"STEPS": 1, "PER_SM": 2, "num_warps": 4, "ROWS": 2, "BLOCK": 0}


def best_known(config: dict[str, Any]) -> CachedConfig:
    """An entry of the cache for the candidate's shape."""
    return CachedConfig.objects.create(
        operator="softmax", dtype="fp16", shape=SHAPE, shape_key="x", shape_bucket=bucket("softmax", SHAPE), gpu=CARD.name,
        compute_capability="9.0", toolkit="cuda 13.0, triton 3.6.0", config=config, median_ms=1.0, origin="tune", state="verified")


def check_best(owner: Any) -> None:
    """The best configuration known is timed beside a candidate."""
    entry = best_known(BEST)
    candidate = judged(owner, LAUNCH, config={"num_warps": 4})
    assert candidate.verdict in ("FASTER", "SAME", "SLOWER", "AMBIGUOUS")
    assert candidate.status == "done" and candidate.answer["against"] == "best", candidate.reason
    assert candidate.answer["best"]["entry"] == entry.pk and candidate.answer["best"]["config"] == BEST
    assert [row["name"] for row in candidate.answer["rows"]] == ["candidate", "best", "default", "library"]


@pytest.mark.deep_only
def test_a_best_configuration_that_does_not_run_here_is_dropped(alice: Any, card: gpu.Gpu) -> None:
    best_known({**BEST, "ROWS": "no"})
    candidate = judged(alice, CHANGED)
    assert candidate.answer["against"] == "default" and "does not do here" in candidate.answer["dropped"]


@pytest.mark.parametrize("cheat", few(CHEATS, "keeps results while it is timed", "writes beyond its output"))
def test_what_cheats_is_wrong_and_the_reason_says_how(alice: Any, card: gpu.Gpu, cheat: str) -> None:
    text, words = CHEATS[cheat]
    candidate = judged(alice, text)
    assert (candidate.status, candidate.verdict) == ("done", "WRONG"), (cheat, candidate.reason)
    assert words in candidate.reason, candidate.reason


@pytest.mark.deep_only          # of its reason: test_it_sees_no_secret_and_reaches_nobody raises; of what ends it: test_pure.py
@pytest.mark.parametrize("broken", BROKEN)
def test_what_does_not_run_has_failed_with_its_reason(alice: Any, card: gpu.Gpu, broken: str,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    text, words = BROKEN[broken]
    monkeypatch.setattr(diffs, "why_no_python", lambda whole: "")      # as a server does whose Python knows more than the worker's
    candidate = judged(alice, text, compiled=broken in ("raises", "exits"))
    assert (candidate.status, candidate.verdict) == ("done", "FAILED") and words in candidate.reason, candidate.reason


@pytest.mark.parametrize("harm", few(HARM, "memory"))
def test_harm_is_contained_and_the_next_is_timed_beside_the_best_known(alice: Any, card: gpu.Gpu, harm: str) -> None:
    bounds = sandboxed.Bounds(**{**vars(SMALL), "wall_s": 20, "data_mb": 2048, "memory_mb": 2560})
    candidate = judged(alice, LAUNCH + HARM[harm], bounds)
    assert candidate.status == "done"
    if harm == "kill":          # the first process of a namespace hears no signal from within
        return
    assert candidate.verdict == "FAILED" and candidate.reason.startswith(("its process", "it cannot be"))
    assert harm != "memory" or "MemoryError" in candidate.reason        # of the file, not of what starts it
    check_best(alice)           # the worker goes on


def test_it_sees_no_secret_and_reaches_nobody(alice: Any, card: gpu.Gpu, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGEPOINT_SECRET_KEY", "a secret of this installation")
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    text = f"""
import os, socket
seen = [name for name in os.environ if "URL" in name or "SECRET" in name or "RIDGEPOINT_HOME" in name]
for place in ({str(settings.HOME)!r}, "/etc/shadow", "/var", "/run", {str(PROJECT / "manage.py")!r}, {str(PROJECT / "webapp")!r}):
    seen += [place] if os.path.exists(place) else []
for address in (("127.0.0.1", 22), ("1.1.1.1", 53)):
    try:
        socket.create_connection(address, 1)
        seen.append(address)
    except OSError:
        pass

def launch(inputs, out, config):
    raise RuntimeError(f"seen: {{seen}}")
"""
    candidate = judged(alice, text)
    assert (candidate.status, candidate.verdict) == ("done", "FAILED") and "RuntimeError: seen: []" in candidate.reason


def test_an_answer_of_the_file_s_own_is_not_believed(alice: Any, card: gpu.Gpu) -> None:
    fast, slow = ({"samples_ms": [ms] * 20, "round_ms": [ms] * 10, "compared": 9, "wrong": ""} for ms in (0.001, 9.0))
    check = {"seed": 1, "right": True, "message": "", "relative_error": 0, "worst_error": 0, "changed": [], "late": ""}
    forged = {"times": {"candidate": fast, "default": slow}, "replaced": [], "checks": [check]}
    write = f"""
import os
for number in os.listdir("/proc/self/fd"):
    try:
        os.write(int(number), {(json.dumps(forged) + chr(10)).encode()!r})
    except OSError:
        pass
"""
    candidate = judged(alice, LAUNCH.replace("out=out)", "out=out)\n    out.mul_(2)") + write)
    assert candidate.verdict in ("WRONG", "FAILED") and "more than once" in candidate.reason, candidate.reason


def test_a_cancelled_one_ends_at_once(alice: Any, card: gpu.Gpu) -> None:
    permit()
    candidate = services.candidate_create(Submitter(alice), operator="softmax", shape=SHAPE, text=LAUNCH + HARM["endless"])
    Candidate.objects.filter(pk=candidate.pk).update(stage="measure")

    def take() -> None:
        try:
            work.run(candidate.pk, "here", on_gpu=True, programs=ON_CPU, bounds=SMALL)
        finally:
            connection.close()

    worker = threading.Thread(target=take)
    worker.start()
    while not Candidate.objects.get(pk=candidate.pk).step.startswith("importing"):
        time.sleep(0.05)
    services.candidate_cancel(candidate)
    worker.join(20)
    assert not worker.is_alive() and Candidate.objects.get(pk=candidate.pk).status == "cancelled"


def test_where_no_sandbox_can_be_made_it_is_refused(alice: Any, card: gpu.Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxed, "why_not", lambda: "this host lets no sandbox be made: unshare: Operation not permitted")
    monkeypatch.setenv(sandboxed.WITHOUT, "1")          # limits alone are not enough for a candidate
    monkeypatch.setattr(sandboxed, "run", lambda *given, **more: pytest.fail("it was run"))
    candidate = judged(alice, LAUNCH)
    assert candidate.status == "failed" and "Operation not permitted" in candidate.error["what"] and not candidate.verdict


def test_the_operator_s_own_fault_is_no_verdict(alice: Any, card: gpu.Gpu) -> None:
    candidate = judged(alice, LAUNCH, programs=replace(ON_CPU, judge="tests.tuner.candidates.no_such_judge"))
    assert candidate.status == "failed" and candidate.error["where"] == "judge" and not candidate.verdict


def test_counters_are_read_from_ncu_s_table_whatever_else_is_printed() -> None:
    names = ["ID", "Process ID", "Kernel Name", *candidate.COUNTERS.values()]
    line = ['"' + '","'.join(row) + '"' for row in (
        names, ["", "", "", "ns", "%", "%", "%", "%", "register/thread", "%"],
        ["0", "7", "softmax_row", "41,216", "88.1", "30.2", "0", "12.5", "32", "61.0"],
        ["1", "7", "helper", "3,000", "1", "2", "0", "0", "16", "10"])]
    found = candidate.read_csv(["==PROF== Connected", "printed by the kernel", *line])
    assert found == {"duration_ns": 41216.0, "dram_pct": 88.1, "sm_pct": 30.2, "tensor_pct": 12.5, "registers": 32.0,
                     "occupancy_pct": 61.0, "kernels": 2}
    assert candidate.read_csv(["nothing"]) == {} == candidate.read_csv(['"ID"', '"x"'])


def test_what_ncu_and_the_program_said_is_the_reason() -> None:
    lines = ["==PROF== Connected to process 7", "==ERROR== The application returned an error code (1)."]
    said = "Traceback (most recent call last):\n  File …\nRuntimeError: no CUDA device\n"
    assert candidate.why_nothing(lines, said) == (
        "The application returned an error code (1).; RuntimeError: no CUDA device")
    assert candidate.why_nothing([], "") == "" and candidate.why_nothing([], "only this") == "only this"


def test_ncu_is_shown_with_the_folders_it_needs(tmp_path: Path) -> None:
    toolkit, shared = tmp_path / "cuda-13.0", tmp_path / "opt" / "nsight-compute"
    for folder in (toolkit / "bin", toolkit / "nsight-compute-2025.3.1", shared / "2025.3.1"):
        folder.mkdir(parents=True)
    script = toolkit / "bin" / "ncu"
    assert candidate.homes(script, shared) == [toolkit / "bin", toolkit / "nsight-compute-2025.3.1", shared]
    assert candidate.homes(script, tmp_path / "none") == [toolkit / "bin", toolkit / "nsight-compute-2025.3.1"]
    program = toolkit / "nsight-compute-2025.3.1" / "target" / "linux-x64" / "ncu"
    assert candidate.homes(program, shared) == [toolkit / "nsight-compute-2025.3.1"]
