"""Where the time of a trace went: on traces that a reader can check by eye, against painting every µs, and on recordings."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.analysis.trace.time.classes import PARTS, intensity, kind_of, ridge
from profiles.analysis.trace.time.facts import TimeFacts
from profiles.analysis.trace.time.idle import activity
from profiles.analysis.trace.time.ranges import range_times
from profiles.analysis.trace.time.result import time_result
from profiles.analysis.trace.time.steps import period_of
from profiles.charts.time import steps_figure
from profiles.ingest.trace import SLICES, Category, Device, Integrity, Trace, Track
from tests.builders import trace
from tests.launches import launch_calls
from tests.profiles.ingest.corpus import CORPUS, DATA, H200, mostly_deep

US = 1_000
CAUSES = DATA / "causes"


def drawn(text: str) -> Frame:
    """A lane goes on in a line that begins with "|"."""
    return frame_of(trace(re.sub(r"\n\s*\|", " |", text)))


def facts(text: str) -> TimeFacts:
    return TimeFacts(drawn(text))


def us(parts: dict[str, Any]) -> dict[str, float]:
    """ns as µs, without what is 0."""
    return {name: ns / US for name, ns in parts.items() if ns}


def test_every_moment_of_a_gpu_is_one_part():
    """A GPU that waits for data, for its host, for a launch that has not started, and for nobody knows what."""
    found = facts("""
        p (1) / main: ProfilerStep#0 0-400 | enumerate(DataLoader)#_Iter.__next__ 10-60
        | aten::mm 70-90 | cudaLaunchKernel 80-85 corr=1
        p (1) / main2: cudaStreamSynchronize 150-190 | aten::add 195-215
        | cudaLaunchKernel 200-210 corr=2 | cudaLaunchKernel 230-235 corr=3
        GPU 0 / stream 7: gemm 100-120 corr=1 | ncclAllReduce 110-140 | Memcpy HtoD 135-160 bytes=64 | elementwise 220-240 corr=2
        GPU 0 / stream 8: small_gemm 260-265 corr=3 | mystery 300-330
    """)
    device, = found.devices
    assert us(device.tiles.sums()) == {
        "compute": 20,                      # gemm
        "communication": 20, "transfers": 20,       # what computing (then a collective) does not hide
        "memory": 20, "small": 5, "unknown": 30,
        "data_loading": 50,                 # 10-60, in the first step before the first work
        "host_slow": 10 + 25,               # 0-10 and 60-85 of the gap that gemm ended
        "synchronisation": 50,              # the gap from 160 began in a wait: until its call had returned at 210
        "kernel_wait": 15 + 10 + 20,        # 85-100, 210-220, 240-260
        "other": 35,                        # 265-300: mystery has no launch call
        "edges": 70,                        # after 330
    }
    assert us({part: device.work.exposed[part].length_ns for part in device.work.exposed}) == {
        "compute": 75, "communication": 20, "memory": 20}
    assert (device.work.overlapped_ns("communication"), device.work.overlapped_ns("memory")) == (10_000, 5_000)
    whole, of = found.whole
    assert of == "steps" and whole.bound == "overhead"
    assert us(whole.classes) == {"compute": 20, "memory": 20, "unknown": 30, "overhead": 260}      # the edges are no class


def test_what_the_host_did_in_the_gaps():
    found = facts("""
        p (1) / main: ProfilerStep#0 0-100 | cudaLaunchKernel 0-5 corr=1 | aten::item 20-60 | cudaStreamSynchronize 25-50
        | aten::mm 65-90 | aten::empty 70-72 | cudaLaunchKernel 75-85 corr=2
        GPU 0 / stream 7: a 5-30 corr=1 | b 85-100 corr=2
    """)
    (_, said), = found.activities
    assert [(one.cause, one.name, one.ns / US, one.slices) for one in said] == [
        ("host_slow", "cudaLaunchKernel", 5, 1),
        ("synchronisation", "cudaStreamSynchronize", 20, 1), ("synchronisation", "aten::item", 10, 1),
        ("synchronisation", "cudaLaunchKernel", 10, 1), ("synchronisation", "aten::mm", 8, 1),
        ("synchronisation", "ProfilerStep#0", 5, 1), ("synchronisation", "aten::empty", 2, 1)]
    device, = found.devices
    assert sum(one.ns for one in said if one.cause == "synchronisation") == device.tiles.sums()["synchronisation"]


def test_code_that_nobody_recorded_is_said():
    found = facts("""
        p (1) / main: ProfilerStep#0 0-10 | cudaLaunchKernel 0-5 corr=1 | cudaLaunchKernel 60-65 corr=2
        GPU 0 / stream 7: a 5-20 corr=1 | b 65-90 corr=2
    """)
    (_, said), = found.activities
    assert [(one.name, one.ns / US) for one in said if one.cause == "host_slow"] == [("", 40), ("cudaLaunchKernel", 10)]


# --- against painting every µs ---------------------------------------------------------------------------------------------

def random_trace(seed: int) -> Trace:
    """Two GPUs, two threads, collectives and copies that overlap, waits, data loading, work without a call."""
    rng = np.random.default_rng(seed)
    lanes = []
    for process in range(2):
        at, host, streams = 0, [], {7: [], 8: [], 9: []}
        free = dict.fromkeys(streams, 0)
        for number in range(60):
            at += int(rng.integers(0, 20))
            kind = rng.choice(["launch", "launch", "launch", "wait", "load", "op"])
            length = int(rng.integers(1, 25))
            if kind == "wait":
                host.append(f"cudaDeviceSynchronize {at}-{at + length}")
            elif kind == "load":
                host.append(f"DataLoader.next {at}-{at + length}")
            elif kind == "op":
                host.append(f"aten::op{number % 5} {at}-{at + length}")
            else:
                corr = 1000 * process + number
                host.append(f"aten::mm {at}-{at + length + 2} | cudaLaunchKernel {at + 1}-{at + length} corr={corr}" if length > 2
                            else f"cudaLaunchKernel {at}-{at + length} corr={corr}")
                stream = int(rng.choice([7, 8, 9]))
                start = max(at + length // 2, free[stream]) + int(rng.integers(0, 8))
                free[stream] = start + int(rng.integers(1, 30))
                name = rng.choice(["gemm", "elementwise", "mystery", "ncclAllReduce", "Memcpy HtoD"])
                link = f" corr={corr}" if rng.random() < 0.9 else ""
                streams[stream].append(f"{name} {start}-{free[stream]}{link}")
                length += 2
            at += length
        lanes.append(f"p ({process}) / main: " + " | ".join(host))
        lanes += [f"GPU {process} / stream {stream}: " + " | ".join(rows) for stream, rows in streams.items() if rows]
    return trace("\n".join(lanes))


def painted(found: Trace, device: int) -> tuple[Counter[str], Counter[str], Counter[tuple[str, str]]]:
    """Parts, HTA's four and the host's activity of one GPU, by looking at each µs by itself (in µs)."""
    rows = found.slices.to_pylist()
    calls = launch_calls(found).tolist()
    work = [(row, calls[i]) for i, row in enumerate(rows) if row["category"] <= Category.MEMSET and row["device"] == device]
    begin, end = min(row["start_ns"] for row in rows), max(row["start_ns"] + row["dur_ns"] for row in rows)
    parts: Counter[str] = Counter()
    four: Counter[str] = Counter()
    doing: Counter[tuple[str, str]] = Counter()

    def on(row: dict[str, Any], t: int) -> bool:
        return bool(row["start_ns"] <= t < row["start_ns"] + row["dur_ns"])

    def kernel(row: dict[str, Any]) -> str:
        if row["dur_ns"] < 10_000:
            return "small"
        return {"gemm": "compute", "elementwise": "memory", "mystery": "unknown"}[row["name"]]

    for t in range(begin, end, US):
        running = [row for row, _ in work if on(row, t)]
        computing = [kernel(row) for row in running if row["category"] == Category.COMPUTE]
        if computing:
            parts[min(computing, key=["compute", "memory", "unknown", "small"].index)] += 1
            four["compute"] += 1
            continue
        if running:
            name = "communication" if any(row["category"] == Category.COMMUNICATION for row in running) else "transfers"
            parts[name] += 1
            four["communication" if name == "communication" else "memory"] += 1
            continue
        four["idle"] += 1
        started = max((row["start_ns"] + row["dur_ns"] for row, _ in work if row["start_ns"] + row["dur_ns"] <= t), default=None)
        coming = sorted((row["start_ns"], i) for i, (row, _) in enumerate(work) if row["start_ns"] > t)
        if started is None or not coming:
            parts["edges"] += 1
            cause, call = "edges", work[coming[0][1]][1] if coming else -1
        else:
            call = next((work[i][1] for _, i in coming), -1)
            if call < 0:
                parts["other"] += 1
                continue
            if t >= rows[call]["start_ns"] + rows[call]["dur_ns"]:
                parts["kernel_wait"] += 1
                continue
            mine = [row for row in rows if row["track"] == rows[call]["track"]]
            waiting = [row for row in mine if row["name"] == "cudaDeviceSynchronize"]
            if any(on(row, t) for row in mine if row["name"] == "DataLoader.next"):
                cause = "data_loading"
            elif any(on(row, t) or on(row, started) for row in waiting):
                cause = "synchronisation"
            else:
                cause = "host_slow"
            parts[cause] += 1
        if call >= 0:
            inside = [row for row in rows if row["track"] == rows[call]["track"] and on(row, t)]
            doing[cause, min(inside, key=lambda row: row["dur_ns"])["name"] if inside else ""] += 1
    return parts, four, doing


@pytest.mark.parametrize("seed", mostly_deep(range(6), "0", "1"))
def test_parts_are_those_of_every_microsecond(seed: int):
    made = random_trace(seed)
    found = TimeFacts(frame_of(made))
    for each in found.devices:
        parts, four, doing = painted(made, each.work.index)
        assert us(each.tiles.sums()) == dict(parts)
        said = us({part: each.work.exposed[part].length_ns for part in each.work.exposed})
        assert {**said, "idle": (found.wall_ns - each.work.busy.length_ns) / US} == dict(four)
        assert {(one.cause, one.name): one.ns / US for one in activity(found.frame, each.idle)} == dict(doing)
        start = np.arange(found.begin_ns, found.end_ns, 37 * US)
        window = each.tiles.within(start, np.minimum(start + 37 * US, found.end_ns))
        assert window.sum() == found.wall_ns and (window >= 0).all()
        assert dict(zip(PARTS, window.sum(axis=1).tolist(), strict=True)) == each.tiles.sums()


# --- steps, warm-up, phases ---------------------------------------------------------------------------------------------------

def repeated(count: int, period: int, first: int = 0, body: str = "", name: str = "", gap: int = 0, extra: str = "") -> str:
    """Kernels a b a c every `period` µs, in the last half of it."""
    kernels = [f"{kernel} {first + step * period + gap + offset}-{first + step * period + gap + offset + 10}"
               for step in range(count) for offset, kernel in ((0, "a"), (10, "b"), (20, "a"), (30, "c"))]
    marks = [f"{name.format(step)}@annotation {first + step * period}-{first + (step + 1) * period - 1}" for step in range(count)]
    return (f"p (1) / main: {' | '.join(marks) if name else 'python_main@python 0-1'}{extra}\n"
            f"GPU 0 / stream 7: {' | '.join(kernels)}{body}")


@pytest.mark.parametrize(("name", "source"), [
    ("ProfilerStep#{}", "marked"), ("iteration {}", "ranges"), ("train_step", "ranges"), ("## batch {} ##", "ranges")])
def test_marked_steps(name: str, source: str):
    found = facts(repeated(5, 100, name=name))
    assert found.marked.source == source
    assert [(step.span.name, step.span.start_ns, step.dur_ns, step.counted.counts) for step in found.steps] == [
        (name.format(i), i * 100_000, 99_000, True) for i in range(5)]
    assert all(sum(step.parts.values()) == step.dur_ns for step in found.steps)


def test_ranges_that_are_no_steps():
    """Layers of one step cover too little, forward is a phase, ranges of two threads or overlapping ones follow no order."""
    for marks in ("layer 0@annotation 0-5 | layer 1@annotation 50-55 | layer 2@annotation 390-395",
                  "## forward ##@annotation 0-99 | ## forward ##@annotation 100-199 | ## forward ##@annotation 200-299"):
        assert facts(repeated(5, 100, extra=" | " + marks)).marked.source == "detected"


def test_steps_are_detected_where_nothing_marks_them():
    """The longest wait stands before b of every second group: the step is a-c-a-b, and starts there."""
    found = facts(repeated(12, 100))
    assert found.marked.source == "detected" and "4 kernels" in found.marked.how
    assert [step.span.start_ns for step in found.steps] == [i * 100_000 for i in range(12)]
    assert {step.dur_ns for step in found.steps[:-1]} == {100_000}


def test_detection_passes_over_what_comes_before_and_after():
    """Five kernels of set-up and three of another kind at the end."""
    setup = " | ".join(f"init{i} {i}-{i + 1}" for i in range(5))
    found = facts(repeated(12, 100, first=1000, body=f" | {setup} | last1 3000-3010 | last2 3020-3030 | last3 3040-3050"))
    assert [step.span.start_ns for step in found.steps] == [1_000_000 + i * 100_000 for i in range(12)]


def test_a_layer_is_not_taken_for_a_step():
    """24 equal layers of 3 kernels and a head of 2: the step is 74 kernels long, not 3."""
    step = [1, 2, 3] * 24 + [8, 9]
    assert period_of(np.array(step * 10)) == 74
    assert period_of(np.array([1, 2, 3] * 40)) == 3
    rng = np.random.default_rng(1)
    assert period_of(rng.integers(0, 50, 3000)) == 0 and period_of(np.full(500, 7)) == 0 and period_of(np.arange(5)) == 0


def test_warm_up_and_compilation_are_shown_and_left_out():
    marks = ["ProfilerStep#0 0-900", "ProfilerStep#1 900-1500", "compile_fx@cpu_op 1000-1100"]
    marks += [f"ProfilerStep#{i} {1500 + (i - 2) * 100}-{1600 + (i - 2) * 100}" for i in range(2, 10)]
    marks += ["ProfilerStep#10 2300-2700", "ProfilerStep#11 2700-2800", "ProfilerStep#12 2800-2801"]
    kernels = [f"gemm {start}-{start + 50}" for start in (0, 1200, *range(1500, 2300, 100), 2350, 2700)]
    found = facts(f"p (1) / main: {' | '.join(marks)}\nGPU 0 / stream 7: {' | '.join(kernels)}")
    assert {step.span.name.split("#")[1]: step.counted.why for step in found.steps if not step.counted.counts} == {
        "0": "warm-up", "1": "compilation", "12": "no GPU work"}
    result = time_result(found.frame)
    steps = result.numbers["steps"]
    assert (steps["total"], steps["counted"], steps["mean_ns"]) == (13, 10, (9 * 100_000 + 400_000) / 10)
    assert steps["mean_parts_ns"]["compute"] == 50_000
    assert "10 steps" in result.answer and "left out" in result.answer
    assert len(next(table for table in result.tables if table.title == "Steps").rows) == 13
    assert {found.rule for found in result.findings} == {"warm_up", "slow_step"}
    slow = next(found for found in result.findings if found.rule == "slow_step")
    assert "`ProfilerStep#10` takes 4.0 times" in slow.title and slow.worth_ns == 300_000


def test_phases_and_their_gaps():
    """Backward's kernel is launched by autograd's thread, another by a thread that names nothing while main is in backward."""
    found = facts("""
        p (1) / main: ProfilerStep#0 0-300 | DataLoader.next 0-20 | aten::mm 20-40 | cudaLaunchKernel 25-30 corr=1
        | ## backward ##@annotation 100-180
        | Optimizer.step#SGD.step@annotation 200-260 | aten::add_ 205-230 | cudaLaunchKernel 210-220 corr=4
        p (1) / autograd: autograd::engine::evaluate_function: Mm 105-130 | cudaLaunchKernel 110-115 corr=2
        p (1) / helper: cudaLaunchKernel 140-145 corr=3
        GPU 0 / stream 7: gemm 40-70 corr=1 | gemm 120-140 corr=2 | ncclAllReduce 145-165 corr=3
        | foreach 240-250 corr=4 | Memcpy DtoD 260-270
    """)
    verdicts, host = found.phases
    assert {phase: us(one.parts) for phase, one in verdicts.items()} == {
        "data": {"data_loading": 20},
        "forward": {"compute": 30, "host_slow": 10, "kernel_wait": 10},
        "backward": {"compute": 20, "communication": 20, "host_slow": 45 + 5, "kernel_wait": 5},
        "optimizer": {"memory": 10, "host_slow": 55, "kernel_wait": 20},
        "none": {"transfers": 10, "other": 10, "edges": 30}}
    assert us(host) == {"data": 20, "backward": 80, "optimizer": 60}
    assert sum(sum(one.parts.values()) for one in verdicts.values()) == found.wall_ns


def test_gpu_time_of_ranges():
    """Nested, of one name within itself, crossing, and launched by a thread without ranges."""
    found = range_times(drawn("""
        p (1) / main: outer@annotation 0-100 | inner@annotation 10-50 | inner@annotation 20-40
        | cudaLaunchKernel 25-30 corr=1 | cudaLaunchKernel 60-65 corr=2 | idle@annotation 70-80
        | next@annotation 90-150 | cudaLaunchKernel 120-125 corr=4
        p (1) / worker: autograd::engine::x 44-50 | nccl@annotation 44-49 | cudaLaunchKernel 45-48 corr=3
        GPU 0 / stream 7: a 30-40 corr=1 | b 65-85 corr=2 | c 300-330 corr=3 | d 400-401 corr=4 | e 410-500
    """))
    assert [(one.name, one.ranges, one.host_ns / US, one.gpu_ns / US, one.projected_ns / US, one.launches) for one in found] == [
        ("outer", 1, 100, 60, 300, 3), ("inner", 2, 60, 40, 300, 2), ("nccl", 1, 5, 30, 30, 1),
        ("next", 1, 60, 1, 1, 1), ("idle", 1, 10, 0, 0, 0)]


def test_ranks_are_counted_apart():
    from profiles.analysis.trace.merge import merge

    one = trace("p (1) / main: ProfilerStep#0 0-100 | cudaLaunchKernel 5-10 corr=1\nGPU 0 / stream 7: gemm 20-60 corr=1", rank=0)
    two = trace("p (2) / main: ProfilerStep#0 0-100 | cudaLaunchKernel 5-10 corr=1\nGPU 0 / stream 7: gemm 20-90 corr=1", rank=1)
    found = TimeFacts(frame_of(merge([("a.json", one), ("b.json", two)])))
    assert [each.work.label for each in found.devices] == ["rank 0 · GPU 0 of its host", "rank 1 · GPU 0 of its host"]
    assert [(step.span.rank, step.parts["compute"]) for step in found.steps] == [("rank 0", 40_000), ("rank 1", 70_000)]
    assert found.whole[0].classes["compute"] == 110_000


# --- hostile input ---------------------------------------------------------------------------------------------------------

def many(rows: int, tracks: int) -> Trace:
    """Slices that all have another name, on many threads that all launch."""
    number = np.arange(rows)
    host = number % 2 == 0
    start = number * 100
    table = pa.table({
        "start_ns": start, "dur_ns": np.full(rows, 150), "category": np.where(
            host, Category.RUNTIME, np.where(number % 8 == 1, Category.ANNOTATION, Category.COMPUTE)).astype(np.int8),
        "name": pa.array([f"cask{'cask' * 20}{i} data_loader step {i}" for i in range(rows)]).dictionary_encode(),
        "track": np.where(host, number // 2 % tracks, tracks).astype(np.int32), "correlation": number // 2})
    columns = {field.name: table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(rows, field.type)
               for field in SLICES}
    columns["depth"] = pa.array(np.zeros(rows, np.int16)).cast(SLICES.field("depth").type)
    columns["instant"] = pa.array(np.zeros(rows, np.bool_))
    columns["device"] = pa.array(np.zeros(rows, np.int32)).cast(SLICES.field("device").type)
    lanes = [Track("thread", f"t{i}", "p", pid="1", tid=str(i)) for i in range(tracks)]
    return Trace("kineto", pa.table(columns, SLICES), [*lanes, Track("stream", "stream 7", "GPU 0", device=0, stream=7)],
                 [Device(0, "Test GPU")], Integrity())


@pytest.mark.slow
def test_many_names_and_threads_stay_bounded():
    result = time_result(frame_of(many(24_000, 2_500)))
    assert result.applies and sum(result.numbers["devices"][0]["parts_ns"].values()) == result.numbers["wall_ns"]
    assert len(json.dumps({"numbers": result.numbers, "tables": [table.rows for table in result.tables]})) < 2_000_000
    assert all(len(table.rows) <= 2_000 for table in result.tables)


@pytest.mark.parametrize("text", [
    "GPU 0 / stream 7: a 0-0", "GPU 0 / stream 7: a 5 | b 5-5",
    "p (1) / main: cudaLaunchKernel 50-60 corr=1\nGPU 0 / stream 7: a 0-10 corr=1",
    "p (1) / main: ProfilerStep#0 0-0 | ProfilerStep#0 0-0 | ProfilerStep#7 5-10\nGPU 0 / stream 7: Memset 0-1",
    "p (1) / main: ProfilerStep#0 0 | ProfilerStep#1 20-20 | ProfilerStep#2 40-40\nGPU 0 / stream 7: a 0-5 | a 20-30 | a 40-50",
    "p (1) / main: step 1@annotation 0-5 | step 2@annotation 3-9 | step 3@annotation 9-12\n"
    "GPU 0 / stream 7: ncclX 0-10 | gemm 3-4"])
def test_odd_traces(text: str):
    """No duration, a launch after its kernel, steps without length or that overlap."""
    frame = frame_of(trace(text))
    result = time_result(frame)
    for device in result.numbers.get("devices", ()):
        assert sum(device["parts_ns"].values()) == device["wall_ns"] and min(device["parts_ns"].values()) >= 0
    if result.applies:
        steps = result.numbers["steps"]["rows"]
        assert (steps_figure(result.numbers) is not None) == (len(steps) > 1 and any(row["dur_ns"] for row in steps))


# --- causes that were put there (tests/data/causes/README.md) ---------------------------------------------------------------

def test_a_slow_loader_is_found_and_measured():
    """5 steps that each wait 12 ms and more for a batch; nothing marks the steps but the optimizer."""
    result = time_result(recording(CAUSES / "data_loading.json.gz"))
    steps = result.numbers["steps"]
    assert (steps["total"], steps["counted"]) == (5, 5)
    assert all(12e6 <= step["parts_ns"]["data_loading"] <= step["dur_ns"] for step in steps["rows"])
    assert all(step["bound"] == "overhead" for step in steps["rows"])
    assert result.findings[0].rule == "data_loading" and result.findings[0].severity == "high"
    data = next(phase for phase in result.numbers["phases"] if phase["phase"] == "data")
    assert data["parts_ns"]["data_loading"] >= 60e6 and data["total_ns"] > 0.8 * result.numbers["wall_ns"]


def test_compilation_is_left_out_of_averages():
    """7 steps: torch.compile works in the first (seconds), the second still warms up, the others take some 2 ms."""
    result = time_result(recording(CAUSES / "compile_warmup.json.gz"))
    steps = result.numbers["steps"]
    assert [step["counts"] for step in steps["rows"]] == [False, False, True, True, True, True, True]
    assert steps["rows"][0]["why"] == "compilation" and steps["rows"][0]["dur_ns"] > 1e9
    evidence = result.numbers["evidence"]
    assert evidence["host"]["host_slow"] and not any("compile" in one["name"] for one in evidence["host"]["host_slow"])
    assert steps["max_ns"] < 3e6 and steps["mean_ns"] == np.mean([step["dur_ns"] for step in steps["rows"][2:]])


def test_serial_copies_are_exposed_and_their_eight_rounds_found():
    result = time_result(recording(CAUSES / "serial_copies.json.gz"))
    assert result.numbers["steps"]["total"] == 8 and "10 kernels and copies" in result.numbers["steps"]["how"]
    assert [found.rule for found in result.findings] == ["exposed_transfers"]
    device, = result.numbers["devices"]
    assert device["memory_overlapped_ns"] == 0


def test_evidence_is_of_the_time_that_counts():
    """Over all names it adds up to the parts of the classes; over all time to those of the GPU."""
    found = TimeFacts(recording(CAUSES / "compile_warmup.json.gz"))
    (device, said), = found.activities
    parts, counted = device.tiles.sums(), found.whole[0].parts
    for cause in ("host_slow", "synchronisation", "data_loading"):
        assert sum(one.ns for one in said if one.cause == cause) == parts[cause]
        assert sum(one.counted_ns for one in said if one.cause == cause) == counted[cause]
    assert parts["host_slow"] > 100 * counted["host_slow"] > 0
    for regime in ("compute", "memory"):
        ns = sum(kernel.counted_ns for kernel in found.kernels if kernel.regime == regime)
        assert ns == pytest.approx(counted[regime], rel=0.02)            # a kernel that crosses the end of a step counts in both


@pytest.mark.parametrize(("name", "part"), [
    ("straggler_data_rank0", "data_loading"), ("straggler_data_rank1", "communication"),
    ("straggler_compute_rank0", "communication"), ("straggler_compute_rank1", "compute")])
def test_stragglers_differ_in_what_takes_their_time(name: str, part: str):
    """Rank 0 sleeps 8 ms in a data loader (or rank 1 computes more), and the other rank waits for it in its collectives."""
    numbers = time_result(recording(CAUSES / f"{name}.json.gz")).numbers
    parts = numbers["classes"]["parts_ns"]
    assert max(parts, key=lambda key: parts[key]) == part and numbers["steps"]["total"] == 5
    if part == "data_loading":
        assert all(step["parts_ns"][part] >= 7.5e6 for step in numbers["steps"]["rows"])


# --- what limits a kernel -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("name", "regime"), [
    ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", "compute"),
    ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "compute"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "memory"),
    ("void gemv2T_kernel_val<int, int, __nv_bfloat16>", "memory"), ("Cijk_Alik_Bljk_BBS_BH_MT128x128x32", "compute"),
    ("void cublasLt::splitKreduce_kernel<32, 16>", "memory"), ("triton_poi_fused_add_0", "memory"),
    ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>", "compute"),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<adam>", "memory"),
    ("void at::native::layer_norm_grad_input_kernel<float>", "memory"), ("jacobi", "unknown"), ("", "unknown"),
    ("void split_embedding_codegen_forward_kernel<float>(fbgemm_gpu::PackedTensorAccessor<float>, int)", "memory"),
    # named after the operators that read what they write
    ("triton_poi_fused__scaled_dot_product_cudnn_attention__to_copy_clone_expand_6", "memory"),
    ("triton_poi_fused_convolution_relu_3", "memory"), ("triton_red_fused__scaled_dot_product_flash_attention_sum_2", "memory"),
    ("triton_per_fused_convolution_mean_9", "memory"), ("triton_tem_fused_convolution_1", "compute"),
    ("triton_tem_fused_flex_attention_0", "compute")])
def test_regimes_told_from_names(name: str, regime: str):
    assert kind_of(name)[1] == regime


def test_shapes_decide_for_matrix_products():
    """4096³ in bf16 has 1365 FLOP per byte, a product with 16 rows 16: the H200's ridge is at 989.4 T / 4.8 T = 206."""
    square = intensity("aten::mm", [[4096, 4096], [4096, 4096]], ["c10::BFloat16"] * 2)
    thin = intensity("aten::addmm", [[4096], [16, 4096], [4096, 4096], [], []], ["c10::BFloat16"] * 3 + ["Scalar"] * 2)
    assert square is not None and thin is not None
    assert square[0] == pytest.approx(4096 / 3) and thin[0] == pytest.approx(2 * 16 * 4096 / (2 * (16 + 4096 + 16)))
    assert ridge("NVIDIA H200", "c10::BFloat16") == pytest.approx(989.4 / 4.8)
    assert ridge("some GPU", "c10::BFloat16") is None and intensity("aten::mm", [[3, 4], [5, 6]], ["float"] * 2) is None
    for dims in ([], [[-1, 2], [2, 3]], [["x", 2], [2, 3]], "nonsense", [[1, 2, 3], None]):
        assert intensity("aten::mm", dims, ["float", "float"]) is None


