"""One call of a pasted file: made by a worker behind walls, its adapter written of what that told, and records that mean harm."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from profiles.base.refused import Refused
from tests.tuner.bring.files import ADD
from tests.tuner.bring.test_pasted import behind_walls, in_threads
from tests.warm.parent import forks_behind_walls
from tuner.bring.calls.received import read_record
from tuner.bring.checks import services
from tuner.bring.pasted import called_adapters
from tuner.models import KernelCheck
from workers.tune.check import run

CALL = "add(randn(4096), randn(4096))"


def tensor(size: int, storage: int) -> dict[str, Any]:
    return {"kind": "tensor", "dtype": "bfloat16", "shape": [size], "strides": [1], "storage": storage, "offset": 0}


def launch(size: int = 4096, block: int = 1024) -> dict[str, Any]:
    return {"kernel": "add_kernel", "module": "kernel", "grid": [-(-size // block)], "grid_is_function": True, "gluon": False,
            "line": 4,
            "arguments": {"x_ptr": tensor(size, 1), "y_ptr": tensor(size, 2), "output_ptr": tensor(size, 3),
                          "n_elements": {"kind": "int", "value": size}},
            "constexprs": {"BLOCK_SIZE": {"kind": "int", "value": block}}, "options": {"num_warps": 8}, "autotune": None,
            "tuned": {}, "heuristics": [], "heuristics_above": False}


def record() -> dict[str, Any]:
    return {"call": CALL, "sizes": [4096], "inputs": [{**tensor(4096, 1), "maker": "randn", "bounds": []}], "launches": [launch()],
            "result": [tensor(4096, 3)], "grids": [[{"instead": {"BLOCK_SIZE": 512}, "grid": [8]}]], "choices": {},
            "with_sizes": [{"size": 4096, "is": size, "launches": [launch(size)]} for size in (8192, 6144)],
            "with_choices": [], "used": []}


def test_an_adapter_is_written_of_a_record(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(ADD)
    adapter, = called_adapters(path, CALL, record())
    assert adapter["kernel"] == "add_kernel" and "not independent" in adapter["to_do"][-1]
    assert 'GRID = lambda meta: (triton.cdiv(meta["n_elements"], meta["BLOCK_SIZE"]),)' in adapter["text"]
    assert adapter["space"]["default"] == {"BLOCK_SIZE": 1024, "num_warps": 8, "num_stages": 3}
    compile(adapter["text"], "adapter", "exec")


def test_a_fraction_that_follows_the_product_of_two_sizes_is_written_as_that(tmp_path: Path) -> None:
    """As the mean over all elements of a matrix is given to a kernel."""
    path = tmp_path / "kernel.py"
    path.write_text(ADD.replace("n_elements, BLOCK_SIZE: tl", "n_elements, rows, scale, BLOCK_SIZE: tl"))

    def scaled(size: int, rows: int) -> dict[str, Any]:
        made = launch(size)
        made["arguments"] |= {"rows": {"kind": "int", "value": rows}, "scale": {"kind": "float", "value": 1 / (size * rows)}}
        return made

    told = {**record(), "sizes": [4096, 48], "launches": [scaled(4096, 48)], "with_sizes": [
        {"size": 4096, "is": 8192, "launches": [scaled(8192, 48)]}, {"size": 48, "is": 96, "launches": [scaled(4096, 96)]}]}
    adapter, = called_adapters(path, CALL, told)
    assert '"scale": 1 / (n_elements * rows)' in adapter["text"] and "NotImplementedError" not in adapter["text"]


def changed(*path: Any, to: Any) -> dict[str, Any]:
    made = copy.deepcopy(record())
    at: Any = made
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = to
    return made


@pytest.mark.parametrize("told", [
    {}, [], {"launches": []}, {"launches": 1}, changed("launches", 0, "kernel", to="x; import os"),
    changed("launches", 0, "arguments", "a\nb", to={"kind": "int", "value": 1}),
    changed("launches", 0, "constexprs", '"+f()+"', to={}), changed("launches", 0, "options", "x y", to=1),
    changed("launches", 0, "arguments", "x_ptr", "dtype", to="bfloat16)\nimport os"),
    changed("launches", 0, "arguments", "x_ptr", "shape", to=["os.system()"]), changed("launches", 0, "heuristics", to=['"]']),
    changed("launches", 0, "grid", to=["f()"]), changed("grids", to=[[{"instead": {"BLOCK_SIZE": 512}, "grid": ["f()"]}]]),
    changed("grids", to=[[{"instead": {'"]+f()+meta["': 512}, "grid": [8]}]]),
    changed("with_sizes", 0, "launches", 0, "grid", to=["f()"]), changed("with_sizes", 0, "size", to="f()"),
    changed("launches", 0, "arguments", "n_elements", "value", to="f()"), changed("sizes", to=["f()"]), changed("sms", to=".*"),
    changed("launches", 0, "constexprs", "BLOCK_SIZE", to={"kind": "dtype", "value": "float32, f()"}),
    changed("launches", 0, "constexprs", "BLOCK_SIZE", to={"kind": "float", "value": "f()"}),
    changed("launches", 0, "arguments", "x_ptr", "strides", to=[]),
    changed("launches", 0, "autotune", to={"configs": [{"B": 1}], "kept": [], "key": [], "names": ['B"]'], "pruned": False,
                                           "prune_failed": "", "reset_to_zero": [], "restore_value": []}),
    changed("sizes", to=[float("inf")]), changed("sizes", to=[1 << 80]), changed("used", to=[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]])])
def test_what_is_no_record_is_refused(told: Any, tmp_path: Path) -> None:
    with pytest.raises(Refused):
        read_record(told)
    path = tmp_path / "kernel.py"
    path.write_text(ADD)
    with pytest.raises(Refused):
        called_adapters(path, CALL, told)


@pytest.mark.django_db
def test_a_call_is_read_before_it_is_kept_and_calls_are_proposed(olga: Any) -> None:
    for call, words in (("add(lambda: 1)", "only calls"), ("add", "a call of a function")):
        with pytest.raises(Refused, match=words) as refused:
            services.check_create(ADD, call=call, owner=olga)
        assert list(refused.value.fields) == ["call"]
    cuda = services.check_create("__global__ void f(float *x) { x[0] = 1; }", file="f.cu", call=CALL, owner=olga)
    assert cuda.result["call"] == CALL
    check = services.check_create(ADD, call=CALL, owner=olga)
    assert check.result["call"] == CALL and check.result["proposals"] == ["add(randn(4096, 1024), randn(4096, 1024))"]


@pytest.mark.django_db
def test_the_page_has_the_field_and_the_calls_that_the_file_shows(olga: Any, client: Any) -> None:
    check = services.check_create(ADD, call=CALL, owner=olga)
    client.force_login(olga)
    page = client.get(f"/tune/operators/check/{check.pk}/").content.decode()
    assert 'name="call"' in page and 'data-call="add(randn(4096, 1024), randn(4096, 1024))"' in page and CALL in page


@in_threads
@behind_walls
@pytest.mark.torch
def test_a_call_is_made_behind_walls_and_its_adapter_replaces_that_of_the_text(olga: Any) -> None:
    check = services.check_create(ADD, call="add(randn(100000), randn(100000))", owner=olga)
    with forks_behind_walls():
        run(check.pk, "here")
    check = KernelCheck.objects.get(pk=check.pk)
    assert check.status == "done", check.error
    kernel, = check.result["operators"]
    assert kernel["recorded"]["grid"] == [98] and kernel["default"] == {"BLOCK_SIZE": 1024, "num_warps": 8, "num_stages": 3}
    assert check.compiled == check.samples == len(kernel["compiled"])
    assert {line["gpu"] for line in kernel["compiled"]} == {"sm_80", "sm_90", "sm_100"}
    assert all(line["registers"] > 0 and line["occupancy_pct"] for line in kernel["compiled"])
    adapter, = check.adapters
    assert "from the call add(randn(100000)" in adapter["text"]
    assert 'GRID = lambda meta: (triton.cdiv(meta["n_elements"], meta["BLOCK_SIZE"]),)' in adapter["text"]
