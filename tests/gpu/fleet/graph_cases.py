"""When CUPTI may be taken out of a job with CUDA graphs: `python -m tests.gpu.fleet.graph_cases`, a process a case, all at once.

One JSON line a case: `lived`, whether its results were right, and the words of a death. A replay's result is compared with that of
the first replay before CUPTI came."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

LIMIT_S = 120.0


class Case:
    """Graphs of a decode step and a collector, used in the order that a case says."""

    def __init__(self, size: int = 1024, layers: int = 8) -> None:
        import torch

        from workers.agent.cupti.collector import Collector

        self.torch = torch
        torch.manual_seed(0)
        self.layers = layers
        self.weights = [torch.randn(size, size, device="cuda", dtype=torch.bfloat16) / size ** 0.5 for _ in range(4)]
        self.hidden = torch.randn(8, size, device="cuda", dtype=torch.bfloat16)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                self._run()
        torch.cuda.synchronize()
        self.expected = self._run().clone()
        self.collector = Collector()
        self.wrong = self.checked = self.records = 0

    def _run(self) -> Any:
        hidden = self.hidden
        for _ in range(self.layers):
            residual = hidden
            query, key = hidden @ self.weights[0], hidden @ self.weights[1]
            hidden = self.torch.softmax(query.float(), -1).to(hidden.dtype) * key
            hidden = self.torch.nn.functional.silu(hidden @ self.weights[2]) @ self.weights[3] + residual
        return hidden

    def make(self) -> Callable[[], None]:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            out = self._run()

        def replay(times: int = 200) -> None:
            for _ in range(times):
                graph.replay()
            self.torch.cuda.synchronize()
            self.checked += 1
            self.wrong += not self.torch.allclose(out, self.expected)

        return replay

    def eager(self, seconds: float = 0.2) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._run()
        self.torch.cuda.synchronize()

    def window(self, work: Callable[[], None]) -> None:
        self.collector.open()
        work()
        self.collector.close()
        self.collector.drain()
        self.records += self.collector.sums().records

    def out(self) -> None:
        if not self.collector.take_out():
            raise RuntimeError(f"not taken out: {self.collector.broken}")


def made_before_and_idle(case: Case) -> None:
    """A graph from before rests while CUPTI is there."""
    replay = case.make()
    replay()
    case.window(case.eager)
    case.out()
    replay()


def replayed_in_a_window(case: Case) -> None:
    replay = case.make()
    replay()
    case.window(replay)
    case.out()
    replay()


def replayed_while_attached(case: Case) -> None:
    """Replayed between the end of the window and the moment that CUPTI is taken out."""
    replay = case.make()
    replay()
    case.window(case.eager)
    replay()
    case.out()
    replay()


def made_in_a_window(case: Case) -> None:
    """Captured while CUPTI is there, first replayed when it is gone."""
    made: list[Callable[[], None]] = []
    case.window(lambda: made.append(case.make()))
    case.out()
    made[0]()


def made_afterwards(case: Case) -> None:
    """Captured when CUPTI was taken out, at rest while it comes again."""
    case.window(case.eager)
    case.out()
    replay = case.make()
    replay()
    case.window(case.eager)
    case.out()
    replay()


def captured_under_the_agent(case: Case) -> None:
    """The agent's windows are open all the time; then the job captures a graph, and its agent has to be out before."""
    from workers.agent.collecting import Collecting
    from workers.agent.controller import Limits
    from workers.agent.identity import Identity

    windows: list[Any] = []
    agent = Collecting(Identity("graphs", "", "", "here", 0, ""), Limits(80.0, 80.0, 0.5, 0.05), windows.extend)
    agent.start()
    end = time.monotonic() + 60
    while (len(windows) < 3 or not agent.collector.is_open) and time.monotonic() < end:
        case._run()
        case.torch.cuda.synchronize()
        agent.steps.step()
    case.records = sum(int(window.kernels.launches.sum()) for window in windows)
    began = time.monotonic()
    replay = case.make()
    waited_ms = 1e3 * (time.monotonic() - began)
    replay()
    for _ in range(20):
        replay()
    agent.join(20)
    sys.stdout.write(json.dumps({"agent": agent.state, "why": agent.why, "windows": len(windows), "capture_ms": waited_ms,
                                 "attached": agent.collector.attached}) + "\n")


def replayed_in_many_windows(case: Case) -> None:
    replay = case.make()
    for _ in range(5):
        replay()
        case.window(replay)
        case.out()
        replay()


CASES = {each.__name__: each for each in (made_before_and_idle, made_afterwards, made_in_a_window, replayed_while_attached,
                                           replayed_in_a_window, replayed_in_many_windows, captured_under_the_agent)}
LARGE = " (480 kernels)"            # of cases with a graph as `workloads` has it
RUNS = [*CASES, *(name + LARGE for name in ("made_before_and_idle", "replayed_in_a_window", "replayed_in_many_windows"))]


def main() -> int:
    if sys.argv[1:]:
        case = Case(4096, 53) if LARGE in sys.argv[1] else Case()
        CASES[sys.argv[1].removesuffix(LARGE)](case)
        sys.stdout.write(json.dumps({"checked": case.checked, "wrong": case.wrong, "records": case.records,
                                     "detaches": case.collector.detaches, "gpu": case.torch.cuda.get_device_name()}) + "\n")
        return 0
    children = {name: subprocess.Popen([sys.executable, "-X", "faulthandler", "-m", "tests.gpu.fleet.graph_cases", name], text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)) for name in RUNS}
    for name, child in children.items():
        try:
            out, errors = child.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            out, errors = child.communicate()
        line: dict[str, Any] = {"result": "graph case", "case": name, "lived": child.returncode == 0}
        for each in out.splitlines():
            line |= json.loads(each) if each.startswith("{") else {}
        if child.returncode:
            line |= {"status": child.returncode, "words": [word for word in errors.splitlines() if "rror" in word][-2:]}
        sys.stdout.write(json.dumps(line, default=float) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
