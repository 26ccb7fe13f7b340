"""A test's kernels measured for a benchmark suite. One file: copy it as ridgepoint_pytest.py; it needs pytest, and torch on a GPU.

    def test_rope(ridgepoint):
        ridgepoint.measure(lambda: rope(x), name="rope", shape={"N": 4096}, dtype="bf16", flop=6 * x.numel(), bytes=2 * x.nbytes)

    pytest -p ridgepoint_pytest --ridgepoint-out runs.jsonl --ridgepoint-runs 5
    pytest -p ridgepoint_pytest --ridgepoint-url https://guard.example --ridgepoint-suite kernels --ridgepoint-commit "$GITHUB_SHA"

Without one of these options `measure` calls the function once, and nothing is timed. RIDGEPOINT_TOKEN holds the token (scope "read
and write"). A process of pytest is one run of a suite: --ridgepoint-runs measures again in that many fresh processes, the tests
that passed alone. What a test measured counts when the test passed, its teardown too. Under pytest-xdist one process measures at
a time.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Record = dict[str, Any]
WARMUP_CALLS, WARMUP_S = 3, 0.1
BATCH, LEAST_SAMPLES, MOST_SAMPLES = 10, 10, 20_000
MOST_S = 5.0                        # of sampling one function; LEAST_SAMPLES are taken all the same
LEAST_FLUSH_BYTES = 64 << 20
FLUSH_BYTES = 256 << 20             # where the device does not say how large its L2 is
CPU_SAMPLE_NS = 50_000              # faster functions are called several times a sample
SENDING_TRIES, SEND_S = 4, 120.0
RETRIED = (408, 425, 429, 502, 503, 504)
COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "BUILDKITE_COMMIT", "CIRCLE_SHA1", "BUILD_SOURCEVERSION",
           "DRONE_COMMIT_SHA", "BITBUCKET_COMMIT", "TRAVIS_PULL_REQUEST_SHA", "TRAVIS_COMMIT", "APPVEYOR_PULL_REQUEST_HEAD_COMMIT",
           "APPVEYOR_REPO_COMMIT", "SEMAPHORE_GIT_SHA", "CIRRUS_CHANGE_IN_REPO", "CODEBUILD_RESOLVED_SOURCE_VERSION")
MOST_RUNS = 50


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ridgepoint", "kernels measured for a benchmark suite")
    group.addoption("--ridgepoint-out", metavar="FILE", default="", help="write the runs here, JSON Lines")
    group.addoption("--ridgepoint-url", metavar="URL", default="", help="send the runs to this server; token: RIDGEPOINT_TOKEN")
    group.addoption("--ridgepoint-suite", metavar="NAME", default="", help="… to this suite, of kind uploaded")
    group.addoption("--ridgepoint-commit", metavar="SHA", default=next(filter(None, map(os.environ.get, COMMITS)), ""),
                    help="… as runs of this build; default: the CI's own variable")
    group.addoption("--ridgepoint-shard", metavar="I/N", default="", help="… as one of N jobs that measure parts of the build")
    group.addoption("--ridgepoint-runs", metavar="N", type=int, default=1, help="fresh processes, this one included (default 1)")
    group.addoption("--ridgepoint-samples", metavar="N", type=int, default=50, help="of a function in a process (default 50)")
    group.addoption("--ridgepoint-device", choices=["cuda", "cpu", "auto"], default="cuda",
                    help="cuda: skip tests where there is no GPU (default); cpu: wall-clock time of the call; auto: cuda, else cpu")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ridgepoint(name, shape, dtype, tag, …): arguments of every ridgepoint.measure of the test")
    options = config.option
    if options.ridgepoint_url and not (options.ridgepoint_suite and options.ridgepoint_commit):
        raise pytest.UsageError("--ridgepoint-url needs --ridgepoint-suite and --ridgepoint-commit")
    if options.ridgepoint_url and (problem := url_problem(options.ridgepoint_url)):
        raise pytest.UsageError(f"--ridgepoint-url: {problem}")
    if not 1 <= options.ridgepoint_runs <= MOST_RUNS or not LEAST_SAMPLES <= options.ridgepoint_samples <= MOST_SAMPLES:
        raise pytest.UsageError(f"--ridgepoint-runs: 1 to {MOST_RUNS}; --ridgepoint-samples: {LEAST_SAMPLES} to {MOST_SAMPLES:,}")
    config.pluginmanager.register(Measurements(config), "ridgepoint-measurements")


def url_problem(url: str) -> str:
    """Return why a token must not be sent to this address; "" where it may."""
    try:
        parts = urllib.parse.urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and parts.username is None
    except ValueError:
        fine = False
    return "" if fine and not re.search(r"[\s?#]", url) else "write an address like https://guard.example"


@pytest.fixture
def ridgepoint(request: pytest.FixtureRequest) -> Measured:
    """Measure functions: `ridgepoint.measure(lambda: kernel(x), name="kernel")`."""
    measurements: Any = request.config.pluginmanager.get_plugin("ridgepoint-measurements")
    return Measured(measurements, request.node)


@dataclass(frozen=True)
class Measurement:
    """Samples in µs in the order taken; none where this session does not measure."""

    us: list[float] = field(default_factory=list)

    @property
    def median_us(self) -> float | None:
        """Return the median in µs."""
        return statistics.median(self.us) if self.us else None


class Measured:
    """What a test sees as `ridgepoint`."""

    def __init__(self, measurements: Measurements, item: pytest.Item) -> None:
        self._measurements, self._item = measurements, item

    def measure(self, function: Callable[[], Any], *, name: str = "", shape: Mapping[str, Any] | None = None, dtype: str = "",
                config: Mapping[str, Any] | None = None, tag: str = "", flop: float | None = None, bytes: float | None = None,
                metrics: Mapping[str, float] | None = None, setup: Callable[[], Any] | None = None, flush: bool = True,
                samples: int | None = None) -> Measurement:
        """Time a function: warmed up, on a GPU between CUDA events with the L2 cache flushed before (`flush`).

        The flush is a write to a buffer of twice the L2. Lines that a kernel loads with the hint evict_last outlive it.

        name     of the kernel in the suite; default: the test's
        shape    plain values; default: the test's parameters that are plain
        metrics  numbers that the suite may limit, beside `flop` and `bytes`
        setup    called before each sample and not timed
        """
        marked = {key: value for mark in self._item.iter_markers("ridgepoint") for key, value in mark.kwargs.items()}
        given: dict[str, Any] = {"name": name, "shape": shape, "dtype": dtype, "config": config, "tag": tag, "samples": samples}
        given.update({key: value for key, value in marked.items() if not given.get(key)})
        if not self._measurements.measures:
            (setup or _nothing)()
            function()
            return Measurement()
        found = {key: float(value) for key, value in {"flop": flop, "bytes": bytes, **(metrics or {})}.items() if value is not None}
        us, told = self._measurements.time(function, setup or _nothing, flush, given["samples"])
        record: Record = {"op": given["name"] or self._item.nodeid.partition("[")[0],
                          "shape": dict(_parameters(self._item) if given["shape"] is None else given["shape"]),
                          "config": dict(given["config"]) if given["config"] else None, "us": us, "metrics": found, **told}
        record.update({key: given[key] for key in ("dtype", "tag") if given[key]})
        self._measurements.add(self._item.nodeid, record)
        return Measurement(us)


def _nothing() -> None:
    pass


def _parameters(item: pytest.Item) -> dict[str, Any]:
    params = getattr(getattr(item, "callspec", None), "params", {})
    return {key: value for key, value in params.items() if isinstance(value, (int, float, str)) and len(str(value)) <= 200}


class Measurements:
    """The runs of a session: of this process, of xdist's workers, and of the fresh processes after it."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.run = config, uuid.uuid4().hex[:12]
        self.measures = bool(config.option.ridgepoint_out or config.option.ridgepoint_url)
        self._records: dict[str, list[Record]] = {}
        self._outcomes: dict[str, bool] = {}                        # test → whether it passed so far
        self._from_workers: list[tuple[str, list[Record]]] = []
        self._lines: list[str] = []
        self._skipped: set[str] = set()                             # tests that would have measured

    def time(self, function: Callable[[], Any], setup: Callable[[], Any], flush: bool,
             samples: int | None) -> tuple[list[float], Record]:
        """Return samples in µs and what a run says of the device. Skips the test where it has none."""
        device, count = self.config.option.ridgepoint_device, samples or self.config.option.ridgepoint_samples
        torch = None if device == "cpu" else _torch_with_cuda()
        if torch is None and device == "cuda":
            pytest.skip("no CUDA device here: --ridgepoint-device cpu measures the call's wall-clock time")
        with _turn():
            if torch is None:
                device_fields = {"gpu": "cpu", "toolkit": f"python {platform.python_version()}",
                                 "facts": {"device": "cpu", "processor": platform.processor() or platform.machine()}}
                return _cpu_samples(function, setup, count), device_fields
            us = _cuda_samples(torch, function, setup, flush, count)
            return us, _cuda_facts(torch, flush)

    def add(self, test: str, record: Record) -> None:
        """Keep a measurement of a test that runs. Raises ValueError where the process measured the same already."""
        for other, records in self._records.items():
            if any(_key(other) == _key(record) for other in records):
                raise ValueError(f"{record['op']} {record['shape']} is measured by {other} too: give name, shape or tag")
        self._records.setdefault(test, []).append({"run": self.run, **record})

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._records.pop(nodeid, None)                             # a rerun measures anew
        self._outcomes[nodeid] = True

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        outcome: Any = yield
        report = outcome.get_result()
        self._outcomes[item.nodeid] = self._outcomes.get(item.nodeid, True) and report.passed
        if report.skipped and "ridgepoint" in getattr(item, "fixturenames", ()):
            self._skipped.add(item.nodeid)

    def passed(self) -> list[tuple[str, list[Record]]]:
        """Return test → runs of this process, those of tests that passed."""
        return [(test, records) for test, records in self._records.items() if self._outcomes.get(test)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        pairs = getattr(node, "workeroutput", {}).get("ridgepoint")
        if pairs is None:
            self._lines.append("a worker of pytest-xdist died: what it measured is lost")
        self._from_workers += [(test, records) for test, records in pairs or ()]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        workeroutput = getattr(self.config, "workeroutput", None)
        if workeroutput is not None:
            workeroutput["ridgepoint"] = [list(pair) for pair in self.passed()]
        elif self.measures:
            measured = [*self.passed(), *self._from_workers]
            if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                self._lines.append("interrupted: no runs are written or sent")
            elif not self._finish([test for test, _ in measured], [record for _, records in measured for record in records]):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _finish(self, tests: list[str], records: list[Record]) -> bool:
        """Measure in further processes, write, send. False where a part of it failed."""
        options, fine = self.config.option, True
        for number in range(2, options.ridgepoint_runs + 1 if tests else 0):
            more, why = fresh_run(self.config, tests)
            records += more
            if why:
                fine = False
                self._lines.append(f"run {number} of {options.ridgepoint_runs}: {why}")
        runs, kernels = len({record["run"] for record in records}), len({_key(record) for record in records})
        self._lines.append(f"{len(records)} measurements: {kernels} kernel{'s' * (kernels != 1)}, "
                           f"{runs} process{'es' * (runs != 1)}")
        if self._skipped:
            names = ", ".join(sorted(self._skipped)[:5])
            self._lines.append(f"{len(self._skipped)} skipped, no runs: a gate whose baseline has them says NO DATA ({names})")
        try:
            if options.ridgepoint_out:
                Path(options.ridgepoint_out).write_bytes(as_lines(records))
                self._lines.append(f"written to {options.ridgepoint_out}")
            if options.ridgepoint_url and records:
                self._lines.append(send(options.ridgepoint_url, options.ridgepoint_suite, options.ridgepoint_commit, records,
                                        options.ridgepoint_shard))
        except (OSError, ValueError) as error:
            self._lines.append(f"not sent or not written: {error}")
            return False
        return fine

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._lines:
            terminalreporter.section("ridgepoint")
            for line in self._lines:
                terminalreporter.line(line)


def _key(record: Record) -> str:
    return json.dumps([record["op"], record["shape"], record.get("dtype"), record.get("tag")], sort_keys=True, default=str)


def as_lines(records: list[Record]) -> bytes:
    """Return runs as JSON Lines. Raises ValueError for what JSON does not hold."""
    return "".join(json.dumps(record, allow_nan=False) + "\n" for record in records).encode()


# ---- fresh processes ----

def fresh_run(config: pytest.Config, tests: list[str]) -> tuple[list[Record], str]:
    """Measure tests in another process of pytest; return its runs and what went wrong ("" nothing)."""
    options = config.option
    with tempfile.TemporaryDirectory() as folder:
        out, names = Path(folder, "runs.jsonl"), Path(folder, "tests")
        names.write_text("".join(f"{test}\n" for test in tests))
        plugins = [part for name in config.option.plugins for part in ("-p", name)]         # as they were named for this process
        command = [sys.executable, "-m", "pytest", *plugins, "-q", "-p", "no:cacheprovider", f"--rootdir={config.rootpath}",
                   "--ridgepoint-url=", f"--ridgepoint-out={out}", "--ridgepoint-runs=1",
                   f"--ridgepoint-samples={options.ridgepoint_samples}", f"--ridgepoint-device={options.ridgepoint_device}"]
        command += [f"--config-file={config.inipath}"] if config.inipath else []
        command += ["-n0"] if config.pluginmanager.hasplugin("xdist") else []
        try:
            ended = subprocess.run([*command, f"@{names}"], cwd=config.rootpath, stdin=subprocess.DEVNULL, capture_output=True,
                                   check=False)
            records = [json.loads(line) for line in out.read_bytes().splitlines()] if out.exists() else []
        except (OSError, ValueError) as error:
            return [], str(error)
        lines = (ended.stdout.strip() or ended.stderr.strip()).decode(errors="replace").splitlines()
        return records, "" if ended.returncode == 0 else f"pytest ended with {ended.returncode}: {lines[-1][:200] if lines else ''}"


@contextmanager
def _turn() -> Iterator[None]:
    """Hold the host's turn: two processes that measure at once measure each other."""
    with suppress(ImportError):
        fcntl = importlib.import_module("fcntl")
        path = os.path.join(tempfile.gettempdir(), f"ridgepoint-pytest-{os.getuid()}.lock")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
        return
    yield


# ---- timing ----

def _cpu_samples(function: Callable[[], Any], setup: Callable[[], Any], samples: int) -> list[float]:
    """Return wall-clock µs of a call; `setup` given, each sample is one call."""
    _warm_up(function, setup)
    us: list[float] = []
    calls, end_s = 1, time.monotonic() + MOST_S
    if setup is _nothing:
        began = time.perf_counter_ns()
        function()
        calls = max(1, CPU_SAMPLE_NS // max(1, time.perf_counter_ns() - began))
    while len(us) < samples and (len(us) < LEAST_SAMPLES or time.monotonic() < end_s):
        setup()
        began = time.perf_counter_ns()
        for _ in range(calls):
            function()
        us.append(max(1, time.perf_counter_ns() - began) / calls / 1e3)
    return us


def _cuda_samples(torch: Any, function: Callable[[], Any], setup: Callable[[], Any], flush: bool, samples: int) -> list[float]:
    """Return µs between two events around a call."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    l2_bytes = int(getattr(properties, "L2_cache_size", 0) or 0)
    size = max(2 * l2_bytes, LEAST_FLUSH_BYTES) if l2_bytes else FLUSH_BYTES
    buffer = torch.empty(size, dtype=torch.int8, device="cuda") if flush else None
    _warm_up(function, setup, torch.cuda.synchronize)
    us: list[float] = []
    end_s = time.monotonic() + MOST_S
    while len(us) < samples and (len(us) < LEAST_SAMPLES or time.monotonic() < end_s):
        events = []
        for _ in range(min(BATCH, samples - len(us))):
            setup()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            if buffer is not None:
                buffer.zero_()
            begin.record()
            function()
            end.record()
            events.append((begin, end))
        torch.cuda.synchronize()
        us += [max(begin.elapsed_time(end) * 1e3, 1e-3) for begin, end in events]
    return us


def _warm_up(function: Callable[[], Any], setup: Callable[[], Any], wait: Callable[[], Any] = _nothing) -> None:
    calls, end_s = 0, time.monotonic() + WARMUP_S
    while calls < WARMUP_CALLS or time.monotonic() < end_s:
        setup()
        function()
        wait()
        calls += 1


def _torch_with_cuda() -> Any:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _cuda_facts(torch: Any, flush: bool) -> Record:
    """Return the device, its versions and its clock just after the samples."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    card = f"GPU-{properties.uuid}" if getattr(properties, "uuid", None) else ""
    environment = {"cuda": torch.version.cuda}
    with suppress(ImportError):
        environment["triton"] = importlib.import_module("triton").__version__
    fields: Record = {"gpu": properties.name, "gpu_uuid": card, "facts": {"device": "cuda", "l2_flushed": flush}}
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        query = "clocks.sm,clocks.mem,temperature.gpu,power.draw,driver_version"
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", *(["-i", card] if card else [])]
        lines = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()
        *clocks, driver = [part.strip() for part in lines[0].split(",")]
        fields["clocks"], environment["driver"] = ", ".join(clocks), driver
    return {**fields, "environment": {name: version for name, version in environment.items() if version}}


# ---- the server ----

class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to wherever it points."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        raise ValueError(f"the server redirects to {newurl[:200]}: give that address")


def send(url: str, suite: str, commit: str, records: list[Record], shard: str = "") -> str:
    """Send runs; return what the server stored. Raises ValueError or OSError with what went wrong."""
    query = urllib.parse.urlencode({"suite": suite, "build": commit, **({"shard": shard} if shard else {})})
    token = os.environ.get("RIDGEPOINT_TOKEN", "").strip()
    headers = {"Content-Type": "application/gzip", "Accept": "application/json", "User-Agent": "ridgepoint-pytest",
               **({"Authorization": f"Token {token}"} if token else {})}
    asked = urllib.request.Request(f"{url.rstrip('/')}/api/runs/?{query}", gzip.compress(as_lines(records)), headers, method="POST")
    opener = urllib.request.build_opener(_NoRedirect)
    for attempt in range(SENDING_TRIES):
        last = attempt == SENDING_TRIES - 1
        try:
            with opener.open(asked, timeout=SEND_S) as answer:
                stored = json.loads(answer.read(1 << 20))
                counts = ", ".join(f"{value} {name}" for name, value in stored.items() if isinstance(value, int))
                return f"sent to {suite}: {counts}"
        except urllib.error.HTTPError as error:
            if last or error.code not in RETRIED:
                raise ValueError(f"{url} answers {error.code}: {error.read(4096).decode(errors='replace')[:500]}") from error
        except OSError:
            if last:
                raise
        time.sleep(2 ** attempt * random.uniform(0.5, 1.0))
    raise ValueError(f"{url} does not answer")
