"""What @tuned adds to a launch, against calling the kernel directly with the same parameters (budget: < 2 µs).

The kernel is a stand-in that has Triton's own launch interface and does nothing: what remains is the price of the look-up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tuner.cache.client import Client, Snapshot, Tuned

ARGUMENTS = ("a", "b", "c", "M", "N", "K", "sam", "sak", "sbk", "sbn", "scm", "scn", "BM", "BN", "BK", "GM")
CONFIG = {"BM": 128, "BN": 256, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3}
ENTRIES, SHAPES, LAUNCHES, REPEATS = 5000, 40, 500, 400
BUDGET_US = 2.0


def stand_in() -> Any:
    """Launched through Triton's own interface, where Triton is installed."""
    from triton.runtime.jit import KernelInterface

    class Kernel(KernelInterface):      # type: ignore[misc]
        arg_names = list(ARGUMENTS)

        def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
            return None

    return Kernel()


def snapshot() -> Snapshot:
    entries = [
        {"id": n, "operator": "matmul", "dtype": "bf16", "bucket": f"K={1 << (5 + n % 9)} M={1 << (n % 14)} N={1 << (5 + n // 14)}",
         "home": [0, "exact"], "away": [3, "nearest bucket", 4.0], "config": CONFIG} for n in range(ENTRIES)]
    policy = {"exact_up_to": 16, "steps_per_doubling": 1, "max_distance": 4.0}
    return Snapshot({"version": 1, "id": "bench", "gpu": "", "toolkit": "", "why": {}, "entries": entries,
                     "operators": {"matmul": {"dims": ["M", "N", "K"], "exact": [], "dtypes": ["bf16"], "policy": policy}}})


def microseconds(launch: Callable[[int], None]) -> float:
    """Mean time of one call, the loop's own cost included."""
    started = time.perf_counter_ns()
    for n in range(LAUNCHES):
        launch(n)
    return (time.perf_counter_ns() - started) / LAUNCHES / 1000


def measure(repeats: int = REPEATS) -> dict[str, float]:
    """Each way in turn, the fastest of many repeats: what else this machine does only ever adds."""
    client = Client(url="", file="", gpu="", toolkit="")
    client.snapshot = snapshot()
    kernel = stand_in()
    served = Tuned(kernel, "matmul", client=client)
    tensor = SimpleNamespace(dtype="torch.bfloat16")
    shapes = [(tensor, tensor, tensor, 1 << (n % 13), 4096, 1 << (5 + n % 9), 1, 1, 1, 1, 1, 1) for n in range(SHAPES)]
    grid = (64,)

    def direct(n: int) -> None:
        kernel[grid](*shapes[n % SHAPES], **CONFIG)

    def tuned(n: int) -> None:
        served[grid](*shapes[n % SHAPES])

    def asked(n: int) -> None:
        client.best("matmul", "bf16", M=1 << (n % 13), N=4096, K=1 << (5 + n % 9))

    first = microseconds_first(served, tuned)
    taken = [(microseconds(direct), microseconds(tuned), microseconds(asked)) for _ in range(repeats)]
    direct_us, tuned_us, best_us = (min(column) for column in zip(*taken, strict=True))
    return {"direct_us": direct_us, "tuned_us": tuned_us, "added_us": tuned_us - direct_us, "best_us": best_us, "first_us": first}


def microseconds_first(served: Tuned, launch: Callable[[int], None]) -> float:
    """The first launch of a shape: bound by name, looked up among all entries."""
    started = time.perf_counter_ns()
    for n in range(SHAPES):
        served.forget()
        launch(n)
    return (time.perf_counter_ns() - started) / SHAPES / 1000


def run() -> list[dict[str, Any]]:
    try:
        found = measure()
    except ImportError as error:
        return [{"what": "@tuned: added to a launch", "measured": f"— ({error})", "reference": "Triton", "ratio": None,
                 "budget": "", "ok": None}]
    added, direct = found["added_us"], f"calling the kernel directly {found['direct_us']:.2f} µs"
    return [
        {"what": "@tuned: added to a launch", "measured": f"{added:.2f} µs", "reference": direct,
         "ratio": found["tuned_us"] / found["direct_us"], "budget": f"< {BUDGET_US:g} µs", "ok": added < BUDGET_US},
        {"what": "best(…): one look-up", "measured": f"{found['best_us']:.2f} µs", "reference": direct,
         "ratio": found["best_us"] / found["direct_us"], "budget": f"< {BUDGET_US:g} µs", "ok": found["best_us"] < BUDGET_US},
        {"what": f"first launch of a shape, {ENTRIES:,} entries of its operator", "measured": f"{found['first_us'] / 1000:.1f} ms",
         "reference": direct, "ratio": found["first_us"] / found["direct_us"], "budget": "", "ok": None}]
