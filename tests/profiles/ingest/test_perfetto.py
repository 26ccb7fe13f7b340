"""Perfetto protobuf: the truth of a rocprofv3 recording, and traces written here packet by packet."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.ingest import is_known, read
from profiles.ingest.core.source import Source
from profiles.ingest.perfetto import reader
from profiles.ingest.perfetto.packets import MAX_PACKET_BYTES, Annotation, Trace, TracePacket
from profiles.ingest.trace import Category, TraceError
from tests.profiles.ingest.corpus import CORPUS

JACC = CORPUS / "perfetto" / "jacc_mi_rocprofv3_3648722_results.pftrace"
CLEARED, NEEDED = 1, 2


def packet(sequence: int = 1, flags: int = 0, **fields: Any) -> Any:
    return TracePacket(trusted_packet_sequence_id=sequence, sequence_flags=flags, **fields)


def event(kind: int, track: int, time: int, sequence: int = 1, flags: int = 0, clock: int = 0, **fields: Any) -> Any:
    made = packet(sequence, flags, timestamp=time, track_event={"type": kind, "track_uuid": track, **fields})
    if clock:
        made.timestamp_clock_id = clock
    return made


def thread(uuid: int, name: bytes = b"main", pid: int = 10, tid: int = 11, parent: int = 0) -> Any:
    described = {"pid": pid, "tid": tid, "thread_name": name}
    return packet(track_descriptor={"uuid": uuid, "parent_uuid": parent, "thread": described})


def load(tmp_path, *packets: Any, data: bytes | None = None) -> Any:
    path = tmp_path / "trace.pftrace"
    path.write_bytes(Trace(packet=packets).SerializeToString() if data is None else data)
    found = read(path)
    assert found.integrity.records_read == found.integrity.records_kept + sum(found.integrity.not_kept.values())
    return found


def rows(trace, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[c] for c in columns) for row in trace.slices.to_pylist()]


def track_names(trace) -> list[tuple[str, str, str]]:
    return [(track.kind, track.group, track.name) for track in trace.tracks]


def test_the_truth_of_a_rocprofv3_recording():
    trace = read(JACC)
    slices = trace.slices.to_pylist()
    kernels = [row for row in slices if row["category"] == Category.COMPUTE]
    assert (len(slices), len(kernels), sum(row["dur_ns"] for row in kernels)) == (2660, 15, 194_762)
    assert sum(row["category"] == Category.RUNTIME for row in slices) == 1520 + 1125
    by_name: dict[str, list[int]] = {}
    for row in kernels:
        by_name.setdefault(row["name"], []).append(row["dur_ns"])
    top = sorted(((name[:23], len(times), sum(times)) for name, times in by_name.items()), key=lambda each: -each[2])
    assert top == [
        ("_parallel_reduce_amdgpu", 2, 81282), ("_reduce_kernel_amdgpu(I", 2, 37640), ("gpu_fill_kernel_(Compil", 5, 34760),
        ("gpu_broadcast_kernel_li", 2, 28640), ("__amd_rocclr_copyBuffer", 4, 12440)]
    integrity = trace.integrity
    assert (integrity.records_read, integrity.records_kept, integrity.not_kept, integrity.truncated_at) == (5441, 5441, {}, None)
    assert trace.base_ns is not None and trace.base_ns // 10**9 == 1785256386
    calls = {row["correlation"]: row["name"] for row in slices if row["category"] == Category.RUNTIME}
    assert {calls[row["correlation"]] for row in kernels} == {"hipModuleLaunchKernel", "hipMemcpyWithStream"}
    first = kernels[0]
    assert [first[key] for key in ("device", "stream", "grid_x", "block_x", "registers_per_thread")] == [4, 1, 977, 1024, 8]
    assert trace.samples.num_rows == 32
    assert ("stream", "GPU 4", "STREAM 1") in track_names(trace)
    assert ("thread", "julia (3648722)", "julia (3648722)") in track_names(trace)
    counter = next(i for i, track in enumerate(trace.tracks) if track.name == "ALLOCATE BYTES on Agent [4] (GPU)")
    values = [row["value"] for row in trace.samples.to_pylist() if row["track"] == counter]
    assert trace.tracks[counter].unit == "bytes" and max(values) % 1024 == 0 and max(values) > 8e6


def test_a_recording_cut_in_the_middle_of_a_packet():
    trace = read(CORPUS / "broken" / "jacc_truncated.pftrace")
    assert trace.slices.num_rows == 1279 and trace.integrity.not_kept == {"cut off at the end of the file": 1}
    assert trace.integrity.truncated_at == "byte 199979" and trace.integrity.records_read == 2640


def test_slices_nest_by_time_and_not_by_the_order_of_the_file(tmp_path):
    trace = load(tmp_path, thread(1), event(1, 1, 100, name=b"outer"), event(2, 1, 900), event(1, 1, 200, name=b"inner"),
                 event(2, 1, 300), event(3, 1, 250, name=b"mark"), event(2, 1, 50), event(1, 1, 950, name=b"open"))
    assert [row for row in rows(trace, "name", "start_ns", "dur_ns", "depth") if row[0] != "mark"] == [
        ("outer", 0, 800, 0), ("inner", 100, 100, 1), ("open", 850, 0, 0)]
    assert ("mark", 150, 0, True) in rows(trace, "name", "start_ns", "dur_ns", "instant")
    assert trace.integrity.not_kept == {"end of a slice without its begin": 1}
    assert sum(trace.integrity.repaired.values()) == 1


def interned(*names: tuple[int, bytes], **fields: Any) -> dict[str, Any]:
    return {"event_names": [{"iid": iid, "name": name} for iid, name in names], **fields}


def test_interned_names_belong_to_their_sequence_and_are_cleared(tmp_path):
    trace = load(
        tmp_path, packet(2, NEEDED, timestamp=1, track_event={"type": 3, "track_uuid": 9, "name_iid": 1}),
        packet(1, CLEARED, interned_data=interned((1, b"one")),
               trace_packet_defaults={"track_event_defaults": {"track_uuid": 7}}),
        packet(2, CLEARED, interned_data=interned((1, b"other"))),
        packet(1, NEEDED, timestamp=10, track_event={"type": 3, "name_iid": 1}),
        event(3, 9, 20, 2, NEEDED, name_iid=1),
        packet(1, CLEARED), event(3, 7, 30, 1, NEEDED, name_iid=1),
        packet(2, NEEDED, previous_packet_dropped=1, timestamp=40, track_event={"type": 3, "track_uuid": 9, "name_iid": 1}))
    assert rows(trace, "name", "start_ns") == [("one", 0), ("other", 10), ("(no name)", 20)]
    assert trace.integrity.not_kept == {"packet that refers to names and times which the file lost before it": 2}
    assert trace.integrity.repaired == {"names whose text the file does not hold any more": 1}
    assert len({row["track"] for row in trace.slices.to_pylist()}) == 2


def test_clocks_are_converted_and_incremental_ones_summed(tmp_path):
    snapshot = {"clocks": [{"clock_id": 6, "timestamp": 1000}, {"clock_id": 3, "timestamp": 400},
                           {"clock_id": 64, "timestamp": 2, "is_incremental": True, "unit_multiplier_ns": 500},
                           {"clock_id": 1, "timestamp": 10**18 + 1000}]}
    started = packet(1, CLEARED, clock_snapshot=snapshot, trace_packet_defaults={"timestamp_clock_id": 64})
    trace = load(tmp_path, started,
                 event(3, 1, 1, flags=NEEDED, name=b"a"), event(3, 1, 2, flags=NEEDED, name=b"b"),
                 event(3, 1, 400, clock=3, name=b"c"), event(3, 1, 5000, clock=6, name=b"d"),
                 event(3, 1, 7000, clock=77, name=b"e"))
    assert rows(trace, "name", "start_ns") == [("c", 0), ("a", 500), ("b", 1500), ("d", 4000), ("e", 6000)]
    assert trace.base_ns == 10**18 + 1000
    assert list(trace.integrity.repaired.values()) == [1] and "77" in next(iter(trace.integrity.repaired))


def test_tracks_form_a_tree_in_the_order_that_is_asked_for(tmp_path):
    process = packet(track_descriptor={"uuid": 1, "process": {"pid": 10, "process_name": b"app"}, "child_ordering": 3})

    def child(uuid: int, name: bytes, rank: int, parent: int = 1) -> Any:
        return packet(track_descriptor={"uuid": uuid, "parent_uuid": parent, "name": name, "sibling_order_rank": rank})
    trace = load(tmp_path, process, child(2, b"second", 2), child(3, b"first", 1), child(4, b"part", 0, 3), thread(5, parent=1),
                 *(event(3, uuid, uuid, name=b"x") for uuid in (2, 3, 4, 5, 6)),
                 child(7, b"a", 0, 8), child(8, b"b", 0, 7), event(3, 7, 9))
    names = track_names(trace)
    assert names[:4] == [("thread", "app (10)", name) for name in ("main (11)", "first", "first / part", "second")]
    assert ("other", "trace", "track 6") in names and len(names) == 6


def test_counters_have_units_multipliers_and_sums(tmp_path):
    def counter(uuid: int, **fields: Any) -> Any:
        return packet(track_descriptor={"uuid": uuid, "name": b"c%d" % uuid, "counter": fields})
    trace = load(
        tmp_path, counter(1, unit=3, unit_multiplier=1024), counter(2, unit_name=b"W", is_incremental=True),
        counter(3, type=1), thread(4),
        event(4, 1, 10, counter_value=3), event(4, 2, 10, double_counter_value=1.5), event(4, 2, 20, counter_value=2),
        event(3, 4, 30, name=b"x", extra_counter_track_uuids=[3], extra_counter_values=[77]))
    found = {(trace.tracks[row["track"]].name, trace.tracks[row["track"]].unit, row["time_ns"], row["value"])
             for row in trace.samples.to_pylist()}
    assert found == {("c1", "bytes", 0, 3072.0), ("c2", "W", 0, 1.5), ("c2", "W", 10, 3.5), ("c3", "ns", 20, 77.0)}


def test_flows_are_chains_in_time(tmp_path):
    trace = load(tmp_path, thread(1), thread(2, b"b", tid=12), event(3, 1, 10, flow_ids=[5, 2**63 + 1]),
                 event(3, 2, 30, flow_ids=[5]), event(3, 2, 20, terminating_flow_ids=[2**63 + 1]),
                 event(3, 1, 40, terminating_flow_ids=[5]), event(3, 1, 50, flow_ids=[5]))
    hops: dict[int, list[tuple[int, int]]] = {}
    for row in trace.flows.to_pylist():
        hops.setdefault(row["flow"], []).append((row["time_ns"], row["is_end"]))
    assert sorted(sorted(hop) for hop in hops.values()) == [
        [(0, False), (10, True)], [(0, False), (20, True)], [(20, False), (30, True)]]


def test_arguments_are_shown_and_bounded(tmp_path):
    def deep(n: int) -> Any:
        return Annotation(name=b"d", dict_entries=[deep(n - 1)]) if n else Annotation(name=b"leaf", int_value=1)
    annotations = [Annotation(name=b"text", string_value=b"a\xffb"), Annotation(name=b"on", bool_value=True), deep(30),
                   Annotation(name_iid=1, string_value_iid=2),
                   Annotation(name=b"list", array_values=[Annotation(uint_value=7)] * 3),
                   Annotation(name=b"long", string_value=b"x" * 100_000), Annotation(name=b"nan", double_value=float("nan"))]
    wide = [Annotation(name=b"n%d" % i, int_value=i) for i in range(1000)]
    data = interned(debug_annotation_names=[{"iid": 1, "name": b"named"}],
                    debug_annotation_string_values=[{"iid": 2, "name": b"texted"}],
                    event_categories=[{"iid": 1, "name": b"mine"}],
                    source_locations=[{"iid": 3, "file_name": b"a.cc", "line_number": 4}])

    def with_annotations(time: int, found: list[Any]) -> Any:
        return event(3, 1, time, flags=NEEDED, category_iids=[1], source_location_iid=3,
                     debug_annotations=[each.SerializeToString() for each in found] + [b"\xff\xff"])
    trace = load(tmp_path, packet(1, CLEARED, interned_data=data), with_annotations(1, annotations), with_annotations(2, wide))
    first, second = (row["detail"] for row in trace.slices.to_pylist())
    assert first.startswith('{"category":"mine","source":"a.cc:4","text":"a�b","on":true,"d":{"d":{"d"')
    assert '"named":"texted"' in first and '"list":[7,7,7]' in first and '"nan":"nan"' in first and len(first) < 3000
    assert second.count(":") < 220
    assert sum(trace.integrity.repaired.values()) == 2


def test_old_events_with_phases(tmp_path):
    def legacy(phase: str, time: int, name: bytes = b"", **fields: Any) -> Any:
        more = {"name": name} if name else {}
        return packet(1, timestamp=time, track_event={"legacy_event": {"phase": ord(phase), **fields}, **more})
    trace = load(
        tmp_path, packet(thread_descriptor={"pid": 3, "tid": 4, "thread_name": b"old"}),
        legacy("X", 1000, b"whole", duration_us=5), legacy("B", 2000, b"part"), legacy("E", 3000),
        legacy("b", 1500, b"chain", unscoped_id=9), legacy("e", 9000, b"chain", unscoped_id=9), legacy("i", 2500, b"mark"),
        legacy("s", 1200, b"f", unscoped_id=1), legacy("f", 2600, b"f", unscoped_id=1), legacy("N", 1, b"object"))
    assert rows(trace, "name", "dur_ns") == [("whole", 5000), ("chain", 7500), ("part", 1000), ("mark", 0)]
    assert ("thread", "process 3", "old (4)") in track_names(trace) and ("other", "trace", "chain (async)") in track_names(trace)
    assert trace.integrity.not_kept == {"legacy event of phase N": 1} and trace.flows.num_rows == 2


def test_render_stages_counters_and_frequencies_of_gpus(tmp_path):
    data = {"gpu_specifications": [{"iid": 1, "name": b"Compute queue"}, {"iid": 2, "name": b"Kernel"}]}
    trace = load(
        tmp_path, packet(1, CLEARED, interned_data=data), packet(gpu_info={"gpus": [{"name": b"Fast GPU"}]}),
        packet(1, NEEDED, timestamp=100, gpu_render_stage_event={
            "event_id": 1, "duration": 50, "hw_queue_iid": 1, "stage_iid": 2, "name": b"my_kernel",
            "launch": {"grid_size": {"x": 4, "y": 2, "z": 1}, "workgroup_size": {"x": 64}},
            "extra_data": [{"name": b"regs", "value": b"40"}]}),
        packet(1, timestamp=160, gpu_render_stage_event={"event_id": 2, "duration": 5, "hw_queue_iid": 1, "name": b"Memcpy HtoD"}),
        packet(1, timestamp=90, gpu_counter_event={
            "counter_descriptor": {"specs": [
                {"counter_id": 3, "name": b"DRAM", "numerator_units": [7], "denominator_units": [22]}]},
            "counters": [{"counter_id": 3, "double_value": 2.5}]}),
        packet(1, timestamp=95, generic_gpu_frequency_event={"gpu_id": 0, "frequency_khz": 1000}))
    assert rows(trace, "name", "category", "device", "grid_x", "grid_y", "block_x", "block_y", "dur_ns") == [
        ("my_kernel", Category.COMPUTE, 0, 4, 2, 64, 1, 50), ("Memcpy HtoD", Category.MEMCPY, 0, None, None, None, None, 5)]
    assert trace.slices["detail"][0].as_py() == '{"regs":"40","stage":"Kernel"}'
    assert trace.devices[0].name == "Fast GPU"
    assert {(t.name, t.unit) for t in trace.tracks if t.kind == "counter"} == {("DRAM", "bytes/s"), ("GPU frequency", "Hz")}
    assert ("stream", "GPU 0", "Compute queue") in track_names(trace)


def test_scheduler_switches_are_slices_per_cpu(tmp_path):
    compact = {"intern_table": [b"swapper", b"python"], "switch_timestamp": [1000, 500, 500], "switch_next_pid": [7, 0, 7],
               "switch_next_comm_index": [1, 0, 1]}
    later = {"cpu": 2, "event": [{"timestamp": 2600, "sched_switch": {"next_pid": 8, "next_comm": b"sh"}}, {"timestamp": 2700}]}
    trace = load(tmp_path, packet(ftrace_events={"cpu": 2, "compact_sched": compact}), packet(ftrace_events=later))
    assert rows(trace, "name", "start_ns", "dur_ns") == [("python [7]", 0, 500), ("python [7]", 1000, 600)]
    assert track_names(trace) == [("other", "CPU scheduling", "CPU 2")]
    assert trace.integrity.not_kept == {"kernel event (ftrace) that is not a scheduler switch: not drawn": 1}
    assert trace.integrity.records_read == 2 + 3 + 2


@pytest.mark.slow
def test_compressed_packets_are_unpacked_and_bombs_are_not(tmp_path):
    inner = Trace(packet=[thread(1), event(3, 1, 5, name=b"packed")]).SerializeToString()
    bomb = zlib.compress(b"\0" * (300 << 20), 1)
    trace = load(tmp_path, event(3, 1, 4, name=b"plain"), packet(compressed_packets=zlib.compress(inner)),
                 packet(compressed_packets=bomb), packet(compressed_packets=b"junk"))
    assert rows(trace, "name") == [("plain",), ("packed",)] and sum(trace.integrity.not_kept.values()) == 2


def test_what_is_not_read_is_counted_by_name(tmp_path):
    data = Trace(packet=[event(3, 1, 4, name=b"x")]).SerializeToString()
    unread = bytes([0x0A, 5, 0xAA, 0x02, 2, 8, 1])                # a packet whose field 37 is profile_packet
    field_2 = bytes([0x12, 3, 1, 2, 3])                           # not a packet at all
    trace = load(tmp_path, data=data + unread + field_2 + bytes([0x0A, 2, 0x5A, 0x7F]) + data)
    assert trace.integrity.not_kept == {"profile_packet: not read": 1, "a field of the trace that is no packet": 1,
                                        "a packet that could not be decoded": 1}
    assert trace.slices.num_rows == 2


def test_a_packet_beyond_the_limit_is_passed_over(tmp_path):
    data = Trace(packet=[event(3, 1, 4, name=b"x")]).SerializeToString()
    size = MAX_PACKET_BYTES + 1
    length = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14 & 0x7F | 0x80, size >> 21])
    trace = load(tmp_path, data=data + b"\x0a" + length + b"\0" * size + data)
    assert trace.slices.num_rows == 2 and list(trace.integrity.not_kept.values()) == [1]


def test_tracks_beyond_the_limit_share_one(tmp_path, monkeypatch):
    monkeypatch.setattr("profiles.ingest.core.build.MAX_LANES", 50)
    trace = load(tmp_path, *(event(3, uuid, uuid, name=b"x") for uuid in range(1, 101)))
    assert len(trace.tracks) == 51 and trace.slices.num_rows == 100


def test_other_formats_are_not_taken_for_packets():
    xspace = bytes([0x0A, 24, 0x12, 9]) + b"/host:CPU" + bytes([0x1A, 3]) + b"abc" + bytes([0x22, 4]) + b"defg"
    for data in (b"", b"\x0a", b"\n[{}]", b"\n\n\n{", xspace, b'{"traceEvents": []}', b"\x0a\x02\x08\x01", b"\x0a" * 50):
        assert not reader.sniff(data)
    assert reader.sniff(JACC.read_bytes()[:1 << 20]) and is_known(JACC.read_bytes()[:5000])


def test_a_trace_without_any_event_is_refused(tmp_path):
    with pytest.raises(TraceError, match="nothing in the file is a slice"):
        load(tmp_path, thread(1))


SMALL = JACC.read_bytes()[:30_000]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_damage_breaks_the_reader(tmp_path_factory, data):
    damaged = bytearray(SMALL[:data.draw(st.integers(1, len(SMALL)))])
    for _ in range(data.draw(st.integers(0, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("p") / "t"
    path.write_bytes(damaged)
    try:
        with Source(path) as source:
            trace = reader.read(source)
    except TraceError as error:
        assert error.where and error.hint
    else:
        assert trace.integrity.records_read == trace.integrity.records_kept + sum(trace.integrity.not_kept.values())
