"""Time a language model's step before and after the client serves its operators: python -m tests.gpu.step.record OUT.json

    [--seconds 460] [--search 3] [--layers 8] [--rounds 24] [--only prefill decode] [--no-compile] [--found STEP.json]

before    torch's own calls, and the same under torch.compile (max-autotune-no-cudagraphs)
after     the same model with each operator as the client answers: our kernel with the served configuration, or the library
Every operator at every shape is searched for --search seconds first and served from a snapshot file (`tests.gpu.step.tune`). Each
step is one CUDA graph; the variants are replayed in turn, forth and back. OUT.json is written after every stage, so that a run that
is cut loses nothing; after --seconds no further stage begins. --found takes what an earlier run searched, from its document and the
snapshot beside it, and searches nothing. `python -m tests.gpu.step.markdown OUT.json` makes the table.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.gpu.peers.graphs import captured
from tests.gpu.step.tune import Found, search, snapshot
from tuner.cache.client import Client
from tuner.cache.default_check import check_default, median_interval
from tuner.tuning.operators import OPERATORS
from workers.core import gpu
from workers.tune.gpu_child import Limits as Seconds
from workers.tune.sandbox import SandboxRunner

QUICK = {"max_ms": 100.0, "max_samples": 20}          # of a trial of the search
LIMITS = Seconds(run_s=8, compile_s=45)
SEARCH_SHARE = 0.6                                    # of all seconds: what is not searched by then keeps the library
COMPILE_NEEDS_S = 90.0                                # left over, or torch.compile is not begun
ERROR_ROOM = 1.25                                     # after may be so much further from float32 than before
STEPS = ("prefill", "decode")
SNAPSHOT = "snapshot.json"                            # beside the document


class Record:
    """The document, written after every stage."""

    def __init__(self, path: Path, seconds: float, about: Mapping[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.seconds, self.began_s = path, seconds, time.monotonic()
        self.document: dict[str, Any] = {"date": datetime.now(UTC).isoformat(timespec="seconds"), **about, "operators": [],
                                         "steps": {}}

    @property
    def passed_s(self) -> float:
        return time.monotonic() - self.began_s

    def write(self, said: str) -> None:
        self.document["seconds"] = round(self.passed_s, 1)
        self.path.write_text(json.dumps(self.document, indent=1, default=str))
        print(f"{self.passed_s:6.1f} s  {said}", flush=True)


def _most_moved_first(cases: list[Any], dtype: str) -> list[Any]:
    return sorted(cases, key=lambda case: -case[2] * OPERATORS[case[0]].bytes(case[1], dtype))


def search_all(record: Record, sizes: Any, steps: list[str], seconds: float) -> list[Found]:
    """Search every operator and shape of the steps once, those of both steps in turn, what moves most bytes first; a row each."""
    card = gpu.gpus()[0]
    cases = [(step, *case) for turn in zip_longest(*(_most_moved_first(sizes.cases(step), sizes.dtype) for step in steps))
             for step, case in zip(steps, turn, strict=True) if case]
    runner = SandboxRunner("matmul", {"M": 64, "N": 64, "K": 64}, "bf16", card.index, gpu_uuid=card.uuid, seed=5, limits=LIMITS,
                           policy=QUICK)
    found: list[Found] = []
    try:
        with suppress(Exception):               # the processes start: no operator's seconds shall pay for that
            search(runner, 0, "matmul", sizes.dtype, {"M": 64, "N": 64, "K": 64}, 1.0)
        record.write("the child and the compilers are ready")
        for step, operator, shape, calls in cases:
            row: dict[str, Any] = {"step": step, "operator": operator, "dtype": sizes.dtype, "shape": shape, "calls": calls}
            record.document["operators"].append(row)
            if record.passed_s > SEARCH_SHARE * record.seconds:
                row["error"] = "not searched: no time was left"
            else:
                try:
                    one = search(runner, len(found) + 1, operator, sizes.dtype, shape, seconds)
                    found.append(one)
                    row |= one.row
                    record.document["environment"] |= one.session.environment
                    record.document["policy"] = one.session.policy
                except Exception as error:          # the library stays where nothing is served
                    row["error"] = f"{type(error).__name__}: {error}"[:400]
            times = f"ours {row['ours_ms']:.4f} ms, library {row['library_ms'] or 0:.4f} ms" if "ours_ms" in row else row["error"]
            record.write(f"{step} {operator} {' '.join(f'{name}={size}' for name, size in shape.items())}: {times}")
    finally:
        runner.close()
    return found


def serve(record: Record, found: list[Found], folder: Path) -> Client:
    """Return a client that reads the snapshot's file and asks no server; what it answers goes into each operator's row."""
    name = found[0].session.gpu if found else gpu.gpus()[0].name
    asking = Client(url="", file="", gpu=name)                     # which toolkit a job here asks for
    path = folder / SNAPSHOT
    path.write_text(json.dumps(snapshot(found, asking.gpu, asking.toolkit)))
    return read_snapshot(record, path, name)


def take_found(record: Record, earlier: Path, steps: list[str]) -> Client:
    """Return a client of the snapshot beside an earlier document, and take over what that says of the operators of these steps."""
    said = json.loads(earlier.read_text())
    record.document["operators"] = [row for row in said["operators"] if row["step"] in steps]
    record.document |= {"searched": said["date"], "policy": said["policy"], "environment": said["environment"]}
    record.document["arguments"]["search"] = said["arguments"]["search"]
    return read_snapshot(record, earlier.parent / SNAPSHOT, gpu.gpus()[0].name)


def read_snapshot(record: Record, path: Path, name: str) -> Client:
    """Return a client that has this file and no server, for a GPU of this name."""
    client = Client(url="", file=str(path), gpu=name)
    tell_served(record, client)
    status = record.document["client"] = {key: value for key, value in client.status().items() if key != "file"}
    record.write(f"the client serves snapshot {status['snapshot']} from {client.source} for {client.gpu}, {client.toolkit}")
    return client


def tell_served(record: Record, client: Client) -> None:
    """Write what the client answers beside each operator."""
    from tests.gpu.step.served import serves_ours

    for row in record.document["operators"]:
        served = client.best(row["operator"], row["dtype"], **row["shape"])
        row |= {"served": "ours" if serves_ours(served) else "library", "rule": served.rule, "why": served.why,
                "state": served.state, "served_config": served.config, "library_gain": served.library}


def error_of(values: Any, exact: Any) -> float:
    """Return ‖values − exact‖ / ‖exact‖ over all elements, some rows at a time: float32 copies of all are large."""
    import torch

    differs = norm = 0.0
    for some, right in zip(values.split(1024), exact.split(1024), strict=True):
        differs += torch.linalg.vector_norm(some.float() - right.float()).item() ** 2
        norm += torch.linalg.vector_norm(right.float()).item() ** 2
    return float((differs / norm) ** 0.5)


class Timed:
    """One step's variants: checked against the same model in float32, captured, timed in turn. `row`: its part of the document."""

    def __init__(self, record: Record, step: Any, client: Client, rounds: int) -> None:
        from tests.gpu.step.model import Exact, Library
        from tests.gpu.step.served import FromClient
        from tuner.tuning.kernels.problem import full_precision

        self.record, self.step, self.rounds = record, step, rounds
        self.row: dict[str, Any] = {}
        self.ways: dict[str, Callable[[], Any]] = {}
        record.document["steps"][step.name] = self.row
        full_precision()
        self.exact, self.last = step.run(Exact())
        self.row["float32"] = _about(step, self.exact, self.last)
        for name, use in (("before", Library()), ("after", FromClient(client, step.weights.sizes.dtype, step.ids.device))):
            self.add(name, partial(step.run, use))
            record.write(f"{step.name} {name}: logits {self.row[name]['error']:.2g} from float32, {_told(self.row[name])}")
        self.row["right"] = self.row["after"]["error"] <= ERROR_ROOM * self.row["before"]["error"]
        take_times(self.row, self.ways, rounds)
        record.write(f"{step.name}: {_times_text(self.row)}")

    def add(self, name: str, call: Callable[[], Any]) -> None:
        """Capture a variant, replay it once, and compare what it wrote with the reference."""
        import torch

        replay, (logits, made) = captured(call)
        replay()
        torch.cuda.synchronize()
        self.row[name] = {"error": error_of(logits, self.exact), **_about(self.step, logits, made)}
        if self.step.name == "decode":
            self.row[name]["same_tokens"] = int((made == self.last).sum().item())
        self.ways[name] = replay

    def add_compiled(self) -> None:
        """Add torch.compile and time all variants again in turn; where that fails the document says so and keeps what it has."""
        import torch

        from tests.gpu.step.model import Library

        step, began_s = self.step, time.monotonic()
        if self.record.seconds - self.record.passed_s < COMPILE_NEEDS_S:
            self.row["lacking"] = "torch.compile: no time was left"
        else:
            try:
                torch._dynamo.reset()
                call = torch.compile(lambda: step.run(Library()), mode="max-autotune-no-cudagraphs", fullgraph=True)
                call()
                torch.cuda.synchronize()
                self.add("torch.compile", call)
                self.row["torch.compile"]["compile_s"] = round(time.monotonic() - began_s, 1)
                take_times(self.row, self.ways, self.rounds)
            except Exception as error:
                self.row["lacking"] = f"torch.compile: {type(error).__name__}: {error}"[:400]
        self.record.write(f"{step.name}: {_times_text(self.row)} {self.row.get('lacking', '')}")


