"""Batches that are no batches: each is refused with a sentence, whatever the bytes; none is kept, none crashes the server."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard

from profiles.fleet import services
from profiles.fleet.merge import merge
from profiles.fleet.models import FleetBatch
from profiles.fleet.tables import EVENTS
from tests.profiles.fleet.records import HOUR_NS, START_NS
from workers.agent.aggregate import Aggregator
from workers.agent.launches import Context, Gpu, Signature, Window, sum_durations
from workers.agent.wire import MOST_BYTES, MOST_PLAIN_BYTES, BatchRefused, make_batch, pack, unpack

pytestmark = pytest.mark.django_db
PATH = "/api/fleet/batches/"
KIND = "application/vnd.ridgepoint.fleet"


def good(agent: str = "agent", sequence: int = 1, rows: int = 20) -> bytes:
    chance, aggregator = np.random.default_rng(sequence), Aggregator()
    signatures = [Signature(f"kernel_{number}", (1, 1, 1), (32, 1, 1), 0) for number in range(rows)]
    key = chance.integers(rows, size=400)
    durations = chance.lognormal(9, 1, 400).astype(np.int64)
    aggregator.add(Window(Context("job"), Gpu("GPU-1", "NVIDIA H200", "host"), START_NS, HOUR_NS // 60, HOUR_NS // 60,
                          sum_durations(key, durations, signatures)))
    return pack(make_batch(agent, sequence, START_NS, aggregator.take(), [], {"version": "1"}))


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(good()))
    change(document)
    return zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(document))


def column(table: str, name: str, value: float, kind: str = "<i8") -> Callable[[dict[str, Any]], object]:
    def change(document: dict[str, Any]) -> None:
        values = np.frombuffer(document[table][name], kind).copy()
        values[0] = value
        document[table][name] = values.tobytes()
    return change


def deep(levels: int) -> Any:
    inner: Any = 1
    for _ in range(levels):
        inner = {"a": inner}
    return inner


def nested(levels: int) -> bytes:
    """A state of so many levels, written by hand: an encoder would give up."""
    document = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(good()))
    whole = msgspec.msgpack.encode({**{name: value for name, value in document.items() if name != "state"}, "state": {}})
    assert whole.endswith(b"\xa5state\x80")
    return zstandard.ZstdCompressor().compress(whole[:-1] + b"\x81\xa1a" * levels + b"\xc0")


HOSTILE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "words": lambda: b"hello",
    "JSON": lambda: b'{"v": 1}',
    "too long": lambda: b"\0" * (MOST_BYTES + 1),
    "cut": lambda: good()[:-20],
    "a bomb that says its size": lambda: zstandard.ZstdCompressor().compress(bytes(MOST_PLAIN_BYTES + 1)),
    "a bomb that does not": lambda: zstandard.ZstdCompressor(write_content_size=False).compress(bytes(200 << 20)),
    "a bomb that lies": lambda: b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", 100) + zstandard.compress(bytes(64 << 20))[9:],
    "another version": lambda: changed(lambda each: each.update(v=2)),
    "no agent": lambda: changed(lambda each: each.update(agent="")),
    "a table short": lambda: changed(lambda each: each.pop("kernels")),
    "a column short": lambda: changed(lambda each: each["kernels"].pop("launches")),
    "half a number": lambda: changed(lambda each: each["kernels"].update(launches=b"\0\0\0")),
    "a row more": lambda: changed(lambda each: each["kernels"].update(launches=each["kernels"]["launches"] + bytes(8))),
    "pairs missing": lambda: changed(lambda each: each["kernels"].update(bucket=b"")),
    "a negative count": lambda: changed(column("kernels", "count", -1)),
    "a negative sum": lambda: changed(column("kernels", "total_ns", -1)),
    "a negative estimate": lambda: changed(column("kernels", "estimate_ns", -1.0, "<f8")),
    "an estimate without end": lambda: changed(column("kernels", "estimate_ns", np.inf, "<f8")),
    "an estimate near the end": lambda: changed(column("kernels", "estimate_ns", 1e308, "<f8")),
    "a square near the end": lambda: changed(column("kernels", "square", 1e308, "<f8")),
    "a logarithm near the end": lambda: changed(column("gpu_kernels", "log_sum", -1e308, "<f8")),
    "a sum near the end": lambda: changed(column("kernels", "total_ns", 2**62 - 1)),
    "a time far away": lambda: changed(column("kernels", "minute", 2**60)),
    "a span of years": lambda: changed(column("kernels", "minute", 1)),
    "a signature that is not there": lambda: changed(column("kernels", "signature", 10_000, "<i4")),
    "a signature before the first": lambda: changed(column("kernels", "signature", -1, "<i4")),
    "a bucket too high": lambda: changed(column("kernels", "bucket", 30_000, "<i2")),
    "a long word": lambda: changed(lambda each: each["contexts"][0].__setitem__(0, "x" * 10_000)),
    "NUL in a word": lambda: changed(lambda each: each["gpus"][0].__setitem__(0, "a\0b")),
    "NUL in a kernel": lambda: changed(lambda each: each["signatures"][0].__setitem__(0, "a\0b")),
    "a grid below nothing": lambda: changed(lambda each: each["signatures"][0].__setitem__(1, -5)),
    "a sequence below nothing": lambda: changed(lambda each: each.update(sequence=-1)),
    "a state of 100 levels": lambda: changed(lambda each: each.update(state=deep(100))),
    "a state of 900 levels": lambda: nested(900),
    "a state of a million levels": lambda: nested(1_000_000),
    "a state of a megabyte": lambda: changed(lambda each: each.update(state={"a": "x" * (1 << 20)})),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_batch_is_refused_with_a_sentence(name: str) -> None:
    with pytest.raises(BatchRefused) as refused:
        services.batch_accept(HOSTILE[name]())
    assert 10 < len(str(refused.value)) < 400 and not FleetBatch.objects.exists()


@pytest.mark.parametrize("state", [{"a": b"\xff\0"}, {"a": "x\0y"}, {"a": float("nan")}, {"a": [1, {"b": 2**63}]}],
                         ids=["bytes", "NUL", "NaN", "large"])
def test_odd_states_are_kept_or_refused(state: dict[str, Any]) -> None:
    try:
        services.batch_accept(changed(lambda each: each.update(state=state)))
    except BatchRefused as refused:
        assert str(refused)
    else:
        assert services.merge_waiting() == 1


def test_changed_bytes_are_refused_or_read_as_numbers() -> None:
    """Bytes flipped, cut out, put in, before and behind the compression: what is read can be merged."""
    chance, packed = np.random.default_rng(7), good()
    plain = zstandard.ZstdDecompressor().decompress(packed)
    refused = 0
    for turn in range(1500):
        data = bytearray(packed if turn % 3 == 0 else plain)
        for _ in range(int(chance.integers(1, 6))):
            place, kind = int(chance.integers(len(data))), int(chance.integers(3))
            if kind == 0:
                data[place] = int(chance.integers(256))
            elif kind == 1:
                del data[place:place + int(chance.integers(1, 9))]
            else:
                data[place:place] = chance.bytes(int(chance.integers(1, 9)))
        try:
            batch = unpack(bytes(data) if turn % 3 == 0 else zstandard.ZstdCompressor().compress(bytes(data)))
            services.check_batch(batch)
        except BatchRefused as error:
            assert str(error)
            refused += 1
            continue
        for hours in merge([batch]).tables.values():
            for name, values in hours.columns.items():
                assert np.isfinite(values.astype(float)).all()
                assert name in ("rank", "log_sum", *EVENTS) or "sum_" in name or values.min() >= 0
    assert refused > 500


def test_the_endpoint_says_why_and_asks_to_wait(api: Any, alice: Any, bob: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = api(alice)
    for name in ("words", "cut", "a bomb that does not", "a state of a million levels", "a negative sum", "too long"):
        answer = client.post(PATH, HOSTILE[name](), content_type=KIND)
        assert answer.status_code == 400 and len(answer.content) > 20, name
    assert client.post(PATH, good(), content_type="application/json").status_code in (400, 415)
    assert api(bob).post(PATH, good(), content_type=KIND).status_code == 403
    assert client.post(PATH, good(), content_type=KIND).json() == {"sequence": 1, "rows": 41, "duplicate": False, "orders": []}
    monkeypatch.setattr(services, "MOST_WAITING_BYTES", 10)
    answer = client.post(PATH, good(sequence=2), content_type=KIND)
    assert answer.status_code == 429 and int(answer.headers["Retry-After"]) > 0 and "wait" in answer.json()["detail"]
    assert client.post(PATH, good(), content_type=KIND).status_code in (200, 429)           # one that came before
    services.merge_waiting()
    assert client.post(PATH, good(sequence=2), content_type=KIND).status_code == 200        # it drained
