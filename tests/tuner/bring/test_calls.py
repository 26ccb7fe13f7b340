"""One call of a file's own function: read as text, made without a GPU, and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiles.base.refused import Refused
from tests.tuner.bring.test_cases import CASES
from tests.warm.parent import run_program
from tuner.bring.calls.adapting import write_called
from tuner.bring.calls.expression import is_expression, read_call
from tuner.bring.calls.fitting import fit
from tuner.bring.calls.found import found_of, read_recorded
from tuner.bring.calls.proposals import propose_calls
from tuner.bring.calls.received import read_record
from tuner.bring.process import Asked
from tuner.bring.report import Found
from tuner.bring.travel.described import describe_text
from tuner.tuning.team.description import make_operator

GPU = "sm_90"


@pytest.mark.parametrize("text", [
    "__import__('os').system('true')", "f(lambda: 1)", "f(x for x in y)", "f(*a)", "f(**a)", "f(a.__class__)", "f(1 if 2 else 3)",
    "f", "randn(3)", "f(10 ** 9 ** 9)", "f(x := 1)", "f(b'x')", "f([" + "1," * 400 + "])",
    "(" * 400, "f(" + "-" * 60 + "1)",
    f"f({1 << 50})", "", "f(f'{a}')", "f(a[b])", "f(2 ** 65)", "f(a[0:b])", "f(" * 30 + ")" * 30])
def test_what_is_no_plain_call_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        read_call(text)


def test_a_call_tells_its_numbers_and_a_recording_is_none() -> None:
    call = read_call("Layer(4096)(randn(8, 4096, dtype=torch.float16).t(), eps=1e-6, mode='x', shape=[2, 3])")
    assert call.function == "Layer" and set(call.sizes) == {4096, 8, 2, 3}
    assert is_expression("f(randn(2))") and not is_expression("calls.json") and not is_expression("runs (1).json")


def test_a_formula_holds_at_every_point_or_is_none() -> None:
    points = [({"N": 1000, "B": 256}, 4), ({"N": 2000, "B": 256}, 8), ({"N": 1000, "B": 128}, 8)]
    assert fit(points, ["N"], ["B"], 'meta["{}"]') == 'triton.cdiv(meta["N"], meta["B"])'
    assert fit([({"N": 1000}, 1024), ({"N": 3000}, 4096), ({"N": 1024}, 1024)], ["N"]) == "triton.next_power_of_2(N)"
    assert fit([({"N": 7}, 5), ({"N": 14}, 11), ({"N": 28}, 13)], ["N"]) is None
    assert fit([({"N": 7}, 3), ({"N": 14}, 3)], ["N"]) == "3"
    assert fit([({"N": 33}, 32), ({"N": 66}, 65), ({"N": 16}, 15)], ["N"]) == "N - 1"
    tiles = [({"M": m, "N": n}, -(-m // 256) * -(-n // 128))
             for m, n in ((4096, 32000), (8192, 32000), (4096, 64000), (100, 32000))]
    assert fit(tiles, ["M", "N"]) is None and fit(tiles, ["M", "N"], fixed=[128, 256]) in (
        "triton.cdiv(M, 256) * triton.cdiv(N, 128)", "triton.cdiv(N, 128) * triton.cdiv(M, 256)")
    # of a block that had one value in all calls nothing is known
    rows = [({"M": m, "N": n, "K": k, "W": 1}, m * n * k) for m, n, k in ((2, 3, 5), (4, 3, 5), (2, 9, 5), (2, 3, 7))]
    assert fit(rows, ["M", "N", "K"], ["W"]) == "M * N * K"


class Calls:
    """Calls of one file in one process: what is found, what the adapters say, and what compiles."""

    def __init__(self, path: Path) -> None:
        self.path, self.asked = path, Asked(path, [], 250.0, calls=True)

    def record(self, call: str, dtype: str = "") -> dict[str, Found]:
        self.told = self.asked.record(call, dtype)
        assert "failed" not in self.told, self.told
        found = {}
        self.adapters: dict[str, str] = {}
        self.jobs: dict[str, list[dict[str, Any]]] = {}
        for each, kernel in read_recorded(self.path, self.told):
            one, jobs = found_of(each, kernel, self.told, self.asked.imported.get("stood_in", {}), 0)
            found[one.name], self.jobs[one.name] = one, jobs
            self.adapters[one.name] = write_called(each, kernel, self.told, read_call(call), self.path.stem).text
        return found

    def compile(self, name: str) -> dict[str, Any]:
        line: dict[str, Any]
        line, = self.asked.compile(self.jobs[name], gpus=[GPU])["compiled"][name]
        return line


REFUSED = """
import torch, triton, triton.language as tl