# --- recordings -----------------------------------------------------------------------------------------------------------------

def recording(path: Any) -> Frame:
    found = ingest.read(path)
    assert isinstance(found, Trace)
    return frame_of(found)


def test_data_loading_of_resnet50_without_workers():
    """tb_plugin's own sample of a DataLoader without workers. Recomputed here: the µs of each gap that lie in a slice of
    DataLoader, until the call had returned that launched what ends the gap."""
    frame = recording(CORPUS / "kineto" / "kineto_tbplugin_resnet50_v100_1623143089861.pt.trace.json.gz")
    found = TimeFacts(frame)
    device, = found.devices
    loading = np.zeros((found.end_ns - found.begin_ns) // US, np.bool_)            # the file's times are whole µs
    for row in frame.of(Category.CPU_OP).tolist():
        if frame.text(row).startswith("enumerate(DataLoader)"):
            loading[(int(frame["start_ns"][row]) - found.begin_ns) // US:(int(frame.end_ns[row]) - found.begin_ns) // US] = True
    waited, idle_since = 0, 0
    for row in frame.work.tolist():                         # in order of start, on one stream
        begin = (int(frame["start_ns"][row]) - found.begin_ns) // US
        launched = (int(frame.end_ns[frame.call[row]]) - found.begin_ns) // US
        waited += int(loading[idle_since:min(begin, launched)].sum()) if idle_since < min(begin, launched) else 0
        idle_since = max(idle_since, (int(frame.end_ns[row]) - found.begin_ns) // US)
    assert device.tiles.sums()["data_loading"] / US == waited > 300_000
    result = time_result(frame)
    assert result.numbers["classes"]["bound"] == "overhead" and result.findings[0].rule == "data_loading"
    assert "enumerate(DataLoader)" in result.findings[0].title and result.findings[0].severity == "high"


def test_ranges_beside_nsys():
    """`nsys stats -r nvtx_gpu_proj_sum` of the same capture: projected time and the ranges' own, exactly."""
    found = {one.name: one for one in range_times(recording(H200 / "nsys" / "node.sqlite.gz"))}
    rows = list(csv.DictReader((H200 / "nsys" / "node_nvtx_gpu_proj_sum.csv").open()))
    assert len(rows) == 6
    for row in rows:
        ours = found[row["Range"].removeprefix(":")]
        said = [int(row[name]) for name in ("Total Proj Time (ns)", "Range Instances", "Total Range Time (ns)")]
        assert [ours.projected_ns, ours.ranges, ours.host_ns] == said, row
        assert ours.launches >= int(row["Total GPU Ops"])               # a graph is one there, its nodes are launches here


def test_training_on_an_h200_is_held_back_by_its_host():
    result = time_result(recording(H200 / "kineto_train.json.gz"))
    assert result.answer.startswith("Overhead holds the GPU back: 79 % of its time; memory 19 %, compute 1.3 %.")
    device, = result.numbers["devices"]
    assert sum(device["parts_ns"].values()) == device["wall_ns"] == 37_396_352
    assert {phase["phase"] for phase in result.numbers["phases"]} >= {"forward", "backward", "optimizer"}
    optimizer = next(phase for phase in result.numbers["phases"] if phase["phase"] == "optimizer")
    assert optimizer["bound"] == "memory" and optimizer["host_ns"] > 0
