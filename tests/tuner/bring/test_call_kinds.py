"""Kinds of host functions in public files: what follows from a block, one listed configuration, branches, objects, late errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from profiles.base.refused import Refused
from tests.tuner.bring.test_calls import Calls
from tuner.bring.calls.expression import read_call
from tuner.bring.calls.fitting import fit, fit_flag, fit_fraction
from tuner.bring.calls.reference_call import write_reference_call
from tuner.bring.report import Found
from tuner.bring.source import all_kernels_of
from tuner.bring.spaces import few_values


def record_call(folder: Path, text: str, call: str, kernel: str) -> tuple[Found, str]:
    """Return what a call of a file's host function says of one kernel, and the adapter that is written of it."""
    path = folder / "calls_of_a_file.py"
    path.write_text(text)
    calls = Calls(path)
    with calls.asked:
        found = calls.record(call)[kernel]
    return found, calls.adapters[kernel]


FILE = """
import torch, triton, triton.language as tl

@triton.jit
def sums(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, PARTS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at) if EVEN else tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.atomic_add(out_ptr, tl.sum(x) / (PARTS * BLOCK))

def mean_of_parts(x):
    BLOCK = 256
    out = torch.zeros(1, dtype=torch.float32, device=x.device)
    parts = triton.cdiv(x.numel(), BLOCK)
    sums[(parts,)](x, out, x.numel(), BLOCK=BLOCK, EVEN=x.numel() % BLOCK == 0, PARTS=parts)
    return out

@triton.autotune(configs=[triton.Config({"BLOCK": 1024}, num_warps=4)], key=["n"])
@triton.jit
def scaled(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * scale, mask=at < n)

def scale_rows(x):
    y = torch.empty_like(x)
    n = x.numel()
    scaled[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, 1.4427 * x.shape[1] ** -0.5)
    return y

class Scaler:
    def __init__(self, times):
        self.times = times

    def run_it(self, x):
        y = scale_rows(x)
        if y.argmax() > 3:          # looks at what a kernel computes: the call ends here
            return x
        return y

@triton.jit
def copied(a, b, n, BLOCK: tl.constexpr, TO_B: tl.constexpr):
    source = a if TO_B else b
    target = b if TO_B else a
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < n), mask=at < n)

def copy_to(a, longest):
    b = torch.empty_like(a)
    copied[(triton.cdiv(longest, 128),)](a, b, a.numel(), BLOCK=128, TO_B=True)
    return b

def scale_torch(x, times=1.0):
    return x * times
"""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    path = tmp_path_factory.mktemp("kinds") / "kinds.py"
    Path(path).write_text(FILE)
    made = Calls(path)
    with made.asked:
        yield made


@pytest.mark.torch
def test_what_the_host_computes_from_a_block_is_computed_for_each_configuration(calls: Calls) -> None:
    found = calls.record("mean_of_parts(randn(4096))")["sums"]
    assert {"BLOCK"} == {each["name"] for each in found.parameters} - {"num_warps", "num_stages"} and not found.problems
    adapter = calls.adapters["sums"]
    assert '"PARTS": lambda meta: triton.cdiv(meta["n"], meta["BLOCK"])' in adapter
    assert '"EVEN": lambda meta: meta["n"] % meta["BLOCK"] == 0' in adapter and "kernel=KERNEL" in adapter
    assert '"PARTS"' not in adapter[adapter.index("def arguments"):adapter.index("def reference")]
    compile(adapter, "adapter", "exec")


@pytest.mark.torch
def test_one_listed_configuration_is_where_a_space_begins(calls: Calls) -> None:
    found = calls.record("scale_rows(randn(256, 1000))")["scaled"]
    space = {each["name"]: each["values"] for each in found.parameters}
    assert space["BLOCK"] == [256, 512, 1024, 2048, 4096] and len(space["num_warps"]) == 5 and found.default["BLOCK"] == 1024
    assert "1.4427 * N ** -0.5" in calls.adapters["scaled"] or "1.4427 * M ** -0.5" in calls.adapters["scaled"]
    assert "params={" in calls.adapters["scaled"]


