"""`operators check` and `init` over real files, compiled by a real Triton where one is installed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.product import PROJECT, clean_env
from tests.tuner.bring.files import ADD, GATHER, HELION, MATMUL
from tuner.bring import check, process
from tuner.bring.check import check_file
from tuner.bring.recorded import Tensor, read_calls
from tuner.bring.source import FileRefused, kernels_of
from tuner.bring.write import write_adapter
from tuner.cache import client

with_triton = pytest.mark.skipif(not check.has_triton(), reason="torch and Triton are not installed")


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def make(text: str, name: str = "kernels.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path
    return make


def command(home: Path, *arguments: str) -> tuple[int, str, str]:
    ended = subprocess.run([sys.executable, str(PROJECT / "manage.py"), "operators", *arguments], capture_output=True,
                           text=True, timeout=300, env=clean_env(home), cwd=home.parent)
    return ended.returncode, ended.stdout, ended.stderr


@with_triton
def test_samples_compile_for_three_generations_and_say_what_they_take(write: Any) -> None:
    add, = check_file(write(ADD))
    assert (add.size, add.valid) == (25, 25) and add.default["num_warps"] == 8
    assert [line["gpu"] for line in add.compiled] == ["sm_80", "sm_90", "sm_100"] * 3
    assert all(line["registers"] > 0 and line["spills"] == 0 for line in add.compiled)
    assert [each.missing for each in add.problems] == [True]


@with_triton
def test_a_helper_kernel_index_and_flag_compile_from_what_is_assumed(write: Any) -> None:
    found, = check_file(write(GATHER))
    assert found.assumed == {"HAS_BIAS": False}
    assert found.compiled and not any("error" in line for line in found.compiled)


@with_triton
def test_a_kernel_that_does_not_compile_says_why(write: Any) -> None:
    found, = check_file(write(ADD.replace("tl.arange(0, BLOCK_SIZE)", "tl.arange(0, BLOCK_SIZE - 1)")))
    assert "power of 2" in found.problems[0].what and not found.problems[0].missing


@with_triton
def test_a_compile_without_end_is_ended(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "COMPILE_S", 1.0)
    monkeypatch.setattr(check, "SAMPLES", 0)
    endless = "    for _ in tl.static_range(100000):\n        offsets += 1\n    mask = "
    found, = check_file(write(ADD.replace("    mask = ", endless, 1)))
    said = {"no end of the compile within 1 s", "not tried: without end for another GPU"}
    assert {line["error"] for line in found.compiled} <= said
    assert len(found.compiled) == 3


@with_triton
@pytest.mark.parametrize(("line", "said"), [
    ("raise ValueError('no driver')", "ValueError: no driver"), ("import nothing_of_this_name", "nothing_of_this_name"),
    ("raise SystemExit(3)", "SystemExit: 3"), ("import os; os._exit(7)", "ended with 7")])
def test_a_file_that_cannot_be_imported_is_still_read(write: Any, line: str, said: str) -> None:
    found, = check_file(write(f"{ADD}\n{line}\n"))
    assert said in found.problems[0].what and found.size == 25 and not found.compiled


@with_triton
def test_what_was_not_compiled_is_never_passed_over(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = "import triton\nimport triton.language as tl\n\ndef make():\n" + "\n".join(
        f"    {line}" for line in ADD[ADD.index("@triton.jit"):ADD.index("def add(")].splitlines())
    found, = check_file(write(inside))
    assert found.problems[0].what == "no sample compiles: it stands inside a function: no other file can import it"
    monkeypatch.setattr(process.Asked, "compile", lambda *given: {"failed": "the process that imports it ended with -9"})
    found, = check_file(write(ADD))
    assert found.problems[0].what == "nothing was compiled: the process that imports it ended with -9"


@with_triton
def test_what_init_writes_is_an_operator_that_compiles(write: Any) -> None:
    path = write(MATMUL)
    draft = write_adapter(kernels_of(MATMUL)[0], "kernels")
    adapter = path.with_name("kernels_ridgepoint.py")
    adapter.write_text(draft.text)
    found, = check_file(adapter)
    assert (found.name, found.kind, found.size, found.problems) == ("mm", "TritonOperator", 6, [])
    assert found.compiled and not any("error" in line for line in found.compiled)
    text = adapter.read_text()
    for values_alone in ('args["A"].sum().item()', 'args["A"].nonzero().sum()', 'float(args["A"].cpu().max())'):
        adapter.write_text(text.replace('return args["A"] @ args["B"]', f'return args["A"] @ args["B"] * {values_alone}'))
        found, = check_file(adapter)
        assert found.problems == [], values_alone
    wrong = text.replace('return args["A"] @ args["B"]', 'return args["A"] @ args["B"][:, 1:]')
    adapter.write_text(wrong)
    found, = check_file(adapter)
    assert found.problems[0].what == "`reference` gives [4096, 4095], the kernel writes [4096, 4096]"


@with_triton
def test_a_reference_that_is_not_written_is_missing(write: Any) -> None:
    path = write(GATHER)
    adapter = path.with_name("g.py")
    adapter.write_text(write_adapter(kernels_of(GATHER)[0], "kernels").text)
    found, = check_file(adapter)
    assert [(each.missing, "write the reference" in each.what) for each in found.problems] == [(True, True)]


def test_a_recorded_call_names_the_tensors(write: Any, tmp_path: Path) -> None:
    call = {"kernel": "mm", "module": "m", "grid": [1536], "constexprs": {"BM": 64, "BN": 128, "BK": 32},
            "options": {"num_warps": 4},
            "arguments": {"A": {"shape": [4096, 1024], "stride": [1024, 1], "dtype": "float16"},
                          "B": {"shape": [1024, 3072], "stride": [1, 1024], "dtype": "float16"},
                          "C": {"shape": [4096, 3072], "stride": [3072, 1], "dtype": "float16"},
                          "M": 4096, "N": 3072, "K": 1024, "stride_am": 1024, "stride_ak": 1, "stride_bk": 1, "stride_bn": 1024,
                          "stride_cm": 3072, "stride_cn": 1}}
    recording = write(json.dumps({"calls": [call]}), "calls.json")
    draft = write_adapter(kernels_of(MATMUL)[0], "kernels", read_calls(recording)[0])
    assert "A = torch.empty((M, K), dtype=dtype, device=device)\n" in draft.text
    assert "B = torch.empty((K, N), dtype=dtype, device=device).T.contiguous().T\n" in draft.text
    assert '"stride_bk": B.stride(0), "stride_bn": B.stride(1)' in draft.text
    assert 'presets=({"M": 4096, "N": 3072, "K": 1024},)' in draft.text and 'dtypes=("fp16", "bf16",)' in draft.text
    assert 'grid=lambda meta: (triton.cdiv(meta["M"], meta["BM"]) * triton.cdiv(meta["N"], meta["BN"]),)' in draft.text
    assert not any("guessed" in each for each in draft.to_do)


def test_equal_sizes_are_told_apart_in_a_matrix_product_alone(write: Any) -> None:
    square = {"shape": [512, 512], "stride": [512, 1], "dtype": "bfloat16"}
    strides = {f"stride_{name}": 512 if name in ("am", "bk", "cm") else 1 for name in ("am", "ak", "bk", "bn", "cm", "cn")}
    call = {"kernel": "mm", "grid": [32], "constexprs": {"BM": 64, "BN": 128, "BK": 32}, "options": {}, "arguments": {
        "A": square, "B": square, "C": square, "M": 512, "N": 512, "K": 512, **strides}}
    recorded, = read_calls(write(json.dumps({"calls": [call]}), "calls.json"))
    draft = write_adapter(kernels_of(MATMUL)[0], "kernels", recorded)
    for line in ("A = torch.empty((M, K), ", "B = torch.empty((K, N), ", "C = torch.empty((M, N), "):
        assert line in draft.text
    assert not any("equal" in each for each in draft.to_do)
    other = MATMUL.replace("tl.zeros((BM, BN), tl.float32)", "0.0")
    assert any("M, N, K are equal" in each for each in write_adapter(kernels_of(other)[0], "kernels", recorded).to_do)


def test_a_block_that_covers_a_row_is_no_parameter(write: Any) -> None:
    text = ADD[:ADD.index("def add(")].replace("tl.program_id(0) * BLOCK_SIZE", "tl.program_id(0) * n_elements")
    rows = {"shape": [512, 1000], "stride": [1000, 1], "dtype": "bfloat16"}
    recording = write(json.dumps({"calls": [{
        "kernel": "add_kernel", "grid": [512], "constexprs": {"BLOCK_SIZE": 1024}, "options": {"num_warps": 4},
        "arguments": {"x_ptr": rows, "y_ptr": rows, "output_ptr": rows, "n_elements": 1000}}]}), "calls.json")
    draft = write_adapter(kernels_of(text)[0], "kernels", read_calls(recording)[0])
    assert '"BLOCK_SIZE": triton.next_power_of_2(n_elements)}' in draft.text
    assert 'params={"num_warps": (1, 2, 4, 8, 16), "num_stages": (1,)},' in draft.text
    assert 'grid=lambda meta: (meta["x_ptr"].shape[0],)' in draft.text


@pytest.mark.parametrize("text", ["", "[]", '{"calls": [1]}', '{"calls": [{"kernel": "x"}]}', "[" * 100_000, json.dumps({"calls": [
    {"kernel": "k", "constexprs": {}, "options": {},
     "arguments": {"x": {"shape": [1 << 60], "stride": [1], "dtype": "float16"}}}]})])
def test_what_is_no_recording_is_refused(write: Any, text: str) -> None:
    with pytest.raises(FileRefused, match=r"calls\.json is no recording"):
        read_calls(write(text, "calls.json"))


def test_without_triton_the_text_is_read_and_that_is_said(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "has_triton", lambda: False)
    found, = check_file(write(MATMUL))
    assert (found.size, found.compiled) == (6, []) and "nothing was compiled" in found.problems[-1].what
    helion, = check_file(write(HELION))
    assert (helion.kind, helion.size) == ("helion.kernel", 2)


def test_the_command_starts_nothing_and_its_exit_codes_tell(tmp_path: Path, write: Any) -> None:
    home = tmp_path / "home"
    code, out, _ = command(home, "check", str(write(ADD)), "--json")
    told = json.loads(out)
    assert code == 1 and [each["name"] for each in told["operators"]] == ["add_kernel"]
    assert {"name", "parameters", "size", "valid", "problems", "compiled"} <= told["operators"][0].keys()
    for arguments, said in (((str(tmp_path / "none.py"),), "No such file"), ((f"{write(ADD)}:other",), "holds no kernel other"),
                            ((), "of what?"),
                            ((str(write("x = (", "bad.py")),), "no Python"), ((str(write(ADD)), "--shape", "M:4"), "NAME=NUMBER")):
        code, _, err = command(home, "check", *arguments)
        assert code == 2 and said in err
    path = write(ADD)
    code, out, _ = command(home, "init", str(path))
    assert code == 0 and "reference: proposed from the kernel's name" in out
    code, _, err = command(home, "init", str(path))
    assert code == 2 and "is there already" in err
    assert not home.exists()


@with_triton
def test_what_is_recorded_is_what_a_kernel_was_launched_with(write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch itself needs a GPU (docs/bring.md): here what stands below the recording notes that it was reached."""
    import torch
    from triton.runtime.jit import JITFunction

    reached: list[Any] = []
    monkeypatch.setattr(JITFunction, "run", lambda kernel, *args, **options: reached.append((kernel.fn.__name__, options["grid"])))
    monkeypatch.syspath_prepend(str(write(ADD, "recorded_kernels.py").parent))
    module = importlib.import_module("recorded_kernels")
    below = JITFunction.run
    x = torch.empty(6, 4, dtype=torch.float16)[:, 1:]
    with client.record(str(tmp_path / "calls.json")):
        for size in (1000, 2000, 2000):
            module.add_kernel[lambda meta, size=size: (size // meta["BLOCK_SIZE"],)](x, x, x, size, BLOCK_SIZE=100, num_warps=2)
    assert JITFunction.run is below and [name for name, _ in reached] == ["add_kernel"] * 3
    told = json.loads((tmp_path / "calls.json").read_text())["calls"]
    assert [each["grid"] for each in told] == [[10], [20]]
    first, second = read_calls(tmp_path / "calls.json")
    assert first.arguments["x_ptr"] == Tensor((6, 3), (4, 1), "float16") and second.arguments["n_elements"] == 2000
    assert (first.constexprs, first.options) == ({"BLOCK_SIZE": 100}, {"num_warps": 2})
