"""Captures a serving engine: metrics before, start, until a time, steps or a slow request, stop, metrics after; then what it wrote.

The row says that the engine was told to record before it is told: a worker that takes up the row of one that died tells it to stop,
and ends the row as failed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from django.db import transaction
from django.utils import timezone

from profiles.ingest.trace import TraceError
from profiles.running.engine_services import engine_of, publish
from profiles.running.engines import (
    LATENCIES,
    NO_METRICS,
    PREFIX,
    Engine,
    EngineProblem,
    Reading,
    edge_of,
    slow_between,
    tokens_between,
)
from profiles.running.fetch_services import clear_ended
from profiles.running.models import EngineCapture
from profiles.upload.services import profile_create
from workers.agent.deep.pace import FEWEST, Rows, compare
from workers.capture.engine_results import READY_S, Results, results_of

log = logging.getLogger(__name__)
TICK_S = 0.25
BESIDE_S = 6                        # seconds of metrics before and after
STOP_NOW_S = 20.0                   # of a stop that nobody waits for


class Cancelled(Exception):
    """Somebody stopped it, or another worker has it."""


class Run:
    """One capture in this worker."""

    def __init__(self, row: EngineCapture, worker: str, engine: Engine) -> None:
        self.row, self.worker, self.engine = row, worker, engine
        self.kind = row.server.kind
        self.last: tuple[float, Reading] | None = None
        self.seconds: dict[str, Rows] = {"before": [], "during": [], "after": []}
        self.no_metrics = ""
        self.edge_s: float | None = None

    def phase(self, words: str) -> None:
        """Say what it is at. Raises Cancelled where it is no longer this worker's."""
        if not EngineCapture.leases.write(self.row.pk, self.worker, phase=words[:200]):
            raise Cancelled
        self.row.phase = words
        publish(self.row)

    def check(self) -> None:
        if not EngineCapture.leases.is_held(self.row.pk, self.worker):
            raise Cancelled

    def watch(self, when: str, seconds: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Wait, reading metrics once a second; return whether `done` ended it early."""
        end_s = time.monotonic() + seconds
        next_s = time.monotonic()
        while time.monotonic() < end_s:
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + 1.0
                self.read(when)
            if done():
                return True
            self.check()
            time.sleep(min(TICK_S, max(0.0, end_s - time.monotonic())))
        self.read(when)
        return done()

    def wait(self, done: Callable[[], bool], seconds: float, why: str, hint: str = "") -> None:
        """Wait until something is done. Raises Cancelled, EngineProblem: it took too long."""
        deadline_s = time.monotonic() + seconds
        while not done():
            self.check()
            if time.monotonic() > deadline_s:
                raise EngineProblem(why, hint)
            time.sleep(TICK_S)

    def read(self, when: str) -> None:
        if self.no_metrics:
            return
        try:
            reading = self.engine.metrics()
        except EngineProblem as problem:
            self.no_metrics = problem.what
            return
        if self.last is not None:
            tokens = tokens_between(self.last[1], reading, self.kind)
            if tokens is not None:
                self.seconds[when].append(tokens)
        self.last = (time.monotonic(), reading)

    def slow_edge(self) -> float:
        """Return from which edge on a request counts as slow. Raises EngineProblem."""
        name = LATENCIES[self.kind][self.row.latency]
        if self.last is None or name not in self.last[1].histograms:
            raise EngineProblem(f"its metrics do not say how long requests take: {self.no_metrics or 'no ' + name}",
                                NO_METRICS[self.kind])
        threshold_s = (self.row.threshold_ms or 0.0) / 1e3
        edge_s = edge_of(self.last[1].histograms[name], threshold_s)
        if edge_s is None:
            raise EngineProblem(f"its latencies are counted up to {max(self.last[1].histograms[name].buckets, default=0):g} s only",
                                "choose a lower threshold")
        return edge_s

    def cost(self) -> dict[str, object]:
        before, during, after = (self.seconds[name] for name in ("before", "during", "after"))
        if self.no_metrics and not before:
            return {"why": f"no metrics: {self.no_metrics}"[:300]}
        if min(len(before), len(after)) < FEWEST - 2 or not during:
            return {"why": f"too few seconds with output tokens: {len(before)} before, {len(during)} during, {len(after)} after"}
        return compare(before, during, after)


def run(capture_id: int, worker: str) -> None:
    """Run it to its end; the row says what came of it."""
    if not EngineCapture.leases.claim(capture_id, worker, started=timezone.now(), error=None):
        return
    row = EngineCapture.objects.select_related("server", "owner").get(pk=capture_id)
    publish(row)
    clear_ended()
    try:
        engine = engine_of(row.server)
        if row.started_at_engine is not None:
            _stop_quietly(engine)
            raise EngineProblem("its worker ended meanwhile: the engine was told to stop", "capture it again")
        _capture(Run(row, worker, engine))
    except Cancelled:
        log.info("engine capture %s: stopped", capture_id)
    except EngineProblem as problem:
        _fail(row, worker, problem.what, problem.hint)
    except TraceError as error:
        _fail(row, worker, error.what, error.hint)
    publish(EngineCapture.objects.get(pk=capture_id))


def _fail(row: EngineCapture, worker: str, what: str, hint: str) -> None:
    EngineCapture.leases.end(row.pk, worker, EngineCapture.Status.FAILED,
                      error={"where": row.server.name, "what": what[:500], "hint": hint[:300]})


def _capture(own: Run) -> None:
    results = results_of(own.row, _prefix(own.row))
    results.check()
    try:
        _capture_into(own, results)
    finally:
        results.end()


def _capture_into(own: Run, results: Results) -> None:
    row = own.row
    own.phase("asks the engine, reads its metrics")
    own.watch("before", BESIDE_S)
    if row.until == EngineCapture.Until.SLOW:
        own.edge_s = own.slow_edge()
    slow_from = own.last[1] if own.last else None
    results.begin()
    if not results.is_ready():
        own.phase("waits for the agent of its host")
        own.wait(results.is_ready, READY_S, "the agent of its host took no order")
    if not EngineCapture.leases.write(row.pk, own.worker, started_at_engine=timezone.now()):
        raise Cancelled
    try:
        own.engine.start(_parameters(row))
        _record(own, results, slow_from)
    except BaseException:
        _stop_quietly(own.engine)
        raise
    own.phase("stops; the engine writes its traces")
    try:
        own.engine.stop()
    except EngineProblem as problem:
        if row.until != EngineCapture.Until.STEPS:      # after its steps it has stopped itself, and some refuse a second stop
            raise
        log.info("engine capture %s: %s", row.pk, problem.what)
    own.phase(results.waits)
    results.collect()
    own.wait(results.are_whole, results.longest_s, f"no trace came within {results.longest_s:.0f} s: {results.where}", results.hint)
    own.watch("after", BESIDE_S)
    _keep(own, results)


def _record(own: Run, results: Results, slow_from: Reading | None) -> None:
    row = own.row
    if row.until == EngineCapture.Until.SECONDS:
        own.phase(f"records {row.seconds:g} s")
        own.watch("during", row.seconds)
    elif row.until == EngineCapture.Until.STEPS:
        own.phase(f"records steps, at most {row.seconds:g} s")
        own.watch("during", row.seconds, results.are_whole)
    else:
        own.phase(f"records until a request takes longer than {own.edge_s:g} s, at most {row.seconds:g} s")
        name, edge_s = LATENCIES[own.kind][row.latency], own.edge_s or 0.0

        def is_slow() -> bool:
            now = own.last[1].histograms.get(name) if own.last else None
            first = slow_from.histograms.get(name) if slow_from else None
            return now is not None and first is not None and slow_between(first, now, edge_s) > 0

        row.slow_seen = own.watch("during", row.seconds, is_slow)
        EngineCapture.leases.write(row.pk, own.worker, slow_seen=row.slow_seen)


def _keep(own: Run, results: Results) -> None:
    row = own.row
    own.phase("stores the traces")
    with ExitStack() as opened:
        files = results.files(opened)
        with transaction.atomic():
            if EngineCapture.leases.lock(row.pk, own.worker) is None:
                raise Cancelled
            profile = profile_create(
                owner=row.owner, file=files[0], more_files=files[1:], name=f"{row.server.name}: {_words(row)}", build=row.build,
                tags=["engine", row.server.kind, f"server:{row.server.name.replace(' ', '_')}"],
                notes=f"{row.server.get_kind_display()} {row.server.version}: {len(files)} trace{'s' * (len(files) > 1)}.")
            EngineCapture.leases.end(row.pk, own.worker, EngineCapture.Status.DONE, profile=profile, cost=own.cost(), phase="")


def _words(row: EngineCapture) -> str:
    if row.until == EngineCapture.Until.SECONDS:
        return f"{row.seconds:g} s"
    if row.until == EngineCapture.Until.STEPS:
        return "steps"
    return "the first slow request" if row.slow_seen else "no slow request came"


def _prefix(row: EngineCapture) -> str:
    return str(row.options.get(PREFIX) or f"ridgepoint-{row.pk}")


def _parameters(row: EngineCapture) -> dict[str, object]:
    own: dict[str, object] = {**row.options, PREFIX: _prefix(row)}
    if row.server.kind == "sglang" and row.server.results != "bucket" and row.server.folder:
        own.setdefault("output_dir", row.server.folder)
    return own


def _stop_quietly(engine: Engine) -> None:
    with suppress(EngineProblem):
        engine.stop(STOP_NOW_S)
