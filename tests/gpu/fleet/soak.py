"""Window after window in a job with graphs, streams, threads and forks: `python -m tests.gpu.fleet.soak --minutes 60`.

A line a minute: memory of the process and of the GPU, windows, records, results that were checked, and those that were wrong. The
last line says whether it stood: no death, no wrong result, no dropped record, no window without records, no growth of memory after
the second minute. CUPTI stays attached; the windows are the agent's own, without its controller, so that there are many."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

WINDOW_S, BETWEEN_S, FORK_EVERY_S, LINE_EVERY_S = 0.2, 0.3, 5.0, 60.0
THREADS, STREAMS = 2, 3
MOST_GROWTH_MB = 32.0               # from the end of the second minute to the last line


@dataclass
class Tally:
    windows: int = 0
    empty_windows: int = 0
    undrained: int = 0
    records: int = 0
    dropped: int = 0
    checked: int = 0
    wrong: int = 0
    forks: int = 0
    bad_forks: int = 0
    failed: str = ""                # the first error of a thread
    ended: bool = False

    def guard(self, work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                while not self.ended:
                    work()
            except BaseException as error:
                self.failed = self.failed or f"{work.__qualname__}: {type(error).__name__}: {error}"[:300]
                self.ended = True

        return run


def soak(seconds: float, tell: Callable[[dict[str, Any]], None]) -> bool:
    """Run all of it for a time; return whether it stood."""
    import torch

    from tests.gpu.fleet import workloads

    tally, began_s, memory = Tally(), time.monotonic(), []
    graph = graph_step(torch, workloads, tally)
    threads = [threading.Thread(target=tally.guard(each), daemon=True)
               for each in (*(stream_step(torch, tally, seed) for seed in range(THREADS)), window_step(tally))]
    for thread in threads:
        thread.start()
    next_fork_s, next_line_s = began_s + FORK_EVERY_S, began_s + LINE_EVERY_S
    while not tally.ended and time.monotonic() - began_s < seconds:
        graph()
        if time.monotonic() > next_fork_s:
            next_fork_s += FORK_EVERY_S
            fork(tally)
        if time.monotonic() > next_line_s:
            next_line_s += LINE_EVERY_S
            memory.append(rss_mb())
            tell({"result": "minute", "at_s": round(time.monotonic() - began_s), "rss_mb": memory[-1], "gpu_mb": gpu_mb(torch),
                  **asdict(tally)})
    tally.ended = True
    for thread in threads:
        thread.join(30)
    growth_mb = round(memory[-1] - memory[1], 1) if len(memory) > 2 else None
    stood = not (tally.failed or tally.wrong or tally.dropped or tally.bad_forks or tally.empty_windows
                 or any(thread.is_alive() for thread in threads) or (growth_mb or 0) > MOST_GROWTH_MB) and tally.windows > 0
    tell({"result": "soak", "stood": stood, "minutes": round((time.monotonic() - began_s) / 60, 1), "growth_mb": growth_mb,
          "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, **asdict(tally)})
    return stood


def graph_step(torch: Any, workloads: Any, tally: Tally) -> Callable[[], None]:
    """Replays of a graph that was made before CUPTI came, its output compared with that of the first."""
    weights = [torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64 for _ in range(4)]
    hidden = torch.randn(8, 4096, device="cuda", dtype=torch.bfloat16)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            workloads._decode(hidden, weights)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = workloads._decode(hidden, weights)
    graph.replay()
    torch.cuda.synchronize()
    expected = out.clone()

    def step() -> None:
        for _ in range(20):
            graph.replay()
        torch.cuda.current_stream().synchronize()
        tally.checked += 1
        tally.wrong += not torch.equal(out, expected)

    return step


def stream_step(torch: Any, tally: Tally, seed: int) -> Callable[[], None]:
    """Products on several streams of a thread, joined by events, compared with those of before CUPTI came."""
    own = torch.Generator(device="cuda").manual_seed(seed)
    x = torch.randn(1024, 1024, device="cuda", generator=own)
    streams = [torch.cuda.Stream() for _ in range(STREAMS)]
    expected = torch.softmax(x @ x.T, -1)
    torch.cuda.synchronize()

    def step() -> None:
        outs = []
        for stream in streams:
            with torch.cuda.stream(stream):
                outs.append(torch.softmax(x @ x.T, -1))
        for stream in streams:
            stream.synchronize()
        tally.checked += 1
        tally.wrong += not all(torch.equal(out, expected) for out in outs)

    return step


def window_step(tally: Tally) -> Callable[[], None]:
    """The agent's windows, as its thread opens them."""
    from workers.agent.cupti import Collector

    collector = Collector()

    def step() -> None:
        collector.open()
        time.sleep(WINDOW_S)
        collector.close()
        tally.undrained += not collector.drain()
        seen = collector.sums()
        tally.windows += 1
        tally.records, tally.dropped = collector.records, collector.dropped
        tally.empty_windows += not seen.records and tally.windows > 1       # the first may miss all (fleet-loss.md)
        time.sleep(BETWEEN_S)

    return step


def fork(tally: Tally) -> None:
    """A child that uses no CUDA, as a data loader's: it must end well and at once."""
    child = os.fork()
    if child == 0:
        os._exit(0 if sum(range(1000)) == 499_500 else 3)
    tally.forks += 1
    tally.bad_forks += os.waitpid(child, 0)[1] != 0


def rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def gpu_mb(torch: Any) -> float:
    free, total = torch.cuda.mem_get_info()
    return float((total - free) / 1e6)


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--minutes", type=float, default=60)
    asked.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.child:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"           # equal bits on several streams, as cuBLAS's manual says
        return 0 if soak(options.minutes * 60, say) else 1
    child = subprocess.Popen([sys.executable, "-X", "faulthandler", "-m", "tests.gpu.fleet.soak", "--child", "--minutes",
                              str(options.minutes)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    errors: list[str] = []
    assert child.stdout and child.stderr
    reading = threading.Thread(target=lambda: errors.append(child.stderr.read()[-1000:] if child.stderr else ""))
    reading.start()
    ended = False
    for line in child.stdout:
        if line.startswith("{"):
            ended = ended or json.loads(line)["result"] == "soak"
            sys.stdout.write(line)
            sys.stdout.flush()
    status = child.wait()
    reading.join(10)
    if not ended:
        say({"result": "died", "status": status, "words": "".join(errors)})
    return 0 if ended and not status else 1


if __name__ == "__main__":
    sys.exit(main())
