"""CUDA C++ and Kernel Tuner scripts: read, counted, compiled without a GPU, and written as an operator."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from profiles.base.refused import Refused
from tests.scale import scale
from tests.tuner.bring.cuda_files import KERNEL_TUNER, SCALE_ADD, TILED
from tests.tuner.bring.test_check import few_samples
from tuner.bring.check import check_file
from tuner.bring.cuda.check import GPU, read_sources
from tuner.tuning.cuda.text import read_text, without_host_code

HAS_NVRTC = importlib.util.find_spec("cuda") is not None
compiled = pytest.mark.skipif(not HAS_NVRTC, reason="cuda-core and NVRTC are not installed: make .venv/.installed-cuda")


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_reads_a_function_with_its_arguments_and_macros() -> None:
    holds = read_text(SCALE_ADD)
    function, = holds.functions
    assert (function.name, function.line, function.threads) == ("scale_add", 11, 1024)
    assert [(each.name, each.kind, each.scalar, each.written) for each in function.arguments] == [
        ("y", "pointer", "", True), ("x", "pointer", "", False), ("b", "pointer", "", False), ("a", "number", "f4", False),
        ("n", "integer", "i8", False)]
    assert holds.defines == {"block_size_x": 128, "ITEMS_PER_THREAD": 2} and holds.guarded == {"block_size_x"}


def test_reads_template_parameters_and_names_that_nothing_declares() -> None:
    function, = read_text(TILED).functions
    assert [(each.name, each.type) for each in function.template] == [
        ("BM", "int"), ("BN", "int"), ("BK", "int"), ("T", "typename")]
    assert {each.name for each in function.arguments if each.written} == {"C"} and function.undefined == ()
    free, = read_text("__global__ void f(int *x) { const int OWN_TILE = 2; cg::thread_block b; __syncthreads(); "
                      "x[threadIdx.x * BLOCK_SIZE + TILE_SIZE(3) + OWN_TILE] = block_size_y; }").functions
    assert free.undefined == ("BLOCK_SIZE", "block_size_y")


def test_code_of_the_host_is_left_out_and_lines_stay() -> None:
    text = without_host_code(SCALE_ADD)
    assert "main" not in text and "scale_add" in text and text.count("\n") == SCALE_ADD.count("\n")
    kept = without_host_code("namespace a { __device__ int f(int x) { return x; }\nvoid g() { if (1) { } }\n"
                             "struct S { int m() { return 1; } };\ncublasHandle_t handle;\n__constant__ float table[4];\n}")
    assert "f(int x)" in kept and "struct S { int m()" in kept and "table[4]" in kept and "g()" not in kept and "handle" not in kept


@pytest.mark.parametrize("text", ["__global__ void f(int x", "__global__ void f(int *x) { x[0] = 1;",
                                  "template <int A __global__ void f() {}"])
def test_a_text_without_its_closing_bracket_is_told(text: str) -> None:
    with pytest.raises(Refused, match=r"line 1: the [({<] has no partner"):
        read_text(text)


@pytest.mark.slow
@pytest.mark.deep
def test_hostile_texts_end_soon() -> None:
    began_s = time.monotonic()
    for text in ("__global__ " * scale(100_000), "/*" * scale(300_000), "(" * scale(500_000),
                 "__global__ void f(" + "(" * scale(100_000), '"' * (scale(400_000) + 1),
                 "template <" * scale(50_000) + "__global__ void f() {}", "#define A 1\n" * scale(100_000),
                 "a " * scale(400_000) + "{"):
        try:
            read_text(text)
            without_host_code(text)
        except Refused:
            continue
    assert time.monotonic() - began_s < 60
    with pytest.raises(Refused, match="at most"):
        read_text("x" * (3 << 20))


@pytest.mark.process
@compiled
def test_a_cu_file_is_compiled_for_three_generations_without_a_gpu(tmp_path: Path) -> None:
    found, = check_file(write(tmp_path, "scale.cu", SCALE_ADD))
    assert found.kind == "cuda" and found.default == {"block_size_x": 128, "ITEMS_PER_THREAD": 2}
    assert {line["gpu"] for line in found.compiled} == {"sm_80", "sm_90", "sm_100"}
    assert not [line for line in found.compiled if "error" in line] and all(4 <= line["registers"] <= 64 for line in found.compiled)
    assert [each.missing for each in found.problems] == [True]
    bare, = check_file(tmp_path / "scale.cu", run=True, compiles=False)
    assert "nothing was run" in bare.problems[-1].what


@pytest.mark.process
@compiled
def test_template_parameters_reach_the_machine_code(tmp_path: Path) -> None:
    found, = check_file(write(tmp_path, "tiled.cu", TILED), dtype="bf16")
    assert {each["name"] for each in found.parameters} == {"BM", "BN", "BK"}
    assert found.assumed == {"T": "the tensors' type"}
    for line in found.compiled:             # two tiles of float32
        config = line["config"]
        assert line["smem_bytes"] == 4 * config["BK"] * (config["BM"] + config["BN"]), line


@pytest.mark.process
@compiled
def test_what_does_not_compile_is_told_with_its_line(tmp_path: Path) -> None:
    broken = SCALE_ADD.replace("a * x[i] + b[i]", "a * x[i] + nowhere[i]")
    found, = check_file(write(tmp_path, "broken.cu", broken))
    assert found.problems[0].what.startswith('no sample compiles: line 18: identifier "nowhere" is undefined')


@pytest.mark.process
@compiled
def test_an_endless_compile_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.bring.cuda.check.COMPILE_S", 1.0)
    endless = ("template<int N> struct F { static const long v = F<N-1>::v + F<N-2>::v; };\n"
               "template<> struct F<0> { static const long v = 0; }; template<> struct F<1> { static const long v = 1; };\n"
               "constexpr long slow(long n) { return n < 2 ? n : slow(n - 1) + slow(n - 2); }\n"
               "__global__ void f(long* x) { constexpr long a = slow(60); x[threadIdx.x] = a; }")
    found, = check_file(write(tmp_path, "endless.cu", endless))
    assert found.compiled and all("error" in line for line in found.compiled)


def test_a_script_of_kernel_tuner_is_read_as_it_is(tmp_path: Path) -> None:
    source, = read_sources(write(tmp_path, "add.py", KERNEL_TUNER)) or []
    assert source.kind == "kernel_tuner" and source.params == {
        "block_size_x": tuple(range(64, 1025, 64)), "vector_width": (1, 2, 4)}
    space = source.space(GPU)
    valid = [(b, v) for b in range(64, 1025, 64) for v in (1, 2, 4) if b * v <= 1024 and (b % 128 == 0 or v == 1)]
    assert (space.size, len(space)) == (48, len(valid)) and sum(space.pruned.values()) == 48 - len(valid)
    assert source.tuner is not None and source.tuner["sizes"] == [1 << 20]
    assert source.tuner["grid_div_x"] == ["block_size_x", "vector_width"]


@pytest.mark.parametrize(("change", "said"), [
    (('"vector_add", kernel_string', "name(), kernel_string"), "the kernel's name is computed"),
    (('kernel_string, size', '"../secret.cu", size'), "must lie in the script's folder"),
    (('kernel_string, size', 'make(), size'), "the kernel's source is computed"),
    (("restrict = [", "restrict = [lambda p: __import__('os').system('x'), "), "restriction"),
    (("args, tune_params,", "args, other_params,"), "tune_params is computed"),
])
def test_a_script_that_computes_what_must_be_read_is_refused(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(Refused, match=said):
        read_sources(write(tmp_path, "add.py", KERNEL_TUNER.replace(*change)))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_writes_the_kernel_of_a_script_beside_it(here: Path) -> None:
    write(here, "add.py", KERNEL_TUNER)
    call_command("operators", "init", "add.py")
    assert (here / "add.cu").read_text().startswith("\n__global__ void vector_add")
    assert "CudaOperator(" in (here / "add_ridgepoint.py").read_text()


@pytest.mark.deep_only          # the test above, and the next, which compiles what init writes of a template
@pytest.mark.process
@compiled
@pytest.mark.torch
def test_init_writes_an_operator_that_compiles(here: Path) -> None:
    write(here, "add.py", KERNEL_TUNER)
    call_command("operators", "init", "add.py")
    operator = few_samples(here / "add_ridgepoint.py")["vector_add"]
    assert operator.kind == "CudaOperator" and not operator.problems, operator.problems
    assert operator.valid == operator.size - sum(operator.pruned.values()) and operator.compiled[0]["registers"] > 4


@pytest.mark.process
@compiled
@pytest.mark.torch
def test_a_template_becomes_an_operator_with_the_kernels_types(here: Path) -> None:
    write(here, "tiled.cu", TILED)
    call_command("operators", "init", "tiled.cu:tiled_matmul")
    text = (here / "tiled_ridgepoint.py").read_text()
    assert 'template=("{BM}", "{BN}", "{BK}", "{dtype}")' in text and 'dtypes=("fp32", "fp16", "bf16")' in text
    found = few_samples(here / "tiled_ridgepoint.py", dtype="fp16")["tiled_matmul"]
    assert found.problems == [] and {line["gpu"] for line in found.compiled} == {"sm_80", "sm_90", "sm_100"}


def test_several_kernels_need_a_name(here: Path) -> None:
    write(here, "two.cu", SCALE_ADD + TILED)
    with pytest.raises(CommandError, match=r"name one of scale_add, tiled_matmul as two\.cu:NAME") as told:
        call_command("operators", "init", "two.cu")
    assert told.value.returncode == 2
