"""Hosts of CUDA C++ as people write them: bound by another file, as lambdas, with structs, libraries and constants that fit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profiles.base.refused import Refused
from tests.tuner.bring.test_cuda_call import compiles, recorded
from tuner.bring.calls.again import Again
from tuner.bring.calls.expression import read_call
from tuner.bring.cuda import headers
from tuner.bring.cuda.build import say_errors
from tuner.bring.cuda.callers import with_lambda
from tuner.bring.cuda.fitting import fit_simple, value_of
from tuner.bring.cuda.formulas import RecordedCuda, _fit_by_cases, _fit_elements
from tuner.bring.cuda.found import record_call
from tuner.bring.cuda.host_text import host_part
from tuner.bring.cuda.libraries import stand_ins
from tuner.bring.cuda.source import read_cuda
from tuner.bring.cuda.structs import fields_of, fields_written
from tuner.bring.cuda.ties import Tie, find_ties, followed
from tuner.bring.cuda.understand import MOST, _rests_on, _strides
from tuner.bring.own.client import sources_of
from tuner.bring.own.picked import read_one
from tuner.tuning.cuda import nvrtc
from tuner.tuning.cuda.includes import with_own_headers
from tuner.tuning.cuda.tokens import Tokens

PARAMS = """#pragma once
struct Base { int rows, columns; };
struct Params : Base { void *__restrict__ x_ptr, *__restrict__ y_ptr; float factor; };
"""
KERNEL = """#include "params.h"
__global__ void scale_rows(Params p) {
  for (int at = threadIdx.x; at < p.columns; at += blockDim.x)
    ((float *)p.y_ptr)[blockIdx.x * p.columns + at] = p.factor * ((const float *)p.x_ptr)[blockIdx.x * p.columns + at];
}
template <int THREADS> void run_scale(Params &p, cudaStream_t stream) { scale_rows<<<p.rows, THREADS, 0, stream>>>(p); }
template void run_scale<128>(Params &p, cudaStream_t stream);
void run_plain(const Params &p) { scale_rows<<<p.rows, 128>>>(p); }
"""
CALLER = """#include "params.h"
template <int THREADS> void run_scale(Params &p, cudaStream_t stream);
void scale(float *y, float *x, int rows, int columns) {
  Params p{};
  p.rows = rows, p.columns = columns, p.x_ptr = x, p.y_ptr = y, p.factor = 2;
  run_scale<128>(p, nullptr);
}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a kernel, the struct that it takes, and the file that fills one."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "csrc").mkdir()
    for name, text in (("params.h", PARAMS), ("mine.cu", KERNEL), ("bind.cpp", CALLER)):
        (tmp_path / "csrc" / name).write_text(text)
    return tmp_path / "csrc"


def test_a_function_of_another_file_of_the_repository_is_called(tree: Path) -> None:
    part = host_part(KERNEL, tree, "mine.cu", "scale")
    assert "p.factor = 2" in part.plain and part.kernels == ("scale_rows",)
    with pytest.raises(Refused, match="no host function other; it has run_scale, run_plain"):
        host_part(KERNEL, tree, "mine.cu", "other")


def test_what_a_file_includes_and_who_calls_it_travel_with_it(tree: Path) -> None:
    """As the client sends them, and as a worker picks them of a repository."""
    assert sources_of(tree / "mine.cu", tree.parent, "scale").keys() == {"csrc/params.h", "csrc/bind.cpp"}
    assert sources_of(tree / "mine.cu", tree.parent, "run_plain").keys() == {"csrc/params.h"}
    assert read_one(tree.parent, "csrc/mine.cu")["siblings"].keys() == {"csrc/params.h", "csrc/bind.cpp"}


@compiles
@pytest.mark.process
@pytest.mark.torch
@pytest.mark.parametrize("call", [
    "scale(empty(4096, 1024), randn(4096, 1024), 4096, 1024)",
    'run_plain({"rows": 4096, "columns": 1024, "factor": 2.0, "x_ptr": randn(4096, 1024), "y_ptr": empty(4096, 1024)})'])
