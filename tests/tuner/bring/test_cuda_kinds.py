"""Kinds of CUDA C++ that public files taught the reader: each a small file, read from its text; nothing is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuner.bring.test_cuda import write
from tuner.bring.cuda.check import expression_of, read_sources
from tuner.bring.cuda.source import CudaSource
from tuner.bring.cuda.write import write_cuda_adapter
from tuner.bring.own.picked import read_one
from tuner.bring.travel.files import lay_out
from tuner.tuning.cuda.host_headers import HEADERS
from tuner.tuning.cuda.nvrtc import text_of


def only(folder: Path, text: str) -> CudaSource:
    source, = read_sources(write(folder, "kernel.cu", text)) or []
    return source


def test_a_header_below_an_include_folder_is_found_the_nearest_first(tmp_path: Path) -> None:
    """As a build's -I finds it: DeepSpeed's csrc/includes, nvblox_torch's cpp/include."""
    lay_out(tmp_path, {
        "csrc/ops/k.cu": '#include "team/width.cuh"\n#include <team/more.cuh>\n'
                         "__global__ void f(float *x) { x[threadIdx.x] = more(); }\n"
                         "void run(float *x) { f<<<1, dim3(WIDTH, 4)>>>(x); }",
        "csrc/includes/team/width.cuh": "#define WIDTH 32\n",
        "csrc/includes/team/more.cuh": "__device__ float more() { return 1; }\n",
        "other/team/width.cuh": "#define WIDTH 8\n"})
    source, = read_sources(tmp_path / "csrc/ops/k.cu") or []
    assert source.block == ("32", "4", "1")
    text, missing = text_of(source.text, "f", {}, source.file.parent)
    assert "return 1;" in text and not missing
    assert sorted(read_one(tmp_path, "csrc/ops/k.cu")["siblings"]) == [
        "csrc/includes/team/more.cuh", "csrc/includes/team/width.cuh"]


def test_flags_that_say_what_is_computed_are_the_files_own(tmp_path: Path) -> None:
    source = only(tmp_path, "template <bool CAUSAL, bool has_bias, bool kUnroll>\n"
                  "__global__ void f(float *x) { x[threadIdx.x] = CAUSAL + has_bias + kUnroll; }\n"
                  "void run(float *x) { f<true, BIASED, true><<<1, 32>>>(x); }")
    assert source.given == {"CAUSAL": "true", "has_bias": "false"} and source.params == {"kUnroll": (False, True)}
    assert expression_of(source, source.default, "") == "f<true, false, 1>"


def test_a_width_in_the_threads_is_a_width(tmp_path: Path) -> None:
    source = only(tmp_path, "template <int head_dim, int BLOCK, int per_thread> __global__ void f(float *x, int s)\n"
                  "{ x[(blockIdx.x * BLOCK + threadIdx.x / (head_dim / 8)) * s] = per_thread; }\n"
                  "template <int D, int P> void host(float *x) { f<D, 64, P><<<9, dim3(64 * (D / 8) / P)>>>(x, 1); }\n"
                  "void run(float *x) { host<128, 2>(x); }")
    assert source.given == {"head_dim": "128"} and source.default == {"BLOCK": 64, "per_thread": 2}
    assert source.threads(source.default) == 512 and source.threads({"BLOCK": 64, "per_thread": 4}) == 256


@pytest.mark.parametrize(("body", "is_tuned"), [
    ("float *to = sums + blockIdx.y * n + blockIdx.x; x[blockIdx.x * TILE + threadIdx.x] = 1; *to = 2;", False),
    ("int b = blockIdx.x; x[b * TILE + threadIdx.x] = 1; sums[b] = 2;", False),
    ("int b = blockIdx.x; x[b * TILE + threadIdx.x] = 1; sums[b * TILE] = 2;", True),
    ("for (int i = blockIdx.x * TILE; i < n; i += gridDim.x * TILE) x[i] = 1; sums[blockIdx.x] = 2;", True)])
def test_a_result_with_an_element_for_each_block_holds_what_a_block_does(tmp_path: Path, body: str, is_tuned: bool) -> None:
    source = only(tmp_path, f"template <int TILE> __global__ void f(float *x, float *sums, int n) {{ {body} }}\n"
                  "void run(float *x) { f<64><<<9, 128>>>(x, x, 9); }")
    assert ("TILE" in source.params) == is_tuned and ("TILE" in source.given) != is_tuned


