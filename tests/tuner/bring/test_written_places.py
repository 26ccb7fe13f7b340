"""Where hosts write a block: beside the kernel's arguments, in a class, a table, a global that changes, a module's constexpr."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tuner.bring.test_calls import Calls
from tuner.bring.calls.fitting import fit
from tuner.bring.calls.received import read_record

FILE = '''
import torch, triton, triton.language as tl
import an_extension

@triton.autotune(configs=[triton.Config({"BLOCK": 64}, nothing_that_is_here=2)], key=["n"])
@triton.jit
def newer(x, y, n, BLOCK: tl.constexpr):
    pass

@triton.jit
def plus(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)

@triton.jit
def older(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.libdevice.exp(tl.load(x + o, mask=o < n)), mask=o < n)

@triton.jit
def parts(x, y, starts, BLOCK: tl.constexpr):
    begin, end = tl.load(starts + tl.program_id(0)), tl.load(starts + tl.program_id(0) + 1)
    o = begin + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < end) + 1, mask=o < end)

def beside(x):
    y = torch.empty_like(x)
    count = triton.cdiv(x.numel(), 1024)
    plus[(count,)](x, y, x.numel(), 1024)
    return y

class Plus:
    block = 512

    def __call__(self, x):
        y = torch.empty_like(x)
        plus[(triton.cdiv(x.numel(), self.block),)](x, y, x.numel(), self.block)
        return y

TABLE = {"fp16": {"BLOCK": 512}}

def of_a_table(x):
    y, tile = torch.empty_like(x), TABLE["fp16"]
    plus[(triton.cdiv(x.numel(), tile["BLOCK"]),)](x, y, x.numel(), BLOCK=tile["BLOCK"])
    return y

_BLOCK = 256

def of_a_global(x):
    global _BLOCK
    y = torch.empty_like(x)
    try:
        plus[(triton.cdiv(x.numel(), _BLOCK),)](x, y, x.numel(), BLOCK=_BLOCK)
    except triton.OutOfResources:
        _BLOCK = _BLOCK // 2
    return y

TILE = tl.constexpr(512)

def of_a_constexpr(x):
    y = torch.empty_like(x)
    plus[(triton.cdiv(x.numel(), TILE.value),)](x, y, x.numel(), TILE)
    return y

def of_parts(x, lengths):
    y = torch.empty_like(x)
    starts = torch.tensor([0] + lengths, device=x.device).cumsum(0).int()
    parts[(len(lengths), triton.cdiv(max(lengths), 128))](x, y, starts, BLOCK=128)
    return y

def of_another_triton(x):
    y = torch.empty_like(x)
    older[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y

@triton.autotune(configs=[triton.Config({"BM": m, "BN": n, "waves_per_eu": w}) for m, n in ((64, 256), (32, 128), (128, 32))
                          for w in (1, 2)], key=["M"])
@triton.jit
def tiles(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m, n = tl.program_id(0) % tl.cdiv(M, BM), tl.program_id(0) // tl.cdiv(M, BM)
    o = (m * BM + tl.arange(0, BM))[:, None] * N + (n * BN + tl.arange(0, BN))[None, :]
    mask = ((m * BM + tl.arange(0, BM))[:, None] < M) & ((n * BN + tl.arange(0, BN))[None, :] < N)
    tl.store(y + o, tl.load(x + o, mask=mask) + 1, mask=mask)

def of_two_blocks(x):
    (M, N), y = x.shape, torch.empty_like(x)
    tiles[lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)](x, y, M, N)
    return y

def of_an_extension(x):
    y, starts = torch.empty_like(x), torch.empty(5, dtype=torch.int32, device=x.device)
    an_extension.fill(starts.view(-1), x.numel())
    parts[(4, triton.cdiv(x.numel(), 128))](x, y, starts, BLOCK=128)
    return y

@triton.jit
def row_sums(x, y, D, next_row, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * D + o, mask=o < D, other=0.0)
    tl.store(y + tl.program_id(0), 1.0)
    tl.store(y + next_row + tl.program_id(0) * D + o, v, mask=o < D)

def of_a_row(x):
    y = torch.empty(x.shape[0], 1 + x.shape[1], device=x.device).view(-1)
    row_sums[(x.shape[0],)](x, y[:x.shape[0]], x.shape[1], x.shape[0], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y

@triton.jit
def row_logs(x, y, D, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * D + o, mask=o < D, other=-float("inf"))
    tl.store(y + tl.program_id(0), tl.log(tl.sum(tl.exp(v))))

def of_a_long_row(x):
    y = x.new_empty(x.shape[0])
    row_logs[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y

@triton.autotune(configs=[triton.Config({"BM": m, "BK": k}) for m in (16, 32, 64) for k in (16, 32)], key=["M"])
@triton.jit
def triangle(x, M, BM: tl.constexpr, BK: tl.constexpr):
    o = tl.program_id(0) * BM + tl.arange(0, BM)
    tl.store(x + o, tl.load(x + o, mask=o < M) + BK, mask=o < M)

def of_a_triangle(x):
    def grid(meta):
        tiles = triton.cdiv(x.numel(), meta["BM"])
        return (tiles * (tiles + 1) // 2,)
    triangle[grid](x, x.numel())

@triton.autotune(configs=[triton.Config({"BM": 32, "WIDE": wide}) for wide in (False, True)], key=["M"])
@triton.jit
def flagged(x, M, BM: tl.constexpr, WIDE: tl.constexpr):
    for at in range(tl.program_id(0) * BM, tl.program_id(0) * BM + 1 if WIDE else M, BM):
        o = at + tl.arange(0, BM)
        tl.store(x + o, tl.load(x + o, mask=o < M) * 2, mask=o < M)

class Flagged(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        assert torch.tensor(-1).cuda().is_cuda and torch.zeros(4, device="cuda").to("cuda").device.type == "cuda"
        grad = grad.clone()
        flagged[lambda meta: (triton.cdiv(grad.numel(), meta["BM"]) if meta["WIDE"] else 1,)](grad, grad.numel())
        return grad

@triton.jit
def meta_kernel(x, **meta):
    tl.store(x, meta["VALUE"])

def of_meta(x):
    meta_kernel[(1,)](x, VALUE=1)

def of_a_newer_one(x):
    y = torch.empty_like(x)
    newer[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
'''


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    path = Path(tmp_path_factory.mktemp("places") / "places.py")
    path.write_text(FILE)
    made = Calls(path)
    with made.asked:
        yield made


@pytest.mark.torch
@pytest.mark.parametrize(("call", "block"), [
    ("beside(randn(65536))", 1024), ("Plus()(randn(65536))", 512), ("of_a_table(randn(65536))", 512),
    ("of_a_global(randn(65536))", 256), ("of_a_constexpr(randn(65536))", 512)])
def test_a_block_is_tuned_wherever_it_is_written(calls: Calls, call: str, block: int) -> None:
    found = calls.record(call)["plus"]
    values = {each["name"]: each["values"] for each in found.parameters}
    assert values["BLOCK"] == [block // 4, block // 2, block, 2 * block, 4 * block]
    assert found.default["BLOCK"] == block and not found.problems
    assert found.recorded and found.recorded["grid_formula"] == 'triton.cdiv(meta["n"], meta["BLOCK"])'


@pytest.mark.torch
def test_a_list_of_lengths_is_tried_with_the_calls_own_tensor(calls: Calls) -> None:
    found = calls.record("of_parts(randn(4096), [1000, 96, 2000, 1000])")["parts"]
    assert [note for note in found.notes if note.startswith("BLOCK: twice and half the value leave the same")]


@pytest.mark.torch
def test_what_this_triton_refuses_is_said_with_its_line(calls: Calls) -> None:
    calls.record("of_another_triton(randn(65536))")
    error = calls.compile("older")["error"]
    assert error.startswith("Triton ") and " refuses it: " in error
    assert error.endswith("(line 3 of the kernel: tl.store(y + o, tl.libdevice.exp(tl.load(x + o, mask=o < n)), mask=o < n))")
    told = calls.asked.record("of_a_newer_one(randn(65536))", "")
    assert told["failed"].startswith("the call launches no Triton kernel; it needs line 7: TypeError: ")
    assert "nothing_that_is_here" in told["failed"]
    told = calls.asked.record("of_meta(randn(64))", "")
    assert " refuses meta_kernel: no kernel takes * or ** any more (line " in told["failed"]


@pytest.mark.torch
def test_a_grid_holds_for_every_listed_configuration_and_options_of_another_gpu_are_left_out(calls: Calls) -> None:
    found = calls.record("of_two_blocks(randn(4096, 64))")["tiles"]
    assert found.recorded and found.recorded["grid_formula"] == (
        'triton.cdiv(meta["M"], meta["BM"]) * triton.cdiv(meta["N"], meta["BN"])')
    assert found.size == 3 and "left out: waves_per_eu, which Triton does not have for this GPU" in found.notes
    assert calls.compile("tiles")["registers"] > 0 and "waves_per_eu" not in calls.adapters["tiles"]
    assert "KERNEL = triton.autotune(configs=[" in calls.adapters["tiles"]


@pytest.mark.torch
def test_what_a_missing_extension_was_given_is_asked(calls: Calls) -> None:
    calls.record("of_an_extension(randn(4096))")
    assert "what starts holds (int32)" in calls.adapters["parts"]


@pytest.mark.torch
@pytest.mark.parametrize(("call", "kernel"), [
    ("of_a_row(randn(64, 1000))", "row_sums"), ("of_a_long_row(randn(64, 1025))", "row_logs")])
def test_a_block_that_covers_a_row_is_left_though_half_of_it_does_nearly_the_same(calls: Calls, call: str, kernel: str) -> None:
    found = calls.record(call)[kernel]
    assert "BLOCK" not in {each["name"] for each in found.parameters} and found.recorded
    assert found.recorded["constexprs"]["BLOCK"]["chosen"].startswith("covers a size")


@pytest.mark.torch
def test_a_grid_of_no_simple_formula_is_a_table_over_the_listed_blocks(calls: Calls) -> None:
    found = calls.record("of_a_triangle(randn(1024))")["triangle"]
    assert found.recorded and found.recorded["grid_formula"] == '{(16,): 2080, (32,): 528, (64,): 136}[meta["BM"],]'
    assert not found.problems and "NotImplementedError" not in calls.adapters["triangle"] and "only=" in calls.adapters["triangle"]


@pytest.mark.torch
def test_a_flag_that_moves_the_grid_of_a_backward_pass_is_in_its_table(calls: Calls) -> None:
    found = calls.record("Flagged.apply(randn(1024, requires_grad=True)).backward(randn(1024))")["flagged"]
    assert found.recorded and found.recorded["grid_formula"] == '{(False,): 1, (True,): 32}[meta["WIDE"],]'
    assert not found.problems and not [note for note in found.notes if "did not end" in note]
    read_record(json.loads(json.dumps(calls.told, allow_nan=False)))


def test_a_program_may_go_over_several_blocks_of_a_size() -> None:
    points = [({"K": k, "M": 512, "BK": bk, "PARTS": parts}, -(-k // (bk * parts)))
              for k in (4096, 5000, 8192) for bk in (16, 32) for parts in (4, 64)]
    assert fit(points, ["M", "K"], ["BK", "PARTS"], 'meta["{}"]') == 'triton.cdiv(meta["K"], (meta["BK"] * meta["PARTS"]))'
