"""Logs of nvidia-smi and dcgmi: recordings against the csv module, clocks that misbehave, cells without a number."""

from __future__ import annotations

import csv
import gzip
import math
import re
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.analysis.trace.breakdown import breakdown
from profiles.ingest.core import text_lines
from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import parse_moment
from profiles.ingest.logs import counters, dcgmi, nvidia_dmon, nvidia_smi
from profiles.ingest.logs.dcgmi import FIELDS, NO_BAND, reading_of
from profiles.ingest.naming.bands import BANDS
from profiles.ingest.trace import Trace, TraceError
from tests.profiles.ingest.corpus import DATA
from tests.scale import DEEP

LOGS = DATA / "logs"
QUERY, NO_UNITS, DMON = (LOGS / name for name in ("nvidia_smi_query.csv", "nvidia_smi_query_nounits.csv", "nvidia_smi_dmon.txt"))
READERS = (nvidia_smi, nvidia_dmon, dcgmi)
SHORT = "timestamp, index, power.draw [W]\n"
DMON_HEAD = "# gpu    pwr     fb\n# Idx      W     MB\n"
DMON_TIME = "#Time        gpu    pwr     fb\n#HH:MM:SS    Idx      W     MB\n"
DCGMI = """#Entity   GPUTL   TMPTR   GRACT
ID        %       C
GPU 0     97      41      0.973
GPU 1     N/A     42      0.000
GPU-I 3   5       N/A     0.5
"""


def load(reader: ModuleType, content: str | bytes | Path, tmp_path: Path) -> Trace:
    path = tmp_path / "log"
    content = content.read_bytes() if isinstance(content, Path) else content
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with Source(path) as source:
        assert reader.sniff(source.peek())
        made: Trace = reader.read(source)
    integrity = made.integrity
    assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values())
    assert breakdown(made) is not None
    return made


def series(trace: Trace) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """Samples by (group, name) of their track; NaN is where nothing is known."""
    out: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for row in trace.samples.to_pylist():
        track = trace.tracks[row["track"]]
        out[track.group, track.name].append((row["time_ns"], row["value"]))
    return out


def known(samples: list[tuple[int, float]]) -> list[tuple[int, float]]:
    return [(time, value) for time, value in samples if not math.isnan(value)]


def times_ms(samples: list[tuple[int, float]]) -> list[float]:
    return [time / 1e6 for time, value in samples if not math.isnan(value)]


def test_a_recorded_query_is_what_the_csv_module_reads(tmp_path):
    trace = load(nvidia_smi, QUERY, tmp_path)
    with QUERY.open() as file:
        rows = [{key.split(" [")[0]: cell.split(" ")[0] if key != "name" else cell for key, cell in row.items()}
                for row in csv.DictReader(file, skipinitialspace=True)]
        stamps = [line.split(",")[0] for line in QUERY.read_text().splitlines()[1:]]
    first = datetime.strptime(stamps[0], "%Y/%m/%d %H:%M:%S.%f")
    factors = {"utilization.gpu": 1, "utilization.memory": 1, "memory.used": 2**20, "power.draw": 1, "clocks.current.sm": 10**6,
               "clocks.current.memory": 10**6, "temperature.gpu": 1, "pstate": 1}
    expected: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for row, stamp in zip(rows, stamps, strict=True):
        after = datetime.strptime(stamp, "%Y/%m/%d %H:%M:%S.%f") - first
        ns = (after.days * 86_400 + after.seconds) * 10**9 + after.microseconds * 1000
        for name, factor in factors.items():
            expected[f"GPU {row['index']}", name].append((ns, float(row[name].removeprefix("P")) * factor))
    found = series(trace)
    assert {key: known(samples) for key, samples in found.items()} == expected and len(rows) == 154
    assert max(value for _, value in found["GPU 0", "power.draw"][:-1]) > 100
    assert (trace.integrity.records_read, trace.integrity.records_kept, trace.parts.rows, trace.base_ns) == (154, 154, 0, None)
    assert [(device.index, device.name) for device in trace.devices] == [(0, "NVIDIA H200"), (1, "NVIDIA H200")]
    assert trace.metadata["clock"].startswith("first row 2026/11/23 03:57:26.308")
    units = {track.name: track.unit for track in trace.tracks}
    assert units == {"utilization.gpu": "%", "utilization.memory": "%", "memory.used": "bytes", "power.draw": "W", "pstate": None,
                     "clocks.current.sm": "Hz", "clocks.current.memory": "Hz", "temperature.gpu": "°C"}
    assert all(track.kind == "counter" and track.group == f"GPU {track.device}" for track in trace.tracks)


