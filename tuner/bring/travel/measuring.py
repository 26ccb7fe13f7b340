"""The processes that compile and measure an own kernel, behind walls: `tuner.tuning.measure`'s, with one operator more.

Started by workers.tune.own as `python -m tuner.bring.travel.measuring READ_FD WRITE_FD PARENT_PID`, its files in the folder that
RIDGEPOINT_OWN_KERNEL names (`files.lay_out_kernel`). The kernel's file is imported as it is to be read: what others of its
functions import and this host lacks is stood in for.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tuner.bring.calls.choices import Choices
from tuner.bring.calls.loading import load_tolerantly
from tuner.bring.travel.files import FOLDER, RECORD, TREE, adapter_path
from tuner.tuning import operators, wire
from tuner.tuning.kernels.problem import Problem
from tuner.tuning.measure import child, nvml
from tuner.tuning.operators.operator import Operator
from tuner.tuning.team import packages
from tuner.tuning.team.adapter import TritonOperator
from tuner.tuning.team.description import make_operator
from tuner.tuning.team.fences import Fences
from tuner.tuning.trial import Config, Reason


def make_ready() -> None:
    """In the warm parent: put one tensor between fences. What torch imports for that (its compiler, SymPy) takes four seconds."""
    Fences(torch.device("cpu")).made(lambda: torch.empty(1))


class Kernel:
    """The one own kernel of this process; its file is imported when its operator is asked for."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / TREE
        self.told: dict[str, Any] = json.loads((folder / RECORD).read_text())
        self._operators: dict[str, Operator] = {}

    def operators(self) -> Mapping[str, Operator]:
        """Return the operator by its name. Raises wire.Failure where the file or its adapter cannot be imported."""
        if not self._operators:
            name = self.told["name"]
            try:
                adapter = self._load()
            except BaseException as error:          # the file may raise anything, and may exit
                raise wire.Failure(f"{self.told['file']} cannot be imported: {type(error).__name__}: {error}"[:1000],
                                   "mend the file, or install what it imports on the worker") from error
            packages.offer(replace(adapter, name=name))
            self._operators = {name: make_operator(self.told["description"])}
        return self._operators

    def _load(self) -> TritonOperator:
        file = self.told["file"]
        if str(self.tree) not in sys.path:
            sys.path.append(str(self.tree))         # a module of the tree that lies in no package is found from its root
        if file.endswith(".py"):
            load_tolerantly(self.tree / file, Choices())
        module = import_file(self.tree / adapter_path(file))
        adapter = module.OPERATORS[0]
        if not isinstance(adapter, TritonOperator):
            raise TypeError("the adapter holds no operator")
        return adapter


def import_file(path: Path) -> ModuleType:
    """Import a file by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Bench(child.Bench):
    """See tuner.tuning.measure.child. Behind walls the driver may number the GPUs anew; tensors stand between fences."""

    fences: Fences
    independent: bool           # whether the reference is something else than the default's own result

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        uuid = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0]
        index = next((device["index"] for device in nvml.devices() if device["uuid"] == uuid), request.get("gpu_index", 0))
        record = json.loads((Path(os.environ[FOLDER]) / RECORD).read_text())
        self.independent = bool(record["independent"])
        options = {**request, "gpu_index": index, "library": request["library"] and self.independent}
        return {**super().open(options), "source_hash": record["source_hash"]}

    def finalists(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """See there. The default's own result is no library to compare with."""
        answers = super().finalists(request)
        for answer in answers:
            if "rejected" not in answer and not self.independent:
                answer["facts"] = {name: value for name, value in answer["facts"].items() if not name.startswith("library")}
        return answers

    def _made(self, make: Callable[[], Problem]) -> Problem:
        self.fences = Fences(self.device)
        return self.fences.made(make)

    def _check(self, config: Config, seed: int) -> tuple[Any, dict[str, Any]]:
        """See there. A launch that reaches beyond its tensors is wrong, whatever its result."""
        try:
            answer = super()._check(config, seed)
        except wire.Rejection as refused:
            if refused.reason != Reason.WRONG or refused.fatal:
                raise
            why = self._run_guarded(lambda: self.fences.why_broken() or self.fences.why_read(
                lambda: self.problem.launch(config), self.problem.out, lambda: self.problem.refill(seed)))
            if not why:
                raise
            raise wire.Rejection(Reason.WRONG, f"{why}; {refused}", **refused.facts) from refused
        if why := self._run_guarded(self.fences.why_broken):
            raise wire.Rejection(Reason.WRONG, why, inputs_seed=seed)
        return answer


def provide() -> None:
    """Let `operators.find` know the kernel of this process."""
    operators.provide(Kernel(Path(os.environ[FOLDER])).operators)


def main(argv: list[str]) -> None:
    """Serve requests until the worker closes its end."""
    import torch

    read_fd, write_fd, parent_pid = (int(arg) for arg in argv)
    wire.enter_child(parent_pid)
    provide()
    wire.serve(Bench(torch.device("cuda")).handlers(), read_fd, write_fd)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
