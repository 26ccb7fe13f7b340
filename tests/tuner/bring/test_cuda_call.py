"""One call of a CUDA C++ file's own host function, without a GPU: what it launches, what can be tuned, its adapter."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from profiles.base.refused import Refused
from tests.tuner.bring.cuda_call_files import ACCESSOR, ACCESSOR_CALL, SCALE, SCALE_CALL, SOFTMAX, SOFTMAX_CALL, SUMS_CALL
from tuner.bring.calls.expression import read_call
from tuner.bring.calls.received import read_record
from tuner.bring.cuda import build
from tuner.bring.cuda.found import drafts_of, found_of, record_call
from tuner.bring.cuda.host_edits import modern, with_launches
from tuner.bring.cuda.host_text import host_part
from tuner.bring.cuda.structs import held_names, lift_tensors
from tuner.bring.travel.described import describe_text
from tuner.tuning.cuda.text import read_text

compiles = pytest.mark.skipif(shutil.which("g++") is None or importlib.util.find_spec("cuda") is None
                              or importlib.util.find_spec("torch") is None, reason="needs g++, torch and CUDA's headers")


@pytest.mark.parametrize(("text", "expected"), [
    ("k<<<grid, 256>>>(x, n);", "(::ridgepoint::at(grid, 256), k(x, n));"),
    ("a::k<T, (N > 2)><<<dim3(a, b), {32, 4}, 0, s>>>(f(x), n);",
     "(::ridgepoint::at(dim3(a, b), {32, 4}, 0, s), a::k<T, (N > 2)>(f(x), n));"),
    ("k << <dim3(n), 256 >> > (x, n);", "(::ridgepoint::at(dim3(n), 256 ), k  (x, n));"),
    ("kernels[at]<<<1, 2>>>();", "(::ridgepoint::at(1, 2), kernels[at]());"),
    ("#define LAUNCH(n) k<n><<<grid, n>>>(x)\n", "#define LAUNCH(n) (::ridgepoint::at(grid, n), k<n>(x))\n"),
    ("std::cout << a << b; // k<<<1, 2>>>(x)\n", "std::cout << a << b; // k<<<1, 2>>>(x)\n"),
])
def test_a_launch_becomes_a_call(text: str, expected: str) -> None:
    assert with_launches(text) == expected


def test_a_kernel_is_launched_by_its_type() -> None:
    assert modern("cudaLaunchKernel((void *)k<float>, g, b, args);") == "cudaLaunchKernel(k<float>, g, b, args);"
    assert modern("cudaFuncSetAttribute(reinterpret_cast<const void*>(k), a, 1)") == "cudaFuncSetAttribute((k), a, 1)"
    assert modern("x.type().is_cuda() && x.device().type() == at::kCUDA") == "x.is_cuda() && x.device().type() == at::kCUDA"


def test_only_what_the_host_function_needs_is_compiled(tmp_path: Path) -> None:
    part = host_part(SCALE, tmp_path, "scale.cu", "scale")
    assert "warp_sum" not in part.plain and "sum_rows" not in part.plain and "__shfl" not in part.plain
    assert '::ridgepoint::note("scale_add", __PRETTY_FUNCTION__, {"y", "x", "a", "n"}, y, x, a, n);' in part.plain
    assert part.variants == (("block_size_x", 128), ("block_size_x", 512), ("ITEMS", 2), ("ITEMS", 8))
    assert "cooperative_groups.h" in part.left_out and not part.uses_torch


def test_a_number_of_a_type_with_another_name_has_its_width() -> None:
    text = """using index_t = int64_t;