@pytest.mark.torch
def test_a_method_of_an_object_of_the_file_is_called_and_a_call_that_ends_late_is_made_again(calls: Calls) -> None:
    found = calls.record("Scaler(3).run_it(randn(1100, 1000))")["scaled"]
    assert any("did not end" in note for note in found.notes)
    assert found.recorded is not None and not found.problems
    assert found.recorded["grid_formula"] == 'triton.cdiv(meta["n"], meta["BLOCK"])'


@pytest.mark.torch
def test_only_the_branch_that_a_launch_takes_is_read_and_a_number_no_argument_tells_holds_for_the_call(calls: Calls) -> None:
    found = calls.record("copy_to(randn(4096), 3000)")["copied"]
    assert {each["name"]: each["written"] for each in found.arguments if each["kind"] == "pointer"} == {"a": False, "b": True}
    assert "triton.cdiv(3000, meta[\"BLOCK\"])" in calls.adapters["copied"] and "only=(4096,)" in calls.adapters["copied"]
    assert "NotImplementedError" not in calls.adapters["copied"]


def test_conditions_that_are_known_are_decided_and_others_stay() -> None:
    text = FILE.replace("source = a if TO_B else b", "source = a if TO_B and n > 3 else b")
    kernel = all_kernels_of(text, {"copied": {"TO_B": True}})["copied"]
    assert {each.name for each in kernel.arguments if each.loaded} == {"a", "b"}
    kernel = all_kernels_of(text, {"copied": {"TO_B": False}})["copied"]
    assert {each.name for each in kernel.arguments if each.loaded} == {"b"}


