"""Builds in their order, and regressions as gates tell of them: once, narrowed down, fixed, meant."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from profiles.base.refused import Refused
from tuner.gate.builds.selectors import has_code_of
from tuner.gate.builds.services import ensure_build
from tuner.gate.regressions.services import change_regression, lock_regressions, update_regressions
from tuner.models import BaselineChange, Build, Gate, GateKernel, KernelRun, Regression, Suite, SuiteKernel

pytestmark = pytest.mark.django_db
DAY = datetime(2026, 10, 1, tzinfo=UTC)
WHERE = {"gpu": "NVIDIA H200", "toolkit": "cuda 13.0, triton 3.6.0", "driver": "580.159"}


@pytest.fixture
def suite() -> Suite:
    suite = Suite.objects.create(name="nightly", kind="uploaded")
    for place, (key, family) in enumerate([("matmul M=64", "matmul"), ("matmul M=4096", "matmul"), ("softmax M=64", "softmax")]):
        SuiteKernel.objects.create(suite=suite, key=key, op=family, family=family, place=place)
    return suite


@pytest.fixture
def builds() -> list[Build]:
    return [ensure_build(f"b{day}", at=DAY + timedelta(days=day)) for day in range(8)]


def gate(suite: Suite, build: Build, against: Build | list[Build], **ratios: float) -> Gate:
    """A decided gate: kernels "k0" … by their place, with a ratio and its interval of ±1 %; runs of `against` lie under it."""
    made = Gate.objects.create(suite=suite, build=build, status=Gate.Status.DONE, **WHERE)
    for name, ratio in ratios.items():
        kernel = suite.kernels.get(place=int(name[1:]))
        runs = [KernelRun.objects.create(kernel=kernel, build=each, run=f"{made.pk}-{each.pk}", p50_us=10.0, n=1, **WHERE)
                for each in (against if isinstance(against, list) else [against])]
        verdict = "SLOWER" if ratio > 1.02 else "FASTER" if ratio < 0.98 else "PASS"
        GateKernel.objects.create(gate=made, kernel=kernel, verdict=verdict, reason=f"{ratio:.2f} times", ratio_p50=ratio,
                                  low=ratio - 0.01, high=ratio + 0.01, baseline_runs=[run.pk for run in runs])
    return made


def test_a_build_is_known_once_and_what_is_said_later_adds_to_it() -> None:
    first = ensure_build(" 4f2c1e ", branch="main", url="https://example.org/4f2c1e")
    again = ensure_build("4f2c1e", title="Pad the tiles", at=DAY)
    assert (again.pk, again.branch, again.title, again.url, again.at) == (
        first.pk, "main", "Pad the tiles", "https://example.org/4f2c1e", DAY)
    assert Build.objects.count() == 1


def test_a_build_without_a_time_never_stands_before_its_parent() -> None:
    parent = ensure_build("parent", at=datetime.now(UTC) + timedelta(hours=1))
    assert ensure_build("child", parent="parent").at > parent.at


def test_a_build_of_the_main_line_stays_there_whatever_tag_holds_it_too() -> None:
    for branch, stands_on in (("tags/v1", "tags/v1"), ("rope", "rope"), ("origin/main", "main"), ("tags/v2", "main"),
                              ("rope", "main")):
        row = ensure_build("4f2c1e", branch=branch)
        assert row.branch == stands_on
    assert row.refs == ["tags/v1", "rope", "main", "tags/v2"]
    assert ensure_build("77ab01", branch="refs/heads/master").branch == "master"


def test_ci_that_ends_out_of_order_leaves_builds_in_theirs() -> None:
    """Commits a, b, c, d; their pipelines end d, b, c, a, and nobody sends a commit time."""
    line = ["a", "b", "c", "d"]
    for name in ("d", "b", "c", "a"):
        ensure_build(name, ancestors=line[:line.index(name)][::-1])
    assert list(Build.objects.order_by("at", "pk").values_list("name", flat=True)) == line
    assert Build.objects.get(name="d").parent == "c"


def test_a_commit_time_does_not_put_a_build_before_its_parent() -> None:
    """As of a build that became known before CI sent commit times: it stands where it was first seen."""
    parent = ensure_build("parent")
    child = ensure_build("child", at=parent.at - timedelta(minutes=3), ancestors=["parent"])
    assert child.at > parent.at
    assert ensure_build("other", at=parent.at - timedelta(minutes=3)).at < parent.at


def test_a_regression_moves_to_the_parent_that_comes_later(suite: Suite) -> None:
    good = ensure_build("good")
    child = ensure_build("child", ancestors=["parent", "good"])
    row, = update_regressions(gate(suite, child, good, k1=1.08))
    parent = ensure_build("parent", ancestors=["good"])
    moved, = update_regressions(gate(suite, parent, good, k1=1.08))
    assert (moved.pk, moved.build.name, moved.good.name) == (row.pk, "parent", "good")


@pytest.mark.parametrize(("fields", "wrong"), [
    ({"name": ""}, "build"), ({"name": "x" * 81}, "build"), ({"name": "a\0b"}, "build"), ({"name": "a\ud800"}, "build"),
    ({"name": "../etc"}, "build"), ({"name": "a/"}, "build"), ({"name": True}, "build"),
    ({"name": "a", "parent": "a\nb"}, "parent"),
    ({"name": "a", "url": "javascript:alert(1)"}, "url"), ({"name": "a", "url": "http://[::1"}, "url"),
    ({"name": "a", "title": "\0"}, "title"), ({"name": "a", "at": datetime(9999, 12, 31, tzinfo=UTC)}, "at"),
    ({"name": "a", "at": "today"}, "at"),
])
def test_what_no_build_can_have_is_refused_by_its_field(fields: dict[str, Any], wrong: str) -> None:
    with pytest.raises(Refused) as refused:
        ensure_build(**fields)
    assert list(refused.value.fields) == [wrong]
    assert not Build.objects.exists()


def test_what_a_build_holds_follows_its_branch_and_its_parents(builds: list[Build]) -> None:
    branch = ensure_build("pr-1", branch="fix", parent="b2", at=DAY + timedelta(days=5))
    unknown = ensure_build("pr-2", branch="other", at=DAY + timedelta(days=5))
    assert has_code_of(builds[4], builds[2]) is True
    assert has_code_of(builds[2], builds[4]) is False
    assert has_code_of(branch, builds[1]) is True         # through its parent
    assert has_code_of(branch, builds[3]) is False        # came to the main line after the branch left it
    assert has_code_of(unknown, builds[3]) is None        # nobody said
    assert has_code_of(builds[7], branch) is False
    merged = ensure_build("merge", parent="pr-1", at=DAY + timedelta(days=9))
    assert has_code_of(merged, branch) is True


def test_gates_of_one_slowdown_are_one_regression(suite: Suite, builds: list[Build]) -> None:
    first, = update_regressions(gate(suite, builds[4], builds[1], k0=1.05, k1=1.12, k2=1.0))
    assert (first.family, first.build.name, first.good.name, first.ratio) == ("matmul", "b4", "b1", 1.12)
    assert first.kernels == ["matmul M=64", "matmul M=4096"]
    later, = update_regressions(gate(suite, builds[5], builds[1], k1=1.12))
    assert later.pk == first.pk and later.build.name == "b4"
    earlier, = update_regressions(gate(suite, builds[3], builds[1], k1=1.11))       # measured afterwards: it began there
    assert (earlier.pk, earlier.build.name, earlier.good.name) == (first.pk, "b3", "b1")
    between, = update_regressions(gate(suite, builds[2], builds[1], k0=1.0, k1=1.0, k2=1.0))
    assert (between.pk, between.good.name) == (first.pk, "b2")
    assert first.told_by.count() == 4
    assert Regression.objects.count() == 1


def test_a_creep_is_one_regression_that_grows(suite: Suite, builds: list[Build]) -> None:
    for build, ratio in zip(builds[2:8], (1.05, 1.08, 1.081, 1.12, 1.16, 1.2), strict=True):
        row, = update_regressions(gate(suite, build, builds[1], k1=ratio))
    row = Regression.objects.get()
    assert (row.build.name, row.good.name, row.ratio, row.told_by.count()) == ("b2", "b1", 1.2, 6)
    assert [line["grew"] for line in row.history] == ["b3", "b5", "b6", "b7"], "b4 added nothing"
    assert "grew from +16.0 % to +20.0 % with b7" in row.history[-1]["note"]
    update_regressions(gate(suite, builds[7], builds[1], k1=1.2))
    assert len(Regression.objects.get().history) == 4, "measured again, it grew no more"


def test_another_environment_is_another_regression(suite: Suite, builds: list[Build]) -> None:
    update_regressions(gate(suite, builds[2], builds[1], k1=1.05))
    other = gate(suite, builds[3], builds[1], k1=1.05)
    Gate.objects.filter(pk=other.pk).update(driver="590.1")
    other.refresh_from_db()
    update_regressions(other)
    assert Regression.objects.count() == 2


def test_a_later_pass_against_runs_from_before_it_says_fixed(suite: Suite, builds: list[Build]) -> None:
    row, = update_regressions(gate(suite, builds[3], builds[1], k0=1.06, k1=1.08))
    assert update_regressions(gate(suite, builds[5], builds[1], k1=1.0)) == []                  # one of two kernels
    assert update_regressions(gate(suite, builds[5], builds[4], k0=1.0, k1=1.0)) == []          # against the slow build
    branch = ensure_build("pr", branch="fix", at=DAY + timedelta(days=6))
    assert update_regressions(gate(suite, branch, builds[1], k0=1.0, k1=1.0)) == []             # may have left before it
    fixed, = update_regressions(gate(suite, builds[6], builds[1], k0=1.0, k1=0.97))
    assert (fixed.pk, fixed.state, fixed.fixed_in.name) == (row.pk, "fixed", "b6")
    assert fixed.history[-1]["state"] == "fixed"
    again, = update_regressions(gate(suite, builds[7], builds[1], k1=1.08))
    assert again.pk != row.pk


def test_back_at_the_old_speed_is_fixed_even_against_the_slow_baseline(suite: Suite, builds: list[Build]) -> None:
    update_regressions(gate(suite, builds[3], builds[1], k1=1.08))
    fixed, = update_regressions(gate(suite, builds[5], builds[4], k1=0.925))
    assert fixed.state == "fixed"


def test_a_meant_change_starts_the_baseline_anew(suite: Suite, builds: list[Build], alice: Any) -> None:
    row, = update_regressions(gate(suite, builds[3], builds[1], k0=1.06, k1=1.08))
    with pytest.raises(Refused, match="note"):
        change_regression(row, "intended", by=alice)
    with pytest.raises(Refused, match="fixed_in"):
        change_regression(row, "fixed", by=alice, fixed_in=builds[2])
    change_regression(row, "intended", note="more accurate", by=alice)
    change_regression(row, "intended", note="said twice", by=alice)
    changes = BaselineChange.objects.filter(action="intended", build=builds[3], gpu="NVIDIA H200")
    assert sorted(changes.values_list("kernel__key", flat=True)) == ["matmul M=4096", "matmul M=64"]
    row.refresh_from_db()
    assert [line["note"] for line in row.history] == ["more accurate", "said twice"]
    assert row.history[0]["who"] == "alice"
    same, = update_regressions(gate(suite, builds[3], builds[1], k1=1.09))
    assert (same.pk, same.state) == (row.pk, "intended")


@pytest.mark.django_db(transaction=True)
def test_a_persons_word_and_a_gates_do_not_write_over_each_other(suite: Suite, builds: list[Build]) -> None:
    [row] = update_regressions(gate(suite, builds[3], builds[1], k0=1.10))
    reads = threading.Event()

    def a_gate_in_the_middle_of_it() -> None:
        with transaction.atomic():
            lock_regressions(suite.pk)
            seen = Regression.objects.get(pk=row.pk)
            reads.set()
            time.sleep(0.3)
            seen.kernels = [*seen.kernels, "matmul M=4096"]
            seen.save()
        connection.close()

    thread = threading.Thread(target=a_gate_in_the_middle_of_it)
    thread.start()
    assert reads.wait(10)
    change_regression(row, "acknowledged", note="looking")
    thread.join(10)
    row.refresh_from_db()
    assert (row.state, row.kernels) == ("acknowledged", ["matmul M=64", "matmul M=4096"])
