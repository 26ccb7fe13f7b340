"""Verdicts from samples, answers read like uploads, code beside code, and what a sandbox opens of devices."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.candidates.files import CHANGED, KERNEL, LAUNCH, OWN
from tests.tuner.candidates.test_candidates import CHECK
from tuner.candidates import code_view, diffs, verdicts
from tuner.candidates.answer import Answer
from tuner.candidates.page_selectors import bars_of
from tuner.candidates.verdicts import Verdict
from tuner.ceilings.least_time import LeastTime


def times(us: float, seed: int, noise: float = 0.002) -> dict[str, Any]:
    draw = random.Random(seed)
    rounds = [[us / 1000 * draw.gauss(1, noise) for _ in range(5)] for _ in range(10)]
    return {"samples_ms": [ms for each in rounds for ms in each], "round_ms": [sorted(each)[2] for each in rounds], "compared": 12,
            "wrong": ""}


def told(candidate_us: float, default_us: float = 50.0, **more: Any) -> dict[str, Any]:
    return {"checks": [CHECK, CHECK], "again": CHECK, "replaced": [], "streams": {}, "ended": True,
            "times": {"candidate": times(candidate_us, 1), "default": times(default_us, 2), "library": times(80.0, 3)}, **more}


@pytest.mark.parametrize(("us", "verdict"), [(40.0, "FASTER"), (48.5, "FASTER"), (50.0, "SAME"), (50.6, "SAME"), (52.0, "SLOWER"),
                                             (90.0, "SLOWER")])
def test_times_make_the_verdict(us: float, verdict: str) -> None:
    judged = verdicts.judge(told(us))
    assert (judged.verdict, judged.against) == (verdict, "default") and "beside the default configuration" in judged.reason
    row = judged.rows[1]
    assert row["low"] <= row["ratio"] <= row["high"] and row["ratio"] == pytest.approx(us / 50.0, rel=0.01)


def test_noise_is_no_verdict_and_identical_kernels_are_not_told_apart() -> None:
    wild = {**told(49.0), "times": {"candidate": times(49.0, 11, noise=0.2), "default": times(50.0, 12, noise=0.2)}}
    assert verdicts.judge(wild).verdict == Verdict.AMBIGUOUS
    found = [verdicts.judge({**told(50.0), "times": {"candidate": times(50.0, seed), "default": times(50.0, seed + 1000)}}).verdict
             for seed in range(60)]
    assert set(found) == {Verdict.SAME}


def test_the_best_configuration_known_goes_before_the_default() -> None:
    answer = told(45.0)
    answer["times"]["best"] = times(44.0, 9)
    judged = verdicts.judge(answer)
    assert (judged.verdict, judged.against) == ("SLOWER", "best") and [row["name"] for row in judged.rows] == [
        "candidate", "best", "default", "library"]
    assert {row["name"]: row.get("verdict") for row in judged.rows}["default"] == "FASTER"


@pytest.mark.parametrize(("change", "words"), [
    ({"checks": [{**CHECK, "right": False, "message": "relative error 1"}]}, "relative error 1"),
    ({"checks": [{**CHECK, "changed": ["x", "w"]}]}, "it changes its inputs: x, w"),
    ({"again": {**CHECK, "right": False, "message": "stale"}}, "wrong after it was timed, on fresh inputs: stale"),
    ({"replaced": ["time.perf_counter"]}, "it replaced time.perf_counter"), ({"twice": ["times"]}, "told more than once (times)"),
    ({"before": {"default_ms": 0.04}}, "own default takes 25 % longer than before the file was imported"),
    ({"before": {"default_ms": 0.055}}, "own default takes 9 % less than before the file was imported"),
    ({"streams": {"launches": 80, "event_ms": 0.4, "left_ms": 4.0, "own_left_ms": 0.01, "late": True}}, "work is left"),
])
def test_what_is_fast_and_wrong_is_wrong(change: dict[str, Any], words: str) -> None:
    judged = verdicts.judge(told(10.0, **change))
    assert judged.verdict == Verdict.WRONG and words in judged.reason and judged.rows
    assert verdicts.judge({**told(10.0, **change), "failed": {"where": "launch", "what": "no"}}).verdict == Verdict.FAILED
    assert verdicts.judge({}).verdict == Verdict.FAILED


def test_a_time_below_what_the_gpu_can_do_is_wrong_however_right_its_results_are() -> None:
    least = LeastTime(0.045, "memory", 0.001, 0.045, "data sheet", 0.042)
    judged = verdicts.judge(told(40.0), least)
    assert judged.verdict == Verdict.WRONG and judged.reason.startswith("impossible: 40") and "42 µs" in judged.reason
    assert verdicts.judge(told(41.5), least).verdict == Verdict.FASTER       # within a step of the timer
    assert verdicts.judge(told(40.0)).verdict == Verdict.FASTER
    shares = {row["name"]: (row["share"], row["score"]) for row in bars_of({"rows": verdicts.judge(told(45.0)).rows}, least)}
    assert shares["candidate"] == (pytest.approx(1, rel=0.01), pytest.approx(1, rel=0.01))
    assert shares["library"] == (pytest.approx(0.045 / 0.08, rel=0.01), 0.5)


def test_an_answer_is_read_like_an_upload() -> None:
    whole = Answer()
    for line in ({"stage": "checking"}, {"checks": [CHECK]}, {"times": told(1.0)["times"], "policy": {"rounds": 9}}, {"no": 1},
                 3, None, [], {"stage": 3}):
        whole.hear(line)
    assert whole.stage == "checking" and set(whole.parts) == {"checks", "times", "policy"}
    whole.hear({"checks": [CHECK]})
    assert whole.parts["twice"] == ["checks"]
    good = told(1.0)["times"]
    hostile: list[dict[str, Any]] = [
        {"checks": []}, {"checks": [{**CHECK, "right": 1}]}, {"checks": [{**CHECK, "relative_error": float("nan")}]},
        {"times": {"candidate": good["candidate"]}}, {"times": {**good, "default": {**good["default"], "samples_ms": [-1.0]}}},
        {"times": {**good, "candidate": {**good["candidate"], "round_ms": [1.0] * 9999}}}, {"loaded": {"form": "x", "names": []}},
        {"device": {"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}}, {"device": {str(n): n for n in range(999)}}, {"failed": "no"},
        {"compiled": {"gpu": 3}}, {"replaced": "x"}, {"streams": {"late": True}}]
    for line in hostile:
        answer = Answer()
        answer.hear(line)
        assert answer.parts["failed"]["where"] == "process", line


# code beside code


def shown(view: code_view.View, mark: str) -> list[str]:
    return ["".join(text for _, text in line.parts) for line in view.lines if line.mark == mark]


def test_a_changed_file_is_shown_as_its_changes() -> None:
    view = code_view.compare(OWN.text, CHANGED)
    assert (view.how, view.added, view.removed) == ("diff", 2, 1) and len(view.lines) < 20
    assert shown(view, "-") == ["        tl.store(y + r * sy + i, (v / tl.sum(v, 0)).to(y.dtype.element_ty), mask=m)"]
    numbers = [line.new for line in view.lines if line.new]
    assert CHANGED.splitlines()[numbers[0] - 1] in shown(view, " ")


def test_a_kernel_alone_is_shown_beside_the_operator_s_of_its_name() -> None:
    view = code_view.compare(OWN.text, KERNEL)
    assert view.how == "functions" and any("exp2" in line for line in shown(view, "+"))
    assert any("tl.exp(v" in line for line in shown(view, "-")) and "import triton" in shown(view, "+")
    assert code_view.compare(OWN.text, LAUNCH).how == "whole" == code_view.compare("", KERNEL).how
    assert [name for name, _ in code_view.blocks(KERNEL.splitlines())] == ["softmax_row"]


def test_code_is_coloured_and_never_lost() -> None:
    text = 'def f():  # c\n    return "a\\n", 1\n@jit\n"""two\nlines"""\n'
    parts = code_view.colour(text)
    assert ["".join(each for _, each in line) for line in parts] == text.splitlines()
    assert ("k", "def") in parts[0] and ("c", "# c") in parts[0] and ("n", "1") in parts[1] and ("d", "@") in parts[2]
    for broken in ("def (", "'''", "\x0c x\n\u2028y", "\t\n  x\n y", "é = '☃'\n\0"):
        assert ["".join(each for _, each in line) for line in code_view.colour(broken)] == broken.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("text", [          # in `make test` the one of many lines, and the one that repeats itself
    "x\n" * 100_000, *(pytest.param(each, marks=pytest.mark.deep_only) for each in ("def f():\n" * 20_000, "(" * 200_000,
                                                                                   "a" * 250_000)),
    "\n".join(f"{n % 7}" for n in range(3000))])
def test_hostile_texts_are_shown_soon(text: str) -> None:
    began_s = time.monotonic()
    code_view.compare(OWN.text, text)
    assert time.monotonic() - began_s < 20


# the operator's files


def test_files_of_an_operator_are_found_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each.path for each in diffs.operator_files("matmul")] == [
        "tuner/tuning/kernels/matmul.py", "tuner/tuning/kernels/extents.py", "tuner/tuning/kernels/hopper/matmul_warp_groups.py",
        "tuner/tuning/kernels/matmul_parts.py", "tuner/tuning/kernels/matmul_tma.py"]
    packages = Path(__file__).resolve().parents[2] / "packages"
    monkeypatch.syspath_prepend(str(packages))
    found, = diffs.operator_files("acme_clamp", {"kernel": "acme_kernels.kernels.clamp", "package": "acme-kernels"})
    assert found.path == "acme_kernels/kernels.py" and found.text == (packages / "acme_kernels" / "kernels.py").read_text()
    for kernel in ("../../etc/passwd.x", "no.such.module.kernel", "", "kernel.cu:f"):
        assert diffs.operator_files("acme_clamp", {"kernel": kernel, "package": "acme-kernels"}) == ()
    assert diffs.operator_files("nothing") == ()
