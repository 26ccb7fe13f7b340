"""What the guard does with many kernels and builds: pages of a hundred rows, as many queries as for few, every kernel still found.

The rows are the bench's (bench.guard_rows), made by a generator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils.http import urlencode

from bench import guard_rows
from bench.guard_rows import FLEET, HISTORY, SINCE, SMALL, WHERE
from tuner.gate.baselines import selectors as baseline_selectors
from tuner.gate.baselines import table_selectors
from tuner.gate.baselines.selectors import Env
from tuner.gate.builds.services import ensure_build
from tuner.gate.history import selectors
from tuner.gate.history.series_services import update_series
from tuner.gate.suite_pages import page_selectors
from tuner.gate.suites import run_services
from tuner.gate.suites.definition import MAX_KERNELS, DefinitionError, read_definition
from tuner.gate.suites.suite_services import suite_put
from tuner.gate.suites.upload_services import runs_store
from tuner.gate.verdicts import page_selectors as gate_selectors
from tuner.gate.verdicts import pages, services
from tuner.models import Build, Gate, GateKernel, KernelRun, Regression, Suite

pytestmark = pytest.mark.django_db
MANY = replace(SMALL, kernels=30)
SLOW = 4


@pytest.fixture
def fleet(monkeypatch: Any) -> Gate:
    """A gate of 30 kernels, 4 of them 8 % slower, 10 runs against 10; with pages of 20 rows, and pictures of 10."""
    monkeypatch.setattr(gate_selectors, "KERNEL_ROWS", 20)
    for module in (page_selectors, table_selectors):
        monkeypatch.setattr(module, "PAGE_ROWS", 20)
    monkeypatch.setattr(pages, "PICTURE_ROWS", 10)
    suite = Suite.objects.create(name=FLEET, kind=Suite.Kind.UPLOADED)
    ensure_build("fleet-base", at=SINCE)
    runs_store(suite, "fleet-base", guard_rows.upload_lines(MANY, 10, 1), **WHERE)
    gate = services.create_gate(suite, "fleet-new", records=guard_rows.upload_lines(MANY, 10, 2, slower=SLOW), environment=WHERE)
    assert gate.verdict == "SLOWER" and gate.kernels.count() == 30
    return gate


def rows_of(page: str, caption: str) -> list[str]:
    table = re.search(rf"<caption[^>]*>{caption}.*?<tbody>(.*?)</tbody>", page, re.S)
    assert table, caption
    return re.findall(r"<tr.*?</tr>", table[1], re.S)


def seen(client: Any, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200, url
    text: str = answer.content.decode()
    return text


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))


def queries(client: Any, url: str) -> int:
    with CaptureQueriesContext(connection) as found:
        seen(client, url)
    return len(found)


def test_a_gate_of_many_kernels_comes_page_by_page(client: Any, fleet: Gate) -> None:
    url = f"/gates/{fleet.pk}/"
    first, second = seen(client, url), seen(client, f"{url}?page=2")
    rows = rows_of(first, "Kernels, worst first")
    assert len(rows) == 20 and len(rows_of(second, "Kernels, worst first")) == 10
    assert all("SLOWER" in row for row in rows[:SLOW]) and "SLOWER" not in rows[SLOW]
    assert "1 to 20 of 30 kernels" in words(first) and "21 to 30 of 30 kernels" in words(second)
    assert "20 more in the table" in words(first) and f"· {SLOW} SLOWER· 26 PASS" in words(first)
    assert len(rows_of(seen(client, f"{url}?only=SLOWER"), "Kernels, worst first")) == SLOW
    one = rows_of(seen(client, f"{url}?" + urlencode({"kernel": "op_07 m="})), "Kernels, worst first")
    assert len(one) == 1 and "op_07 M=16 N=4096 bf16" in one[0]
    for odd in ("?page=x", "?page=99999999999999999999", "?only=" + "x" * 300):
        assert client.get(url + odd).status_code == 200, odd
    # what is said of all kernels is counted by the database, and is what each row says
    kernels = list(fleet.kernels.all())
    context = client.get(url).context
    assert context["worth"].detectable_high == max(row.detectable for row in kernels)
    alarms = [rate for row in kernels if (rate := row.facts["false_alarms"]) is not None]
    assert alarms and context["worth"].false_alarms == max(alarms)
    assert context["largest"].ratio_p50 == max((row.ratio_p50 for row in kernels), key=lambda ratio: abs(ratio - 1))
    assert context["baseline_builds"] == ["fleet-base"] and context["count"] == 30
    assert "build_a=fleet-base" in context["document"]["links"]["compare"]
    whole = queries(client, url)
    GateKernel.objects.filter(pk__in=[row.pk for row in kernels[10:]]).delete()
    assert queries(client, url) == whole, "the same for ten kernels and for thirty"


def test_tables_of_a_large_suite_come_page_by_page(client: Any, fleet: Gate) -> None:
    suite, key = fleet.suite, "op_29 M=16 N=4096 bf16"
    page = seen(client, f"/suites/{suite.pk}/")
    assert "30 kernels" in words(page) and len(rows_of(page, "Kernels of the suite")) == 20
    assert key not in page and all(key in seen(client, f"/suites/{suite.pk}/?{way}") for way in ("page=2", "kernel=op_29+m=16"))
    assert client.get(f"/suites/{suite.pk}/?kernel=%F0%9F%8E%B2&page=7").status_code == 200
    told = client.get(f"/api/suites/{FLEET}/").json()["kernels"]
    assert len(told) == 30 and {line["runs"] for line in told} == {20} and told[0]["facts"]["registers"] == 168
    page = seen(client, f"/suites/{suite.pk}/baselines/?page=2")
    assert len(rows_of(page, "Baselines")) == 10
    assert "30 of 30 kernels have a baseline" in page and "median of the 10 kernels below" in page
    assert len(client.get(f"/api/suites/{suite.pk}/baselines/").json()["kernels"]) == 30


def test_a_build_of_many_kernels_judges_those_that_moved_most(client: Any, fleet: Gate, monkeypatch: Any) -> None:
    monkeypatch.setattr(selectors, "MOST_KERNELS", 10)
    found = selectors.compare_build(Build.objects.get(name="fleet-new"), {})
    assert found and found.judged and found.of == 30 and len(found.kernels) == 10
    slow = {f"op_{at:02d} M=16 N=4096 bf16" for at in range(SLOW)}
    assert {each.key for each in found.kernels if each.verdict == "SLOWER"} == slow
    assert "Of 30 kernels the 10 that moved most are judged here." in seen(client, "/builds/fleet-new/")


def test_an_upload_holds_what_was_sent(fleet: Gate) -> None:
    """COPY gives each row its own id, samples and quantiles; a second time changes nothing."""
    lines = guard_rows.upload_lines(replace(MANY, kernels=3), 2, 5)
    stored = runs_store(fleet.suite, "copied", lines, **WHERE)
    rows = KernelRun.objects.in_bulk(stored.runs)
    assert stored.stored == 6 and [rows[pk].kernel.op for pk in stored.runs] == ["op_00", "op_01", "op_02"] * 2
    assert [rows[pk].run for pk in stored.runs] == ["1", "1", "1", "2", "2", "2"]
    for row in rows.values():
        assert (row.p50_us, row.p95_us) == (np.percentile(row.us, 50), np.percentile(row.us, 95)) and row.n == 32
        assert row.facts == {"registers": 168, "spills": 0} and row.config == {"BM": 128, "num_warps": 8} and row.created
    again = runs_store(fleet.suite, "copied", lines, **WHERE)
    assert (again.stored, again.known, again.runs) == (0, 6, stored.runs)
    odd = [[1.0], [], [3.0, 1.0, 2.0], [5.0], [2.0, 2.5, 9.0]]
    alone = [dict(zip(("p50_us", "p95_us"), np.percentile(us, (50, 95)) if us else (None, None), strict=True)) for us in odd]
    assert run_services.run_percentiles(odd) == alone


@pytest.fixture
def history() -> Iterator[Suite]:
    yield guard_rows.history(SMALL)


def test_a_long_history(client: Any, history: Suite) -> None:
    """Lists by pages; a baseline takes the newest builds that nothing holds against, and reads no more of them."""
    assert len(rows_of(seen(client, "/regressions/"), "Regressions")) == SMALL.regressions
    Regression.objects.all().delete()
    assert len(rows_of(seen(client, "/gates/"), "Gates")) == SMALL.gates
    kernels, builds = list(history.kernels.all()), list(Build.objects.order_by("-at"))
    found = baseline_selectors.load_baselines(kernels, Env(**WHERE), samples=False)
    judged = {gate.build_id: gate.verdict for gate in Gate.objects.order_by("pk")}
    for kernel in kernels:
        barred = {pk for pk, verdict in judged.items() if verdict != "PASS" and kernel.place == 0}
        free = [build for build in builds if build.pk not in barred]
        assert [build.pk for build in found[kernel.pk].builds] == [build.pk for build in free[:4]]       # 4 × 3 runs ≥ 10
        assert len(found[kernel.pk].runs) == 10 and "us" in found[kernel.pk].runs[0].get_deferred_fields()
    expected = baseline_selectors.expected_baselines(kernels, Env(**WHERE))
    assert [(each.runs, each.builds) for each in expected] == [(10, found[kernel.pk].builds) for kernel in kernels]
    assert update_series(history.pk) == len(kernels)
    for url in (f"/builds/?suite={HISTORY}", f"/environments/?suite={HISTORY}", f"/builds/{builds[0].name}/", "/gates/new/", "/"):
        assert queries(client, url) < 50, url


def test_a_suite_may_name_three_thousand_kernels() -> None:
    shapes = [{"M": 16 * (1 + at % 60), "N": 128 * (1 + at // 60), "K": 4096} for at in range(MAX_KERNELS)]
    wanted = {"name": "wide", "kernel": [{"op": "matmul", "dtype": "bf16", "shapes": shapes}]}
    assert suite_put(read_definition(wanted)).suite.kernels.count() == MAX_KERNELS == 3000
    wanted["kernel"].append({"op": "softmax", "dtype": "bf16", "shape": {"R": 16, "C": 16}})
    with pytest.raises(DefinitionError, match="at most 3,000 kernels"):
        read_definition(wanted)