def test_a_struct_is_filled_by_another_file_or_by_the_call(tree: Path, call: str) -> None:
    found, adapter = recorded(tree, KERNEL, call)
    assert found.recorded is not None and found.recorded["grid"] == [4096] and 'out="p_y_ptr"' in adapter
    assert "Struct([M, N, 'p_x_ptr', 'p_y_ptr', 1073741824, 0])" in adapter


def test_fields_of_structs_are_names() -> None:
    assert fields_of(read_call('run({"rows": 4, "x": [1, 2]}, {"rows": 8, "y": 2.0})').tree) == ["rows", "x", "y"]


def test_what_a_kernel_writes_to_through_a_struct_is_seen(tmp_path: Path) -> None:
    text = """struct P { void *out_ptr; const float *in; float *more; int n; };
__global__ void k(const P p) {
  float *out = reinterpret_cast<float *>(p.out_ptr) + blockIdx.x * p.n;
  out[threadIdx.x] = p.in[threadIdx.x];
}
"""
    told = fields_written(text, "k", "p")
    assert told["out_ptr"] and not told["in"]
    rows = "struct Rows { float *at; }; __global__ void k(Rows to, const Rows of) { to[blockIdx.x][threadIdx.x] = of[0][1]; }\n"
    assert fields_written(rows, "k", "to") == {"": True} and fields_written(rows, "k", "of") == {"": False}


@compiles
@pytest.mark.process
@pytest.mark.torch
def test_a_class_of_the_file_is_given_as_what_its_constructor_takes(tmp_path: Path) -> None:
    text = """enum Device { CPU, GPU };
class Held {
 public:
  explicit Held(int n, Device device = CPU) : n(n) { if (device == GPU) cudaMalloc(&at, n * sizeof(float)); }
  Held(float *at, int rows, int columns) : n(rows * columns), at(at) {}
  float *data() const { return at; }
  int size() const { return n; }
 private:
  int n; float *at = nullptr;
};
struct Ops { static void relu(const Held &x, Held *y); void other(Held *x); };
__global__ void relu_k(const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > 0 ? x[i] : 0;
}
void twice(float *x, int n) { relu_k<<<(n + 255) / 256, 256>>>(x, x, n); }
void Ops::relu(const Held &x, Held *y) { relu_k << <(x.size() + 127) / 128, 128 >> >(x.data(), y->data(), x.size()); }
void Ops::other(Held *x) { twice(x->data(), x->size()); }
"""
    found, adapter = recorded(tmp_path, text, "relu([64 * 1000, 1], [randn(64, 1000), 64, 1000])")
    assert found.default == {"block_size_x": 128}               # of the host that is called, whatever another one gives
    assert [one["shape"] for one in found.arguments[:2]] == [[64000], [64, 1000]]
    assert found.recorded["grid_formula"] == 'triton.cdiv(meta["n"], meta["block_size_x"])' and "out=\"y\"" in adapter
    with pytest.raises(Refused, match="other is a member of Ops and needs an object"):
        host_part(text, tmp_path, "mine.cu", "other")


@pytest.mark.parametrize(("body", "changed"), [
    ("const int BM = 64, BN = 64; k<BM, BN><<<n / BM, BM * BN / 64>>>(x);", "const int BM = 32, BN = 64;"),
    ("int block = 4 * 32; k2<<<n / block, block>>>(x);", "int block = 64;"),
    ("k<32, 64><<<n, 32>>>(x);", "(::ridgepoint::at(n, 32), k<64, 64>(x))"),
    ("if (n > 8) launch<64, 8>(x, n);", "launch<64, 16>(x, n)")])
