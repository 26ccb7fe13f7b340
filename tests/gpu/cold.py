"""Is cold cold? A small kernel is timed after a neighbour that loaded the same inputs with `evict_last`, by each way to flush L2.

`python -m tests.gpu.cold [FILE.json | product]` on a machine with one GPU; torch and Triton alone. For each way and size: a kernel
by itself, on inputs that nobody loaded with the hint; after the neighbour, on the inputs that this one loaded; and the neighbour's
own time, launched again and again on one input and in turn on inputs of more than L2. A way is good where both pairs agree.
Between two cells all lines are reset and 1 GiB is written. The last part judges a candidate of this kind by the judge itself.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import triton
import triton.language as tl

from tuner.tuning.measure import flush
from tuner.tuning.measure.policy import Policy
from tuner.tuning.measure.timers import make_timer

DEVICE = torch.device("cuda")
SIZES = {"2 MB": (512, 2048), "8 MB": (1024, 4096), "32 MB": (4096, 4096)}          # rows, columns of fp16
BATCHES, BATCH, SLEEP = 6, 10, 200_000
JUDGED = {"operator": "softmax", "shape": {"R": 1024, "C": 4096}, "dtype": "fp16"}
PINNING = '''import triton
import triton.language as tl


@triton.jit
def softmax_row(x, y, sx, sy, cols, BLOCK: tl.constexpr):
    r, i = tl.program_id(0), tl.arange(0, BLOCK)
    m = i < cols
    v = tl.load(x + r * sx + i, mask=m, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
    v = tl.exp2((v - tl.max(v, 0)) * 1.4426950408889634)
    tl.store(y + r * sy + i, (v / tl.sum(v, 0)).to(y.dtype.element_ty), mask=m, eviction_policy="evict_last")


def launch(inputs, out, config):
    x = inputs["x"]
    return softmax_row[(x.shape[0],)](x, out, x.stride(0), out.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
'''


@triton.jit
def row_sum(x, y, cols, BLOCK: tl.constexpr, HINT: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * cols + at, mask=at < cols, other=0.0, eviction_policy=HINT)
    tl.store(y + tl.program_id(0), tl.sum(values.to(tl.float32), 0))


def launch_of(x: torch.Tensor, hint: str):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=DEVICE)
    return lambda: row_sum[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), HINT=hint)


def ways() -> tuple:
    """Name -> what is called before a launch; the driver's reset; a buffer of 1 GiB."""
    l2 = torch.cuda.get_device_properties(DEVICE).L2_cache_size
    buffer = torch.zeros(flush.flush_bytes(l2), dtype=torch.int8, device=DEVICE)
    words, large = buffer.view(torch.int32), torch.empty(2**30, dtype=torch.int8, device=DEVICE)
    reset, unpin = flush.find_reset(DEVICE), flush.make_unpin(DEVICE, l2)
    print("reset by the driver:", reset is not None, "· kernels of the flush:", unpin is not None, "· the product's way:",
          flush.Flush(DEVICE, l2).way, flush=True)

    def read() -> None:
        torch.amax(words)

    def after(first, second):
        def both() -> None:
            first()
            second()
        return both

    def reset_first(then):
        def run() -> None:
            torch.cuda.synchronize()
            reset()
            torch.cuda._sleep(SLEEP)
            then()
        return run

    found = {"write": buffer.zero_, "write twice": after(buffer.zero_, buffer.zero_), "read": read,
             "read, write": after(read, buffer.zero_),
             "write, read": after(buffer.zero_, read), "write 1 GiB": large.zero_}
    if reset:
        found |= {"reset, write": reset_first(buffer.zero_), "reset, read": reset_first(read),
                  "write, reset, write": after(buffer.zero_, reset_first(buffer.zero_))}
    if unpin:
        found |= {"unpin, write": after(unpin, buffer.zero_), "unpin, read": after(unpin, read),
                  "unpin twice, write": after(after(unpin, unpin), buffer.zero_),
                  "unpin, write, read": after(after(unpin, buffer.zero_), read)}
    return found, reset, large


def times_us(before, launch, count: int) -> list[float]:
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
    for start, end in events:
        before()
        torch.cuda._sleep(SLEEP)                        # the launch is queued by then, after whatever the flush costs the host
        start.record()
        launch()
        end.record()
    torch.cuda.synchronize()
    return [1e3 * start.elapsed_time(end) for start, end in events]


