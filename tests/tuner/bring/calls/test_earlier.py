"""What a kernel leaves for the next in one call: offsets, counts and orders that the host reads and later kernels are given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from profiles.base.refused import Refused
from tests.tuner.bring.own.files import SORTING
from tests.tuner.bring.test_calls import Calls
from tuner.bring.calls.received import read_record
from tuner.bring.python_text import count_packed, pack, write_packed

FILE = SORTING + '''
@triton.jit
def foreign_kernel(ids_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ids = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(ids_ptr + o, mask=o < n)], tl.int32, True, 1)
    tl.store(out_ptr + o, ids, mask=o < n)

@triton.jit
def look_up_kernel(x_ptr, at_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + o, tl.load(x_ptr + tl.load(at_ptr + o, mask=o < n), mask=o < n), mask=o < n)

def look_up(x, ids):
    at = torch.zeros_like(ids)
    foreign_kernel[(triton.cdiv(ids.numel(), 64),)](ids, at, ids.numel(), BLOCK=64)
    y = torch.empty_like(x)
    look_up_kernel[(triton.cdiv(ids.numel(), 64),)](x, at, y, ids.numel(), BLOCK=64)
    return y
'''


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    path = tmp_path_factory.mktemp("earlier") / "earlier_kernels.py"
    path.write_text(FILE)
    made = Calls(path)
    with made.asked:
        yield made


@pytest.mark.torch
def test_what_earlier_kernels_leave_is_what_the_host_reads_and_later_kernels_are_given(calls: Calls) -> None:
    torch = pytest.importorskip("torch")
    found = calls.record("sort_rows(randn(96, 64), randint(0, 5, (96,), dtype=torch.int32), 5, block=64)")
    ids = torch.arange(96) * 7919 % 5
    offsets = [0, *ids.bincount(minlength=5).cumsum(0).tolist()]
    rows = calls.told["launches"][2]
    assert rows["arguments"]["offsets_ptr"]["values"] == offsets
    assert rows["arguments"]["longest"]["value"] == int(ids.bincount().max())
    assert rows["arguments"]["order_ptr"]["values"] == ids.argsort(stable=True).tolist()
    assert calls.told["ran"][:2] == ["count_kernel", "place_kernel"] and "drawn" not in calls.told
    for name, adapter in calls.adapters.items():
        assert "NotImplementedError" not in adapter, name
    assert f"offsets_ptr = torch.tensor({offsets}, dtype=torch.int32" in calls.adapters["rows_kernel"]
    # the numbers that the adapter draws are those of which the others were computed
    assert "* 7919 % 5" in calls.adapters["place_kernel"] and 'restored=("next_ptr",)' in calls.adapters["place_kernel"]
    assert "what count_kernel, place_kernel leaves for it was computed in Triton's interpreter" in found["rows_kernel"].notes
    read_record(json.loads(json.dumps(calls.told, allow_nan=False)))


@pytest.mark.torch
def test_what_the_interpreter_cannot_compute_is_asked_and_not_made_up(calls: Calls) -> None:
    found = calls.record("look_up(randn(256), randint(0, 256, (256,), dtype=torch.int32))")["look_up_kernel"]
    assert "write what a call does not tell: what at_ptr holds (int32)" in calls.adapters["look_up_kernel"]
    assert [note for note in found.notes if re.match("what another kernel leaves .* could not be computed: foreign_kernel: ", note)]


def test_packed_numbers_are_read_like_an_upload() -> None:
    text = pack([[1, -2], [3, 1 << 40]])
    assert count_packed(text) == 4 and text in write_packed(text)
    bomb = pack([0] * (1 << 20))
    assert count_packed(bomb) == 1 << 20 and len(bomb) < 20_000
    for wrong in (text[:-5], text + "00000", "not packed", pack([0] * ((1 << 20) + 1)), '"' + text[1:]):
        with pytest.raises(ValueError):
            count_packed(wrong)
    tensor = {"kind": "tensor", "dtype": "int32", "shape": [4], "strides": [1], "storage": 1, "packed": text}
    launch = {"kernel": "k", "grid": [1], "arguments": {"x": tensor}, "constexprs": {}, "options": {}, "line": 1, "gluon": False,
              "grid_is_function": False, "heuristics": [], "heuristics_above": False, "autotune": None}
    record = {"call": "f(1)", "sizes": [], "launches": [launch]}
    assert read_record(record)["launches"][0]["arguments"]["x"]["packed"] == text
    with pytest.raises(Refused):
        read_record({**record, "launches": [{**launch, "arguments": {"x": {**tensor, "shape": [5]}}}]})