def test_after_the_last_row_nothing_is_known(tmp_path):
    for samples in series(load(nvidia_smi, QUERY, tmp_path)).values():
        assert [math.isnan(value) for _, value in samples] == [False] * 77 + [True]
        assert 150e6 < samples[-1][0] - samples[-2][0] < 250e6


def test_without_units_the_header_still_has_them(tmp_path):
    header = QUERY.read_text().splitlines()[0] + "\n"
    found = series(load(nvidia_smi, header + NO_UNITS.read_text(), tmp_path))
    assert known(found["GPU 1", "memory.used"])[-1][1] == 1485 * 2**20
    assert known(found["GPU 0", "power.draw"])[0] == (0, 79.88)


def test_without_a_header_the_columns_are_not_known(tmp_path):
    with pytest.raises(TraceError, match="no header") as error:
        load(nvidia_smi, NO_UNITS, tmp_path)
    assert "noheader" in error.value.hint
    assert not nvidia_smi.sniff(b"2026/11/23 03:57:26.303, request done, 0.5\n")
    assert not nvidia_smi.sniff(b"0, 0, 79.88\n")


def test_a_recorded_dmon_is_what_the_columns_say(tmp_path):
    trace = load(nvidia_dmon, DMON, tmp_path)
    text = DMON.read_text().splitlines()
    names = text[0].strip("#").split()
    rows = [dict(zip(names, line.split(), strict=True)) for line in text if not line.startswith("#")]
    found = series(trace)
    for name, factor in (("pwr", 1), ("gtemp", 1), ("sm", 1), ("pclk", 1e6), ("fb", 2**20), ("pviol", 1), ("txpci", 1)):
        for gpu in ("0", "1"):
            assert [value for _, value in known(found[f"GPU {gpu}", name])] == [
                float(row[name]) * factor for row in rows if row["gpu"] == gpu], name
    seconds = [int(row["Time"].split(":")[2]) for row in rows if row["gpu"] == "0"]             # it left some out
    assert times_ms(found["GPU 0", "sm"]) == [1000.0 * (second - seconds[0]) for second in seconds] and len(seconds) == 15
    assert (trace.integrity.records_read, trace.integrity.records_kept) == (len(rows), len(rows))
    units = {track.name: track.unit for track in trace.tracks}
    assert (units["fb"], units["pclk"], units["gtemp"], units["tviol"], units["pci"], units["rxpci"]) == (
        "bytes", "Hz", "°C", None, None, "MB/s")


def test_megabytes_of_dmon_are_mebibytes_of_the_query():
    """Both tools watched the same GPUs; at 03:57:40 GPU 1 held what both print as 1969."""
    second = [line.split() for line in DMON.read_text().splitlines() if "03:57:40" in line]
    names = DMON.read_text().splitlines()[0].strip("#").split()
    held = {row[names.index("gpu")]: row[names.index("fb")] for row in second}
    asked = {line.split(", ")[5] for line in QUERY.read_text().splitlines() if " 03:57:40." in line and line.split(", ")[1] == "1"}
    assert held["1"] == "1969" and "1969 MiB" in asked


