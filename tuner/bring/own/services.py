"""Make an own kernel of a checked file, and a tune job of that: nothing is packaged or installed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from profiles.base.refused import Refused
from tuner.bring.checks import services as checks
from tuner.bring.checks.sources import source_text
from tuner.bring.own import selectors
from tuner.bring.travel.described import describe_text
from tuner.bring.travel.files import hash_of, name_of
from tuner.jobs.create_services import tune_create
from tuner.models import CachedConfig, KernelCheck, OwnKernel, SuiteKernel, TuneJob

KEPT = 200                  # versions of a project; older ones that no job, entry or suite names go when one is made
Params = Mapping[str, str | Sequence[Any]]


def own_create(check: KernelCheck, kernel: str = "", *, params: Params | None = None, constraints: Sequence[str] = (),
               reference: str = "", owner: Any) -> OwnKernel:
    """Return the version that a check's kernel is with this space, made where it is not there yet. Raises Refused.

    kernel     of the check; "" where one of its kernels can be tuned
    params     parameter → values as `checks.services.count_space` takes them; None: the adapter's own space
    reference  a function of the file that computes the same in torch; "": the default's own result
    """
    adapter = _adapter(check, kernel)
    text = _adapter_text(check, adapter, params, constraints, reference)
    beside = adapter.get("beside")
    file = f"{check.folder}/{check.file}" if check.folder else check.file
    sources = {**(check.siblings or {}), file: check.text, **({_beside(file, beside["file"]): beside["text"]} if beside else {})}
    digest = hash_of(sources, file, text)
    project = int(check.project_id or 0)
    name = name_of(adapter["kernel"], digest, project)
    try:
        described = describe_text(text, name, title=f"{adapter['kernel']} of {check.file}"[:120], kernel=adapter["kernel"],
                                  source_hash=digest, configs=selectors.configs_of(adapter))
    except Refused as error:
        raise Refused({"kernel": error.what}) from error
    with transaction.atomic():
        row, is_new = OwnKernel.objects.get_or_create(name=name, defaults={
            "project_id": project, "kernel": adapter["kernel"][:120], "file": file, "sources": sources, "adapter": text,
            "origin": source_text(check.source),
            "call": check.result.get("call", ""), "reference": reference, "description": json.dumps(described),
            "source_hash": digest, "check_made": check, "owner": owner})
        if is_new:
            _forget_old(project)
        elif row.check_made_id != check.pk:         # the same file again: its page is the newest one
            OwnKernel.objects.filter(pk=row.pk).update(check_made=check)
    selectors.forget()
    return row


def own_tune(check: KernelCheck, kernel: str = "", *, params: Params | None = None, constraints: Sequence[str] = (),
             reference: str = "", shape: Mapping[str, int] | None = None, owner: Any, **job: Any) -> tuple[OwnKernel, TuneJob]:
    """Make the kernel and a tune job at the call's shape (or another). `job`: of `tune_create`. Raises Refused."""
    with transaction.atomic():
        row = own_create(check, kernel, params=params, constraints=constraints, reference=reference, owner=owner)
        operator = selectors.operator_of(row)
        tune_job = tune_create(owner=owner, operator=row.name, shape=dict(shape or operator.presets[0]),
                               dtype=operator.dtypes[0], **job)
    return row, tune_job


def _adapter(check: KernelCheck, kernel: str) -> dict[str, Any]:
    named = [adapter for adapter in check.adapters if kernel in ("", adapter["kernel"])]
    if not named:
        raise Refused({"kernel": f"{check.file} has no kernel {kernel[:60]}; it has "
                                 f"{', '.join(adapter['kernel'] for adapter in check.adapters) or 'none'}"})
    able = [adapter for adapter in named if not selectors.why_not(check, adapter)]
    if not able:
        raise Refused({"kernel": selectors.why_not(check, named[0])})
    if len(able) > 1 and not kernel:
        raise Refused({"kernel": f"name one of {', '.join(adapter['kernel'] for adapter in able)}"})
    adapter: dict[str, Any] = able[0]
    return adapter


def _adapter_text(check: KernelCheck, adapter: Mapping[str, Any], params: Params | None, constraints: Sequence[str],
                  reference: str) -> str:
    """Return the adapter that compares with `reference` and has the edited space."""
    text = adapter["text"]
    if reference:
        if reference not in adapter.get("references", {}):
            names = ", ".join(adapter.get("references", {})) or "none"
            raise Refused({"reference": f"no function that can be called as the call is; there is {names}"})
        text = adapter["references"][reference]
    if params is None:
        return str(text)
    counted = checks.count_space(params, constraints, check=check, kernel=adapter["kernel"], text=text)
    if not counted["valid"]:
        raise Refused({"params": "no configuration of this space can run"})
    if counted["default_breaks"]:
        raise Refused({"constraints": f"the default breaks: {counted['default_breaks']}"})
    return str(counted["adapter"])


def _beside(file: str, name: str) -> str:
    folder = file.rpartition("/")[0]
    return f"{folder}/{name}" if folder else name


def _forget_old(project: int) -> None:
    """Delete versions beyond KEPT that nothing names any more."""
    old = OwnKernel.objects.filter(project=project).order_by("-pk").values_list("pk", "name")[KEPT:]
    names = {name for _, name in old}
    used = {*TuneJob.objects.filter(operator__in=names).values_list("operator", flat=True),
            *CachedConfig.objects.filter(operator__in=names).values_list("operator", flat=True),
            *SuiteKernel.objects.filter(op__in=names).values_list("op", flat=True)} if names else set()
    for row in OwnKernel.objects.filter(pk__in=[pk for pk, name in old if name not in used]):
        row.delete()
