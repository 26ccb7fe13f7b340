"""What is read of CUDA C++ that people wrote for themselves: threads, results, launch values, and each kernel by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiles.base.refused import Refused
from tests.tuner.bring.test_cuda import compiled, write
from tuner.bring.check import check_file
from tuner.bring.cuda.check import read_sources
from tuner.bring.cuda.source import CudaSource
from tuner.bring.cuda.write import write_cuda_adapter
from tuner.tuning.cuda.text import read_text

CASES = Path(__file__).parents[2] / "data" / "cases" / "kernels"


def sources(path: Path) -> dict[str, CudaSource]:
    return {each.function.name: each for each in read_sources(path) or []}


def of_text(folder: Path, text: str) -> dict[str, CudaSource]:
    return sources(write(folder, "kernel.cu", text))


def written(source: CudaSource) -> list[str]:
    return [each.name for each in source.function.arguments if each.written]


def unsure(source: CudaSource) -> list[str]:
    return [each.name for each in source.function.arguments if each.unsure]


@pytest.mark.process
@compiled
@pytest.mark.parametrize("case", [
    "c01_host_template", "c05_extern_c", "c06_written_by_macro",
    pytest.param("c02_header_missing", marks=pytest.mark.deep_only)])        # PyTorch's: the headers of a repository, below
def test_what_only_the_host_needs_stops_no_kernel(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.bring.cuda.check.SAMPLES", 0)
    for found in check_file(CASES / f"{case}.cu"):
        assert len(found.compiled) == 3 and not [line for line in found.compiled if "error" in line], found.compiled


@pytest.mark.process
@compiled
def test_a_kernel_that_cannot_be_compiled_or_read_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.bring.cuda.check.SAMPLES", 0)
    first, broken, open_ended, last = check_file(write(tmp_path, "four.cu", (
        '#include "of_the_host.h"\n__global__ void first(float *x) { x[threadIdx.x] = 1; }\n'
        "__global__ void broken(Tensor x) { x.put(nowhere); }\n"
        "__global__ void open_ended(float *x) { if (x[0] > 1) { x[0] = 1; }\n"
        "template <int B> __global__ void last(float *x) { x[blockIdx.x * B + threadIdx.x] = 2; }\n"
        "void run(float *x) { last<64><<<2, 64>>>(x); }\n")))
    assert not [line for each in (first, last) for line in each.compiled if "error" in line] and len(last.compiled) == 3
    assert "nowhere" in broken.compiled[0]["error"] and "left out: of_the_host.h" in broken.compiled[0]["error"]
    assert open_ended.problems[0].what == "this kernel cannot be read: line 4: the { has no partner" and last.default == {"B": 64}


def test_the_launch_in_the_file_is_the_default() -> None:
    axpy = sources(CASES / "c03_default_of_launch.cu")["axpy"]
    assert axpy.default == {"block_size_x": 512, "ITEMS": 4}
    assert [each.kind for each in axpy.function.arguments] == ["pointer", "pointer", "number", "integer"]
    draft = write_cuda_adapter(axpy, "c03.cu")
    assert 'grid=lambda meta: ((meta["n"] + meta["block_size_x"] * meta["ITEMS"] - 1) // (' in draft.text
    assert not [each for each in draft.to_do if each.startswith("grid")]


@pytest.mark.parametrize(("launch", "default"), [
    ("void run(float *x) { dim3 b(64, 4); f<<<9, b>>>(x); }", (64, 4)),
    ("#define T 16\nvoid run(float *x) { constexpr int h = T / 2; const dim3 b = dim3(T * 4, h); f<<<9, b>>>(x); }", (64, 8)),
    ("void host(float *x, int threads) { f<<<9, dim3(threads, 2)>>>(x); }\nint main() { host(0, 1 << 6); }", (64, 2)),
    ("template <int B> void host(float *x) { f<<<9, {B, B / 16}>>>(x); }\nvoid run() { host<32>(0); }", (32, 2)),
    ("void run(float *x) { dim3 b; b.x = 16; b.y = 2 * 4; f<<<9, b>>>(x); }", (16, 8)),
    ("enum { A = 32 };\nvoid run(float *x, int n) { f<<<9, dim3(A, std::min(n, 8))>>>(x); }", (32, 8)),
    ("void run(float *x) { void *args[] = {&x}; cudaLaunchKernel((void *)f, dim3(9), dim3(16, 16), args, 0, 0); }", (16, 16)),
    ("#define GO(k, b) k<<<9, b>>>\nvoid run(float *x) { GO(f, dim3(8, 8))(x); }", (8, 8)),
    ("void run(float *x) { int s[] = {32, 64, 128}; for (int i = 0; i < 3; i++) { f<<<9, dim3(s[i], 1)>>>(x); } }", (64, 1)),
])
def test_threads_of_a_launch(tmp_path: Path, launch: str, default: tuple[int, int]) -> None:
    kernel = ("__global__ void f(float *x) { int row = blockIdx.y * blockDim.y + threadIdx.y;\n"
              "x[row * 9 + blockIdx.x * blockDim.x + threadIdx.x] = 1; }\n")
    source = of_text(tmp_path, kernel + launch)["f"]
    assert tuple(source.default.values()) == default and list(source.params) == ["block_size_x", "block_size_y"]
    assert default[0] in source.params["block_size_x"] and default[1] in source.params["block_size_y"]


def test_two_dimensional_blocks() -> None:
    both = sources(CASES / "c04_two_dimensional_block.cu")
    assert both["mul"].default == {"block_size_x": 32, "block_size_y": 8}
    assert both["mul"].block == ("block_size_x", "block_size_y", "1")
    tiled = both["mul_tiled"]
    assert tiled.default == {"TILE": 16} and tiled.block == ("TILE", "TILE", "1") and tiled.threads({"TILE": 16}) == 256
    assert max(tiled.params["TILE"]) ** 2 <= 1024
    draft = write_cuda_adapter(tiled, "c04.cu")
    assert 'block=lambda meta: (meta["TILE"], meta["TILE"]),' in draft.text and '"TILE * TILE <= threads"' in draft.text


@pytest.mark.parametrize(("body", "block"), [
    ("x[blockIdx.x * TILE + threadIdx.x] = 1;", "TILE"), ("int b = blockIdx.x; x[TILE * b + threadIdx.x] = 1;", "TILE"),
    ("for (int i = threadIdx.x; i < 99; i += TILE * U) x[i] = 1;", "TILE * U"),
    ("assert(TILE * U == blockDim.x); x[threadIdx.x / U] = 1;", "TILE * U"),
    ("x[(blockIdx.y * TILE + threadIdx.x / U) * 9 + blockIdx.x * U + threadIdx.x % U] = 1;", "(TILE) * (U)"),
])
def test_index_arithmetic_says_the_threads_where_no_launch_does(tmp_path: Path, body: str, block: str) -> None:
    source = of_text(tmp_path, f"template <int TILE, int U> __global__ void f(float *x) {{ {body} }}")["f"]
    assert source.block == (block, "1", "1") and set(source.params) == {"TILE", "U"}


def test_threads_that_nothing_tells_are_asked(tmp_path: Path) -> None:
    source = of_text(tmp_path, "__global__ void f(float *x, int n) { x[threadIdx.x / 4 + n] = 1; }")["f"]
    assert source.block == ("", "1", "1") and source.params == {}
    text = write_cuda_adapter(source, "kernel.cu").text
    assert "block=block," in text and 'raise NotImplementedError("write the threads of a block' in text


@pytest.mark.parametrize(("kernel", "results"), [
    ("#define ST(p) (reinterpret_cast<float4 *>(&(p))[0])\n__global__ void f(float *a, float *b) { ST(b[0]) = ST(a[0]); }", ["b"]),
    ("__device__ void put(float *p, float v) { *p = v; }\n__global__ void f(float *a, float *b) { put(b + 3, a[0]); }", ["b"]),
    ("template <class T> __device__ void deep(T &to) { to += 1; }\n"
     "template <class T> __device__ void put(T *p) { deep<T>(p[1]); }\n"
     "__global__ void f(float *a, float *b) { put<float>(b); }", ["b"]),
    ("__global__ void f(float *a, float *b) { float4 *p = (float4 *)a, *q = reinterpret_cast<float4 *>(b); *q = *p; }", ["b"]),
    ("__global__ void f(float *a, float *b) { float &r = b[3]; r = a[0]; a += 4; float v = a[1]; v = 2; }", ["b"]),
    ("__global__ void f(float *a, int *b) { atomicAdd(b + (int)a[0], 1); }", ["b"]),
    ('__global__ void f(float *a, float *b) { asm volatile("st.global.f32 [%0], %1;" :: "l"(b), "f"(a[0])); }', ["b"]),
    ("__global__ void f(float *a, float *b) { __shared__ float s[32]; s[0] = a[0]; float *p = s; p[1] = a[1]; __stcs(&b[0], 1); }",
     ["b"]),
    ("struct V { float v[4]; };\n"
     "__global__ void f(float *a, float *b) { V x = *reinterpret_cast<V *>(a); x.v[0] = 1; *(V *)b = x; }", ["b"]),
    ("__global__ void f(float *__restrict__ a, float *const __restrict__ b) { b[0] = a[0] == 1 ? 2 : 3; }", ["b"]),
    ("__global__ void f(float *a, float *b, int n) { for (int i = 0; i < n; b[i] = a[i], i++) { } }", ["b"]),
    ("namespace w = nvcuda::wmma;\n"
     "__global__ void f(half *a, half *b) { w::load_matrix_sync(x, a, 1); w::store_matrix_sync(b, x, 1, 0); }", ["b"]),
])
def test_what_is_written_is_followed_through_the_text(kernel: str, results: list[str]) -> None:
    function, = read_text(kernel).functions
    assert [each.name for each in function.arguments if each.written] == results
    assert not [each for each in function.arguments if each.unsure]


def test_what_is_written_by_code_elsewhere_is_asked_and_no_input_is_taken(tmp_path: Path) -> None:
    source = of_text(tmp_path, "__global__ void f(float *a, float *b, const float *c) { elsewhere(a, b + threadIdx.x, c); }")["f"]
    assert written(source) == [] and unsure(source) == ["a", "b"]
    draft = write_cuda_adapter(source, "kernel.cu")
    assert 'out=""' in draft.text and any(each.startswith("out: the file does not tell what is written; a, b") for each in
                                           draft.to_do)


def test_a_read_is_no_store() -> None:
    sgemm = sources(CASES / "c08_read_taken_for_written.cu")["sgemm4"]
    assert written(sgemm) == ["c"] and 'out="c"' in write_cuda_adapter(sgemm, "c08.cu").text
    assert written(sources(CASES / "c06_written_by_macro.cu")["copy4"]) == ["b"]
    assert written(sources(CASES / "c06_written_by_macro.cu")["copy1"]) == ["b"]
    assert sources(CASES / "c06_written_by_macro.cu")["copy1"].default == {"block_size_x": 128, "ROWS_STEPS": 8}


def test_flags_and_groups() -> None:
    both = sources(CASES / "c07_template_bool_and_groups.cu")
    assert both["pick"].given["nIsPow2"] == "false" and both["pick"].block == ("blockSize", "1", "1")
    assert both["groups"].params == {"block_size_x": (32, 64, 128, 256, 512, 1024)}


def test_instances_of_a_template_in_a_namespace(tmp_path: Path) -> None:
    source = of_text(tmp_path, (
        "namespace a::b { namespace {\ntemplate <typename T, typename Acc, int HEAD, int UNROLL, bool CAUSAL>\n"
        "__global__ void __launch_bounds__(256) f(T *out, T const *in, Acc scale) { out[threadIdx.x] = in[blockDim.x] * scale; }\n"
        "}\ntemplate __global__ void f<__half, float, 64, 2, true>(__half *, __half const *, float);\n"
        "void run() { f<__half, float, 128, 4, false><<<1, 128>>>(0, 0, 1); } }\n"))["f"]
    assert source.function.qualified == "a::b::f" and source.given == {"HEAD": "128", "CAUSAL": "false"}
    assert source.default == {"block_size_x": 128, "UNROLL": 4} and max(source.params["block_size_x"]) == 256
    text = write_cuda_adapter(source, "kernel.cu").text
    assert "    in_ = torch.empty" in text and compile(text, "adapter", "exec")
    assert 'template=("{dtype}", "float", "128", "{UNROLL}", "false")' in text and 'dtypes=("fp16", "fp32", "bf16")' in text


def test_a_constant_is_a_parameter_as_a_macro_is(tmp_path: Path) -> None:
    text = ("constexpr int TILE = 32;\n__global__ void f(float *x) { x[blockIdx.x * TILE + threadIdx.x] = 1; }\n"
            "void run(float *x) { f<<<1, TILE>>>(x); }\n")
    source = of_text(tmp_path, text)["f"]
    assert source.default == {"TILE": 32} and source.block == ("TILE", "1", "1")


@pytest.mark.process
@compiled
def test_a_constant_reaches_the_machine_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.bring.cuda.check.SAMPLES", 2)
    found, = check_file(write(tmp_path, "k.cu", (
        "static const int TILE = 32;\n"
        "__global__ void f(float *x) { __shared__ float s[TILE];\nint i = blockIdx.x * TILE + threadIdx.x;\n"
        "s[threadIdx.x] = x[i]; __syncthreads(); x[i] = s[TILE - 1 - threadIdx.x]; }\n")))
    assert {line["smem_bytes"] // line["config"]["TILE"] for line in found.compiled} == {4}
    assert len({line["config"]["TILE"] for line in found.compiled}) > 1


@pytest.mark.process
@compiled
def test_headers_of_the_repository_are_found_and_what_pytorch_names_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                            ) -> None:
    """One file for both: each compile beside PyTorch's names takes 4 s of processor time."""
    monkeypatch.setattr("tuner.bring.cuda.check.SAMPLES", 0)
    (tmp_path / "setup.py").touch()
    (tmp_path / "csrc" / "ops").mkdir(parents=True)
    write(tmp_path / "csrc", "common.h", "#pragma once\n#include <torch/all.h>\n#define WARP 32\nvoid check(torch::Tensor t);\n"
          "__device__ inline float twice(float x) { return 2 * x; }\n")
    path = write(tmp_path / "csrc" / "ops", "k.cu", '#include "common.h"\n#include <ATen/ATen.h>\n#include <c10/util/Half.h>\n'
                 "__global__ void f(float *x, at::Half *h, int64_t *n) { h[0] = at::Half(1.f); "
                 "gpuAtomicAdd((float *)n, WARP_SHFL(1.f, 2)); x[threadIdx.x] = twice(WARP); }\n"
                 "__global__ void g(float *x) { x[threadIdx.x] = nowhere; }\n")
    good, bad = check_file(path)
    assert good.line == 4 and len(good.compiled) == 3 and not [line for line in good.compiled if "error" in line]
    assert bad.compiled[0]["error"].startswith('line 5: identifier "nowhere" is undefined')


