"""Window after window in a job with streams, backward passes, forks and at last graphs: `python -m tests.gpu.fleet.soak`.

    --minutes 60 --processes 1 [--often] [--stay] [--spaced] --out FILE

The agent itself runs in it, its limit so wide that windows follow each other; CUPTI is taken out after each (`--often`: of 20 ms,
some five a second). For the last fifth of the time the job captures CUDA graphs and replays them: the agent has to step aside.
`--stay`: three more threads launch and allocate, CUPTI is never taken out, and windows go on while graphs are replayed.
`--spaced`: after 120 windows they are a minute apart, as by default. A
line a minute and process: memory of the process and of the GPU, windows, records, results that were checked, and those that were
wrong. The last line of a process says whether it stood: no death, no hang, no wrong result, no dropped record, no growth of memory
after the second minute."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FORK_EVERY_S, LINE_EVERY_S, HANGS_S = 5.0, 60.0, 90.0
STREAMS, GRAPHS_FROM = 3, 0.8
MOST_GROWTH_MB = 32.0               # from the end of the second minute to the last line before graphs


@dataclass
class Tally:
    windows: int = 0                # with records
    taken_out: int = 0
    records: int = 0
    dropped: int = 0
    checked: int = 0
    wrong: int = 0
    replays: int = 0
    forks: int = 0
    bad_forks: int = 0
    failed: str = ""                # the first error of a thread
    ended: bool = False

    def guard(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return what a thread does over and over until the end."""
        def run() -> None:
            try:
                while not self.ended:
                    work()
            except BaseException as error:
                self.failed = self.failed or f"{work.__qualname__}: {type(error).__name__}: {error}"[:300]

        return run


def in_turn(*steps: Callable[[], None]) -> Callable[[], None]:
    def step() -> None:
        for each in steps:
            each()

    return step


def soak(seconds: float, often: bool, stay: bool, spaced: bool, tell: Callable[[dict[str, Any]], None]) -> bool:
    """Run all of it for a time; return whether it stood."""
    import torch

    tally, began_s, memory = Tally(), time.monotonic(), []
    step = in_turn(backward_step(torch, tally), stream_step(torch, tally, 0), allocate_step(torch))
    others = (stream_step(torch, tally, 1), stream_step(torch, tally, 2), allocate_step(torch)) if stay else ()
    threads = [threading.Thread(target=tally.guard(each), name="launches", daemon=True) for each in others]
    agent = start_agent(tally, often, stay, spaced)
    for thread in threads:
        thread.start()
    next_fork_s, next_line_s, graphs = began_s + FORK_EVERY_S, began_s + LINE_EVERY_S, False
    while not tally.failed and time.monotonic() - began_s < seconds:
        if not graphs and time.monotonic() - began_s > GRAPHS_FROM * seconds:
            step, graphs = graph_step(torch, tally), True
        step()
        agent.steps.step()
        if time.monotonic() > next_fork_s:
            next_fork_s += FORK_EVERY_S
            fork(tally)
        if time.monotonic() > next_line_s:
            next_line_s += LINE_EVERY_S
            count(agent, tally)
            if not graphs:
                memory.append(rss_mb())
            tell({"result": "minute", "pid": os.getpid(), "at_s": round(time.monotonic() - began_s), "rss_mb": rss_mb(),
                  "gpu_mb": gpu_mb(torch), "state": agent.state, **asdict(tally)})
    tally.ended = True
    for thread in threads:
        thread.join(30)
    count(agent, tally)
    growth_mb = round(memory[-1] - memory[1], 1) if len(memory) > 2 else None
    harmed = bool(tally.failed or tally.wrong or tally.dropped or tally.bad_forks or (growth_mb or 0) > MOST_GROWTH_MB)
    stepped_aside = tally.taken_out >= tally.windows > 0 and agent.state == "off" and "CUDA graphs" in agent.why
    stayed = tally.taken_out == 0 < tally.windows and agent.state != "off" and not any(thread.is_alive() for thread in threads)
    stood = (stayed if stay else stepped_aside) and not harmed
    tell({"result": "soak", "pid": os.getpid(), "stood": stood, "minutes": round((time.monotonic() - began_s) / 60, 1),
          "threads": len(threads),
          "growth_mb": growth_mb, "state": agent.state, "why": agent.why, "gpu": torch.cuda.get_device_name(),
          "torch": torch.__version__, **asdict(tally)})
    return stood


def start_agent(tally: Tally, often: bool, stay: bool, spaced: bool) -> Any:
    from workers.agent.collecting import Collecting
    from workers.agent.controller import Limits
    from workers.agent.identity import Identity

    def sink(windows: list[Any]) -> None:
        tally.windows += 1

    limits = Limits(loss_pct=99.0, coverage_pct=90.0, window_s=0.02 if often else 0.2, shortest_wait_s=0.01 if often else 0.05,
                    often=Limits().often if spaced else 1 << 30)
    agent = Collecting(Identity("soak", "", "", "here", 0, ""), limits, sink, stay=stay)
    agent.start()
    return agent


def count(agent: Any, tally: Tally) -> None:
    if agent.collector is not None:
        tally.taken_out, tally.records, tally.dropped = (agent.collector.detaches, agent.collector.records, agent.collector.dropped)
    if agent.state == "off" and "CUDA graphs" not in agent.why:
        tally.failed = tally.failed or f"the agent: {agent.why}"