@pytest.mark.parametrize("head", [DMON_HEAD, DMON_HEAD.replace("# gpu", "#gpu").replace("# Idx", "#Idx")])
def test_dmon_without_a_time_is_refused(tmp_path, head):
    with pytest.raises(TraceError, match="nor the interval") as error:
        load(nvidia_dmon, head + "    0     79   1485\n", tmp_path)
    assert "dmon -o DT" in error.value.hint


def test_dmon_with_the_date_alone_is_refused(tmp_path):
    head = "#Date       gpu    pwr\n#YYYYMMDD   Idx      W\n"
    with pytest.raises(TraceError, match="only the date"):
        load(nvidia_dmon, head + " 20261123     0     79\n", tmp_path)


def test_dmon_over_midnight_without_a_date_and_with_repeated_headers(tmp_path):
    rows = [" 23:59:58      0     70      -\n", " 23:59:59      0     71      1\n", DMON_TIME, " 00:00:00      0     72      -\n",
            " 00:00:01      0      -      3\n"]
    trace = load(nvidia_dmon, DMON_TIME + "".join(rows), tmp_path)
    found = series(trace)
    assert known(found["GPU 0", "pwr"]) == [(0, 70), (10**9, 71), (2 * 10**9, 72)]
    assert known(found["GPU 0", "fb"]) == [(10**9, 2**20), (3 * 10**9, 3 * 2**20)]
    assert [math.isnan(value) for _, value in found["GPU 0", "fb"]] == [False, True, False, True]
    assert trace.integrity.records_read == 4 and not trace.integrity.repaired
    assert any("midnight" in remark for remark in trace.integrity.remarks)


def test_a_header_with_other_columns_takes_over(tmp_path):
    text = SHORT + "2026/11/23 03:00:00.000, 0, 80.00 W\ntimestamp, index, fan.speed [%]\n2026/11/23 03:00:01.000, 0, 30 %\n"
    found = series(load(nvidia_smi, text, tmp_path))
    assert known(found["GPU 0", "fan.speed"]) == [(10**9, 30)] and known(found["GPU 0", "power.draw"]) == [(0, 80)]


def test_cells_without_a_number_are_not_known(tmp_path):
    head = ("timestamp, index, power.draw [W], fan.speed [%], pstate, clocks_event_reasons.sw_power_cap, "
            "clocks_event_reasons.active, memory.used [MiB]\n")
    cells = ["[N/A], [Not Supported], P0, Not Active, 0x0000000000000004, 5 MiB", "80.5 W, [N/A], P8, Active, 0x0, [Unknown Error]",
             "[Unknown Error], [N/A], [N/A], N/A, 0x0, 7 GiB", "81 W, [N/A], P2, Active, 0x0, 9"]
    text = head + "".join(f"2026/11/23 03:00:0{at}.000, 0, {each}\n" for at, each in enumerate(cells))
    trace = load(nvidia_smi, text, tmp_path)
    found = {name: [None if math.isnan(value) else value for _, value in samples] for (_, name), samples in series(trace).items()}
    assert found == {"power.draw": [80.5, None, 81, None], "pstate": [0, 8, None, 2, None], "memory.used": [
        5 * 2**20, None, None, 9 * 2**20, None], "clocks_event_reasons.sw_power_cap": [0, 1, None, 1, None]}
    assert trace.integrity.not_kept == {"a row without a number": 1} and trace.integrity.records_read == 4
    assert any("fan.speed" in note for note in trace.integrity.notes)


def test_a_clock_set_back_keeps_the_order(tmp_path):
    hours = ("02:59:58", "02:59:59", "02:00:00", "02:00:01", "02:00:02")
    text = SHORT + "".join(f"2026/10/25 {hour}.000, 0, {at} W\n" for at, hour in enumerate(hours))
    trace = load(nvidia_smi, text, tmp_path)
    samples = known(series(trace)["GPU 0", "power.draw"])
    assert [value for _, value in samples] == [0, 1, 2, 3, 4]
    assert times_ms(samples) == [0, 1000, 1000, 2000, 3000]
    assert sum(trace.integrity.repaired.values()) == 1