def test_a_number_of_the_host_is_changed_where_it_stands(tmp_path: Path, body: str, changed: str) -> None:
    text = f"""template <int BM, int BN> __global__ void k(float *x) {{ x[blockIdx.x * BM + BN] = 0; }}
__global__ void k2(float *x) {{ x[blockIdx.x * blockDim.x + threadIdx.x] = 0; }}
template <int W, int BN> void launch(float *x, int n) {{ k<W, BN><<<n, dim3(32, BN)>>>(x); }}
void run(float *x, int n) {{ {body} }}
"""
    assert changed in host_part(text, tmp_path, "mine.cu", "run").text


def test_a_lambda_of_a_binding_is_a_function() -> None:
    text = 'PYBIND11_MODULE(a, m) {\n  m.def("twice", [](at::Tensor x, double by = 2) -> at::Tensor { return mul(x, by); });\n}\n'
    assert "auto twice(at::Tensor x, double by = 2) -> at::Tensor { return mul(x, by); }" in with_lambda(text, "twice")
    assert with_lambda(text, "other") == text


@pytest.mark.parametrize(("given", "expected"), [
    ("run<4>(x);", "&run<4>"), ('m.def("run", &run<8>);', "&run<8>"), ("template void run<2>(float *x);\nrun<4>(x);", "&run<2>")])
def test_a_template_is_called_as_the_file_calls_it(tmp_path: Path, given: str, expected: str) -> None:
    text = f"""template <int N> __global__ void k(float *x) {{ x[N] = 0; }}
template <int N> void run(float *x) {{ k<N><<<1, 32>>>(x); }}
{given if given.startswith("template") else f"void bind(float *x) {{ {given} }}"}
"""
    assert expected in host_part(text, tmp_path, "mine.cu", "run").text


def test_numbers_of_a_template_are_given_beside_the_call(tmp_path: Path) -> None:
    text = "template <int N> __global__ void k(float *x) {}\ntemplate <int N> void run(float *x) { k<N><<<M, 32>>>(x); }\n"
    with pytest.raises(Refused, match="--shape N=NUMBER"):
        host_part(text, tmp_path, "mine.cu", "run")
    part = host_part(text, tmp_path, "mine.cu", "run", numbers={"N": 4, "M": 7})
    assert "&run<4>" in part.text and "#define M 7" in part.text and "#define N" not in part.text


LIBRARIES = """#include <cublas_v2.h>
#include <cub/cub.cuh>
#include <thrust/sort.h>
__global__ void add(float *y, const float *x, int n) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) y[at] += x[at];
}
void run(float *y, float *x, int n) {
  cublasHandle_t handle;
  cublasStatus_t status = cublasCreate(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) return;
  float one = 1;
  cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, n, n, n, &one, x, n, x, n, &one, y, n);
  void *room = nullptr;
  size_t bytes = 0;
  cub::DeviceScan::InclusiveSum(room, bytes, x, y, n);
  cudaMalloc(&room, bytes);
  cub::DeviceScan::InclusiveSum(room, bytes, x, y, n);
  thrust::device_ptr<float> at(y);
  thrust::sort(thrust::device, at, at + n);
  add<<<(n + 255) / 256, 256>>>(y, x, n);
}
"""


def test_names_of_libraries_stand_in() -> None:
    lines = "\n".join(stand_ins(Tokens(LIBRARIES.partition("void run")[2]).words, {"cublasMine"}))
    assert "typedef void *cublasHandle_t;" in lines and "enum { CUBLAS_STATUS_SUCCESS, CUBLAS_OP_N, CUBLAS_OP_T };" in lines
    assert "int cublasSgemm(A &&...)" in lines and "struct DeviceScan" in lines and "ridgepoint_thrust.h" in lines
    [line] = stand_ins(Tokens("curandState_t s; curand_init(1, 2, 3, &s);").words, set())
    assert line.startswith("struct curandState_t {")