def _about(step: Any, logits: Any, made: Any) -> dict[str, Any]:
    return {"loss": made.float().mean().item()} if step.name == "prefill" else {"tokens": made.tolist()}


def _told(one: Mapping[str, Any]) -> str:
    if "loss" in one:
        return f"loss {one['loss']:.4f}"
    return f"{one['same_tokens']} of {len(one['tokens'])} tokens as float32 has them"


def take_times(row: dict[str, Any], ways: Mapping[str, Callable[[], Any]], rounds: int) -> None:
    """Replay the variants in turn; medians of the rounds with their 95 % intervals, and of the paired ratios to `after`."""
    import torch

    from tuner.tuning.measure import timers, timing
    from tuner.tuning.measure.policy import Policy

    policy = Policy.read({"kind": "warm", "warmup": 3, "batch": 2, "rounds": rounds, "max_ms": 60000.0})
    sampler = timing.Sampler(timers.make_timer(torch.device("cuda"), policy, torch.cuda.current_device()), policy)
    taken = dict(zip(ways, sampler.measure_in_turn(list(ways.values())), strict=True))
    for name, times in taken.items():
        row[name] |= {"median_ms": times.median_ms, "interval_ms": median_interval(times.round_ms), "round_ms": times.round_ms,
                      "facts": times.facts}
    after = {"median_ms": taken["after"].median_ms, "round_ms": taken["after"].round_ms}
    row["ratios"] = {name: check_default(after, {"median_ms": times.median_ms, "round_ms": times.round_ms}).as_json()
                     for name, times in taken.items() if name != "after"}
    row["policy"] = {"rounds": rounds, "batch": policy.batch, "timer": "CUDA events around one replay of the step's CUDA graph"}


