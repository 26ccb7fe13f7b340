"""Buffers as CUPTI fills them, made here: what is summed of them is exact, and what is no kernel record is refused."""

from __future__ import annotations

import ctypes
from collections import Counter

import numpy as np
import pytest

from workers.agent import libraries
from workers.agent.cupti import records
from workers.agent.cupti.collector import Collector, CuptiError
from workers.agent.cupti.records import SIZES, RecordsRefused, decode, group, layout
from workers.agent.launches import Signature

NAMES = [ctypes.create_string_buffer(name) for name in (b"_ZN2at6native3addIfEEvPT_", b"nvjet_sm90_tst_128x64", b"_attn_fwd")]


def buffer_of(count: int, size: int, seed: int = 0, kind: int = records.CONCURRENT_KERNEL) -> tuple[np.ndarray, np.ndarray]:
    """Return (buffer, its records)."""
    chance, found = np.random.default_rng(seed), np.zeros(count, layout(size))
    found["kind"] = kind
    found["start_ns"] = np.uint64(1_793_800_000_000_000_000) + np.sort(chance.integers(0, 10**9, count)).astype(np.uint64)
    found["end_ns"] = found["start_ns"] + chance.integers(1, 100_000, count).astype(np.uint64)
    found["device"] = chance.integers(0, 2, count)
    found["launch"] = np.stack([chance.integers(1, 4, count), *np.ones((2, count)), 32 * chance.integers(1, 3, count),
                                *np.ones((2, count)), np.full(count, 16), 1024 * chance.integers(0, 2, count)], axis=1)
    found["name"] = np.array([ctypes.addressof(name) for name in NAMES], np.uint64)[chance.integers(0, 3, count)]
    found["graph"] = chance.integers(0, 2, count)
    raw = np.zeros(max(1 << 20, found.nbytes) // 8, np.uint64)
    raw.view(np.uint8)[:found.nbytes] = found.view(np.uint8)
    return raw, found


def collector_for(*parts: tuple[np.ndarray, int], size: int) -> Collector:
    """A collector whose buffers came back, without a library behind it."""
    own = Collector.__new__(Collector)
    own.__dict__.update(_full=list(parts), _free=[], _parts=[], _dtype=layout(size), _names={}, records=0, saw_graphs=False,
                        broken="", _demangle=libraries.Demangler())
    own._lock = __import__("threading").Lock()
    return own


@pytest.mark.parametrize("size", SIZES, ids=[name for name, _ in SIZES.values()])
def test_sums_are_those_of_the_records(size: int) -> None:
    raw, found = buffer_of(4000, size)
    own = collector_for((raw, found.nbytes), size=size)
    own._shrink()
    seen = own._sum(np.concatenate(own._parts))
    names = {ctypes.addressof(name): own._demangle(name.value) for name in NAMES}
    expected: dict[tuple[int, Signature], list[int]] = {}
    for row in found:
        launch = row["launch"].tolist()
        key = (int(row["device"]), Signature(names[int(row["name"])], tuple(launch[:3]), tuple(launch[3:6]), launch[6] + launch[7]))
        expected.setdefault(key, []).append(int(row["end_ns"] - row["start_ns"]))
    got = {(device, each.signature): each for device, kernels in seen.kernels.items() for each in kernels}
    assert got.keys() == expected.keys() and len(got) == 2 * 3 * 3 * 2 * 2
    for key, durations in expected.items():
        one = got[key]
        assert (one.launches, one.total_ns) == (len(durations), sum(durations))
        assert (one.min_ns, one.max_ns) == (min(durations), max(durations))
        assert int(one.count.sum()) == len(durations)
    assert seen.records == 4000 == sum(each.launches for each in got.values())
    assert seen.in_graphs == int(np.count_nonzero(found["graph"])) and own.saw_graphs
    assert (seen.first_ns, seen.last_ns) == (int(found["start_ns"].min()), int(found["end_ns"].max()))
    assert raw.ctypes.data in [each.ctypes.data for each in own._free]          # the buffer goes round


def test_other_records_and_other_layouts_are_refused() -> None:
    raw, found = buffer_of(100, 216)
    with pytest.raises(RecordsRefused, match="another tool"):
        decode(raw, 216 * 100, layout(208))
    raw.view(np.uint32)[216 * 50 // 4] = 46                    # a record of another kind in between
    with pytest.raises(RecordsRefused, match="another tool"):
        decode(raw, found.nbytes, layout(216))
    raw, found = buffer_of(100, 216)
    with pytest.raises(RecordsRefused, match="other records"):
        decode(raw, found.nbytes - 8, layout(216))
    with pytest.raises(RecordsRefused, match="192 bytes"):
        layout(192)
    found["launch"][0, 3] = 4096
    with pytest.raises(RecordsRefused, match="no launch has"):
        decode(found.view(np.uint8), found.nbytes, layout(216))


def test_groups_hold_even_where_hashes_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = buffer_of(500, 216)
    key, first = group(found)
    unique = np.unique
    monkeypatch.setattr(np, "unique", lambda values, **more: unique(np.zeros_like(values) if values.ndim == 1 else values, **more))
    slow_key, slow_first = group(found)
    assert Counter(map(int, np.bincount(slow_key))) == Counter(map(int, np.bincount(key))) and slow_first.size == first.size
    assert all(np.unique(key[slow_key == each]).size == 1 for each in range(slow_first.size))


def test_a_library_without_a_gpu_refuses_and_stays_off() -> None:
    path = libraries.find_cupti()
    if path is None:
        pytest.skip("no libcupti on this machine")
    try:
        own = Collector(path)
        own.open()
    except CuptiError as error:
        assert "cupti" in str(error).lower()
    else:
        pytest.skip("this machine has a GPU")


def test_where_libraries_lie(tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = tmp_path / "maps"            # type: ignore[operator]
    maps.write_text("7f00 r-xp 0 08:01 1 /usr/lib/libcuda.so.1\n7f01 r-xp 0 08:01 2 /opt/a b/nvidia/cu13/lib/libcupti.so.13\n"
                    "7f02 r-xp 0 08:01 3 /old/libcupti.so.12 (deleted)\n7f03 rw-p 0 00:00 0 [heap]\n")
    assert libraries.loaded("libcupti.so", maps) == "/opt/a b/nvidia/cu13/lib/libcupti.so.13"
    assert libraries.loaded("libnvrtc.so", maps) is None
    folder = tmp_path / "site" / "nvidia" / "cu13" / "lib"      # type: ignore[operator]
    folder.mkdir(parents=True)
    (folder / "libcupti.so.13").touch()
    monkeypatch.setattr(libraries, "loaded", lambda name: None)
    monkeypatch.setattr("sys.path", [str(tmp_path / "site")])   # type: ignore[operator]
    assert libraries.find_cupti() == str(folder / "libcupti.so.13")


def test_names_are_demangled_where_the_runtime_is_there() -> None:
    demangle = libraries.Demangler()
    assert demangle(b"_attn_fwd") == "_attn_fwd"
    assert demangle(b"_Znot a name") == "_Znot a name"
    if demangle._call is not None:
        assert demangle(b"_ZN2at6native3fooIiEEvT_") == "void at::native::foo<int>(int)"