@compiles
@pytest.mark.process
@pytest.mark.torch
def test_calls_of_libraries_are_passed_over_and_said(tmp_path: Path) -> None:
    found, _ = recorded(tmp_path, LIBRARIES, "run(empty(1048576), randn(1048576), 1048576)")
    assert found.name == "add" and found.default == {"block_size_x": 256}
    assert any("cublasCreate, cublasSgemm, cub::DeviceScan::InclusiveSum, thrust::sort" in note for note in found.notes)


BLOCKED = """#include <cub/block/block_load.cuh>
#include <cub/block/block_reduce.cuh>
template <int THREADS> struct Traits {
  using Load = cub::BlockLoad<float, THREADS, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Reduce = cub::BlockReduce<float, THREADS>;
  static constexpr int bytes = sizeof(typename Load::TempStorage) + sizeof(typename Reduce::TempStorage);
};
template <int THREADS> __global__ void sums(float *out, const float *in) {
  extern __shared__ char held[];
#ifdef BYTES
  static_assert(Traits<THREADS>::bytes == BYTES, "");
#endif
  float v[4];
  typename Traits<THREADS>::Load(*(typename Traits<THREADS>::Load::TempStorage *)held).Load(in + blockIdx.x * THREADS * 4, v);
  if (threadIdx.x == 0) out[blockIdx.x] = v[0];
}
void run(float *out, const float *in, int n) { sums<128><<<n / 512, 128, Traits<128>::bytes>>>(out, in); }
"""


@compiles
@pytest.mark.process
@pytest.mark.torch
def test_shared_memory_of_cubs_classes_is_that_of_the_gpu(tmp_path: Path) -> None:
    path = tmp_path / "mine.cu"
    path.write_text(BLOCKED)
    told = record_call(path, "run(empty(2048), randn(1048576), 1048576)", "", {})
    smem = told["launches"][0]["options"]["smem"]
    assert smem > 128 * 4 * 4
    nvrtc.compile_function(BLOCKED, "sums<128>", {"BYTES": str(smem)}, "sm_90a", folder=tmp_path)       # whose assertion holds


TIED = """const int BLOCKWIDTH = 256;
const int BLOCKHEIGHT = 24;
__global__ void product(const float *v, const int *m, float *out, int height, int width) {
  int row = BLOCKHEIGHT * blockIdx.x, column = BLOCKWIDTH * blockIdx.y + threadIdx.x;
  __shared__ float held[BLOCKWIDTH];
  held[threadIdx.x] = v[(row / BLOCKHEIGHT) * BLOCKWIDTH + threadIdx.x];
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < BLOCKWIDTH && row < height; k++) sum += held[k] * m[row * width + column];
  atomicAdd(&out[column], sum);
}
void run(const float *v, const int *m, float *out, int height, int width) {
  dim3 blocks((height + BLOCKHEIGHT - 1) / BLOCKHEIGHT, (width + BLOCKWIDTH - 1) / BLOCKWIDTH);
  product<<<blocks, BLOCKWIDTH>>>(v, m, out, height, width);
}
"""


@pytest.mark.parametrize(("text", "numbers", "expected"), [
    ("v[(row / BLOCKHEIGHT) * BLOCKWIDTH + t]", {"BLOCKHEIGHT": 24, "BLOCKWIDTH": 256}, {"BLOCKHEIGHT": Tie("BLOCKWIDTH", 3, 32)}),
    ("x = n * A / B;", {"A": 64, "B": 16}, {"B": Tie("A", 1, 4)}),
    ("static_assert(A == 4 * B, 4);", {"A": 64, "B": 16}, {"B": Tie("A", 1, 4)}),
    ("", {"THREADS_PER_BLOCK": 128, "WARPS_PER_BLOCK": 4}, {"WARPS_PER_BLOCK": Tie("THREADS_PER_BLOCK", 1, 32)}),
    ("", {"THREADS_PER_BLOCK": 128, "WARPS_PER_TILE": 2}, {}),
    ("static_assert(A % B == 0);", {"A": 64, "B": 16}, {}), ("x = n / A + m * B;", {"A": 64, "B": 16}, {})])