def test_one_wrong_time_moves_no_other(tmp_path):
    hours = ("03:00:00", "03:00:01", "01:00:00", "03:00:03", "03:00:04")
    text = SHORT + "".join(f"2026/10/25 {hour}.000, 0, {at} W\n" for at, hour in enumerate(hours))
    trace = load(nvidia_smi, text, tmp_path)
    assert times_ms(series(trace)["GPU 0", "power.draw"]) == [0, 1000, 1000, 3000, 4000]
    assert sum(trace.integrity.repaired.values()) == 1


def test_a_clock_that_was_1970_at_first_is_no_wall_clock(tmp_path):
    days = ["1970/01/01 00:00:00", "1970/01/01 00:00:01", *(f"2026/11/23 03:00:{second:02}" for second in range(20))]
    trace = load(nvidia_smi, SHORT + "".join(f"{day}.000, 0, 80 W\n" for day in days), tmp_path)
    assert trace.base_ns is None and len(known(series(trace)["GPU 0", "power.draw"])) == 22
    assert max(time for time, _ in series(trace)["GPU 0", "power.draw"]) == 20 * 10**9


def test_a_clock_that_jumps_for_centuries_again_and_again(tmp_path):
    rows = [f"{year}/01/01 00:00:00.000, 0, 1 W\n" for year in (1970, 2190, 1970, 1970) * 9]
    trace = load(nvidia_smi, SHORT + "2026/01/01 00:00:00.000, 0, 1 W\n" + "".join(rows), tmp_path)
    assert trace.integrity.records_kept >= 1 and trace.integrity.not_kept
    assert max(time for time, _ in series(trace)["GPU 0", "power.draw"]) < 2**53


def test_logs_of_single_gpus_one_after_the_other_lie_side_by_side(tmp_path):
    rows = [f"2026/11/23 03:00:0{second}.000, {gpu}, {gpu}{second} W\n" for gpu in (0, 1) for second in range(3)]
    trace = load(nvidia_smi, SHORT + "".join(rows), tmp_path)
    assert not trace.integrity.repaired
    assert times_ms(series(trace)["GPU 0", "power.draw"]) == times_ms(series(trace)["GPU 1", "power.draw"]) == [0, 1000, 2000]


def test_gpus_by_uuid_and_by_nothing(tmp_path):
    by_uuid = load(nvidia_smi, "timestamp, uuid, power.draw [W]\n2026/11/23 03:00:00.000, GPU-aa, 1 W\n"
                               "2026/11/23 03:00:00.001, GPU-bb, 2 W\n", tmp_path)
    assert [(track.group, track.device) for track in by_uuid.tracks] == [("GPU GPU-aa", None), ("GPU GPU-bb", None)]
    alone = load(nvidia_smi, "timestamp, power.draw [W]\n2026/11/23 03:00:00.000, 1 W\n", tmp_path)
    assert [(track.group, track.device) for track in alone.tracks] == [("GPU", None)] and not alone.devices
    assert any("which GPU" in note for note in alone.integrity.notes)


@pytest.mark.parametrize(("content", "what"), [
    ("index, power.draw [W]\n0, 80 W\n", "has no times"),
    ("timestamp, index, utilization.gpu\n", "none of its rows"),
    (SHORT + "yesterday, 0, 80 W\n", "a row without a time: 1"),
    (SHORT + "2026/13/23 03:00:00.000, 0, 80 W\n", "a row without a time: 1"),
    (SHORT + "2026/11/23 03:00:00.000, 0, [N/A]\n", "a row without a number: 1"),
    (SHORT + "2026/11/23 03:00:00.000, zero, 80 W\n", "which GPU it is of: 1"),
    (SHORT + "2026/11/23 03:00:00.000, 0\n", "too few or too many cells: 1"),
    (SHORT + "2026/11/23 03:00:00.000, 0, 80 W", "which has no end"),
])
def test_a_log_in_which_nothing_can_be_read_is_refused(tmp_path, content, what):
    with pytest.raises(TraceError, match=re.escape(what)) as error:
        load(nvidia_smi, content, tmp_path)
    assert "--query-gpu=timestamp,index" in error.value.hint


