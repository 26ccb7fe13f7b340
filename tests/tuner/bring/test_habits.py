"""Habits of hosts in public files: what they import, draw, convert and hand on, each in a small function of one file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiles.base.refused import Refused
from tests.tuner.bring.test_calls import Calls
from tuner.bring.calls.expression import read_call
from tuner.bring.calls.received import read_record
from tuner.bring.source import all_kernels_of

FILE = '''
import functools, random
import torch, triton, triton.language as tl
import torch.nn as nn
import torch.nn.functional as F
from einops import rearrange
from triton.language import nothing_here
from somewhere.nowhere import Kind, LIMITS
from triton.tools.tensor_descriptor import TensorDescriptor

built = torch.ops.load_library("nowhere.so")
MODE = Kind.FAST
if LIMITS.most > 3 or 1 + LIMITS // 2 > 4:
    raise ValueError

@triton.jit
def relu(x):
    return tl.maximum(x, 0.0)

@triton.jit
def act_kernel(x_ptr, y_ptr, n, scale, seed, ACT: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + o, ACT(tl.load(x_ptr + o, mask=o < n)) * scale, mask=o < n)

def act(x, scale, config=None):
    config = config or {"BLOCK": 512}
    seed = torch.randint(0, 2 ** 31, (1,), device=x.device).item() + random.randint(0, 100)
    y = torch.empty_like(x)
    with torch.cuda.nvtx.range("act"), torch.cuda.device(x.device.index):
        torch.cuda.reset_peak_memory_stats()
        act_kernel[(triton.cdiv(x.numel(), config["BLOCK"]),)](x, y, x.numel(), scale, seed, ACT=relu, **config)
    return y

@torch.library.custom_op("habits::twice", mutates_args=())
def twice_op(x: torch.Tensor) -> torch.Tensor:
    return act(x, 2.0)

class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = nn.LayerNorm(config.width).cuda().half()

    def forward(self, x, ends):
        assert ends.cpu().numpy().max() == sum(b - a for a, b in zip(ends.tolist(), ends.tolist()[1:]))
        x = rearrange(self.norm(x), "n (h d) -> h n d", h=4)
        return torch.ops.habits.twice(F.gelu(x).contiguous())

@triton.jit
def rows_kernel(x_ptr, ids_ptr, y_ptr, sums_ptr, D, BLOCK: tl.constexpr):
    row = tl.load(ids_ptr + tl.program_id(0))
    for at in range(0, D, BLOCK):
        o = at + tl.arange(0, BLOCK)
        tl.store(y_ptr + tl.program_id(0) * D + o, tl.load(x_ptr + row * D + o, mask=o < D), mask=o < D)
    tl.store(sums_ptr + tl.program_id(0), row)
    tl.store(sums_ptr + tl.program_id(0), tl.load(sums_ptr + tl.program_id(0)) + 1)

@functools.lru_cache(maxsize=None)
def block_of(kind):
    return 128

def sorted_rows(x, scores):
    ids = scores.argsort()
    y = torch.empty(ids.numel(), x.shape[1], device=x.device)
    rows_kernel[(ids.numel(),)](x, ids, y, torch.empty_like(ids), x.shape[1], BLOCK=block_of("rows"))
    return y

@triton.heuristics({"num_warps": lambda args: 8 if args["n"] > 1000 else 4})
@triton.jit
def ruled_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + o, tl.load(x_ptr + o, mask=o < n) * 2, mask=o < n)

def ruled(x):
    y = torch.empty_like(x)
    ruled_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y

def set_blocks(nargs):
    nargs["a_desc"].block_shape = [nargs["BM"], nargs["BN"]]
    nargs["c_desc"].block_shape = [nargs["BM"], nargs["BN"]]

@triton.autotune(configs=[triton.Config({"BM": m, "BN": n}, num_warps=4, pre_hook=set_blocks) for m in (32, 64) for n in (64, 128)],
                 key=["M", "N"])
@triton.jit
def described_kernel(a_desc, c_desc, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    c_desc.store([m, n], a_desc.load([m, n]) * 2)

def described(a):
    M, N = a.shape
    c = torch.empty_like(a)
    a_desc, c_desc = (TensorDescriptor(each, each.shape, each.stride(), [1, 1]) for each in (a, c))
    described_kernel[lambda META: (triton.cdiv(M, META["BM"]), triton.cdiv(N, META["BN"]))](a_desc, c_desc, M, N)
    return c

exit(0)
'''


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    path = Path(tmp_path_factory.mktemp("habits") / "habits.py")
    path.write_text(FILE)
    made = Calls(path)
    with made.asked:
        yield made


def space_of(found: Any) -> dict[str, Any]:
    return {each["name"]: each["values"] for each in found.parameters}


@pytest.mark.torch
def test_a_block_that_the_call_gives_a_function_as_constexpr_and_a_seed(calls: Calls) -> None:
    call = 'act(torch.cat([randn(64, 64), torch.eye(64)])[:, :32] * 2, scale=64 ** -0.5, config={"BLOCK": 256})'
    found = calls.record(call)["act_kernel"]
    assert space_of(found)["BLOCK"] == [64, 128, 256, 512, 1024] and not found.problems
    adapter = calls.adapters["act_kernel"]
    assert "from habits import relu\n" in adapter and '"ACT": relu' in adapter and "NotImplementedError" not in adapter
    assert not any("own sizes alone" in note for note in found.notes)               # the seed is the same in each call
    compile(adapter, "adapter", "exec")
    read_record(json.loads(json.dumps(calls.told, allow_nan=False)))


@pytest.mark.torch
def test_a_module_a_custom_operator_by_its_name_and_a_library_that_is_not_here(calls: Calls) -> None:
    found = calls.record("Layer(SimpleNamespace(width=256))(randn(512, 256), tensor([0, 128, 512]))")["act_kernel"]
    assert {each["name"]: each["kind"] for each in found.arguments}["x_ptr"] == "pointer" and not found.problems
    assert [note for note in found.notes if "it exits" in note and "einops" not in note]


@pytest.mark.torch
def test_an_order_is_drawn_scratch_is_not_asked_and_results_that_are_kept_are_computed_anew(calls: Calls) -> None:
    found = calls.record("sorted_rows(randn(128, 1024), randn(128))")["rows_kernel"]
    adapter = calls.adapters["rows_kernel"]
    assert space_of(found)["BLOCK"] == [32, 64, 128, 256, 512] and not found.problems
    assert "torch.randperm(" in adapter and "only=" not in adapter and "NotImplementedError" not in adapter


@pytest.mark.torch
def test_warps_that_a_heuristic_chooses_are_not_tuned(calls: Calls) -> None:
    found = calls.record("ruled(randn(65536))")["ruled_kernel"]
    assert "BLOCK" in space_of(found) and "num_warps" not in space_of(found) and "num_warps" not in found.default


@pytest.mark.torch
def test_descriptors_whose_blocks_a_hook_sets_are_made_for_each_configuration(calls: Calls) -> None:
    found = calls.record("described(randn(1024, 2048))", "fp16")["described_kernel"]
    assert space_of(found)["BM"] == [32, 64] and not found.problems
    adapter = calls.adapters["described_kernel"]
    assert '"c_desc": lambda meta: TensorDescriptor.from_tensor(meta["c_desc"], [meta["BM"], meta["BN"]])' in adapter
    assert "KERNEL = triton.autotune(configs=[" in adapter and "})(described_kernel.fn))" in adapter
    assert calls.compile("described_kernel")["registers"] > 0
    read_record(json.loads(json.dumps(calls.told, allow_nan=False)))


def test_programs_that_wait_for_each_other_are_told_from_those_that_take_a_lock() -> None:
    text = """@triton.jit
def barrier(count, n):
    tl.atomic_add(count, 1)
    while tl.load(count, volatile=True) < n:
        pass

@triton.jit
def sums(x, count, n, BLOCK: tl.constexpr):
    tl.store(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 0)
    barrier(count, n)

@triton.jit
def locked(x, lock, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(x + tl.arange(0, BLOCK), 0)

@triton.jit
def polls(x, lock):
    while tl.atomic_cas(lock, 1, 1) != 1:
        pass
    tl.store(x, 0)
"""
    assert {name: each.waits for name, each in all_kernels_of(text).items()} == {
        "barrier": True, "sums": True, "locked": False, "polls": True}


def test_powers_parts_and_dictionaries_are_read_and_no_more() -> None:
    for call in ("f(64 ** -0.5)", "f(randn(4, 8)[:, :4], g(x)[0])", "f(a={'BLOCK': 64})", "f(-rand(3) * 2)"):
        read_call(call)
    for call in ("f(2 ** 99)", "f(2 ** x)", "f(x[y])", "f(x[g(1)])", "f({1: 2})", "f({**x})", "f(x[1:y])"):
        with pytest.raises(Refused):
            read_call(call)