def test_a_type_that_the_kernel_is_written_for_is_taken_where_no_launch_names_one(tmp_path: Path) -> None:
    source = only(tmp_path, "template <class T> __global__ void f(T *x)\n"
                  "{ static_assert(std::is_same<T, half>::value || std::is_same<T, float>::value); x[threadIdx.x] = 1; }\n"
                  "void run(void *x) { DISPATCH(t, c_type, { f<c_type><<<1, 32>>>((c_type *)x); }); }")
    assert expression_of(source, {}, "") == "f<__half>" and expression_of(source, {}, "float") == "f<float>"


def test_an_enumeration_is_no_type_of_tensors(tmp_path: Path) -> None:
    source = only(tmp_path, "enum class DType { a, b };\ntemplate <class T> __global__ void f(T *x) { x[threadIdx.x] = 1; }\n"
                  "void run(void *x) { SWITCH(DType, f<DType><<<1, 32>>>((DType *)x);); }")
    assert expression_of(source, {}, "") == "f<float>"


def test_members_of_the_host_other_overloads_and_headers_of_other_kernels_are_left_out(tmp_path: Path) -> None:
    text = ("#include <mma.h>\n#include <cub/cub.cuh>\n"
            "struct Matrix { int width; Matrix(int w); int of(); };\nconst int OTHER_TILE = 4;\n"
            "Matrix::Matrix(int w) : width(w) { cudaSetDevice(OTHER_TILE); }\n"
            "__global__ void f(half *x, Matrix m) { x[threadIdx.x] = m.width; }\n"
            "__global__ void f(float *x, Matrix m) { x[threadIdx.x] = m.width + 1; }\n"
            "template <class T> __global__ void g(T *x) { x[0] = 1; }\ntemplate <> __global__ void g<int>(int *x) { x[0] = 2; }\n")
    part, _ = text_of(text, "f", {}, None)
    assert "cudaSetDevice" not in part and "m.width;" in part and "m.width + 1" not in part and "mma.h" not in part
    assert "cub.cuh" not in part
    assert "x[0] = 1" in text_of(text, "g<int>", {}, None)[0] and "x[0] = 2" in text_of(text, "g<int>", {}, None)[0]
    assert "OTHER_TILE" not in (read_sources(write(tmp_path, "kernel.cu", text)) or [])[0].params


def test_threads_may_be_computed_of_an_argument(tmp_path: Path) -> None:
    source = only(tmp_path, "__global__ void f(half *x, int rows, int dim) { x[blockIdx.y * dim + threadIdx.x] = 1; }\n"
                  "void host(half *x, int r, int d) { dim3 b; b.x = d / 2; f<<<dim3(1, r), b>>>(x, r, d); }")
    assert source.block == ("dim // 2", "1", "1") and source.threads({"dim": 128}) == 64 and source.params == {}
    assert 'block=lambda meta: (meta["dim"] // 2,)' in write_cuda_adapter(source, "kernel.cu").text


def test_a_launch_in_a_macro_through_a_variable_has_the_constants_around_it(tmp_path: Path) -> None:
    """As omniserve's GEMM: the size of a warp is no parameter, and GCC's __asm__ is asm."""
    source = only(tmp_path, "#define WARP_SIZE 32\n#define GO constexpr int WARPS = (CTA_M / WARP_M) * (CTA_N / WARP_M); \\\n"
                  "  auto f = gemm<CTA_M, CTA_N, WARP_M>; f<<<9, dim3(WARP_SIZE, WARPS)>>>(x);\n"
                  "template <int CTA_M, int CTA_N, int WARP_M> __global__ void gemm(float *x)\n"
                  "{ __asm__ __volatile__(\"nop;\"); x[threadIdx.y * WARP_SIZE + threadIdx.x] = CTA_M * CTA_N; }\n"
                  "void run(float *x, int n) { if (n > 9) { constexpr int CTA_M = 128, CTA_N = 128, WARP_M = 64; GO } }")
    assert source.default == {"CTA_M": 128, "CTA_N": 128, "WARP_M": 64}
    assert source.block[0] == "32" and source.threads(source.default) == 128
    assert "#define __asm__ asm" in HEADERS["ridgepoint_types.h"]


@pytest.mark.parametrize(("host", "threads"), [
    ("constexpr int THREADS_PER_BLOCK = 1024;", 1024),
    ("void host(float *x, int n) { dim3 b(min(n, 512)); b.x = b.x / (4 / sizeof(float)); f<<<n, b>>>(x); }", 512)])
def test_threads_of_a_named_constant_and_of_a_block_that_is_divided_again(tmp_path: Path, host: str, threads: int) -> None:
    source = only(tmp_path, f"{host}\n__global__ void f(float *x) {{ x[blockIdx.x * blockDim.x + threadIdx.x] = 1; }}")
    assert source.default == {"block_size_x": threads}