def backward_step(torch: Any, tally: Tally) -> Callable[[], None]:
    """Forward and backward, whose second half runs in a thread of autograd's; gradients compared with those of the first."""
    torch.manual_seed(1)
    weights = [torch.randn(512, 512, device="cuda", requires_grad=True) for _ in range(6)]
    x = torch.randn(256, 512, device="cuda")

    def gradients() -> list[Any]:
        hidden = x
        for weight in weights:
            hidden = torch.nn.functional.silu(hidden @ weight / 23)
        for weight in weights:
            weight.grad = None
        hidden.square().mean().backward()
        torch.cuda.current_stream().synchronize()
        return [weight.grad for weight in weights]

    gradients()
    expected = [each.clone() for each in gradients()]

    def step() -> None:
        found = gradients()
        tally.checked += 1
        tally.wrong += not all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))

    return step


def graph_step(torch: Any, tally: Tally) -> Callable[[], None]:
    """Replays of a graph that is captured now, its output compared with that of the first."""
    weights = [torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16) / 32 for _ in range(4)]
    hidden = torch.randn(8, 1024, device="cuda", dtype=torch.bfloat16)

    def run() -> Any:
        found = hidden
        for _ in range(8):
            found = torch.nn.functional.silu(torch.nn.functional.rms_norm(found, (1024,)) @ weights[0] @ weights[1])
        return found

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):       # other threads go on
        out = run()
    graph.replay()
    torch.cuda.current_stream().synchronize()
    expected = out.clone()

    def step(_inputs: Any = (weights, hidden)) -> None:         # a graph holds none of what it reads
        for _ in range(20):
            graph.replay()
        torch.cuda.current_stream().synchronize()
        tally.replays += 20
        tally.checked += 1
        tally.wrong += not torch.equal(out, expected)

    return step


def stream_step(torch: Any, tally: Tally, seed: int) -> Callable[[], None]:
    """Products on several streams, joined by events, compared with those of before CUPTI came."""
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


def allocate_step(torch: Any) -> Callable[[], None]:
    """Allocations and frees, now and then of the device's memory itself: calls of CUDA under the lock of torch's allocator."""
    chance = random.Random(0)
    kept: list[Any] = []

    def step() -> None:
        kept.append(torch.empty(chance.randrange(1 << 10, 1 << 24), device="cuda", dtype=torch.uint8))
        if len(kept) > 20:
            del kept[chance.randrange(20)]
        if chance.random() < 0.02:
            kept.clear()
            torch.cuda.empty_cache()

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


def watch(child: subprocess.Popen[str], seconds: float, tell: Callable[[dict[str, Any]], None]) -> bool:
    """Pass on what a child says; a death and a hang are lines too. Return whether it stood."""
    errors: list[str] = []
    assert child.stdout and child.stderr
    reading = threading.Thread(target=lambda: errors.append(child.stderr.read()[-3000:] if child.stderr else ""))
    reading.start()
    hung = threading.Timer(seconds + HANGS_S, lambda: child.send_signal(signal.SIGABRT))        # faulthandler says where
    hung.start()
    stood = ended = False
    for line in child.stdout:
        if line.startswith("{"):
            said = json.loads(line)
            ended, stood = ended or said["result"] == "soak", stood or bool(said.get("stood"))
            tell(said)
    status = child.wait()
    is_hung = not hung.is_alive()
    hung.cancel()
    reading.join(10)
    if not ended or status not in (0, 1):
        tell({"result": "hung" if is_hung else "died", "status": status, "words": "".join(errors)})
        return False
    return stood


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--minutes", type=float, default=60)
    asked.add_argument("--processes", type=int, default=1, help="at once; GPUs are given in turn")
    asked.add_argument("--often", action="store_true")
    asked.add_argument("--stay", action="store_true", help="with more threads, CUPTI never taken out")
    asked.add_argument("--spaced", action="store_true", help="windows become rare, as by default")
    asked.add_argument("--gpus", type=int, default=1)
    asked.add_argument("--out", type=Path, help="lines are added to this file as well")
    asked.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.child:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"           # equal bits on several streams, as cuBLAS's manual says
        return 0 if soak(options.minutes * 60, options.often, options.stay, options.spaced, say) else 1

    def tell(line: dict[str, Any]) -> None:
        say(line)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(line) + "\n")

    command = [sys.executable, "-X", "faulthandler", "-m", "tests.gpu.fleet.soak", "--child", "--minutes", str(options.minutes),
               *(f"--{name}" for name in ("often", "stay", "spaced") if getattr(options, name))]
    stood: list[bool] = []
    watchers = []
    for number in range(options.processes):
        own = {**os.environ, "CUDA_VISIBLE_DEVICES": str(number % options.gpus)} if options.gpus > 1 else dict(os.environ)
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own)
        watchers.append(threading.Thread(target=lambda child=child: stood.append(watch(child, options.minutes * 60, tell))))
        watchers[-1].start()
    for each in watchers:
        each.join()
    return 0 if len(stood) == options.processes and all(stood) else 1


if __name__ == "__main__":
    sys.exit(main())