typedef unsigned int count_t;
__global__ void k(float *x, const index_t n, count_t m) { x[n] = m; }
"""
    arguments = read_text(text).functions[0].arguments
    assert [each.scalar for each in arguments] == ["", "i8", "u4"] and arguments[1].kind == "integer"


def test_a_function_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no host function missing; it has scale, sums"):
        host_part(SCALE, tmp_path, "scale.cu", "missing")


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="needs a C\\+\\+ compiler"):
        build.find_compiler()


def test_tensors_of_a_struct_are_arguments() -> None:
    tensor = {"kind": "tensor", "dtype": "float32", "shape": [4], "strides": [1], "storage": 1, "offset": 0}
    launch = {"kernel": "k", "arguments": {"p": {"kind": "tuple", "value": [tensor, {"kind": "int", "value": 7}]}}}
    lifted = lift_tensors({"launches": [launch]})["launches"][0]["arguments"]
    assert lifted["p_0"] == tensor and held_names(lifted["p"]) == ["p_0"] and lifted["p"]["value"][1]["value"] == 7


def test_a_record_of_another_language_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.cu"
    path.write_text(SCALE)
    launch = {"kernel": "scale_add", "grid": [1], "arguments": {}, "constexprs": {}, "options": {"num_warps": 4}}
    with pytest.raises(Refused, match="no record"):
        drafts_of(path, {"launches": [launch], "sizes": []}, read_call(SCALE_CALL))


def recorded(folder: Path, text: str, call: str) -> Any:
    """Return (what is found, adapter) of the one kernel that a call launches, its record read as it comes from another process."""
    path = folder / "mine.cu"
    path.write_text(text)
    told = read_record(json.loads(json.dumps(record_call(path, call, "", {}))))
    (each, source, draft), = drafts_of(path, told, read_call(call))
    assert not isinstance(draft, Refused), draft
    describe_text(draft.text, "mine", title="", kernel=each.name, source_hash="")           # it asks nothing
    return found_of(each, source, told, 0)[0], draft.text


@compiles
@pytest.mark.process
@pytest.mark.torch
def test_a_call_tells_grid_threads_and_template(tmp_path: Path) -> None:
    found, adapter = recorded(tmp_path, SCALE, SCALE_CALL)
    assert found.default == {"block_size_x": 256, "ITEMS": 4}
    assert 'GRID = lambda meta: (triton.cdiv(meta["n"], (meta["block_size_x"] * meta["ITEMS"])),)' in adapter
    assert '''template=('float', '{ITEMS}')''' in adapter and 'block=lambda meta: (meta["block_size_x"],)' in adapter
    assert '"a": 2.0, "n": n' in adapter and 'out="y"' in adapter and "not independent" in adapter


@compiles
@pytest.mark.process
@pytest.mark.torch
def test_a_block_of_two_axes_keeps_what_the_kernel_rests_on(tmp_path: Path) -> None:
    found, adapter = recorded(tmp_path, SCALE, SUMS_CALL)
    assert found.default == {"ROWS": 4} and found.recorded is not None and found.recorded["options"] == {
        "block_size_x": 32, "block_size_y": 4}
    assert 'block=lambda meta: (32, meta["ROWS"])' in adapter and 'meta["ROWS"]' in adapter.partition("GRID = ")[2].splitlines()[0]


@compiles
@pytest.mark.process
@pytest.mark.torch
@pytest.mark.parametrize(("call", "why"), [
    pytest.param("scale(empty(1000, dtype=fp16), randn(1000), 2.0, 1000)", "a tensor of float32 is taken, float16 is given",
                 id="a type that the call names is kept"),
    pytest.param("first_of(randn(4))", "reads or writes memory of a tensor, which has none here", id="a host that reads a tensor")])
def test_a_call_that_cannot_be_made_says_why(call: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.cu"
    path.write_text(SCALE)
    with pytest.raises(Refused, match=why):
        record_call(path, call, "", {})


@pytest.mark.deep_only              # torch's headers take a compiler half a minute
@compiles
@pytest.mark.process
@pytest.mark.torch
@pytest.mark.parametrize(("text", "call", "default", "says"), [
    (SOFTMAX, SOFTMAX_CALL, {"THREADS": 1024}, '''template=('__half', '{THREADS}')'''),
    (ACCESSOR, ACCESSOR_CALL, {"block_size_x": 8}, "Struct(['x_0', M, N, K, N * K, K, 1])"),
])
def test_a_host_function_of_torch(tmp_path: Path, text: str, call: str, default: dict[str, int], says: str) -> None:
    found, adapter = recorded(tmp_path, text, call)
    assert found.default == default and says in adapter