def _times_text(row: Mapping[str, Any]) -> str:
    times = ", ".join(f"{name} {row[name]['median_ms']:.3f} ms" for name in ("before", "torch.compile", "after")
                      if "median_ms" in row.get(name, {}))
    ratios = ", ".join(f"{name} ÷ after {one['ratio']:.3f} ({one['low']:.3f} to {one['high']:.3f})"
                       for name, one in row["ratios"].items())
    return f"{times}; {ratios}; {'right' if row['right'] else 'WRONG: further from float32 than before'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=460.0, help="after which no stage begins")
    parser.add_argument("--search", type=float, default=3.0, help="seconds of search at each shape")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--only", nargs="*", default=list(STEPS), choices=STEPS)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--found", type=Path, help="the document of an earlier run, whose operators are taken and not searched")
    given = parser.parse_args()
    from tests.gpu.step.model import Decode, Prefill, Sizes, Weights

    sizes = Sizes(layers=given.layers)
    arguments = {name: value for name, value in vars(given).items() if name != "out"}
    record = Record(given.out, given.seconds, {"gpu": gpu.gpus()[0].name, "arguments": arguments, "model": asdict(sizes),
                                               "environment": {"python": platform.python_version()}})
    if given.found:
        client = take_found(record, given.found, given.only)
    else:
        client = serve(record, search_all(record, sizes, given.only, given.search), given.out.parent)
    import torch

    device, timed = torch.device("cuda"), list[Timed]()
    weights = Weights(sizes, device)
    with torch.no_grad():
        for kind in (Prefill, Decode):
            if kind.name in given.only:
                try:
                    timed.append(Timed(record, kind(weights, device), client, given.rounds))
                except Exception as error:              # the other step may work
                    record.document["steps"].setdefault(kind.name, {})["error"] = f"{type(error).__name__}: {error}"[:800]
                    record.write(f"{kind.name} failed: {type(error).__name__}: {error}"[:800])
        for one in [] if given.no_compile else reversed(timed):         # decode compiles in less time
            one.add_compiled()
    record.write("done")


if __name__ == "__main__":
    main()
