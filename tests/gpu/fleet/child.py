"""One process of a measurement: a workload and what is done beside it, phase by phase, a JSON line each on standard output.

    python -m tests.gpu.fleet.child WORKLOAD SECONDS [brief]    SECONDS of the agent by itself; brief: nothing else
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from tests.gpu.fleet import workloads
from workers.agent import collecting
from workers.agent.activity import Busy
from workers.agent.collecting import Collecting
from workers.agent.controller import Limits, _t
from workers.agent.cupti.collector import Collector
from workers.agent.identity import Identity
from workers.agent.libraries import used_gpus
from workers.agent.progress import Steps

BLOCK_S = 0.075
COUNTED = {"graph": 40, "gemm": 200, "eager": 100, "training": 20}
CALM_PARTS = 24


class Child:
    def __init__(self, name: str) -> None:
        self.name = name
        self.steps = Steps()
        self.collector: Any = None
        self.step = workloads.make(name)
        self.first = np.zeros(0)
        self.began = time.monotonic()

    def line(self, phase: str, **more: Any) -> None:
        at_s = round(time.monotonic() - self.began, 1)
        sys.stdout.write(json.dumps({"workload": self.name, "phase": phase, "at_s": at_s, **more}, default=float) + "\n")
        sys.stdout.flush()

    def phase(self, name: str, do: Callable[[], dict[str, Any]]) -> None:
        """Run a phase; one that fails is a line too, and the next goes on."""
        try:
            self.line(name, **do())
        except Exception as error:
            traceback.print_exc()
            self.line(name, failed=repr(error)[:300])

    def run(self, seconds: float, count: int = 0) -> np.ndarray:
        """Run steps for a time, or so many; return what each took, in s."""
        times, step, mark = [time.perf_counter()], self.step, self.steps.step
        end = times[0] + seconds
        while (len(times) <= count) if count else times[-1] < end:
            step()
            mark()
            times.append(time.perf_counter())
        return np.diff(times)

    def blocks(self, seconds: float) -> np.ndarray:
        """Return the mean step of each block of BLOCK_S."""
        end, found = time.perf_counter() + seconds, []
        while time.perf_counter() < end:
            found.append(self.run(BLOCK_S).mean())
        return np.array(found)

    # ---- phases

    def untouched(self) -> dict[str, Any]:
        self.run(2.0)
        busy = Busy(used_gpus())

        def watch() -> None:
            for _ in range(8):
                time.sleep(0.9)
                busy.look()

        watched = threading.Thread(target=watch)
        watched.start()
        self.first = self.blocks(8.0)
        watched.join()
        halves = np.array_split(self.first, 2)
        noise_pct = 100 * self.first.std() / self.first.mean()
        return {"step_ms": self.first.mean() * 1e3, "busy_pct": busy.pct(), "block_noise_pct": noise_pct, "blocks": self.first.size,
                "drift": compare(halves[1], halves[0]), "torch": torch.__version__, "gpu": torch.cuda.get_device_name()}

    def attached(self) -> dict[str, Any]:
        """CUPTI is registered, nothing was ever asked for."""
        self.collector = Collector()
        self.collector.attach()
        return {"against": "untouched", "cupti": self.collector.version, **compare(self.blocks(4.0), self.first)}

    def off(self) -> dict[str, Any]:
        return {"against": "untouched", **compare(self.blocks(5.0), self.first)}

    def empty(self) -> dict[str, Any]:
        """A window in which nothing was launched."""
        self.collector.open()
        self.collector.close()
        self.collector.drain()
        self.collector.sums()
        return {"against": "untouched", **compare(self.blocks(4.0), self.first)}

    def on_and_off(self, seconds: float = 9.0) -> dict[str, Any]:
        """Blocks with records on and off in turn: each on is compared with the means of the offs beside it."""
        on, off, opening, closing = [], [self.run(BLOCK_S).mean()], [], []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            began = time.perf_counter()
            self.collector.open()
            opening.append(time.perf_counter() - began)
            on.append(self.run(BLOCK_S).mean())
            began = time.perf_counter()
            self.collector.close()
            self.collector.drain()
            seen = self.collector.sums()
            closing.append(time.perf_counter() - began)
            self.run(BLOCK_S / 3)
            off.append(self.run(BLOCK_S).mean())
        beside = (np.array(off[1:]) + np.array(off[:-1])) / 2
        return {"against": "off blocks beside", **paired(np.array(on), beside), "open_ms": np.mean(opening) * 1e3,
                "close_drain_sum_ms": np.mean(closing) * 1e3, "records_of_last": seen.records, "in_graphs": seen.in_graphs,
                "ns_per_record": self.collector.sum_ns / max(1, self.collector.records), "dropped": self.collector.dropped}

    def always_on(self) -> dict[str, Any]:
        self.collector.open()
        self.run(0.3)
        on = self.blocks(3.0)
        self.collector.close()
        self.collector.drain()
        seen = self.collector.sums()
        return {"against": "untouched", **compare(on, self.first), "records": seen.records}

    def counted(self) -> dict[str, Any]:
        """Records of so many steps, all within a window that was open before."""
        self.collector.open()
        self.run(0.3)
        torch.cuda.synchronize()
        time.sleep(0.05)
        from_ns = time.time_ns()
        self.run(0, COUNTED[self.name])
        torch.cuda.synchronize()
        time.sleep(0.02)
        self.collector.close()
        self.collector.drain()
        self.collector.from_ns = from_ns
        seen = self.collector.sums()
        self.collector.from_ns = 0
        return {"steps": COUNTED[self.name], "records": seen.records, "per_step": seen.records / COUNTED[self.name]}

    def take_out(self) -> dict[str, Any]:
        """CUPTI is taken out between two steps; then blocks against those before CUPTI came."""
        began = time.perf_counter()
        done = self.collector.take_out()
        out_ms = 1e3 * (time.perf_counter() - began)
        return {"against": "untouched", "done": done, "out_ms": out_ms, **compare(self.blocks(5.0), self.first)}

    def controlled(self, seconds: float) -> dict[str, Any]:
        """The agent by itself, in segments of 1.5 s; beside each one in which it holds."""
        windows: list[Any] = []
        agent = Collecting(Identity("loss", "", "", "here", 0, ""), Limits(), windows.extend, self.steps)
        agent.start()
        end, with_agent, without = time.perf_counter() + seconds, [], []
        while agent.controller is None and agent.state != "off" and time.perf_counter() < end:
            self.run(0.1)
        waited_s = seconds - (end - time.perf_counter())
        while time.perf_counter() < end:
            agent.release()
            with_agent.append(self.run(1.5).mean())
            agent.hold()
            self.run(0.05)
            without.append(self.run(0.75).mean())
        agent.release()
        self.run(0.5)
        a, b = np.array(with_agent), np.array(without)
        beside = (b + np.roll(b, 1))[1:] / 2 if b.size > 2 else b[1:]
        found = paired(a[1:], beside) if a.size > 3 else {}
        state = agent.report()
        self.end(agent)
        report = {} if state is None else {f"own_{name}": value for name, value in asdict(state).items()}
        outcomes = [[round(each.held_s, 4), round(each.observed_s, 4), each.lost_s and round(each.lost_s, 5), each.records]
                    for each in agent.outcomes]
        return {"against": "held segments beside", **found, "state": agent.state, "why": agent.why, "waited_s": waited_s, **report,
                "set_aside": agent.set_aside, "windows_sent": len(windows), "outcomes": outcomes,
                "attached": bool(agent.collector and agent.collector.attached), "busy_pct": agent.safety.busy_pct,
                "taken_out": agent.collector.detaches if agent.collector else 0}

    def end(self, agent: Collecting) -> None:
        """The agent has CUPTI taken out as it ends, at a step."""
        agent.end()
        end = time.perf_counter() + 20
        while agent.is_alive() and time.perf_counter() < end:
            self.run(0.05)

    def tails(self) -> dict[str, Any]:
        """p50 and p99 of a step: with nothing open, with windows at any moment, with windows in offers of 0.6 s every 3 s."""
        found: dict[str, Any] = {}
        agent = Collecting(Identity("loss", "", "", "here", 0, ""), Limits(), lambda windows: None, self.steps)
        found["off"] = tail(self.run(5.0))
        agent.start()
        while agent.controller is None and agent.is_alive() and time.monotonic() - self.began < 600:
            self.run(0.1)
        found["any moment"] = tail(self.run(8.0))
        agent.offer(0)
        self.run(1.0)
        outside, inside = [], []
        for _ in range(5):
            outside.append(self.run(2.4))
            agent.offer(0.6)
            inside.append(self.run(0.6))
        found["offered, outside of offers"] = tail(np.concatenate(outside))
        found["offered, all"] = tail(np.concatenate(outside + inside))
        found["windows"], found["state"] = len(agent.outcomes), agent.state
        self.end(agent)
        found["off again"] = tail(self.run(5.0))
        return found

    def kineto(self) -> dict[str, Any]:
        """torch.profiler, GPU activities only: kernels that it counts of so many steps, and what a step takes meanwhile."""
        before, count = self.run(1.0), COUNTED[self.name]
        began = time.perf_counter()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            start_s = time.perf_counter() - began
            during = self.run(0, count)
            torch.cuda.synchronize()
            began = time.perf_counter()
        stop_s, after = time.perf_counter() - began, self.run(1.0)
        events = profiler.profiler.kineto_results.events()
        kernels = sum(1 for event in events if event.device_type() == torch.autograd.DeviceType.CUDA
                      and not event.name().startswith(("Memcpy", "Memset")))
        base = float(before.mean())
        return {"steps": count, "kernels": kernels, "per_step": kernels / count, "start_s": start_s, "stop_s": stop_s,
                "during_pct": 100 * (float(during.mean()) / base - 1), "after_pct": 100 * (float(after.mean()) / base - 1)}


def compare(now: np.ndarray, before: np.ndarray) -> dict[str, float]:
    """Return how much longer steps take than before, in %, with a 95 % interval by the parts of each time: neighbours are alike."""
    a, b = (np.array([part.mean() for part in np.array_split(each, min(CALM_PARTS, each.size))]) for each in (now, before))
    half = _t(max(1, min(a.size, b.size) - 1)) * float(np.sqrt(a.var(ddof=1) / a.size + b.var(ddof=1) / b.size))
    base = float(b.mean())
    more = float(a.mean()) - base
    return {"loss_pct": 100 * more / base, "low_pct": 100 * (more - half) / base, "high_pct": 100 * (more + half) / base,
            "median_pct": 100 * (float(np.median(now)) / float(np.median(before)) - 1)}


def paired(own: np.ndarray, beside: np.ndarray) -> dict[str, float]:
    """Return the mean of the pairs' ratios in %, with a 95 % interval."""
    ratio = 100 * (own / beside - 1)
    half = _t(ratio.size - 1) * float(ratio.std(ddof=1)) / np.sqrt(ratio.size)
    return {"loss_pct": float(ratio.mean()), "low_pct": float(ratio.mean() - half), "high_pct": float(ratio.mean() + half),
            "median_pct": float(np.median(ratio)), "pairs": ratio.size}


def tail(took: np.ndarray) -> dict[str, float]:
    return {"steps": took.size, **{f"p{at}_ms": float(np.percentile(took, at)) * 1e3 for at in (50, 99, 99.9)}}


def main() -> None:
    name, seconds = sys.argv[1], float(sys.argv[2])
    collecting.LOOK_AGAIN_S = 3.0
    child = Child(name)
    child.phase("untouched", child.untouched)
    if name == "graph":                     # never attached to: what attaching costs it is measured all the same
        child.phase("controller", lambda: child.controlled(20.0))
    else:
        child.phase("controller", lambda: child.controlled(seconds))
        if sys.argv[3:] == ["brief"]:
            return
        child.phase("tails", child.tails)
    child.phase("attached", child.attached)
    child.phase("on and off in turn", child.on_and_off)
    child.phase("always on", child.always_on)
    child.phase("attached, off", child.off)
    child.phase("counted", child.counted)
    if name != "graph":
        child.phase("taken out", child.take_out)
    child.phase("kineto", child.kineto)


if __name__ == "__main__":
    main()