@triton.jit
def twice(x_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + o, tl.load(x_ptr + o, mask=o < n) * 2, mask=o < n)

@triton.jit
def count(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + o, tl.load(x_ptr + o, mask=o < n) + 1, mask=o < n)

def run(x):
    twice[(triton.cdiv(x.numel(), 256),)](x, x.numel(), BLOCK=256)
    return x

def after(x):
    y = x * 3
    twice[(triton.cdiv(y.numel(), 256),)](y, y.numel(), BLOCK=256)
    return y

@triton.jit
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + tl.program_id(0) % 4, tl.sum(tl.load(x_ptr + o, mask=o < n, other=0.0)))

def totals(x):
    out = torch.zeros(4, dtype=torch.float32, device=x.device)
    total[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out

def counts_in_place(x):
    count[(triton.cdiv(x.numel(), 256),)](x, x, x.numel(), BLOCK=256)
    return x

def counts(x):
    BLOCK = 512
    n = x.numel()
    grid = (triton.cdiv(n, BLOCK),)
    count[grid](x, torch.empty_like(x), n, BLOCK)

def literal(x):
    grid = (triton.cdiv(x.numel(), 1024),)
    count[grid](x, torch.empty_like(x), x.numel(), BLOCK=1024)

def looks(x):
    if x.sum() > 0:
        return run(x)

def sorts(x):
    y = x.argsort()
    count[(triton.cdiv(x.numel(), 256),)](y, torch.empty_like(y), y.numel(), BLOCK=256)

def lengths(n):
    ends = torch.tensor([0, n // 2, n], dtype=torch.int32, device="cuda")
    longest = int((ends[1:] - ends[:-1]).max())
    x = torch.empty(longest, device="cuda")
    count[(triton.cdiv(longest, 256),)](x, torch.empty_like(x), longest, BLOCK=256)

@triton.jit
def clamp(x_ptr, y_ptr, n, low, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + o, tl.maximum(tl.load(x_ptr + o, mask=o < n), low), mask=o < n)

def clamps(x):
    clamp[(triton.cdiv(x.numel(), 256),)](x, torch.empty_like(x), x.numel(), float("-inf"), BLOCK=256)

def fails(x):
    return x.view(3, 3)

none = None

@triton.jit
def spread(x_ptr, y_ptr, n, bins, BLOCK: tl.constexpr):
    for at in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        o = at * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + o, tl.load(x_ptr + o, mask=o < n), mask=o < n)

def spreads(x):
    n, y = x.numel(), torch.empty_like(x)
    warps = 4
    spread[(3 * n.bit_length() * (4 // warps),)](x, y, n, n.bit_length() ** 2, BLOCK=256, num_warps=warps)
    return y

@triton.jit
def rows(x_ptr, y_ptr, r, n, BLOCK_R: tl.constexpr, COLS: tl.constexpr):
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    o = tl.program_id(1) * COLS + tl.arange(0, COLS)
    mask = (row[:, None] < r) & (o[None, :] < n)
    tl.store(y_ptr + row[:, None] * n + o[None, :], tl.load(x_ptr + row[:, None] * n + o[None, :], mask=mask), mask=mask)

def copies(x):
    y = torch.empty_like(x)
    rows[lambda meta: (triton.cdiv(x.shape[0], meta["BLOCK_R"]), triton.cdiv(x.shape[1], meta["COLS"]))](
        x, y, x.shape[0], x.shape[1], BLOCK_R=1, COLS=512)
    return y

@triton.jit
def largest(x_ptr, y_ptr, locks_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0)
    tl.store(y_ptr + o, tl.maximum(tl.load(y_ptr + o, mask=o < n, other=0), x), mask=o < n)
    tl.atomic_add(locks_ptr, 1)

largest = triton.heuristics({"BLOCK": lambda args: 256})(largest)

def maxima(x):
    y = x.new_full(x.shape, -float("inf"))
    locks = x.new_full((4,), 0, dtype=torch.uint32)     # of a type whose values torch computes few things of
    largest[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, locks, x.numel())
    return y
"""

TOGETHER = ("s01", "s02", "s03", "s04", "s10", "s13")       # a process that imports torch takes 4 s of processor time


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    """REFUSED and cases in one file, which one process imports: each case's `run` has its number."""
    path = tmp_path_factory.mktemp("calls") / "kernels.py"
    texts = [next(CASES.glob(f"{case}_*.py")).read_text().replace("def run(", f"def run_{case}(") for case in TOGETHER]
    path.write_text("\n\n".join((REFUSED, *texts)))
    opened = Calls(path)
    yield opened
    opened.asked._child.end()


def parameters(found: Found) -> dict[str, list[Any]]:
    return {each["name"]: each["values"] for each in found.parameters if each["name"] not in ("num_warps", "num_stages")}


@pytest.mark.torch
def test_blocks_grid_strides_and_default_come_from_one_call(calls: Calls) -> None:
    mm = calls.record("matmul(randn(512, 1024), randn(1024, 2048))")["mm"]
    assert set(parameters(mm)) == {"BM", "BN", "BK"}
    assert mm.default == {"BM": 64, "BN": 64, "BK": 32, "num_warps": 8, "num_stages": 3} and not mm.problems
    assert mm.recorded is not None and mm.recorded["grid"] == [8, 32]
    adapter = calls.adapters["mm"]
    assert 'GRID = lambda meta: (triton.cdiv(meta["M"], meta["BM"]), triton.cdiv(meta["N"], meta["BN"]))' in adapter
    assert '"sam": K, "sbk": N, "scm": N' in adapter and "not independent" in adapter and "NotImplementedError" not in adapter
    assert calls.compile("mm")["registers"] > 0


@pytest.mark.torch
def test_a_capped_block_is_tuned_and_one_that_follows_the_row_only_so_far(calls: Calls) -> None:
    found = calls.record("run_s02(randn(512, 2048))")["rowsum"]
    assert set(parameters(found)) == {"BLOCK_SIZE"} and found.default["BLOCK_SIZE"] == 2048
    assert 'GRID = lambda meta: (meta["x_ptr"].shape[0],)' in calls.adapters["rowsum"]


@pytest.mark.torch
def test_a_block_that_follows_its_row_is_computed_as_the_host_does(calls: Calls) -> None:
    found = calls.record("run_s03(randn(512, 1000), randn(512, 1000), True)")["norm"]
    assert not parameters(found) and found.recorded is not None
    assert found.recorded["constexprs"]["BLOCK_SIZE"] == {"value": 1024, "chosen": "covers a size: n"}
    assert '"BLOCK_SIZE": triton.next_power_of_2(n)' in calls.adapters["norm"]


@pytest.mark.torch
def test_every_tensor_has_the_type_that_the_host_gives_it(calls: Calls) -> None:
    found = calls.record("run_s13(randn(4096), randn(300))")
    assert {each["name"]: each["dtype"] for each in found["guarded"].arguments if "dtype" in each} == {
        "x_ptr": "bfloat16", "scale_ptr": "float32", "label_ptr": "int64", "y_ptr": "bfloat16"}
    assert "error" not in calls.compile("prefix") and "error" not in calls.compile("guarded")


@pytest.mark.torch
def test_heuristics_stay_the_file_s(calls: Calls) -> None:
    found = calls.record("run_s04(randn(512, 96), randn(96), randn(512, 96))")["scale"]
    assert set(parameters(found)) == {"BLOCK_M"} and found.recorded is not None
    assert found.recorded["heuristics"] == ["BLOCK_D", "HAS_BIAS"] and "BLOCK_D" not in calls.adapters["scale"]
    assert "error" not in calls.compile("scale")


@pytest.mark.torch
def test_a_block_of_one_row_is_a_block_and_a_heuristics_block_makes_the_grid(calls: Calls) -> None:
    found = calls.record("copies(randn(300, 1024))")["rows"]
    assert parameters(found) == {"BLOCK_R": [1, 2, 4, 8, 16], "COLS": [128, 256, 512, 1024, 2048]} and not found.problems
    assert 'triton.cdiv(meta["r"], meta["BLOCK_R"])' in calls.adapters["rows"]
    found = calls.record("maxima(randn(5000))")["largest"]
    assert not parameters(found) and 'triton.cdiv(meta["n"], 256)' in calls.adapters["largest"]
    adapter = calls.adapters["largest"]
    assert 'holds={"y_ptr": float("-inf"), "locks_ptr": 0.0}' in adapter and "NotImplementedError" not in adapter
    assert read_record(json.loads(json.dumps(calls.told)))


@pytest.mark.torch
def test_what_follows_sizes_in_no_simple_way_is_tuned_at_the_call_s_own(calls: Calls) -> None:
    found, adapter = calls.record("spreads(randn(5000))")["spread"], calls.adapters["spread"]
    assert not found.problems and "tuned at the call's own sizes alone: the grid, bins follow them in no simple way" in found.notes
    assert "NotImplementedError" not in adapter and "GRID = lambda meta: (39,)" in adapter and '"bins": 169' in adapter
    operator = make_operator(describe_text(adapter, "spread", title="spread", kernel="spread", source_hash=""))
    assert not operator.problems({"n": 5000}, "bf16") and "must be one of 5000" in str(operator.problems({"n": 4096}, "bf16"))
    assert "error" not in calls.compile("spread")


@pytest.mark.torch
def test_what_is_nothing_to_call_says_so(calls: Calls) -> None:
    assert calls.asked.record("none(randn(4))")["failed"] == "none is None once the file is imported: it cannot be called"


@pytest.mark.torch
def test_a_file_that_asks_for_a_gpu_is_answered(calls: Calls) -> None:
    found = calls.record("run_s10(randn(100000, dtype=fp32))")["add"]
    assert found.default["BLOCK"] == 1024 and {each["name"]: each.get("dtype") for each in found.arguments}["x_ptr"] == "float32"
    assert 'triton.cdiv(meta["n"], meta["BLOCK"])' in calls.adapters["add"]


IMPORT = """
import json, sys
from pathlib import Path
from tuner.bring import child

_, seen, _ = child.load_file(Path(sys.argv[1]), child.Choices(), False)
print(json.dumps(seen.modules))
"""


@pytest.mark.torch
@pytest.mark.parametrize(("case", "missing"), [
    ("add.py", ""), ("k.py", ""), ("s07_*.py", "my_company"), ("s17_*.py", "my_company")])
def test_what_a_kernel_does_not_need_stops_no_import(case: str, missing: str) -> None:
    stood_in = json.loads(run_program(IMPORT, str(next(CASES.rglob(case))))[0].splitlines()[-1])
    assert not missing or missing in stood_in


@pytest.mark.torch
def test_what_a_launch_changes_holds_before_each_what_it_held_before_the_first(calls: Calls) -> None:
    found = calls.record("run(randn(4096))")["twice"]
    adapter = calls.adapters["twice"]
    assert 'restored=("x_ptr",)' in adapter and 'out="x_ptr"' in adapter and "NotImplementedError" not in adapter
    assert 'x_ptr = args["x_ptr"].clone()' in adapter and any("x_ptr is read and written" in note for note in found.notes)
    calls.record("totals(randn(4096))")
    assert 'holds={"out_ptr": 0.0}' in calls.adapters["total"] and "restored" not in calls.adapters["total"]
    calls.record("counts_in_place(randn(4096))")
    assert "    y_ptr = x_ptr\n" in calls.adapters["count"] and 'restored=("x_ptr",)' in calls.adapters["count"]
    calls.record("counts(randn(4096))")
    assert "restored" not in calls.adapters["count"]


@pytest.mark.torch
def test_what_a_call_cannot_tell_is_asked_and_never_written_as_if_known(calls: Calls) -> None:
    calls.record("after(randn(4096))")
    assert "NotImplementedError" in calls.adapters["twice"] and "read and written" in calls.adapters["twice"]
    for call in ("counts(randn(4096))", "literal(randn(4096))"):
        calls.record(call)
        assert 'GRID = lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)' in calls.adapters["count"], call
    calls.record("sorts(randn(4096))")
    assert "torch.randperm(" in calls.adapters["count"]         # drawn, since the host sorts them
    assert "values of tensors" in calls.asked.record("looks(randn(4194304))")["failed"]
    assert "holds no nothing" in calls.asked.record("nothing(randn(4096))")["failed"]
    assert calls.record("lengths(3000)")["count"].recorded["grid"] == [6]        # type: ignore[index]
    calls.record("clamps(randn(4096))")
    assert "\"low\": float('-inf')" in calls.adapters["clamp"]
    read_record(json.loads(json.dumps(calls.told, allow_nan=False)))
    at = REFUSED[:REFUSED.index("x.view(3, 3)")].count("\n") + 1
    assert calls.asked.record("fails(randn(4096))")["failed"].endswith(f"(line {at} of kernels.py)")
    for call, words in (("run(arange(0, 8, 0))", "arange: "), ("run(randperm())", "randperm: it is given nothing"),
                        ("run(randn(3, dtype='x'))", "randn: "), ("run(tensor([[1, 2], [3]]))", "tensor: "),
                        ("run(arange(1000000000000 * 1000000))", "at most 8, 1,099,511,627,776")):
        failed = calls.asked.record(call)["failed"]
        assert words in failed and ".py)" not in failed, call
    fractions = calls.asked.record("run(arange(0, 1, 0.25))")["inputs"][0]
    assert (fractions["dtype"], fractions["shape"]) == ("bfloat16", [4])


@pytest.mark.torch
def test_no_values_are_computed_of_what_is_not_small() -> None:
    import torch

    from tuner.bring.calls.values import MOST_ELEMENTS, Values

    computed = []
    for size in (MOST_ELEMENTS + 1, MOST_ELEMENTS):
        out = torch.empty(size, dtype=torch.int32, device="meta")
        Values()._beside(lambda size=size: computed.append(size), (), {}, out)
    assert computed == [MOST_ELEMENTS]


SHOWN = """
import torch, triton, pytest
DEVICE = "cuda"

def mm(a, b):
    M, K = a.shape
    N = b.shape[1]
    kernel[(M, N)](a, b, K)

def norm(x, weight, eps):
    kernel[(x.shape[0],)](x, weight, eps)

class Layer:
    def forward(self, x):
        return norm(x, self.weight, 1e-6)

def reference(x):
    return x

@pytest.mark.parametrize("rows, cols", [(512, 781), (3, 5)])
def test_norm(rows, cols, dtype=torch.float16):
    x = torch.randn(rows, cols, device=DEVICE, dtype=dtype)
    w = torch.ones(cols, device=DEVICE).cuda()
    norm(x, w, 1e-5)
    reference(x)
"""


def test_calls_are_proposed_from_what_the_file_shows_then_from_signatures() -> None:
    assert propose_calls(SHOWN) == [
        "norm(torch.randn(512, 781, dtype=torch.float16), torch.ones(781), 1e-05)", "mm(randn(4096, 1024), randn(1024, 2048))",
        "norm(randn(4096, 1024), randn(1024), 1e-6)"]
    assert propose_calls("def f(:") == [] and propose_calls("x = 1") == []
