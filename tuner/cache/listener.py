"""What Triton's own autotuner finds in a job goes into the config cache, with no change to the job's code.

    python -m tuner.cache.listener train.py …          or, with the two files copied:  python ridgepoint_listener.py train.py …
    torchrun … ridgepoint_listener.py train.py …  ·  python -m tuner.cache.listener -m package.train …
    import tuner.cache.listener; tuner.cache.listener.install()        where a line of code may be added

RIDGEPOINT_URL and RIDGEPOINT_TOKEN name the server, as for the client. Such an entry says that it comes from a listener: its
results were not checked against a reference, and it never serves before what a tune job proved. Standard library only.
"""

from __future__ import annotations

import atexit
import hashlib
import inspect
import logging
import math
import os
import runpy
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

try:
    from tuner.cache import client
except ImportError:      # copied beside a job's own code
    import ridgepoint_client as client  # type: ignore[import-not-found, no-redef]

log = logging.getLogger("ridgepoint")
SEND_AFTER_S, SEND_LIMIT_S = 5.0, 10.0
MAX_WAITING, MAX_TIMINGS = 500, 64


class Listener:
    """Gathers findings and sends them from a thread: launches never wait for the network."""

    def __init__(self, server: client.Server, gpu: str = "", toolkit: str = "") -> None:
        self.server, self.gpu, self.toolkit = server, gpu, toolkit
        self._found: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __call__(self, *, fn: Any, key: Sequence[Any], best_config: Any, configs_timings: Mapping[Any, Any] | None,
                 keys: Sequence[str] | None = None, **_: Any) -> None:
        """Take a decision, as Triton's AutotuneListener; `keys` name the key. Never raises."""
        try:
            decision = finding(fn, key, best_config, configs_timings or {}, keys or _key_names(fn))
        except Exception as error:          # somebody's job must not end for what a listener does not understand
            log.warning("Ridgepoint: what Triton found for %s was not understood: %s", getattr(fn, "__name__", fn), error)
            return
        with self._lock:
            if decision and len(self._found) < MAX_WAITING:
                self._found.append(decision)
                if self._timer is None and self.server.url:
                    self._timer = threading.Timer(SEND_AFTER_S, self.send)
                    self._timer.daemon = True
                    self._timer.start()

    def send(self, limit_s: float = SEND_LIMIT_S) -> bool:
        """Send what waits; what the server cannot take waits for the next time."""
        with self._lock:
            findings, self._found, self._timer = self._found, [], None
        return bool(findings and self.server.url) and self._post(findings, limit_s)

    def _post(self, findings: list[dict[str, Any]], limit_s: float) -> bool:
        try:
            device = client.Device(self.gpu) if self.gpu else client.device()
            self.server.ask("/api/configs/listened/", limit_s, send={
                "gpu": device.name, "compute_capability": device.compute_capability, "sms": device.sms,
                "toolkit": self.toolkit or client.toolkit_name(),
                "host": socket.gethostname(), "found": findings})
        except (OSError, ValueError) as error:
            refused = getattr(error, "code", 0) == 400          # one of them; it must not keep the others from the server
            if refused and len(findings) > 1:
                return sum(self._post([entry], limit_s) for entry in findings) == len(findings)
            log.warning("Ridgepoint: what Triton found was not told: %s", error)
            if not refused:
                with self._lock:
                    self._found = (findings + self._found)[:MAX_WAITING]
            return False
        return True


def finding(fn: Any, key: Sequence[Any], best: Any, timings: Mapping[Any, Any], keys: Sequence[str]) -> dict[str, Any] | None:
    """Return one decision as JSON, times in ms; None when nothing was timed."""
    timed = sorted(((_median(times), plain_config(config)) for config, times in timings.items()), key=lambda each: each[0])
    finite = [(ms, config) for ms, config in timed if math.isfinite(ms)]
    if not finite:
        return None
    values = dict(zip(keys, key, strict=False))
    function = _python_function(fn)
    module = function.__module__ if function.__module__ != "__main__" else Path(function.__code__.co_filename).stem
    return {
        "kernel": f"{module}.{function.__qualname__}"[:200], "name": function.__name__[:60],
        "shape": {name: value for name, value in values.items() if _is_dimension(value)},
        "variant": {name: str(value)[:40] for name, value in values.items() if not _is_dimension(value)},
        "dtypes": [client.dtype_name(dtype) for dtype in key[len(values):]][:16],
        "config": plain_config(best), "median_ms": finite[0][0], "timings": [[config, ms] for ms, config in finite[:MAX_TIMINGS]],
        "tried": len(timed), "failed": len(timed) - len(finite), "source_hash": _source_hash(function)}


