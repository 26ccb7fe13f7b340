"""The guard of a large team: thousands of kernels, builds, gates and regressions (bench.guard_rows), in a database of their own.

Services are timed once, pages at the server as bench.web.pages does. Chromium shows the page of the largest gate: what it holds,
and when it is painted. The rows are made by a generator: of Ridgepoint's speed they tell, of no GPU.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from django.conf import settings
from django.db import connection
from django.test import Client
from django.urls import reverse

from bench import guard_rows
from bench.browser import browser, chromium, poll, server
from bench.guard_rows import FLEET, HISTORY, SINCE, SLOWER_KERNELS, WHERE, Size
from tuner.gate.builds.services import ensure_build
from tuner.gate.history.series_services import update_series
from tuner.gate.suites.upload_services import runs_store
from tuner.gate.verdicts.services import create_gate
from tuner.gate.verdicts.verdict_services import judge_gate
from tuner.models import Build, Gate, Regression, Suite

REQUESTS, LIST_MS, PAGE_MS = 15, 200.0, 1000.0
UPLOAD_S, GATE_S, SERIES_S, MEMORY_MB = 30.0, 30.0, 60.0, 1000
PAINT_MS, MOST_ELEMENTS = 2000, 6000


def run(size: Size | None = None) -> list[dict[str, Any]]:
    size = size or Size()
    settings.ALLOWED_HOSTS = ["testserver", "127.0.0.1"]
    with _database() as url:
        guard_rows.history(size)
        gate, rows = _services(size)
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")            # as autovacuum leaves a database that is not one minute old
        rows += list(_pages(gate, size))
        if chromium() and url:
            rows += _shown(gate, size, url)
    return rows


@contextmanager
def _database() -> Iterator[str]:
    """A fresh one beside the benches' own, gone afterwards; its address."""
    usual = connection.settings_dict["NAME"]
    name = connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        yield urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}")) if "DATABASE_URL" in os.environ else ""
    finally:
        connection.creation.destroy_test_db(usual, verbosity=0)


# ---- services ----

def _services(size: Size) -> tuple[Gate, list[dict[str, Any]]]:
    suite = Suite.objects.create(name=FLEET, kind=Suite.Kind.UPLOADED, title="Made by the bench")
    ensure_build("fleet-base", at=SINCE)
    ensure_build("fleet-new", at=SINCE + timedelta(days=1))
    before = guard_rows.upload_lines(size, size.baseline, 1)
    after = guard_rows.upload_lines(size, size.candidate, 2, SLOWER_KERNELS)
    parsed_s, _ = _timed(lambda: [json.loads(line) for line in before.splitlines()])
    reference = f"json.loads of them {parsed_s:.2f} s"
    upload_s, stored = _timed(lambda: runs_store(suite, "fleet-base", before, **WHERE))
    gate_s, gate = _timed(lambda: create_gate(suite, "fleet-new", records=after, environment=WHERE))
    judged_s, judged = _timed(lambda: judge_gate(gate))
    if gate.status != Gate.Status.DONE or len(judged.of) != size.kernels:
        raise RuntimeError(f"the gate is {gate.status} with {len(judged.of)} kernels")
    series_s, series = _timed(lambda: update_series(Suite.objects.get(name=HISTORY).pk))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    what = f"{size.kernels:,} kernels, {size.candidate} runs of each against {min(10, size.baseline)}"
    return gate, [
        _row(f"upload of {stored.stored:,} run lines, {len(before) / 2**20:.0f} MiB", upload_s, UPLOAD_S, reference,
             upload_s / parsed_s),
        _row(f"gate over {what}: runs stored, judged, written", gate_s, GATE_S),
        _row(f"gate over {what}: read and judged", judged_s, GATE_S),
        _row(f"change points of {series} kernels over {size.builds} builds × {size.runs} runs", series_s, SERIES_S),
        {"what": "peak memory of the process that did all of these", "measured": f"{peak_mb:,.0f} MB", "reference": "",
         "ratio": None, "budget": f"≤ {MEMORY_MB:,} MB", "ok": peak_mb <= MEMORY_MB}]


