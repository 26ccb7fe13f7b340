"""How soon what a person starts is there: a command, a worker, `make run`, a page's first answer.

Everything is a process of its own, as a person starts it. The reference is what any such process must import at least.
Servers "up" are those of this benchmark; "cold" ones are of a data folder apart, initialised once before it counts.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from django.conf import settings

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "data" / "captured" / "layer_trace.json.gz"
REFERENCE = "import django, numpy, pyarrow, psycopg"
REPEATS, ANSWERS = 5, 10
TIMES, COLD_S, WORKER_S, RUN_S, FIRST_S = 4.0, 4.0, 2.0, 6.0, 0.3
WITHIN_S = 120.0            # after that nothing is measured any more
PAGES = ("/", "/profiles/", "/profiles/1/", "/profiles/1/timeline/", "/profiles/1/analysis/time/", "/kernels/", "/tune/", "/gates/",
         "/builds/", "/sql/", "/workers/", "/api/profiles/")


def run() -> list[dict[str, Any]]:
    folder = settings.HOME / "start"
    shutil.rmtree(folder, ignore_errors=True)
    cold = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    cold["RIDGEPOINT_HOME"] = str(folder)
    _ingest_s(cold)                             # makes the data folder, the database and profile 1 of the pages
    reference, up, stopped = [], [], []
    for _ in range(REPEATS):
        reference.append(_seconds([sys.executable, "-c", REFERENCE]))
        up.append(_ingest_s(os.environ))
        stopped.append(_ingest_s(cold))
    base_s, up_s, stopped_s = map(statistics.median, (reference, up, stopped))
    beside = f"{REFERENCE} {base_s:.2f} s"
    worker_s = statistics.median(_worker_s() for _ in range(REPEATS))
    return [
        _row("manage.py ingest of a small file, servers up", up_s, beside, up_s / base_s, f"≤ {TIMES:g} times",
             up_s <= TIMES * base_s),
        _row("manage.py ingest of a small file, cold servers", stopped_s, f"servers up {up_s:.2f} s", stopped_s / up_s,
             f"≤ {COLD_S:g} s more", stopped_s <= up_s + COLD_S),
        _row("worker ready", worker_s, beside, worker_s / base_s, f"≤ {WORKER_S:g} s", worker_s <= WORKER_S),
        *_run_rows(cold, beside, base_s),
    ]


def _row(what: str, seconds: float, reference: str, ratio: float | None, budget: str, ok: bool) -> dict[str, Any]:
    return {"what": what, "measured": f"{seconds:.2f} s", "reference": reference, "ratio": ratio, "budget": budget, "ok": ok}


def _run_rows(environ: Mapping[str, str], beside: str, base_s: float) -> Iterator[dict[str, Any]]:
    """`make run` once more after another, and what its pages take."""
    with _running(environ):
        pass
    with _running(environ) as (seconds, url):
        yield _row("make run the second time, until the pages answer", seconds, beside, seconds / base_s, f"≤ {RUN_S:g} s",
                   seconds <= RUN_S)
        answers = {page: [_answer_s(url + page) for _ in range(ANSWERS)] for page in PAGES}
    page, (first, *_, tenth) = max(answers.items(), key=lambda each: each[1][0] - each[1][-1])
    yield _row(f"first answer of a page after start, worst of {len(PAGES)} ({page})", first, f"its tenth {tenth:.2f} s",
               first / tenth, f"≤ {FIRST_S:g} s more", first <= tenth + FIRST_S)


def _ingest_s(environ: Mapping[str, str]) -> float:
    return _seconds([sys.executable, str(ROOT / "manage.py"), "ingest", str(FILE)], environ)


def _seconds(command: list[str], environ: Mapping[str, str] | None = None) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=environ, cwd=ROOT, check=True, capture_output=True, timeout=WITHIN_S)
    return time.perf_counter() - began


def _worker_s() -> float:
    """Seconds until a worker of the queue `ingest` says that it is ready."""
    began = time.perf_counter()
    with _process([sys.executable, str(ROOT / "manage.py"), "worker", "ingest"], os.environ) as output:
        _line_with(output, "ready for")
        return time.perf_counter() - began


@contextmanager
def _running(environ: Mapping[str, str]) -> Iterator[tuple[float, str]]:
    """`make run` on a free port: seconds until it says where the pages are, and their address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.perf_counter()
    with _process(["make", "--no-print-directory", "run", f"PORT={port}"], environ) as output:
        _line_with(output, "Ridgepoint is at")
        yield time.perf_counter() - began, f"http://127.0.0.1:{port}"


@contextmanager
def _process(command: list[str], environ: Mapping[str, str]) -> Iterator[IO[str]]:
    """Its output, both streams; it is interrupted at the end, with what it started."""
    process = subprocess.Popen(command, cwd=ROOT, env={**environ, "PYTHONUNBUFFERED": "1"}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=WITHIN_S)


def _line_with(output: IO[str], text: str) -> None:
    said = []
    for line in output:
        said.append(line)
        if text in line:
            return
    raise RuntimeError(f"it ended before it said {text!r}:\n" + "".join(said[-20:]))


def _answer_s(url: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
        answer.read()
    return time.perf_counter() - began