def cost_us(way) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(20):
        way()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / 20 * 1e6


def measure(size: tuple[int, int], flushes, reset, large) -> list[dict]:
    rows, cols = size
    many = max(3, (160 << 20) // (rows * cols * 2) + 1)
    plain, pinned = (torch.randn(size, device=DEVICE).half() for _ in range(2))
    turned = [torch.randn(size, device=DEVICE).half() for _ in range(min(many, 24))]
    alone, neighbour, pinning = launch_of(plain, ""), launch_of(pinned, ""), launch_of(pinned, "evict_last")
    in_turn, at = [launch_of(x, "evict_last") for x in turned], [0]

    def next_pinning() -> None:
        at[0] += 1
        in_turn[at[0] % len(in_turn)]()

    for launch in (alone, neighbour, pinning, *in_turn):
        launch()

    def clear() -> None:
        torch.cuda.synchronize()
        if reset:
            reset()
        large.zero_()
        torch.cuda.synchronize()

    taken: dict = {name: {cell: [] for cell in ("alone", "after", "own", "own in turn")} for name in flushes}
    for _ in range(BATCHES):
        for name, way in flushes.items():
            def polluted(way=way) -> None:
                pinning()
                way()

            for cell, before, launch in (("alone", way, alone), ("after", polluted, neighbour), ("own", way, pinning),
                                         ("own in turn", way, next_pinning)):
                clear()
                times_us(before, launch, 2)
                taken[name][cell] += times_us(before, launch, BATCH)
    found = []
    for name, cells in taken.items():
        us = {cell: round(statistics.median(values), 3) for cell, values in cells.items()}
        found.append({"way": name, **us, "after ÷ alone": round(us["after"] / us["alone"], 4),
                      "own ÷ in turn": round(us["own"] / us["own in turn"], 4)})
    return found


def product() -> dict:
    """The timer of tune jobs: a kernel before and after one with the hint, and that one beside itself on other inputs."""
    timer = make_timer(DEVICE, Policy(lead_ms=3.0), 0)
    told: dict = {"about": timer.about()}
    for name, size in SIZES.items():
        x = torch.randn(size, device=DEVICE).half()
        plain, pinning = launch_of(x, ""), launch_of(x, "evict_last")
        plain()
        parts: dict = {}
        for part, launches in (("warming up", [plain]), ("plain before", [plain]), ("in turn", [pinning, plain]),
                               ("plain after", [plain])):
            for _ in range(20):
                for launch in launches:
                    called = part if len(launches) == 1 else f"{part}: {'plain' if launch is plain else 'pinning'}"
                    parts.setdefault(called, []).extend(timer.samples(launch, 5))
        told[name] = {called: round(1e3 * statistics.median(values), 3) for called, values in parts.items()}
    return told


def judged() -> dict:
    """The judge's own answer on a candidate that pins its inputs and its output."""
    from tuner.candidates.judge.child import Failed, Judge
    said: dict = {}
    request = {**JUDGED, "text": PINNING, "config": None, "best": None, "seed": 7, "policy": {}, "gpu_uuid": ""}
    try:
        Judge(request, DEVICE, lambda **line: said.update(line)).run(Path(tempfile.mkdtemp()))
    except Failed as failed:
        return {"failed": failed.where, "what": str(failed)[:300]}
    return {"before_us": 1e3 * said["before"]["default_ms"],
            **{f"{name}_us": round(1e3 * one["median_ms"], 3) for name, one in said["times"].items()},
            "flush": said["policy"].get("flush"), "wrong": said["times"]["candidate"]["wrong"], "replaced": said["replaced"]}


def main() -> None:
    torch.manual_seed(0)
    if sys.argv[1:] == ["product"]:
        print(json.dumps({"product": product(), "judged": [judged() for _ in range(2)]}, indent=1))
        return
    flushes, reset, large = ways()
    told = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
            "cost_us": {name: round(cost_us(way), 1) for name, way in flushes.items()}}
    print(json.dumps(told), flush=True)
    for name, size in SIZES.items():
        told[name] = measure(size, flushes, reset, large)
        print(f"--- {name}", *map(json.dumps, told[name]), sep="\n", flush=True)
    del flushes, large
    for name, part in (("product", product), ("judged", judged)):
        try:
            told[name] = part()
        except Exception as error:                      # the other parts count all the same
            told[name] = {"failed": f"{type(error).__name__}: {error}"[:600]}
        print(name, json.dumps(told[name]), flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