def plain_config(config: Any) -> dict[str, Any]:
    """Return a triton.Config as plain values."""
    plain = {name: value if isinstance(value, bool | int | float | str) else str(value)[:60]
             for name, value in config.kwargs.items()}
    params = {**plain, "num_warps": config.num_warps, "num_stages": config.num_stages}
    params |= {"num_ctas": config.num_ctas} if config.num_ctas != 1 else {}
    return params | ({"maxnreg": config.maxnreg} if getattr(config, "maxnreg", None) else {})


def _is_dimension(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _median(times: Any) -> float:
    """Return the median of Triton's (median, 20 %, 80 %) or one number."""
    return float(times[0]) if isinstance(times, Sequence) else float(times)


def _python_function(fn: Any) -> Any:
    while not inspect.isfunction(fn):
        fn = fn.fn
    return fn


def _source_hash(function: Any) -> str:
    with suppress(OSError, TypeError):
        return hashlib.sha256(Path(inspect.getsourcefile(function) or "").read_bytes()).hexdigest()
    return ""


def _key_names(fn: Any) -> Sequence[str]:
    """Return the names of the key, from the autotuner that wraps the function."""
    function = _python_function(fn)
    outer = getattr(sys.modules.get(function.__module__), function.__name__, None)
    while outer is not None and not hasattr(outer, "keys"):
        outer = getattr(outer, "fn", None)
    return list(outer.keys) if outer is not None else []


def install(url: str | None = None, token: str | None = None) -> Listener:
    """Listen from now on: through Triton's hook (after 3.7), else around its autotuner."""
    from triton.runtime.autotuner import Autotuner

    try:
        from triton import knobs
    except ImportError:                 # before 3.4
        knobs = None
    env = os.environ.get
    listener = Listener(client.Server(env("RIDGEPOINT_URL", "") if url is None else url,
                                      env("RIDGEPOINT_TOKEN", "") if token is None else token))
    autotuning: Any = getattr(knobs, "autotuning", None)
    if hasattr(autotuning, "listener"):
        autotuning.listener = _call_both(autotuning.listener, listener)
    else:
        wrap(Autotuner, listener)
    atexit.register(listener.send, 3.0)
    return listener


def _call_both(first: Callable[..., Any] | None, second: Callable[..., Any]) -> Callable[..., Any]:
    """Somebody else may listen already."""
    def listen(**told: Any) -> None:
        if first is not None:
            first(**told)
        second(**told)
    return listen


def wrap(autotuner: Any, listener: Callable[..., Any]) -> None:
    """Wrap `run` of older Tritons: a decision was made when the cache has grown."""
    launch = autotuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        count = len(self.cache)
        answer = launch(self, *args, **kwargs)
        if len(self.cache) != count:
            listener(fn=self.fn, key=next(reversed(self.cache)), best_config=self.best_config, keys=self.keys,
                     configs_timings=getattr(self, "configs_timings", None), duration=getattr(self, "bench_time", None),
                     cache_hit=False)
        return answer

    autotuner.run = run


def main(argv: list[str]) -> int:
    """Run a script or `-m module` with the listener installed."""
    if not argv or argv[0] in ("-h", "--help"):
        sys.stderr.write(__doc__ or "")
        return 2
    try:
        install()
    except ImportError as error:
        log.warning("Ridgepoint: nothing to listen to: %s", error)
    if argv[0] == "-m" and len(argv) > 1:
        sys.argv = argv[1:]
        sys.path.insert(0, "")
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        sys.path.insert(0, str(Path(argv[0]).resolve().parent))
        runpy.run_path(argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
