"""Memory: allocations paired with frees, categories by lifetime, the peak and what makes it, against what programs know."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.analysis.core.result import Result
from profiles.analysis.trace.memory.categories import KEYS, NAMES, POINTS, Phases, allocations_of, moments
from profiles.analysis.trace.memory.events import counters_of, device_memories
from profiles.analysis.trace.memory.result import memory_result
from profiles.analysis.trace.merge import merge
from profiles.ingest.trace import Trace
from profiles.models import Profile
from profiles.store.frame import frame_read
from profiles.store.trace import prepare
from tests.builders import trace
from tests.profiles.ingest.corpus import CORPUS, DATA

KB = 1024


def recorded(path: Path) -> Frame:
    found = ingest.read(path)
    assert isinstance(found, Trace)
    return frame_of(found)


def table(result: Result, title: str) -> list[dict[str, Any]]:
    found = next(each for each in result.tables if each.title == title)
    return [dict(zip([column.name for column in found.columns], row, strict=True)) for row in found.rows]


def with_marks(text: str, marks: list[tuple[float, int, int]], track: int = 0, device: int | None = 0) -> Trace:
    """A drawn trace with `[memory]` marks: (µs, KiB, address)."""
    drawn = trace(text + "".join(f"\n    x{at} / {i}: [memory] {at}" for i, (at, _, _) in enumerate(marks)))
    rows = drawn.slices.to_pylist()
    said = {}
    for at, size, address in marks:
        said.setdefault(round(at * 1000), []).append((size * KB, address))
    for row in rows:
        if row["name"] == "[memory]":
            size, address = said[row["start_ns"]].pop(0)
            row |= {"bytes": size, "external_id": address, "device": device, "track": track,
                    "depth": max((other["depth"] for other in rows if other["track"] == track and not other["instant"]
                                  and other["start_ns"] <= row["start_ns"] <= other["start_ns"] + other["dur_ns"]), default=0)}
    return Trace(drawn.format, pa.Table.from_pylist(rows, drawn.slices.schema), drawn.tracks[:8], drawn.devices, drawn.integrity,
                 samples=drawn.samples)


NODE = "autograd::engine::evaluate_function: LinearBackward0"
STEP = "    python (1) / main:   " + " | ".join((
    "forward@annotation 10-30", "aten::linear 12-20", "aten::relu 22-28", f"{NODE} 40-60",
    "Optimizer.step#Adam.step@annotation 70-90",
    "forward@annotation 110-130", f"{NODE} 140-160", "Optimizer.step#Adam.step@annotation 170-190"))
MARKS = [(5, 100, 1),                         # a parameter: before the first step, still there after the last phase
         (13, 8, 2), (19, -8, 2),             # temporary: freed within aten::linear
         (14, 64, 3), (50, -64, 3),           # an activation: from forward to backward
         (23, 16, 4), (29, -16, 4),           # temporary: freed within the same forward
         (45, 32, 5), (175, -32, 5),          # a gradient
         (46, 4, 6), (55, -4, 6),             # temporary: within the same backward
         (75, 200, 7),                        # optimizer state
         (76, 2, 8), (85, -2, 8),             # temporary: within the optimizer step
         (105, 10, 9), (115, -10, 9),         # an input: allocated outside of phases, freed in forward
         (120, 1, 3), (150, -1, 3)]           # the address again: another activation


def test_every_category_of_a_drawn_step() -> None:
    frame = frame_of(with_marks(STEP, MARKS))
    held, = device_memories(frame, counters_of(frame))
    made = allocations_of(frame, held, Phases(frame))
    got = [(int(size) // KB, KEYS[kind], NAMES[phase], made.sites[site]) for size, kind, phase, site in zip(
        held.bytes.tolist(), made.category.tolist(), made.phase.tolist(), made.site.tolist(), strict=True)]
    linear, backward, adam = "aten::linear", NODE, "Optimizer.step#Adam.step"
    assert got == [
        (100, "kept", "none", "not recorded"), (8, "temporary", "forward", linear), (64, "activations", "forward", linear),
        (16, "temporary", "forward", "aten::relu"), (32, "gradients", "backward", backward), (4, "temporary", "backward", backward),
        (200, "optimizer", "optimizer", adam), (2, "temporary", "optimizer", adam), (10, "other", "none", "not recorded"),
        (1, "activations", "forward", "forward")]


def test_the_peak_is_exact_and_its_parts_add_up() -> None:
    """After 105 µs: 100 parameter + 32 gradient + 200 state + 10 input; at 120 one activation instead of the input."""
    result = memory_result(frame_of(with_marks(STEP, MARKS)))
    device, = result.numbers["devices"]
    assert (device["peak_bytes"], device["peak_ns"]) == (342 * KB, 105_000)
    assert device["parts_bytes"] == {"kept": 100 * KB, "optimizer": 200 * KB, "gradients": 32 * KB, "other": 10 * KB}
    rows = table(result, "What makes the peak")
    assert sum(row["Bytes"] for row in rows) == 342 * KB and rows[0]["Bytes"] == 200 * KB
    assert sum(row["Share"] for row in rows) == pytest.approx(100)
    largest = table(result, "Largest allocations at the peak")
    assert [row["Bytes"] // KB for row in largest] == [200, 100, 32, 10]
    assert [row["Freed at"] for row in largest] == [None, None, 175_000, 115_000]
    assert result.answer.startswith("GPU 0 has 350 kB allocated at the peak, 105 µs into the trace: 58 % optimizer state")
    series = device["series"]
    at = dict(zip(series["time_ns"], zip(*series["parts"].values(), strict=True), strict=True))
    for time_ns, total in zip(series["time_ns"], series["total_bytes"], strict=True):
        assert sum(at[time_ns]) == total, time_ns


def test_what_was_there_before_the_recording_follows_from_the_allocators_count() -> None:
    """The counter says 500 KiB after the first event (100 KiB): 400 were there; one block of them is freed in the trace."""
    text = f"    python (1) / main: aten::add 0-9\n    GPU 0 / memory allocated (GPU): counter 5={500 * KB} 6={350 * KB}"
    drawn = with_marks(text, [(5, 100, 1), (6, -150, 77)], track=0)
    drawn.tracks[1] = drawn.tracks[1].__class__(**{**drawn.tracks[1].__dict__, "device": 0})
    frame = frame_of(drawn)
    held, = device_memories(frame, counters_of(frame))
    assert (held.baseline, held.baseline_known, held.level.tolist()) == (400 * KB, True, [500 * KB, 350 * KB])
    without = frame_of(with_marks("    python (1) / main: aten::add 0-9", [(5, 100, 1), (6, -150, 77)]))
    held, = device_memories(without, counters_of(without))
    assert (held.baseline, held.baseline_known) == (150 * KB, False)       # at least what was freed
    assert "this is at least" in memory_result(without).answer


@pytest.mark.parametrize("stated", ["1e300", "-7", "nan", "inf", "0"])
def test_impossible_counts_of_the_allocator_break_nothing(stated: str) -> None:
    text = ("    python (1) / main: aten::add 0-9\n"
            f"    GPU 0 / memory allocated (GPU): counter 5={stated}\n    GPU 0 / memory reserved (GPU): counter 5={stated}")
    drawn = with_marks(text, [(5, 100, 1), (6, -150, 77), (7, -(2**30), 5)], track=0)
    drawn.tracks[1:3] = [track.__class__(**{**track.__dict__, "device": 0}) for track in drawn.tracks[1:3]]
    result = memory_result(frame_of(drawn))
    assert result.applies and result.numbers["devices"][0]["peak_bytes"] >= 0 and json.dumps(result.numbers)


def test_more_in_use_than_the_allocator_holds_is_no_unused_memory(tmp_path: Path) -> None:
    """A file that ends early has the allocations of one thread and not the frees of another."""
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes((DATA / "captured" / "layer_trace.json.gz").read_bytes()[:50_000])
    result = memory_result(recorded(cut))
    assert "less: the trace lacks frees, and the peak is at most this" in result.answer and "unused" not in result.answer
    row = table(result, "Memory of each GPU")[0]
    assert row["Peak allocated"] > row["Peak reserved"] and row["Unused at the peak"] is None


def test_a_lost_free_ends_with_the_next_allocation_of_its_address() -> None:
    frame = frame_of(with_marks("    python (1) / main: aten::add 0-90", [(5, 4, 1), (20, 8, 1), (30, -8, 1), (40, -2, 9)]))
    held, = device_memories(frame, counters_of(frame))
    assert [(int(held.time_ns[a]), int(held.time_ns[b])) for a, b in zip(held.began, held.ended, strict=True)] == [
        (5000, 20_000), (20_000, 30_000)]


def test_growth_with_every_step_is_found_and_a_steady_loop_is_not() -> None:
    def steps(leak: int) -> Result:
        text, marks = [], []
        for i in range(6):
            begin = 100 * i
            text.append(f"Optimizer.step#SGD.step@annotation {begin + 50}-{begin + 60}")
            marks += [(begin + 10, 50, 1000 + i), (begin + 70, -50, 1000 + i)]
            marks += [(begin + 20, leak, 2000 + i)] if leak else []
        return memory_result(frame_of(with_marks("    python (1) / main: " + " | ".join(text), marks)))

    found, = [each for each in steps(8).findings if each.rule == "memory_grows"]
    assert found.numbers == {"growth_bytes": 4 * 8 * KB, "steps": 5, "per_step_bytes": 8 * KB}
    assert not [each for each in steps(0).findings if each.rule == "memory_grows"]


TRAIN = [DATA / "ranks" / "memory_train.json.gz", DATA / "ranks" / "memory_train_snapshot.pickle"]


@pytest.mark.parametrize("path", TRAIN, ids=["profiler", "snapshot"])
def test_categories_are_the_programs_own_sizes(path: Path) -> None:
    """Parameters, gradients, optimizer state and what autograd saved, to the byte, from both kinds of recording."""
    truth = json.loads(path.with_name(path.name.split(".")[0] + "_truth.json").read_text())
    frame = recorded(path)
    held = device_memories(frame, counters_of(frame))[0]
    made = allocations_of(frame, held, Phases(frame))
    most = {}
    for number, key in enumerate(KEYS):
        change = np.zeros(held.rows.size, np.int64)
        mine = made.category == number
        np.add.at(change, held.began[mine], held.bytes[mine])
        freed = mine & (held.ended >= 0)
        np.subtract.at(change, held.ended[freed], held.bytes[freed])
        most[key] = int(np.cumsum(change).max())
    assert most["kept"] == truth["parameter_bytes"]
    assert most["gradients"] == truth["gradient_bytes"]
    assert most["optimizer"] == truth["optimizer_state_bytes"]
    assert most["activations"] == truth["saved_for_backward_bytes"] - truth["input_bytes"]       # the input is the program's own
    assert held.baseline == truth["allocated_before_bytes"] and held.level.max() == truth["peak_bytes"]
    result = memory_result(frame)
    device = result.numbers["devices"][0]
    assert device["peak_bytes"] == truth["peak_bytes"] == sum(device["parts_bytes"].values())
    assert table(result, "Memory of each GPU")[0]["Peak reserved"] == truth["peak_reserved_bytes"]
    assert sum(row["Bytes"] for row in table(result, "What makes the peak") if row["Memory of"] == "GPU 0") == truth["peak_bytes"]


@pytest.mark.parametrize(("name", "truth"), [("causes/memory_peak.json.gz", "causes/memory_peak_truth.json"),
                                             ("recorded/torch_snapshot.pickle", "recorded/torch_snapshot_truth.json")])
def test_peaks_are_the_allocators(name: str, truth: str) -> None:
    stated = json.loads((DATA / truth).read_text())
    result = memory_result(recorded(DATA / name))
    row = table(result, "Memory of each GPU")[0]
    assert row["Peak allocated"] == stated["allocated_bytes.all.peak"]
    assert row["Peak reserved"] == stated["reserved_bytes.all.peak"] and row["At the end"] == stated["allocated_bytes.all.current"]


def test_the_state_at_a_snapshots_end_says_what_is_stuck() -> None:
    """Recomputed from the snapshot itself: unused blocks in segments of which something is in use."""
    snapshot = pickle.loads((DATA / "recorded" / "torch_snapshot.pickle").read_bytes())       # noqa: S301  our own recording
    unused, stuck, most = 0, 0, 0
    for segment in snapshot["segments"]:
        free = [block["size"] for block in segment["blocks"] if block["state"] == "inactive"]
        unused, most = unused + sum(free), max([most, *free])
        stuck += sum(free) if len(free) < len(segment["blocks"]) else 0
    row, = table(memory_result(recorded(DATA / "recorded" / "torch_snapshot.pickle")), "The allocator at the end")
    assert (row["Unused"], row["Beside blocks in use"], row["Largest unused block"]) == (unused, stuck, most)
    assert row["Fragmentation"] == pytest.approx(100 * (1 - most / unused)) and row["Segments"] == len(snapshot["segments"])


def test_rocm_and_merged_ranks_are_gpus_of_their_own() -> None:
    result = memory_result(recorded(CORPUS / "kineto" / "tracelens_mi300_qwen1.5-0.5b.json.gz"))
    assert [row["Memory of"] for row in table(result, "Memory of each GPU")] == ["GPU 0", "the host"]
    path = DATA / "recorded" / "torch_graph_stack_memory.json.gz"
    found = [ingest.read(path), ingest.read(path)]
    assert all(isinstance(each, Trace) for each in found)
    for rank, each in enumerate(found):
        each.rank = rank
    both = memory_result(frame_of(merge([(f"{rank}.json", each) for rank, each in enumerate(found)])))
    alone = memory_result(frame_of(found[0]))
    assert [each["label"] for each in both.numbers["devices"] if each["device"] >= 0] == ["rank 0", "rank 1"]
    assert {each["peak_bytes"] for each in both.numbers["devices"] if each["device"] >= 0} == {
        alone.numbers["devices"][0]["peak_bytes"]}


def test_counters_alone_and_copies_alone() -> None:
    result = memory_result(recorded(CORPUS / "perfetto" / "jacc_mi_rocprofv3_3648722_results.pftrace"))
    assert "by whom was not recorded" in result.answer and result.numbers["devices"][0]["parts_bytes"].keys() == {"unknown"}
    drawn = trace("GPU 0 / stream 7: gemm 0-10 | Memcpy HtoD (Pageable -> Device) 10-30 bytes=2000000 | "
                  "Memset (Device) 40-41 bytes=10")
    result = memory_result(frame_of(drawn))
    copy, sets = table(result, "Copies and sets")
    assert (copy["Count"], copy["Bytes"], copy["Time"], copy["Rate"]) == (1, 2_000_000, 20_000, pytest.approx(1e11))
    assert copy["Share of wall time"] == pytest.approx(100 * 20 / 41) and sets["Bytes"] == 10
    assert "not recorded" in result.answer and not result.findings


def test_a_picture_of_many_events_keeps_the_peak_and_the_end() -> None:
    rng = np.random.default_rng(3)
    level = np.cumsum(rng.integers(-5, 6, 100_000)) + 10_000
    time_ns = np.sort(rng.integers(0, 10**9, 100_000))
    at = moments(level, time_ns)
    assert at.size <= 2 * POINTS + 2 and level[at].max() == level.max() and at[-1] == 99_999 and at[0] == 0


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["recorded/torch_snapshot.pickle", "recorded/torch_graph_stack_memory.json.gz"])
def test_a_stored_trace_says_the_same(name: str) -> None:
    found = ingest.read(DATA / name)
    assert isinstance(found, Trace)
    profile = Profile.objects.create(name="stored", status=Profile.Status.READY, metadata=found.metadata, summary={
        "devices": [{"index": device.index, "name": device.name} for device in found.devices]})
    prepare(found).write(profile.pk)
    read, stored = memory_result(frame_of(found)), memory_result(frame_read(profile))
    assert stored.answer == read.answer
    for one, other in zip(read.numbers["devices"], stored.numbers["devices"], strict=True):
        assert one["parts_bytes"] == other["parts_bytes"] and one["series"] == other["series"]
    assert [each.title for each in read.tables] == [each.title for each in stored.tables]