def test_what_a_name_is_worth_is_looked_for_once(tmp_path: Path) -> None:
    """Variables that rest on each other in circles, and hosts that call each other: no end, were each followed anew."""
    hosts = "".join(f"void h{i}(int n, int m) {{ int a = max(n, m), b = max(a, n); while (b) {{ a = max(b, a); b = max(a, b); }}"
                    f" h{i + 1}(max(a, b), max(b, a)); h{i + 1}(b, a); f<<<n, max(a, b)>>>(0); }}\n" for i in range(12))
    source = of_text(tmp_path, "__global__ void f(float *x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1; }\n" + hosts)["f"]
    assert source.block == ("block_size_x", "1", "1")


def test_a_condition_in_a_template_is_no_comparison(tmp_path: Path) -> None:
    both = of_text(tmp_path, (
        "template <typename T, typename enable_if<is_same<T, float>::value || is_same<T, double>::value, T>::type *d = nullptr>\n"
        "__device__ T same(T x) { return x; }\n__global__ void f(float *x) { x[threadIdx.x] = same(x[blockDim.x]); }\n"))
    assert list(both) == ["f"] and written(both["f"]) == ["x"]


def test_a_file_with_no_kernel_that_can_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"line 1: the \{ has no partner"):
        of_text(tmp_path, "__global__ void f(float *x) { x[0] = 1;")


@pytest.mark.process
@compiled
@pytest.mark.parametrize("include", [
    "", *(pytest.param(each, marks=pytest.mark.deep_only) for each in (           # the headers of a repository, above
        "#include <cstdint>\n#include <algorithm>\n", "#include <ATen/ATen.h>\n#include <c10/util/Half.h>\n"))])
def test_fixed_widths_and_what_pytorch_names_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, include: str) -> None:
    monkeypatch.setattr("tuner.bring.cuda.check.SAMPLES", 0)
    body = "h[0] = at::Half(1.f); gpuAtomicAdd((float *)x, WARP_SHFL(1.f, 2)); " if "ATen" in include else ""
    kind = "at::Half" if body else "float"
    text = f"__global__ void f(int64_t *x, {kind} *h) {{ {body}x[threadIdx.x] = 1; }}\n"
    found, = check_file(write(tmp_path, "k.cu", include + text))
    assert len(found.compiled) == 3 and not [line for line in found.compiled if "error" in line], found.compiled
