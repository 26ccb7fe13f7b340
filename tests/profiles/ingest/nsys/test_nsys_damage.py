"""Damaged Nsight Systems exports: whatever bytes change, the reader gives a trace that adds up, or one clear error."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiles import ingest
from profiles.analysis.core.kernels import kernel_table
from profiles.ingest.trace import Trace, TraceError
from tests.profiles.ingest.corpus import CORPUS
from tests.scale import DEEP

SECONDS = 10
EXPORTS = ("nsysai_healthy_minimal", "nways_jacobi_gh200_gpu_metrics_40ms")


@pytest.fixture(scope="module")
def exports() -> list[bytes]:
    return [gzip.decompress((CORPUS / f"nsys/{name}.sqlite.gz").read_bytes()) for name in EXPORTS]


def check(path: Path) -> None:
    started = time.monotonic()
    try:
        trace = ingest.read(path)
    except TraceError as error:
        assert error.where and error.what and error.hint
    else:
        assert isinstance(trace, Trace)
        integrity = trace.integrity
        assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values())
        kernel_table(trace)
        assert all(0 <= number < len(trace.tracks) for number in set(trace.slices["track"].to_pylist()))
    assert time.monotonic() - started < SECONDS


@pytest.mark.slow
@settings(max_examples=80 if DEEP else 25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(which=st.integers(0, 1),
       places=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=16)), min_size=1, max_size=60))
def test_changed_bytes(exports, tmp_path, which, places):
    data = bytearray(exports[which])
    for place, new in places:
        at = 100 + int(place * (len(data) - 100 - len(new)))
        data[at:at + len(new)] = new
    path = tmp_path / "d.sqlite"
    path.write_bytes(data)
    check(path)


@settings(max_examples=40 if DEEP else 15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(which=st.integers(0, 1), cut=st.floats(0, 1), header=st.binary(max_size=84))
def test_cut_anywhere_and_headers_of_any_kind(exports, tmp_path, which, cut, header):
    data = bytearray(exports[which][:int(cut * len(exports[which]))])
    if header:
        data[16:16 + len(header)] = header
    path = tmp_path / "d.sqlite"
    path.write_bytes(bytes(data) or b"SQLite format 3\0")
    check(path)


@pytest.mark.slow
@settings(max_examples=30 if DEEP else 10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(which=st.integers(0, 1), pages=st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=40))
def test_pages_in_each_others_place(exports, tmp_path, which, pages):
    data = bytearray(exports[which])
    count = len(data) // 4096
    for first, second in pages:
        a, b = first % count * 4096, second % count * 4096
        if a and b:
            data[a:a + 4096], data[b:b + 4096] = data[b:b + 4096], data[a:a + 4096]
    path = tmp_path / "d.sqlite"
    path.write_bytes(data)
    check(path)


def test_a_cut_gzip_of_an_export_is_read_as_far_as_it_goes(tmp_path):
    packed = (CORPUS / "nsys/nways_jacobi_gh200.sqlite.gz").read_bytes()
    path = tmp_path / "d.sqlite.gz"
    path.write_bytes(packed[:len(packed) // 2])
    trace = ingest.read(path)
    assert isinstance(trace, Trace) and trace.integrity.truncated_at and trace.slices.num_rows > 100
    assert any("compressed file ends early" in note for note in trace.integrity.notes)
