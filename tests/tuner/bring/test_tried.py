"""Which values of a host are tuned, decided by trying: another value, run by Triton's interpreter, leaves the same or does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiles.base.refused import Refused
from tests.tuner.bring.test_calls import Calls
from tuner.bring.calls.received import read_record
from tuner.bring.report import Found

FILE = '''
import torch, triton, triton.language as tl

@triton.jit
def twice(x):
    return x * 2

@triton.jit
def scaled(x_ptr, scale_ptr, y_ptr, n, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    for at in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        o = at + tl.arange(0, BLOCK)
        scale = tl.load(scale_ptr + o // GROUP, mask=o < n)
        tl.store(y_ptr + o, twice(tl.load(x_ptr + o, mask=o < n)) * scale, mask=o < n)

def blocks_of(kind):
    return {"small": (64, 32), "large": (256, 128)}[kind]

def scale(x, scales):
    sizes = blocks_of("large")
    y = torch.empty_like(x)
    meta = dict(BLOCK=sizes[0], GROUP=sizes[1])
    scaled[(8,)](x, scales, y, x.numel(), **meta)
    return y

@triton.jit
def squares(x_ptr, y_ptr, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLS + tl.arange(0, COLS)
    o = r[:, None] * n + c[None, :]
    mask = (r[:, None] < n) & (c[None, :] < n)
    tl.store(y_ptr + o, tl.load(x_ptr + o, mask=mask) * 3, mask=mask)

class Tiles:
    def __init__(self):
        self.tile = 32

    def run(self, x):
        y = torch.empty_like(x)
        n, tile = x.shape[0], self.tile
        squares[(triton.cdiv(n, tile), triton.cdiv(n, tile))](x, y, n, tile, tile)
        return y

@triton.jit
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr = 256):
    sums = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, n, BLOCK):
        o = at + tl.arange(0, BLOCK)
        sums += tl.load(x_ptr + tl.program_id(0) * n + o, mask=o < n, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(sums))

def totals(x):
    out = torch.empty(x.shape[0], device=x.device)
    total[(x.shape[0],)](x, out, x.shape[1])
    return out

@triton.jit
def warped(x_ptr, y_ptr, n, num_warps: tl.constexpr, WIDTH: tl.constexpr):
    o = tl.program_id(0) * n + tl.arange(0, WIDTH)
    tl.store(y_ptr + o, tl.load(x_ptr + o, mask=tl.arange(0, WIDTH) < n), mask=tl.arange(0, WIDTH) < n)

def copy_rows(x):
    y = torch.empty_like(x)
    warped[(x.shape[0],)](x, y, x.shape[1], num_warps=8, enable_fp_fusion=False, WIDTH=triton.next_power_of_2(x.shape[1]))
    return y

class Choosing:
    """An autotuner of the file's own."""

    def __init__(self, fn, configs):
        self.fn, self.configs = fn, configs

    def __getitem__(self, grid):
        return lambda *given, **more: self.run(*given, grid=grid, **more)

    def run(self, *given, grid, **more):
        timed = {}
        for config in self.configs:
            timed[config] = triton.testing.do_bench(
                lambda: self.fn[grid](*given, num_warps=config.num_warps, **more, **config.kwargs))
        best = min(timed, key=timed.get)
        return self.fn[grid](*given, num_warps=best.num_warps, **more, **best.kwargs)