def test_quotients_flags_and_fractions_are_fitted() -> None:
    shapes = [(4096, 128), (8192, 128), (4096, 64), (6144, 256)]
    assert fit([({"K": k, "G": g}, k // g) for k, g in shapes], ["K", "G"]) == "K // G"
    assert fit([({"M": m, "N": n}, n - m) for m, n in ((3, 7), (5, 7), (3, 20))], ["M", "N"]) == "N - M"
    assert fit([({"M": m}, -(-m // 128) * 128) for m in (4100, 8200, 6150, 256)], ["M"]) == "triton.cdiv(M, 128) * 128"
    assert fit([({"N": n}, n.bit_length() - 1) for n in (640, 641, 1280, 48, 32768)], ["N"]) == "(N).bit_length() - 1"
    assert fit_flag([({"N": n}, n % 64 == 0) for n in (640, 641, 1280, 48, 96)], ["N"]) == "N % 64 == 0"
    assert fit_flag([({"N": 3}, True), ({"N": 4}, False), ({"N": 5}, True), ({"N": 7}, False)], ["N"]) is None
    assert fit_fraction([({"D": d}, 2 / d) for d in (64, 128, 96)], ["D"]) == "2.0 * 1 / D"
    assert fit_fraction([({"D": d}, d % 5 + 0.5) for d in (64, 128, 96)], ["D"]) is None


def test_few_values_are_of_what_takes_few() -> None:
    assert few_values("SPLIT_K", 4) == (1, 2, 4, 8) and few_values("SPLIT_SIZE", 256) == () and few_values("BLOCK_ROWS", 64) == ()


def test_a_reference_of_fewer_arguments_gets_those_of_the_same_names() -> None:
    text = "def attend(q, k, v, causal, scale=None): ...\ndef plain(v, q, k, causal=True): ...\ndef other(x, y, z, w, u): ...\n" \
           "def two(first, second): ...\n"
    call = read_call("attend(randn(2, 3).t(), randn(3, 4), v=randn(4, 5).requires_grad_(), causal=False)")
    written = write_reference_call(text, "plain", call, "args[{}]".format)
    assert written == "plain(v=args[2], q=args[0].t(), k=args[1], causal=False)"
    with pytest.raises(Refused, match="other takes x, y, z, w, u"):
        write_reference_call(text, "other", call, "args[{}]".format)
    assert write_reference_call(text, "two", read_call("attend(randn(2), randn(3))"), "args[{}]".format) == "two(args[0], args[1])"
    with pytest.raises(Refused, match="cannot be called"):
        write_reference_call(text, "plain", read_call("attend(randn(2), randn(3), randn(3), True).sum().backward()"), str)


MORE = """
import torch, triton, triton.language as tl
from nowhere import Plan
from nowhere.compiler import Source

built = Source("__global__ void f();").get_function("f")

@triton.jit
def sum_tile(x_ptr, at, n, BLOCK: tl.constexpr):
    total = 0.0
    for step in range(0, n, BLOCK):
        total += tl.sum(tl.load(x_ptr + at + step + tl.arange(0, BLOCK)))
    return total

@triton.jit
def sums_of(x_ptr, order_ptr, out_ptr, strides, n, BLOCK: tl.constexpr):
    row = tl.load(order_ptr + tl.program_id(0))
    tl.store(out_ptr + tl.program_id(0), sum_tile(x_ptr, row * strides[0], n, BLOCK))

def sum_in_order(x, order, scale):
    if torch.equal(scale, torch.ones(2)):       # of another shape: no value is needed
        return x
    rows, n = x.shape
    torch.histc(order, bins=4)                  # of whole numbers, which torch has on a GPU alone
    BLOCK = triton.next_power_of_2(n)
    out = torch.empty(rows, device=x.device)
    sums_of[(rows,)](x, order, out, x.stride(), n, BLOCK=BLOCK)
    return out, Plan().plan(out)
"""


@pytest.mark.torch
def test_strides_as_tuples_orders_loops_in_functions_and_stand_ins_with_methods(tmp_path: Path) -> None:
    found, adapter = record_call(tmp_path, MORE, "sum_in_order(randn(64, 1024), randperm(64), full((1,), 0.5))[0]", "sums_of")
    assert "BLOCK" in {each["name"] for each in found.parameters} and not found.problems      # n is no number that follows it
    assert '"strides": (n, 1)' in adapter and "torch.randperm(M, device=device).to(torch.int64)" in adapter
    assert "NotImplementedError" not in adapter and "only=" not in adapter


def test_a_pointer_that_a_block_is_given_by_its_name_is_written() -> None:
    text = "@triton.jit\ndef f(out, n, B: tl.constexpr):\n    block = tl.make_block_ptr(base=out, shape=(n,), strides=(1,), " \
           "offsets=(0,), block_shape=(B,), order=(0,))\n    tl.store(block, tl.zeros((B,), tl.float32))\n"
    assert [each.written for each in all_kernels_of(text)["f"].arguments] == [True, False, False]


GROUPS = """
import enum, torch, triton, triton.language as tl

class Mode(enum.IntEnum):
    up = 2

@triton.jit
def attend(q, k, grads, lut, n, groups: tl.constexpr, heads_of: tl.constexpr, MODE: tl.constexpr, ROWS: tl.constexpr):
    head = tl.program_id(1) * (heads_of // groups) + tl.program_id(1) // groups
    at = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at += tl.load(lut) + head * n + tl.arange(0, heads_of)[:, None] * n
    tl.atomic_add(grads + at, tl.load(q + at, mask=at < n) * tl.load(k + at, mask=at < n) * MODE, mask=at < n)

def attend_sparse(q, k, layout, mode=Mode.up):
    heads, n = q.shape
    ROWS = 32 if n <= 64 else 1
    blocks = layout.nonzero(as_tuple=False).int()
    blocks[blocks > 3] = 0
    grads = torch.zeros_like(q, dtype=torch.int64).float()
    attend[(triton.cdiv(n, ROWS), k.shape[0])](q, k, grads, blocks, n, 1, heads // k.shape[0], mode, ROWS)
    return grads
"""


@pytest.mark.torch
def test_quotients_of_sizes_are_no_blocks_and_a_block_of_one_row_is_one(tmp_path: Path) -> None:
    """Values that the host reads off a mask, gradients that begin as copied zeros, and a value of an IntEnum are known too."""
    call = "attend_sparse(randn(16, 96), randn(4, 96), ones(8, 8, dtype=int64))"
    found, adapter = record_call(tmp_path, GROUPS, call, "attend")
    space = {each["name"]: each["values"] for each in found.parameters}
    assert set(space) == {"ROWS", "num_warps", "num_stages"} and space["ROWS"] == [1, 2, 4, 8] and not found.problems
    assert found.recorded is not None and found.recorded["grid_formula"].startswith('triton.cdiv(meta["n"], meta["ROWS"])')
    assert "NotImplementedError" not in adapter and '"MODE": 2' in adapter
    assert any("grads is read and written: it holds 0" in note for note in found.notes)


def test_a_group_that_only_divides_is_no_group_of_programs() -> None:
    text = "@triton.jit\ndef f(x, GROUP: tl.constexpr, kv_groups: tl.constexpr):\n    p = tl.program_id(0)\n" \
           "    first = p // GROUP * GROUP\n    tl.store(x + p * (first // kv_groups) + p // kv_groups, 1)\n"
    steps = all_kernels_of(text)["f"].steps
    assert steps.moves == {"GROUP", "kv_groups"} and steps.divides == {"kv_groups"}


MADE = """
import torch, triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def copy_tiles(x_desc, y_desc, rows, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK
    y_desc.store([at, 0], x_desc.load([at, 0]))

@torch.library.custom_op("ridgepoint_test::copy_by_tiles", mutates_args=())
def copy_by_tiles(x: torch.Tensor) -> torch.Tensor:
    rows, width = x.shape
    BLOCK = 64
    y = torch.empty_like(x)
    tiles = [TensorDescriptor.from_tensor(each, [BLOCK, width]) for each in (x, y)]
    copy_tiles[(triton.cdiv(rows, BLOCK),)](*tiles, rows, BLOCK=BLOCK)
    return y

@copy_by_tiles.register_fake
def _(x):
    return torch.empty_like(x)
"""


@pytest.mark.torch
def test_descriptors_are_made_for_each_configuration_and_a_custom_operator_is_followed(tmp_path: Path) -> None:
    found, adapter = record_call(tmp_path, MADE, "copy_by_tiles(randn(4096, 128))", "copy_tiles")
    assert '"y_desc": lambda meta: TensorDescriptor.from_tensor(meta["y_desc"], [meta["BLOCK"], ' in adapter
    assert "NotImplementedError" not in adapter and 'out="y_desc"' in adapter and "kernel=KERNEL" in adapter
    assert "BLOCK" in {each["name"] for each in found.parameters} and not found.problems
    assert [each["kind"] for each in found.arguments] == ["descriptor", "descriptor", "integer"]


def test_a_size_that_is_a_constexpr_counts_in_a_grid() -> None:
    seen = [({"seq": s, "BLOCK": b, "n": n}, -(-s // b)) for s, b, n in ((15076, 128, 226), (15076, 64, 226), (9000, 128, 452))]
    assert fit(seen, ["n", "seq"], ["BLOCK"], 'meta["{}"]') == 'triton.cdiv(meta["seq"], meta["BLOCK"])'


def test_a_block_of_which_an_input_has_an_element_each_is_counted() -> None:
    """Scales of quantised blocks, as SpargeAttn has them; not the rows of a batch, nor locks that the kernel writes."""
    text = """@triton.jit
def f(x, scales, k_scales, lens, locks, n, BLOCK: tl.constexpr, STEP: tl.constexpr, FREE: tl.constexpr):
    tile = tl.program_id(0)
    batch = tl.program_id(1)
    scale = tl.load(scales + batch * n + tile)
    at = tile * BLOCK + tl.arange(0, BLOCK)
    k_scale_ptr = k_scales + batch * n
    for start in range(0, n, STEP):
        at += start + tl.load(k_scale_ptr) + tl.load(x + at)
        k_scale_ptr += 1
    free = tl.program_id(2)
    tl.atomic_add(locks + free, tl.load(locks + free))
    tl.store(x + at + free * FREE, scale * tl.load(lens + batch))
"""
    outer = "@triton.jit\ndef g(x, s, n, OWN: tl.constexpr, B: tl.constexpr):\n    f(x, s, s, s, x, n, OWN, B, B)\n"
    found = all_kernels_of(text + outer)
    assert found["f"].steps.counted & {"BLOCK", "STEP", "FREE"} == {"BLOCK", "STEP"} and found["g"].steps.counted >= {"OWN", "B"}