def _timed(work: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def _row(what: str, seconds: float, budget_s: float, reference: str = "", ratio: float | None = None) -> dict[str, Any]:
    return {"what": what, "measured": f"{seconds:.1f} s", "reference": reference, "ratio": ratio, "budget": f"< {budget_s:.0f} s",
            "ok": seconds < budget_s}


# ---- pages ----

def _pages(gate: Gate, size: Size) -> Iterator[dict[str, Any]]:
    client = Client()
    reference_ms, _, _ = _p95(client, reverse("health"))
    for name, url, budget_ms in _addresses(gate, size):
        p95_ms, cpu_ms, held = _p95(client, url)
        yield {"what": f"{name}, {held / 1024:,.0f} kB, p95 of {REQUESTS}", "measured": f"{p95_ms:.0f} ms",
               "reference": f"its own CPU time {cpu_ms:.0f} ms; health check {reference_ms:.1f} ms", "ratio": p95_ms / reference_ms,
               "budget": f"< {budget_ms:.0f} ms", "ok": p95_ms < budget_ms}


def _addresses(gate: Gate, size: Size) -> Iterator[tuple[str, str, float]]:
    fleet, history = gate.suite, Suite.objects.get(name=HISTORY)
    newest = Build.objects.filter(gates__suite=history).order_by("-at").first()
    one = Regression.objects.filter(state="open").first()
    fleet_of, series_of = f"{size.kernels:,} kernels", f"{size.history_kernels} kernels × {size.builds} builds"
    yield f"page: {size.gates + 1:,} gates", reverse("gate-list"), LIST_MS
    yield f"page: {size.regressions:,} regressions", reverse("regression-list"), LIST_MS
    yield "page: suites", reverse("suite-list"), LIST_MS
    yield "page: home", reverse("home"), LIST_MS
    yield f"page: gate of {fleet_of}", reverse("gate", args=[gate.pk]), PAGE_MS
    yield "page: evidence of one of them", reverse("gate-kernel", args=[gate.pk, gate.kernels.order_by("place")[0].pk]), PAGE_MS
    yield "page: start a gate", reverse("gate-new"), PAGE_MS
    yield f"page: suite of {fleet_of}", reverse("suite", args=[fleet.pk]), PAGE_MS
    yield f"page: baselines of {fleet_of}", reverse("suite-baselines", args=[fleet.pk]), PAGE_MS
    yield f"page: build with {fleet_of}", reverse("build", args=["fleet-new"]), PAGE_MS
    yield f"page: builds, {series_of}", f"{reverse('build-list')}?{urlencode({'suite': HISTORY})}", PAGE_MS
    yield f"page: suite, {series_of}", reverse("suite", args=[history.pk]), PAGE_MS
    yield f"page: baselines, {series_of}", reverse("suite-baselines", args=[history.pk]), PAGE_MS
    yield f"page: environments, {series_of}", f"{reverse('environments')}?{urlencode({'suite': HISTORY})}", PAGE_MS
    if newest and one:
        yield "page: one build", reverse("build", args=[newest.name]), PAGE_MS
        yield "page: one regression", reverse("regression", args=[one.pk]), PAGE_MS
    yield "API: 200 gates", f"{reverse('api-gates')}?limit=200", LIST_MS
    yield "API: 200 builds", reverse("api-builds"), LIST_MS
    yield f"API: gate of {fleet_of}", reverse("api-gate", args=[gate.pk]), 2 * PAGE_MS
    yield f"API: series, {series_of}", f"{reverse('api-series')}?{urlencode({'suite': HISTORY})}", 2 * PAGE_MS


def _p95(client: Client, url: str) -> tuple[float, float, int]:
    """Milliseconds; the median of the CPU time of this process, which others on the machine move little; bytes of the answer."""
    times, cpu, held = [], [], 0
    for _ in range(REQUESTS):
        began, spent = time.perf_counter(), time.process_time()
        answer = client.get(url)
        body = b"".join(answer.streaming_content) if answer.streaming else answer.content
        times.append((time.perf_counter() - began) * 1e3)
        cpu.append((time.process_time() - spent) * 1e3)
        if answer.status_code != 200 or not body:
            raise RuntimeError(f"{url} answered {answer.status_code}")
        held = len(body)
    return sorted(times)[int(0.95 * (REQUESTS - 1))], statistics.median(cpu), held


# ---- in a browser ----

def _shown(gate: Gate, size: Size, url: str) -> list[dict[str, Any]]:
    """The gate's page in Chromium: first contentful paint of the second visit, and its elements."""
    usual, os.environ["DATABASE_URL"] = os.environ["DATABASE_URL"], url
    try:
        with server(settings.HOME) as address, browser() as seen:
            for _ in range(2):
                seen.page.goto(f"{address}{reverse('gate', args=[gate.pk])}", wait_until="load")
            paint_ms = poll(seen.page, "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
            elements = seen.page.evaluate("() => document.querySelectorAll('*').length")
    finally:
        os.environ["DATABASE_URL"] = usual
    what = f"gate of {size.kernels:,} kernels in Chromium"
    return [{"what": f"{what}: first paint, warm", "measured": f"{paint_ms:.0f} ms", "reference": "", "ratio": None,
             "budget": f"< {PAINT_MS:,} ms", "ok": paint_ms < PAINT_MS},
            {"what": f"{what}: elements", "measured": f"{elements:,}", "reference": "", "ratio": None,
             "budget": f"≤ {MOST_ELEMENTS:,}", "ok": elements <= MOST_ELEMENTS}]