@triton.jit
def gathered(x_ptr, order_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(order_ptr + o, mask=o < n, other=0)
    tl.store(y_ptr + o, tl.load(x_ptr + at, mask=o < n), mask=o < n)

gathered = Choosing(gathered, [triton.Config({"BLOCK": 256}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=8)])

def sort_by(x, keys):
    order = keys.argsort()
    kept = int((keys > 0).sum())
    y = torch.empty_like(x)
    gathered[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, order, y, x.numel())
    return y, kept

@triton.jit
def rounded(x_ptr, y_ptr, scale_ptr, count_ptr, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK
    for i in range(0, BLOCK // STEP):
        o = at + i.to(tl.int32) * STEP + tl.arange(0, STEP)
        x = tl.inline_asm_elementwise("cvt.rna.tf32.f32 $0, $1;", "=r, r", [tl.load(x_ptr + o)], dtype=tl.float32,
                                      is_pure=True, pack=1)
        tl.store(y_ptr + o, x * tl.load(scale_ptr + (at + i * STEP) // 128))
    tl.store(count_ptr + tl.program_id(0), at)

def round_and_gather(x, scales):
    blocks = x.numel() // 512
    y, starts = torch.empty_like(x), torch.zeros(blocks, dtype=torch.int32, device=x.device)
    rounded[(blocks,)](x, y, scales, starts, x.numel(), STEP=128, BLOCK=512)
    gathered.fn[(triton.cdiv(blocks, 256),)](x, starts, y, blocks, BLOCK=256)
    return y
'''


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    path = Path(tmp_path_factory.mktemp("tried") / "tried.py")
    path.write_text(FILE)
    made = Calls(path)
    with made.asked:
        yield made


def space_of(found: Found) -> dict[str, Any]:
    return {each["name"]: each["values"] for each in found.parameters if each["name"] not in ("num_warps", "num_stages")}


@pytest.mark.torch
def test_a_number_of_a_table_is_tuned_and_one_that_changes_the_result_is_left(calls: Calls) -> None:
    found = calls.record("scale(randn(65536), randn(512))")["scaled"]
    assert space_of(found) == {"BLOCK": [64, 128, 256, 512, 1024]} and found.default["BLOCK"] == 256 and not found.problems
    assert any(note.startswith("GROUP=128 is not tuned: with 256 in its place y_ptr differs by") for note in found.notes)
    assert any(note.startswith("BLOCK: twice and half the value leave the same") for note in found.notes)


@pytest.mark.torch
def test_blocks_that_are_one_number_stay_one(calls: Calls) -> None:
    found = calls.record("Tiles().run(randn(1024, 1024))")["squares"]
    assert list(space_of(found)) == ["ROWS"] and not found.problems
    assert '"COLS": lambda meta: meta["ROWS"]' in calls.adapters["squares"]


@pytest.mark.torch
def test_a_block_that_is_the_kernels_own_default_is_tuned(calls: Calls) -> None:
    found = calls.record("totals(randn(64, 2048))")["total"]
    assert space_of(found) == {"BLOCK": [64, 128, 256, 512, 1024]} and not found.problems
    told = json.loads(json.dumps(calls.told))
    assert read_record(told)["tries"] == calls.told["tries"]
    wrongs: list[dict[str, Any]] = [{"verdict": 3}, {"names": ["a b"]}, {"sizes": [[1]]}, {"sizes": [[1, 2, 3]]},
                                    {"was": {"x": True}}, {"launch": {}}]
    for wrong in wrongs:
        with pytest.raises(Refused):
            read_record({**told, "tries": [{**told["tries"][0], **wrong}]})


@pytest.mark.torch
def test_warps_that_are_an_argument_too_are_tuned(calls: Calls) -> None:
    found = calls.record("copy_rows(randn(512, 1000))")["warped"]
    assert {each["name"]: each["values"] for each in found.parameters}["num_warps"] == [1, 2, 4, 8, 16]
    assert found.default["num_warps"] == 8 and not found.problems and space_of(found) == {"enable_fp_fusion": [False]}
    assert calls.compile("warped")["registers"] > 0


@pytest.mark.torch
def test_the_list_of_an_autotuner_of_the_files_own_and_values_that_the_host_sorts(calls: Calls) -> None:
    found = calls.record("sort_by(randn(4096), randn(4096))")["gathered"]
    assert space_of(found) == {"BLOCK": [256, 1024]} and found.size == 2 and not found.problems
    adapter = calls.adapters["gathered"]
    assert 'KERNEL = triton.autotune(configs=[triton.Config({"BLOCK": 256}, num_warps=4, num_stages=3), ' in adapter
    assert "NotImplementedError" not in adapter and "torch.randperm(" in adapter
    assert any("the host looks at values" in note for note in found.notes)
    compile(adapter, "adapter", "exec")


@pytest.mark.torch
def test_a_step_is_tuned_below_a_group_of_scales_and_what_a_kernel_wrote_is_not_known(calls: Calls) -> None:
    """Inline assembly and counters of loops are stood in for. A step over two scales changes the result, half of one not."""
    found = calls.record("round_and_gather(randn(65536), randn(512))", "fp32")
    assert space_of(found["rounded"])["STEP"] == [64, 128] and "BLOCK" not in space_of(found["rounded"])
    assert any(note.startswith("STEP: no value above 128: with 256 in its place y_ptr differs") for note in found["rounded"].notes)
    assert "what order_ptr holds" in calls.adapters["gathered"]