def test_constants_that_must_fit_each_other(text: str, numbers: dict[str, int], expected: dict[str, Tie]) -> None:
    assert find_ties(text, numbers) == expected


def test_a_constant_that_follows_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "mine.cu"
    path.write_text(TIED)
    [source] = read_cuda(path)
    assert "BLOCKHEIGHT" not in source.params and "BLOCKWIDTH" in source.params
    assert source.tied["BLOCKHEIGHT"].macro == "({BLOCKWIDTH} * 3 / 32)"
    assert followed(source.tied, {"BLOCKWIDTH": 128}) == {"BLOCKHEIGHT": "12"} and Tie("BLOCKWIDTH", 3, 32).value(16) is None


@compiles
@pytest.mark.process
@pytest.mark.torch
def test_a_pair_is_tuned_as_one(tmp_path: Path) -> None:
    found, adapter = recorded(tmp_path, TIED, "run(randn(4096), zeros(384, 1024, dtype=int32), zeros(1024), 384, 1024)")
    assert found.default == {"BLOCKWIDTH": 256} and any("BLOCKHEIGHT follows BLOCKWIDTH" in note for note in found.notes)
    assert 'defines={"BLOCKHEIGHT": "({BLOCKWIDTH} * 3 / 32)"}' in adapter.replace("'", '"')
    assert 'triton.cdiv(meta["height"], (meta["BLOCKWIDTH"] * 3 // 32))' in adapter