def test_dcgmi_prints_no_time(tmp_path):
    """As guides call it: the rows stand by dcgmi's default interval, and that is said."""
    text = "#Entity   SMACT   TENSO   DRAMA   POWER\nID\n"
    rows = [(0.9, 0.05, 0.7, 600.5), (0.7, 0.15, 0.9, 500.0), ("N/A", "N/A", "N/A", "N/A"), (0.8, 0.1, 0.8, 400.0)]
    trace = load(dcgmi, text + "".join("GPU 0  " + "  ".join(map(str, row)) + "\n" for row in rows), tmp_path)
    found = series(trace)
    assert known(found["GPU 0", "SMACT"]) == [(0, 0.9), (10**9, 0.7), (3 * 10**9, 0.8)]
    assert "states no time" in trace.integrity.notes[0] and "| ts" in trace.integrity.notes[0] and trace.base_ns is None
    assert not any("local time" in note for note in trace.integrity.notes)
    assert {track.name: track.unit for track in trace.tracks}["POWER"] == "W", "dcgmi prints no unit: the field has one"
    fields = {row[1]: row[2:] for row in trace.tables[0].rows}
    means = {name: [row[at] for row in rows if row[at] != "N/A"] for at, name in enumerate(("SMACT", "TENSO", "DRAMA", "POWER"))}
    for name, values in means.items():
        assert fields[name][1] == pytest.approx(sum(values) / len(values))
    assert fields["SMACT"][2].startswith("high") and fields["TENSO"][2] == "low" and fields["DRAMA"][2].startswith("near its peak")
    assert fields["POWER"][0] == "power drawn" and fields["POWER"][2] == NO_BAND
    assert BANDS["tensor"].source in (trace.tables[0].note or "")


@pytest.mark.parametrize(("name", "mean", "reads"), [
    ("GRACT", 0.4, "idle more than half of the time"), ("GRACT", 0.95, "idle at most half of the time"),
    ("GPUTL", 30.0, "idle more than half"),
    ("SMACT", 0.49, "low"), ("TENSO", 0.09, "hardly used"), ("THMMA", 0.5, "high"), ("DRAMA", 0.8, "near its peak"),
    ("FP32A", 0.7, "busy"), ("XIDER", 0.0, "no error"), ("XIDER", 31.0, "the driver reported"), ("PCITX", 5e9, NO_BAND)])
def test_each_field_of_dcgm_has_a_verdict(name, mean, reads):
    assert reading_of(name, mean).startswith(reads)


def test_what_is_no_share_has_no_verdict():
    assert reading_of("SMACT", 17.0) == reading_of("SMACT", None) == reading_of("NEWFIELD", 0.5) == ""
    assert all(field.words and (not field.band or field.band in BANDS) for field in FIELDS.values())


def test_a_log_of_dcgmi_whose_times_begin_late_keeps_what_it_began_with(tmp_path):
    trace = load(dcgmi, DCGMI + "".join(f"03:00:00 {line}\n" for line in DCGMI.splitlines()), tmp_path)
    assert (trace.integrity.records_kept, sum(trace.integrity.not_kept.values())) == (3, 3)


@pytest.mark.parametrize("before", ["2026-11-23 03:57:26.5 ", "[2026-11-23T03:57:26] ", "Nov 23 03:57:26 ", "03:57:26.5: ",
                                    "2026/11/23 03:57:26 | "])
