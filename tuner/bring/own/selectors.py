"""Own kernels from their rows: as operators, for pages, and for the workers that run them. Nothing of them is imported."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypedDict

from profiles.base.answers import make_answer
from profiles.base.refused import Refused
from tuner.bring.travel.described import describe_text
from tuner.models import KernelCheck, OwnKernel, TuneJob
from tuner.tuning.operators import Operator
from tuner.tuning.team.description import make_operator
from workers import scope

FRESH_S = 1.0                # an answer so young stands for the rows
MOST_JOBS = 20
NOT_INDEPENDENT = "compared with the default configuration's own result: not independent"
_memo: dict[int | None, tuple[float, list[tuple[int, str, str, str, int]]]] = {}


def kernel_named(name: str) -> OwnKernel | None:
    """Return the version of this name that the current scope sees."""
    is_seen = any(name == row[1] for row in _rows(scope.current().sees))
    return OwnKernel.objects.filter(name=name).first() if is_seen else None


def usable_operators() -> Mapping[str, Operator]:
    """Return every version that the current scope sees, by name; of each kernel one is the newest."""
    rows = _rows(scope.current().sees)
    newest: dict[tuple[str, str, int], int] = {}
    for pk, _, file, kernel, project in rows:
        newest.setdefault((file, kernel, project), pk)
    newest_pks = set(newest.values())
    pairs = ((pk, operator) for pk, *_ in rows if (operator := _operator(pk)) is not None)
    return {operator.name: operator if pk in newest_pks else replace(operator, newest=False) for pk, operator in pairs}


def operator_of(kernel: OwnKernel) -> Operator:
    """Return the operator of a row. Raises Refused for a row that an older version of this code wrote."""
    try:
        description = json.loads(kernel.description)
    except ValueError as error:
        raise Refused(f"{kernel.name}: no description that this version reads") from error
    return replace(make_operator(description), version=kernel.source_hash)


def _rows(sees: int | None) -> list[tuple[int, str, str, str, int]]:
    """Return (id, name, file, kernel, project) of what a scope sees, the newest first, read again every FRESH_S."""
    read_at, rows = _memo.get(sees, (float("-inf"), []))
    if time.monotonic() - read_at >= FRESH_S:
        rows = list(OwnKernel.objects.values_list("pk", "name", "file", "kernel", "project_id"))
        _memo[sees] = (time.monotonic(), rows)
    return rows


def forget() -> None:
    """Read again at once in this process; others follow within FRESH_S."""
    _memo.clear()


@lru_cache(maxsize=1024)
def _operator(pk: int) -> Operator | None:
    row = OwnKernel.objects.filter(pk=pk).first()
    try:
        return None if row is None else operator_of(row)
    except Refused:      # described by an older version of this code
        return None


def why_not(check: KernelCheck, adapter: Mapping[str, Any]) -> str:
    """Return why an adapter of a check cannot be tuned as it stands; "" where it can."""
    if adapter.get("why"):
        return str(adapter["why"])
    if (check.file.endswith(".py") or check.result.get("call")) and not adapter.get("called"):
        if check.result.get("call") and check.status in (KernelCheck.Status.WAITING, KernelCheck.Status.RUNNING):
            return "a worker makes the call first"
        return "the call was not recorded" if check.result.get("call") else "give one call of the file's function above"
    try:
        describe_text(adapter["text"], "own", title="", kernel=str(adapter["kernel"]), source_hash="",
                      configs=configs_of(adapter))
    except Refused as error:
        return f"{error}: see what is left to do"
    return ""


def configs_of(adapter: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the list of an autotuner, its parameters in their order; empty where the adapter states a space."""
    listed = adapter.get("configs") or {"names": [], "rows": []}
    return [dict(zip(listed["names"], row, strict=True)) for row in listed["rows"]]


def jobs_of(check: KernelCheck) -> list[TuneJob]:
    """Return the newest tune jobs of kernels of a check."""
    names = list(check.own_kernels.values_list("name", flat=True))
    return list(TuneJob.objects.filter(operator__in=names)[:MOST_JOBS]) if names else []


class OwnKernelJson(TypedDict):
    """A version of an own kernel, without its texts; `independent`: another function says what is right."""

    operator: str
    kernel: str
    file: str
    files: list[str]
    call: str
    reference: str | None
    independent: bool
    source_hash: str
    origin: str
    created: str
    presets: list[dict[str, int]]


def kernel_json(kernel: OwnKernel) -> OwnKernelJson:
    """Return what a program reads of a version: no text of it."""
    operator = _operator(kernel.pk)
    return make_answer(
        OwnKernelJson, kernel, operator=kernel.name, files=sorted(kernel.sources), reference=kernel.reference or None,
        independent=kernel.is_independent, presets=[dict(preset) for preset in operator.presets] if operator else [])
