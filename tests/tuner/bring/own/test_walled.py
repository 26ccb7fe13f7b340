"""Processes of own kernels behind walls: compilers share a folder with who measures, nothing else is seen, harm ends alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.bring.files import ADD
from tests.tuner.bring.own.programs import CARD, with_text
from tests.tuner.bring.test_called import CALL, record
from tuner.bring.pasted import called_adapters
from tuner.tuning.team.description import make_operator
from workers.core import sandboxed, warm
from workers.core.child import ChildDied
from workers.core.walled import Walls
from workers.tune import own

pytestmark = pytest.mark.skipif(bool(sandboxed.why_not()), reason=f"no sandbox here: {sandboxed.why_not()}")
TESTS = sandboxed.PROJECT / "tests"


def ask(child: Any, do: str, limit_s: float = 240.0, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = child.ask({"do": do, **more}, limit_s, threading.Event())
    return answer


@pytest.fixture
def warm_parent() -> Iterator[warm.Keeper]:
    """A warm parent as a GPU's worker keeps it for own kernels."""
    keeper = warm.Keeper(own.warm_environ(), "9.0", warm.WALLED)
    warm.keep(keeper, walled=True)
    keeper.tend()
    yield keeper
    warm.keep(None, walled=True)
    keeper.close()


@pytest.mark.torch
def test_a_compiler_behind_walls_fills_the_folder_that_the_measuring_process_reads(
        tmp_path: Path, warm_parent: warm.Keeper) -> None:
    (tmp_path / "mine.py").write_text(ADD)
    adapter, = called_adapters(tmp_path / "mine.py", CALL, record())
    version = with_text(ADD, adapter["text"], "add_kernel")
    operator = make_operator(json.loads(version.description))
    folder = tmp_path / "compiled"
    folder.mkdir()
    assert warm_parent.parent is not None
    helper = warm_parent.parent._folder / "helper"          # as Triton's for the launch, which only a driver lets be built
    helper.mkdir()
    (helper / "helper.so").write_bytes(b"library")
    with own.behind_walls(version, operator, CARD) as walled:
        child = walled["spawn"](walled["compiler_module"], {own.CACHE: str(folder)})
        try:
            assert isinstance(child.process, warm.ForkedProcess)
            assert (folder / "helper" / "helper.so").read_bytes() == b"library"
            opened = ask(child, "open", operator=version.name, shape={"n_elements": 4096}, dtype="bf16", seed=0,
                         compute_capability="9.0", sms=132)
            assert opened["ok"]["triton"], opened
            compiled = ask(child, "compile", config={"BLOCK_SIZE": 1024, "num_warps": 4, "num_stages": 2})
            assert compiled["ok"]["registers"] > 0 and list(folder.rglob("*.cubin"))
            refused = ask(child, "compile", config={"BLOCK_SIZE": 1000, "num_warps": 4, "num_stages": 2})
            assert refused["rejected"]["reason"] == "compile" and "power of 2" in refused["rejected"]["message"]
        finally:
            child.close()


def fake(tmp_path: Path, **bounds: Any) -> Any:
    """A child of the protocol that does as it is told, behind walls."""
    walls = Walls(read=(*sandboxed.OURS, TESTS), write=(tmp_path,),
                  environ={"PYTHONPATH": str(sandboxed.PROJECT)}, bounds=sandboxed.Bounds(**bounds))
    return own.OwnChild("tests.workers.core.fake_child", {}, walls)


@pytest.mark.parametrize(("do", "words"), [("garbage", "sent what is no"), ("exit", "last words"), ("segfault", "status 139")])
def test_a_child_that_breaks_the_protocol_or_dies_is_told_from_one_that_answers(tmp_path: Path, do: str, words: str) -> None:
    tmp_path.chmod(0o777)
    child = fake(tmp_path)
    try:
        assert ask(child, "compile", config={"do": "fine"})["ok"] == {"compile_s": 0.25}
        assert ask(child, "run", config={"do": "fine"}, seed=1)["ok"]["median_ms"] == 1.0
        with pytest.raises(ChildDied, match=words):
            ask(child, "run", config={"do": do}, seed=1)
        assert not child.alive
    finally:
        child.close()


def test_what_it_writes_is_bounded(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "large").write_bytes(b"x" * (3 << 20))
    child = fake(tmp_path, room_mb=1)
    try:
        with pytest.raises(ChildDied, match="it wrote 3 MiB; at most 1"):
            while True:
                ask(child, "run", config={"do": "nap"}, seed=1)
    finally:
        child.close()