def test_dcgmi_with_a_time_in_front_of_every_line(tmp_path, before):
    rounds = [before.replace(":26", f":{26 + at}") + line + "\n" for at in range(2) for line in DCGMI.splitlines()]
    trace = load(dcgmi, "".join(rounds), tmp_path)
    found = series(trace)
    assert known(found["GPU 0", "GPUTL"]) == [(0, 97), (10**9, 97)] and known(found["GPU 1", "TMPTR"]) == [(0, 42), (10**9, 42)]
    assert ("GPU 1", "GPUTL") not in found and known(found["GPU-I 3", "GRACT"]) == [(0, 0.5), (10**9, 0.5)]
    assert {track.name: track.unit for track in trace.tracks} == {"GPUTL": "%", "TMPTR": "°C", "GRACT": None}
    assert {track.group: track.device for track in trace.tracks} == {"GPU 0": 0, "GPU 1": 1, "GPU-I 3": None}
    assert (trace.integrity.records_read, trace.integrity.records_kept, trace.base_ns) == (6, 6, None)


def test_dcgmi_with_epoch_seconds_has_a_wall_clock(tmp_path):
    text = "".join(f"1795406246.25 {line}\n" for line in DCGMI.splitlines())
    assert load(dcgmi, text, tmp_path).base_ns == 1_795_406_246_250_000_000


def test_dcgmi_rows_that_are_none_are_counted(tmp_path):
    text = "".join(f"03:00:00 {line}\n" for line in DCGMI.splitlines())
    trace = load(dcgmi, text + "03:00:01 GPU 0 1 2\n03:00:01 Error: lost\nGPU 0 1 2 3\n", tmp_path)
    assert (trace.integrity.records_kept, len(trace.integrity.not_kept), sum(trace.integrity.not_kept.values())) == (3, 3, 3)


@pytest.mark.parametrize(("text", "ns"), [
    ("1970/01/02 00:00:00.001", 86_400_001_000_000), ("20261123 03:57:26", 1_795_406_246 * 10**9), ("23:59:60", 86_400 * 10**9),
    ("2026/02/30 00:00:00", None), ("9999/01/01 00:00:00", None), ("24:00:00", None), ("Foo 23 03:57:26", None), ("", None),
    ("٢٣:59:59", None),
])
def test_moments(text, ns):
    moment = parse_moment(text)
    assert (moment and moment.ns) == ns


def test_cut_anywhere_it_keeps_the_complete_rows(tmp_path):
    for reader, content in ((nvidia_smi, QUERY.read_bytes()), (nvidia_dmon, DMON.read_bytes())):
        heads = 2 if reader is nvidia_dmon else 1
        for size in range(600, len(content), 397):
            trace = load(reader, content[:size], tmp_path)
            assert trace.integrity.records_kept == content[:size].count(b"\n") - heads
            assert bool(trace.integrity.not_kept) is (content[size - 1:size] != b"\n")


def test_wrapped_and_cut_in_the_wrapping(tmp_path):
    whole = gzip.compress(QUERY.read_bytes())
    assert load(nvidia_smi, whole, tmp_path).integrity.records_kept == 154
    cut = load(nvidia_smi, whole[:-500], tmp_path).integrity
    assert cut.truncated_at and 10 < cut.records_kept < 154


def test_hostile_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(counters, "MAX_TRACKS", 50)
    many = SHORT + "".join(f"2026/11/23 03:00:00.000, {gpu}, 1 W\n" for gpu in range(3000))
    trace = load(nvidia_smi, many, tmp_path)
    assert len(trace.tracks) == 50 and trace.integrity.not_kept == {"a row of a GPU beyond the first 1,024": 3000 - 1024}
    assert any("beyond the first" in what for what in trace.integrity.repaired)
    names = ", ".join(f"power.x{at} [W]" for at in range(1500))
    wide = f"timestamp, index, {names}\n2026/11/23 03:00:00.000, 0{', 1 W' * 1500}\n"
    assert len(load(nvidia_smi, wide, tmp_path).tracks) == 50
    nines = "9" * (text_lines.MAX_LINE_BYTES * 40)
    long = SHORT + f"2026/11/23 03:00:00.000, 0, 1 W\n{nines}\n2026/11/23 03:00:01.000, 0, 2 W\n"
    trace = load(nvidia_smi, long, tmp_path)
    assert (trace.integrity.records_kept, sum(trace.integrity.not_kept.values())) == (2, 1)


