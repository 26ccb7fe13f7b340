"""`operators init --call "…"`: the call made, and the adapter of one of the kernels that it launches."""

from __future__ import annotations

import ast
from pathlib import Path

from profiles.base.refused import Refused
from tuner.bring.calls.adapting import write_called
from tuner.bring.calls.expression import read_call
from tuner.bring.calls.found import read_recorded
from tuner.bring.calls.loading_places import package_of
from tuner.bring.check import asked_calls, record_of
from tuner.bring.write import Draft


def draft_of_call(path: Path, name: str, call: str, dtype: str = "", reference: str = "") -> Draft:
    """Return the adapter of the kernel `name` of a call, of its only one where none is named. Raises Refused."""
    if reference and reference not in _functions_of(path):
        raise Refused(f"{path.name} has no function {reference}")
    with asked_calls(path, call) as child:
        record = record_of(child, call, dtype)
        launched = read_recorded(path, record)
    chosen = [pair for pair in launched if not name or name in (pair[0].name, pair[1].name if pair[1] else "")]
    if len(chosen) != 1:
        names = ", ".join(entry.name for entry, _ in launched)
        raise Refused(f"the call launches {names}: name one, as {path.name}:NAME")
    entry, kernel = chosen[0]
    return write_called(entry, kernel, record, read_call(call), ".".join(package_of(path)[1]), reference, path.read_text())


def _functions_of(path: Path) -> set[str]:
    try:
        return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
    except (OSError, SyntaxError, ValueError) as error:
        raise Refused(f"{path}: {error}") from error
