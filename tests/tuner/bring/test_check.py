"""`operators check` and `init` over real files, compiled by a real Triton where one is installed."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from profiles.base.refused import Refused
from tests.product import PROJECT, clean_env
from tests.tuner.bring.files import ADD, ADD_ONE, GATHER, HELION, MATMUL
from tests.warm.parent import run_program
from tuner.bring import check, process
from tuner.bring.check import check_file
from tuner.bring.recorded import Tensor, read_calls
from tuner.bring.report import Found
from tuner.bring.samples import choose_samples
from tuner.bring.source import kernels_of
from tuner.bring.write import write_adapter
from tuner.cache import client
from tuner.tuning.space import Param, Space


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


def few_samples(path: Path, **more: str) -> dict[str, Found]:
    """Return what is found of each kernel of a file, of which its default configuration alone is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "SAMPLES", 0)
        patch.setattr(check, "COMPILE_S", 250.0)            # the machine may have other work
        return {each.name: each for each in check_file(path, **more)}


# one process imports a file and compiles what it holds: what is asked of several kernels is asked of one file
INSIDE = "\ndef make():\n" + "\n".join(
    f"    {line}" for line in ADD[ADD.index("@triton.jit"):ADD.index("def add(")].replace("add_kernel", "hidden").splitlines())
BROKEN = ADD[ADD.index("@triton.jit"):ADD.index("def add(")].replace("add_kernel", "broken").replace(
    "tl.arange(0, BLOCK_SIZE)", "tl.arange(0, BLOCK_SIZE - 1)")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """What is found of four kernels in one file, each compiled in its default configuration."""
    path = tmp_path_factory.mktemp("kernels") / "kernels.py"
    path.write_text("\n".join((ADD, GATHER, BROKEN, INSIDE)))
    return few_samples(path)


@pytest.mark.torch
def test_a_kernel_compiles_for_three_generations_and_says_what_it_takes(kernels: dict[str, Found]) -> None:
    add = kernels["add_kernel"]
    assert (add.size, add.valid) == (25, 25) and add.default["num_warps"] == 8
    assert [line["gpu"] for line in add.compiled] == ["sm_80", "sm_90", "sm_100"]
    assert all(line["registers"] > 0 and line["spills"] == 0 for line in add.compiled)
    assert [each.missing for each in add.problems] == [True]


@pytest.mark.torch
def test_a_helper_kernel_index_and_flag_compile_from_what_is_assumed(kernels: dict[str, Found]) -> None:
    found = kernels["gather"]
    assert found.assumed == {"HAS_BIAS": False} and "read_row" not in kernels
    assert found.compiled and not any("error" in line for line in found.compiled)


@pytest.mark.torch
def test_a_kernel_that_does_not_compile_says_why(kernels: dict[str, Found]) -> None:
    found = kernels["broken"]
    assert "power of 2" in found.problems[0].what and not found.problems[0].missing
    assert kernels["hidden"].problems[0].what == "no sample compiles: it stands inside a function: no other file can import it"


def test_the_default_and_configurations_spread_over_the_space_are_the_samples() -> None:
    space = Space.enumerate((Param("A", (1, 2, 3, 4, 5, 6, 7, 8)),))
    assert choose_samples({"A": 1}, space, 2) == [{"A": 1}, {"A": 3}, {"A": 7}]
    assert choose_samples({"A": 3}, space, 2) == [{"A": 3}, {"A": 7}] and choose_samples({}, space, 1) == [{"A": 5}]


@pytest.mark.torch
def test_a_compile_without_end_is_ended(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "COMPILE_S", 1.0)
    monkeypatch.setattr(check, "SAMPLES", 0)
    endless = "    for _ in tl.static_range(100000):\n        offsets += 1\n    mask = "
    found, = check_file(write(ADD.replace("    mask = ", endless, 1)))
    said = {"no end of the compile within 1 s", "not tried: without end for another GPU"}
    assert {line["error"] for line in found.compiled} <= said
    assert len(found.compiled) == 3


@pytest.mark.torch
@pytest.mark.parametrize(("line", "said"), [
    ("raise ValueError('no driver')", "ValueError: no driver"),
    *(pytest.param(*each, marks=pytest.mark.deep_only) for each in (
        ("import os; os._exit(7)", "ended with 7"),
        ("import nothing_of_this_name", "nothing_of_this_name"), ("raise SystemExit(3)", "SystemExit: 3")))],
    ids=["raises", "ends", "lacks", "leaves"])
def test_a_file_that_cannot_be_imported_is_still_read(write: Any, line: str, said: str) -> None:
    found, = check_file(write(f"{ADD}\n{line}\n"))
    assert said in found.problems[0].what and found.size == 25 and not found.compiled


