"""A recording played with a change, many pieces at once, ends when one piece after the other does."""

from __future__ import annotations

import numpy as np
import pytest

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.launching.order import order_of
from profiles.analysis.trace.needed import simulate
from profiles.analysis.trace.needed.simulate import Change, Recording
from tests.profiles.needed.natural import frame

FILES = ("natural/experts_in_a_loop.json.gz", "natural/item_each_token.json.gz", "natural/optimizer_tensor_by_tensor.json.gz")


def _saved_ns(mine: Frame, recording: Recording, change: Change) -> int:
    """The rule as it is written at the head of `simulate`, piece by piece."""
    order, waits = order_of(mine), list(recording.waits)
    ns, host_ns = (dict(zip(change.rows.tolist(), each.tolist(), strict=True)) for each in (change.ns, change.host_ns))
    free, recorded_free, done, recorded_done = (dict[int, int]() for _ in range(4))
    shift = 0
    for at in np.argsort(order.call_start_ns, kind="stable").tolist():
        row, stream, device = int(order.rows[at]), int(order.track[at]), int(order.device[at])
        start, end, call = int(order.start_ns[at]), int(order.end_ns[at]), int(order.call_start_ns[at])
        while waits and waits[0][0] <= call:
            began, returned = waits.pop(0)
            if any(first <= began <= last for first, last in change.gone):
                shift += returned - began
                continue
            recorded = max((each for each in recorded_done.values() if each <= returned), default=began)
            until = max(done.values(), default=began - shift) if recorded > began else began - shift
            shift = returned - (max(began - shift, until) + returned - max(began, recorded))
        gone = any(first <= call <= last for first, last in change.gone)
        length = ns.get(row, 0 if gone else end - start)
        before = recorded_free.get(stream, call)
        recorded_free[stream], recorded_done[device] = max(end, before), max(end, recorded_done.get(device, end))
        if length > 0 or not (gone or row in ns):
            free[stream] = max(free.get(stream, call - shift), call - shift) + start - max(before, call) + length
            done[device] = max(done.get(device, free[stream]), free[stream])
        place = int(recording.place[row])
        shift += host_ns.get(row, int(recording.host_ns[place]) if gone and row not in ns else 0)
    return max((recorded_done[device] - done[device] for device in done), default=0)


@pytest.mark.parametrize("few", [0, 1 << 40], ids=["many at once", "one after the other"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.rpartition("/")[2])
def test_many_at_once_end_as_one_after_the_other(file: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "FEW", few)
    mine = frame(file)
    recording, random = Recording(mine), np.random.default_rng(7)
    rows, length = order_of(mine).rows, order_of(mine).dur_ns
    for share in (0.02, 0.5):
        chosen = np.flatnonzero(random.random(rows.size) < share)
        shorter = (length[chosen] * random.choice([0.0, 0.3, 1.5], chosen.size)).astype(np.int64)
        first, last = np.sort(recording.call[random.integers(0, recording.call.size, 2)]).tolist()
        change = Change(rows[chosen].astype(np.int64), shorter, recording.host_share(rows[chosen], 0.5), [(first, last)])
        for each in (change, Change(change.rows, change.ns, change.host_ns)):
            assert recording.saved_ns(each) == _saved_ns(mine, recording, each) != 0