def test_a_grid_by_cases() -> None:
    def launch(size: int) -> dict[str, Any]:
        return {"grid": [size // 32 if size <= 1024 else 132], "arguments": {"n": {"kind": "int", "value": size}}, "constexprs": {},
                "options": {"block_size_x": 256, "block_size_y": 1, "block_size_z": 1}}
    points = [Again(launch(512)), *(Again(launch(size), 512, size) for size in (1024, 256, 2048, 4096))]
    each = RecordedCuda(0, launch(512))
    each.dims = {"n": 512}
    source: Any = SimpleNamespace(text="if (n <= 1024) k<<<n / 32, 256>>>(n); else k<<<132, 256>>>(n);")
    assert _fit_by_cases(each, source, points, 0) == '(triton.cdiv(meta["n"], 32) if meta["n"] <= 1024 else 132)'
    assert _fit_by_cases(each, SimpleNamespace(text="k<<<grid, 256>>>(n);"), points, 0) is None       # type: ignore[arg-type]


def test_shared_memory_of_a_row_and_of_the_threads_or_of_two_tiles() -> None:
    seen = [({"n": n, "T": t, "BK": k}, 2 * n + 4 * t) for n, t, k in ((1024, 256, 8), (2048, 256, 8), (1024, 64, 8), (7, 256, 16))]
    assert fit_simple(seen, ["n"], ["T", "BK"], []) == '(meta["n"] * 2 + meta["T"] * 4)'
    both = [(env, 128 * env["T"] + 256 * env["BK"]) for env in ({"T": 64, "BK": 64}, {"T": 32, "BK": 64}, {"T": 64, "BK": 128})]
    assert fit_simple(both, [], ["T", "BK"], []) == '(meta["T"] * 128 + meta["BK"] * 256)'
    warps = [({"n": n}, -(-n // 256) * 32) for n in (2048, 4096, 2049, 128, 32768)]
    assert fit_simple(warps, ["n"], [], []) == '(triton.cdiv(meta["n"], 256) * 32)'
    tiles = [(env, env["T"] * env["BK"] * 512) for env, _ in seen]
    assert fit_simple(tiles, ["n"], ["T", "BK"], []) == '(meta["T"] * meta["BK"] * 512)'


def test_a_grid_over_the_elements_of_a_tensor() -> None:
    launches = [({"B": b, "C": c, "H": h, "W": w}, b * c * h * w, by) for b, c, h, w, by in (
        (4, 8, 56, 48, 256), (2, 8, 56, 48, 256), (4, 9, 56, 48, 256), (4, 8, 7, 48, 256), (4, 8, 56, 5, 256), (4, 8, 56, 48, 64))]
    points = [Again({"arguments": {"y": {"kind": "tensor", "shape": [count]}}}) for _, count, _ in launches]
    seen = [({**sizes, "threads": by}, -(-count // by)) for sizes, count, by in launches]
    each = RecordedCuda(0, points[0].launch)
    assert _fit_elements(each, points, seen, list("BCHW"), ["threads"]) == (
        'triton.cdiv((meta["B"] * meta["C"] * meta["H"] * meta["W"]), meta["threads"])')


def test_threads_by_the_power_of_two_below_a_size() -> None:
    seen = [({"n": size}, 1 << size.bit_length() - 1) for size in (256, 170, 384, 128)]
    formula = 'triton.next_power_of_2(meta["n"] // 2 + 1)'
    assert fit_simple(seen, ["n"], [], []) == formula and all(value_of(formula, env) == number for env, number in seen)


@pytest.mark.parametrize(("name", "is_own"), [
    ("quant.h", True), ("math.h", False), ("cuda_fp16.h", False), ("mine/quant.h", False)])
def test_a_header_of_the_repository_in_angle_brackets(tmp_path: Path, name: str, is_own: bool) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "include").mkdir()
    for each in ("quant.h", "math.h", "cuda_fp16.h"):
        (tmp_path / "include" / each).write_text("int own;\n")
    assert ("int own;" in with_own_headers(f"#include <{name}>\n", tmp_path, "mine.cu")) == is_own


@pytest.mark.parametrize(("body", "rests"), [
    ("const int block_size = 1024;", "1024"), ("x[threadIdx.x + 1023] = 0;", ""), ("__shared__ float held[1024];", MOST),
    ("using Reduce = cub::BlockReduce<float, 1024>;", MOST), ("__shared__ float held[1024]; int at = n / 1024;", "1024")])
def test_a_kernel_that_names_its_threads_keeps_them(tmp_path: Path, body: str, rests: str) -> None:
    """Or at most so many, where it has room for them and asks how many there are."""
    path = tmp_path / "mine.cu"
    path.write_text(f"__global__ void k(float *x) {{ {body} x[blockIdx.x * blockDim.x + threadIdx.x] = 1; }}\n")
    assert _rests_on(read_cuda(path)[0], 1024) == rests


@pytest.mark.parametrize(("body", "strides"), [
    ("for (int i = threadIdx.x; i < n; i += blockDim.x) x[blockIdx.x * n + i] = 0;", True),
    ("for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x) x[i] = 0;", False),
    ("extern __shared__ float s[]; for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = s[i];", False)])
def test_threads_that_a_kernel_steps_by_are_its_own(tmp_path: Path, body: str, strides: bool) -> None:
    """They are tuned however a host computes them: neither grid nor memory follow them."""
    path = tmp_path / "mine.cu"
    path.write_text(f"__global__ void k(float *x, int n) {{ {body} }}\n")
    assert _strides(read_cuda(path)[0]) == strides


def test_a_header_that_is_missing_names_its_package() -> None:
    said = say_errors("a.cpp:3:10: fatal error: cuda/std/limits: No such file or directory", "a.cu", ())
    assert "nvidia-cuda-cccl" in said


def test_compiled_headers_are_of_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\ntouch $1\n")
    compiler.chmod(0o755)
    (tmp_path / "version.py").write_text("1")
    command, root = [str(compiler), "-O0"], tmp_path / "kept"
    monkeypatch.setenv(headers.FOLDER, str(root))
    assert headers.kept_headers(command, tmp_path) == [] and headers.make_headers(root, command, tmp_path)
    [flag, header] = headers.kept_headers(command, tmp_path)
    assert flag == "-include" and Path(f"{header}.gch").exists() and Path(header).read_text().startswith("#include")
    (tmp_path / "version.py").write_text("2")                   # another PyTorch: the ones before make room
    assert headers.kept_headers(command, tmp_path) == [] and headers.make_headers(root, command, tmp_path)
    assert len([each for each in root.iterdir() if each.is_dir()]) == 1


@compiles
@pytest.mark.torch
def test_names_of_an_earlier_cub_and_of_a_later_standard_compile(tmp_path: Path) -> None:
    text = """#include <cub/block/block_reduce.cuh>
#include <cub/device/device_radix_sort.cuh>
__device__ float add(auto a, auto b) { return a + b; }
__device__ float sums(float x) { return add(x, 1); }
__global__ void sums(float *out, const float *in) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage held;
  float sum = Reduce(held).Reduce(sums(in[threadIdx.x]), cub::Sum());
  if (threadIdx.x == 0) *out = sum;
}
"""
    assert nvrtc.compile_function(text, "sums", {}, "sm_90a", folder=tmp_path).n_regs


@compiles
@pytest.mark.torch
def test_a_kernel_that_is_declared_before_it_is_defined_has_its_body(tmp_path: Path) -> None:
    text = "#include <mma.h>\n__global__ void k(half *o);\n__global__ void k(half *o) { o[threadIdx.x] = 1; }\n"
    assert nvrtc.compile_function(text, "k", {}, "sm_90a", folder=tmp_path).n_regs
    with pytest.raises(nvrtc.CompileFailed, match="k has no body here"):
        nvrtc.compile_function(text.rpartition("__global__")[0], "k", {}, "sm_90a", folder=tmp_path)


def test_types_of_cutlass_are_read_where_they_are_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are not launched: headers that do are left out. A file's own names within its namespace see the library's."""
    text = """#include <cutlass/half.h>
#include <cutlass/gemm/device/gemm.h>
namespace cutlass { struct Mine { int held; }; }
__global__ void k(cutlass::Mine *x) { x[blockIdx.x * blockDim.x + threadIdx.x].held = 0; }
void run(cutlass::Mine *x, int n) { k<<<n / 128, 128>>>(x); }
"""
    assert "cutlass/half.h" in host_part(text, tmp_path, "mine.cu", "run").left_out
    (tmp_path / "include" / "cutlass").mkdir(parents=True)
    for each in ("cutlass.h", "half.h"):
        (tmp_path / "include" / "cutlass" / each).touch()
    monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
    part = host_part(text, tmp_path / "elsewhere", "mine.cu", "run")
    assert part.left_out == ("cutlass/gemm/device/gemm.h",) and "#include <cutlass/half.h>" in part.text
    assert "namespace cutlass { using namespace ::cutlass; }" in part.text and nvrtc.include_folders()[-1].startswith(str(tmp_path))
    said = say_errors("mine.cu:4:1: error: 'cutlass' has not been declared", "mine.cu", part.left_out)
    assert "pip install nvidia-cutlass" in said


@compiles
@pytest.mark.process
@pytest.mark.torch
def test_a_kernel_of_a_header_of_the_repository_is_tuned_as_the_files_own(tmp_path: Path) -> None:
    (tmp_path / "scale.cuh").write_text("""#pragma once
constexpr int kThreads = 128;
__global__ void scale_k(float *y, const float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
inline void launch(float *y, const float *x, int n) { scale_k<<<(n + kThreads - 1) / kThreads, kThreads>>>(y, x, n); }
""")
    text = '#include "scale.cuh"\nvoid scale(float *y, const float *x, int n) { launch(y, x, n); }\n'
    found, adapter = recorded(tmp_path, text, "scale(empty(100000), randn(100000), 100000)")
    assert found.default == {"block_size_x": 128} and 'with_name("mine.cu"), "scale_k"' in adapter
    assert [each.name for each in read_cuda(tmp_path / "mine.cu")] == []