def test_absurd_numbers_are_not_known(tmp_path):
    cells = ("1" * 400 + " W", "nan W", "inf", "-1 W", "1e5 W", "٣ W", "9" * 40 + " W", "12 W")
    text = SHORT + "".join(f"2026/11/23 03:00:0{at}.000, 0, {each}\n" for at, each in enumerate(cells))
    values = [value for _, value in known(series(load(nvidia_smi, text, tmp_path))["GPU 0", "power.draw"])]
    assert values == [-1, 1e40, 12]


@pytest.mark.slow
@settings(max_examples=150 if DEEP else 40, deadline=None)
@given(data=st.data())
def test_mutated_logs_are_read_or_refused(data, tmp_path_factory):
    reader, content = data.draw(st.sampled_from([
        (nvidia_smi, QUERY.read_bytes()[:900]), (nvidia_dmon, DMON.read_bytes()[:1200]),
        (dcgmi, "".join(f"03:00:00 {line}\n" for line in DCGMI.splitlines()).encode())]))
    broken = bytearray(content)
    for _ in range(data.draw(st.integers(1, 12))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.sampled_from(b"\0\n\r 09-:,#[]/P\xff"))
    path = tmp_path_factory.mktemp("mutated") / "log"
    path.write_bytes(broken)
    with Source(path) as source:
        try:
            trace: Any = reader.read(source)
        except TraceError as error:
            assert error.where and error.hint
            return
    integrity = trace.integrity
    assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values())
    assert trace.samples.num_rows and trace.base_ns is None


def test_each_takes_its_own_alone():
    texts = {nvidia_smi: [QUERY, NO_UNITS], nvidia_dmon: [DMON]}
    for mine, paths in texts.items():
        for path in paths:
            assert [reader for reader in READERS if reader.sniff(path.read_bytes())] == [mine]
    assert [reader for reader in READERS if reader.sniff(DCGMI.encode())] == [dcgmi]


@pytest.mark.parametrize("other", [
    "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n", "# gpu   pid  type   sm\n# Idx     #   C/G    %\n",
    "timestamp,value\n1,2\n", "timestamp, memory\n", "#Entity : pwm\nID\n", "# gpu stuff\n", "#Entity\nGPU 0\n",
    "Time (%),Total Time (ns),Instances\n", '{"traceEvents": []}', "", "\0" * 100,
])
def test_other_files_are_not_taken(other):
    assert not any(reader.sniff(other.encode()) for reader in READERS)


def test_least_mean_and_greatest_of_every_counter(tmp_path):
    """The mean is weighted by time, over the time in which the counter is known."""
    trace = load(nvidia_smi, "timestamp, index, power.draw [W], memory.used [MiB]\n"
                 "2026/01/01 00:00:00.000, 0, 100.00 W, 1 MiB\n2026/01/01 00:00:01.000, 0, 300.00 W, [N/A]\n"
                 "2026/01/01 00:00:04.000, 0, [N/A], 3 MiB\n2026/01/01 00:00:06.000, 0, 500.00 W, 3 MiB\n", tmp_path)
    watts, size = trace.tables
    assert (watts.title, [column.unit for column in watts.columns]) == ("Counters in W", ["", "", "W", "W", "W"])
    # 100 W for 1 s, 300 W for 3 s, unknown for 2 s, 500 W for the usual interval of 2 s (that of the middle)
    assert watts.rows == [["GPU 0", "power.draw", 100.0, pytest.approx((100 + 900 + 1000) / 6), 500.0]]
    assert size.title == "Counters in bytes"
    assert size.rows == [["GPU 0", "memory.used", 2**20, pytest.approx((1 + 3 * 2 + 3 * 2) / 5 * 2**20), 3 * 2**20]]
    assert trace.metadata["headline"] == "4 rows of 2 counters of 1 GPU over 8.0 s."
