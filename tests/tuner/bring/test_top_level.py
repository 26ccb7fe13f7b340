"""What a kernel file runs of its own while it is imported, as files of public benchmarks do: tests of values, launches, tables."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tuner.bring.files import ADD
from tuner.bring import check
from tuner.bring.calls.top_level import FAILED, leave_out_runs


def left(text: str) -> tuple[dict[str, str], str]:
    tree = ast.parse(text)
    return leave_out_runs(tree), ast.unparse(tree)


@pytest.mark.parametrize("run", ["result = test_it()", "test_it()", "benchmark.run(print_data=True)", "main()",
                                 "with torch.no_grad(): _test()", "for size in (1, 2): print(bench_it(size))"])
def test_a_test_at_the_top_is_not_run(run: str) -> None:
    functions = "".join(f"def {name}(*a): ...\n" for name in ("test_it", "benchmark", "main", "_test", "bench_it"))
    out, text = left(functions + run)
    assert next(iter(out)).startswith("line 6, ") and text.endswith("pass")


@pytest.mark.parametrize("run", ["configs = make_configs()", "register()", "testing_configs = make_configs()",
                                 "assert torch.allclose(x, y), (x, y)", "BLOCK = max(64, 128)", "from triton import nothing"])
def test_what_may_be_needed_is_run_and_may_fail(run: str) -> None:
    out, text = left(f"def make_configs(): ...\ndef register(): ...\n{run}\n")
    assert not out and f"try:\n    {run}\nexcept" in text and f"{FAILED}(3," in text


def test_a_result_that_something_reads_is_made() -> None:
    out, text = left("def test_configs(): ...\nCONFIGS = test_configs()\nprint(CONFIGS)\n")
    assert not out and "CONFIGS = test_configs()" in text


@pytest.mark.parametrize("text", ["import torch\nx = torch.pi\n", "if __name__ == '__main__':\n    test()\n",
                                  "def test(): ...\nclass A:\n    x = test()\n", "from __future__ import annotations\n",
                                  "from torch import *\n"])
def test_all_else_stays_as_it_is(text: str) -> None:
    assert left(text) == ({}, ast.unparse(ast.parse(text)))


SCRIPT = ADD + '''

def helper():
    torch.cuda.synchronize()
    return add(torch.randn(98, device="cuda"), torch.randn(98, device="cuda"))


def test_add():
    x = torch.randn(98432, device="cuda")
    assert torch.allclose(add(x, x), x + x)
    return x.sum().item()


warmed = helper()
assert warmed is not None
sizes = helper().tolist()
result_gold = test_add()
'''


@pytest.mark.torch
def test_a_file_that_launches_while_it_is_imported_is_called_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(SCRIPT)
    found, = check.check_call(path, "", "add(randn(4096), randn(4096))", "")
    assert found.recorded is not None and found.recorded["grid"] == [4] and found.compiled and not found.problems
    said, = (note for note in found.notes if "left out while the file was imported" in note)
    assert "test_add (a test of the file's own, not run)" in said and "tolist" not in said and "line" in said