@pytest.mark.torch
def test_what_was_not_compiled_is_never_passed_over(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended:
        """A process that imported the file and ended before it compiled."""
        imported: dict[str, Any] = {}

        def __init__(self, *given: Any, **more: Any) -> None: ...
        def __enter__(self) -> Ended: return self
        def __exit__(self, *_: Any) -> None: ...
        def compile(self, *given: Any) -> dict[str, str]: return {"failed": "the process that imports it ended with -9"}

    monkeypatch.setattr(process, "Asked", Ended)
    found, = check_file(write(ADD))
    assert found.problems[0].what == "nothing was compiled: the process that imports it ended with -9"


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """What is found of the adapters that `init` writes of two kernels."""
    folder = tmp_path_factory.mktemp("adapters")
    (folder / "kernels.py").write_text(MATMUL + GATHER)
    mm, gather = (write_adapter(kernels_of(text)[0], "kernels").text for text in (MATMUL, GATHER))
    path = folder / "kernels_ridgepoint.py"
    path.write_text(mm + gather.replace("OPERATORS = [", "OTHERS = ["))
    return few_samples(path)


@pytest.mark.deep_only          # of init: the next two; of compiling: the test of three generations
@pytest.mark.torch
def test_what_init_writes_is_an_operator_that_compiles(adapters: dict[str, Found]) -> None:
    found = adapters["mm"]
    assert (found.kind, found.size, found.problems) == ("TritonOperator", 6, [])
    assert found.compiled and not any("error" in line for line in found.compiled)


REFERENCES = """
import json, sys, torch
from dataclasses import replace
from pathlib import Path
from tuner.bring import child

adapter, = child.adapters_of(child.load_file(Path(sys.argv[1]), child.Choices(), False)[0])
references = {
    "sum": lambda args: args["A"] @ args["B"] * args["A"].sum().item(),
    "nonzero": lambda args: args["A"] @ args["B"] * args["A"].nonzero().sum(),
    "largest": lambda args: args["A"] @ args["B"] * float(args["A"].cpu().max()),
    "mask": lambda args: args["A"][args["A"] > 0].sum() * (args["A"] @ args["B"]),
    "rows": lambda args: (args["A"] @ args["B"])[args["A"][:3, 0].long()],
    "no_rows": lambda args: args["A"][args["A"][0, :3].long(), args["A"][0, :4].long()],
    "elsewhere": lambda args: args["A"] @ args["B"] + torch.ones(args["B"].shape[1]),
    "narrow": lambda args: args["A"] @ args["B"][:, 1:]}
print(json.dumps({name: child.describe(replace(adapter, reference=each))["reference"] for name, each in references.items()}))
"""


@pytest.mark.torch
def test_a_reference_may_compute_of_values_and_must_have_the_shape_of_the_result(write: Any) -> None:
    write(MATMUL)
    path = write(write_adapter(kernels_of(MATMUL)[0], "kernels").text, "kernels_ridgepoint.py")
    told = json.loads(run_program(REFERENCES, str(path))[0])
    assert all(told.pop(name).startswith("`reference` fails: RuntimeError: ") for name in ("no_rows", "elsewhere"))
    assert told == {
        "sum": "", "nonzero": "", "largest": "", "mask": "",
        "rows": "`reference` gives [3, 4096], the kernel writes [4096, 4096]",
        "narrow": "`reference` gives [4096, 4095], the kernel writes [4096, 4096]"}


DESCRIBED = """
import json, sys
from pathlib import Path
from tuner.bring import child

adapter, = child.adapters_of(child.load_file(Path(sys.argv[1]), child.Choices(), False)[0])
print(json.dumps(child.describe(adapter)))
"""


@pytest.mark.torch
def test_a_reference_that_is_not_written_is_said(write: Any) -> None:
    write(GATHER)
    path = write(write_adapter(kernels_of(GATHER)[0], "kernels").text, "kernels_ridgepoint.py")
    described = json.loads(run_program(DESCRIBED, str(path))[0])
    found, jobs = check._read_adapter(described, {}, "", kernels_of(path.read_text()))
    assert [(each.missing, "write the reference" in each.what) for each in found.problems] == [(True, True)] and jobs


@pytest.mark.deep_only          # the test above, and what compiles
@pytest.mark.torch
def test_a_reference_that_is_not_written_is_missing(adapters: dict[str, Found]) -> None:
    assert [(each.missing, "write the reference" in each.what) for each in adapters["gather"].problems] == [(True, True)]


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
    with pytest.raises(Refused, match=r"calls\.json is no recording"):
        read_calls(write(text, "calls.json"))


def test_without_triton_the_text_is_read_and_that_is_said(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "has_triton", lambda: False)
    found, = check_file(write(MATMUL))
    assert (found.size, found.compiled) == (6, []) and "nothing was compiled" in found.problems[-1].what
    helion, = check_file(write(HELION))
    assert (helion.kind, helion.size) == ("helion.kernel", 2)


@pytest.mark.slow
def test_the_command_starts_nothing_and_its_exit_codes_tell(tmp_path: Path, write: Any) -> None:
    home = tmp_path / "home"
    code, out, _ = command(home, "check", str(write(ADD_ONE)), "--json")
    told = json.loads(out)
    assert code == 1 and [each["name"] for each in told["operators"]] == ["add_kernel"]
    assert {"name", "parameters", "size", "valid", "problems", "compiled"} <= told["operators"][0].keys()
    assert not home.exists()
    path = write(ADD)
    call_command("operators", "init", str(path))
    with pytest.raises(CommandError, match="is there already") as told_again:
        call_command("operators", "init", str(path))
    assert told_again.value.returncode == 2             # which Django ends the process with


def test_wrong_use_of_the_command_is_told(write: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(ADD))
    for arguments, said in (((str(tmp_path / "none.py"),), "No such file"), ((f"{path}:other",), "holds no kernel other"),
                            ((), "of what?"), ((str(write("x = (", "bad.py")),), "no Python"),
                            ((path, "--shape", "M:4"), "NAME=NUMBER")):
        with pytest.raises(CommandError, match=re.escape(said)) as told:
            call_command("operators", "check", *arguments)
        assert told.value.returncode == 2
    call_command("operators", "init", path)
    assert "reference: proposed from the kernel's name" in capsys.readouterr().out


@pytest.mark.torch
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
