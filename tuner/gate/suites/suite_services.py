"""Suites made and changed: the same checks whether a form, a file or the API says it. Doing it twice changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.models import CaptureTarget
from tuner.gate.suites.definition import Definition, KernelDefinition
from tuner.gate.suites.selectors import FIELDS, KERNEL_FIELDS, device_problem
from tuner.models import Suite, SuiteCode, SuiteKernel
from workers import jobs

MAY_SAY_WHERE_CODE_LIES = "profiles.add_capturetarget"       # owners: who may say what programs workers run


@dataclass(frozen=True)
class SuiteChange:
    suite: Suite
    created: bool = False
    fields: list[str] = field(default_factory=list)              # of the suite
    kernels: dict[str, str] = field(default_factory=dict)        # key -> "added" | "changed" | "removed" | "switched off"

    @property
    def anything(self) -> bool:
        return self.created or bool(self.fields or self.kernels)

    @property
    def says(self) -> str:
        """One sentence for a person."""
        if not self.anything:
            return f"{self.suite.name} was as it is: nothing changed."
        parts = ["made" if self.created else "changed"]
        if self.fields:
            parts.append(", ".join(self.fields))
        for what in ("added", "changed", "removed", "switched off"):
            if number := sum(change == what for change in self.kernels.values()):
                parts.append(f"{number} kernel{'s' * (number != 1)} {what}")
        return f"{self.suite.name}: {'; '.join(parts)}."


def suite_put(definition: Definition, *, owner: Any = None, text: str = "", new: bool = False) -> SuiteChange:
    """Bring the suite of this name in line with the definition. Refused names each wrong field.

    text  the file that it was read from, kept as it came; "": made on a page or by the API
    new   the name must be free
    """
    with transaction.atomic():
        suite = Suite.objects.select_for_update().filter(name=definition.name).first()
        if problems := _problems(definition, suite, owner, new):
            raise Refused(problems)
        created = suite is None
        if suite is None:
            suite = Suite(name=definition.name, owner=owner)
        fields = [] if created else [name for name in FIELDS if getattr(suite, name) != _field_value(definition, name)]
        for name in FIELDS:
            setattr(suite, name, _field_value(definition, name))
        target = CaptureTarget.objects.get(name=definition.target) if definition.target else None
        fields += ["target"] if not created and suite.target != target else []
        suite.target = target
        if created or "every_hours" in fields:
            suite.due = timezone.now() + timedelta(hours=suite.every_hours) if suite.every_hours else None
        moved = created or bool(fields) or suite.definition != text
        suite.definition = text
        if moved:
            suite.save()
        kernels = _put_kernels(suite, definition) if definition.kind == "operators" else {}
    jobs.publish("home", "suite", {"id": suite.pk})
    return SuiteChange(suite, created, fields, kernels)


def suite_switch(suite: Suite, enabled: bool) -> None:
    Suite.objects.filter(pk=suite.pk).update(enabled=enabled, changed=timezone.now())
    suite.enabled = enabled


def suite_delete(suite: Suite) -> None:
    """With its runs, gates and regressions. Refused while a job of it is measured."""
    if suite.jobs.filter(status__in=["queued", "running"]).exists():
        raise Refused("a job of it waits or runs; stop that first", whole="suite")
    suite.delete()


def _field_value(definition: Definition, name: str) -> Any:
    value = getattr(definition, name)
    return dict(value) if name in ("rule", "metrics", "policy") else value


def _problems(definition: Definition, suite: Suite | None, owner: Any, new: bool) -> dict[str, str]:
    problems = {}
    if new and suite is not None:
        problems["name"] = "there is a suite of this name; choose another, or change that one"
    if suite is not None and suite.kind != definition.kind and suite.kernels.exists():
        problems["kind"] = f"it is a suite of kind {suite.kind} and has runs of that kind; make another suite"
    if definition.kind == "operators" and (problem := device_problem(definition.device)):
        problems["device"] = problem
    if definition.target and not CaptureTarget.objects.filter(name=definition.target).exists():
        names = CaptureTarget.objects.filter(enabled=True).values_list("name", flat=True)[:20]
        problems["target"] = f"no capture target of this name; there are {', '.join(names) or 'none yet'}"
    before = suite.build_path if suite else ""
    if definition.build_path != before and owner is not None and not owner.has_perm(MAY_SAY_WHERE_CODE_LIES):
        problems["build_path"] = "only owners may say where workers load a build's code from"
    elif definition.build_path and suite is not None and SuiteCode.objects.filter(suite=suite).exists():
        problems["build_path"] = "the suite has a source that its builds are fetched from: take that away first"
    return problems


def _put_kernels(suite: Suite, definition: Definition) -> dict[str, str]:
    there = {kernel.key: kernel for kernel in suite.kernels.all()}
    done: dict[str, str] = {}
    fresh: list[SuiteKernel] = []
    for place, each in enumerate(definition.kernels):
        kernel = there.pop(each.key, None)
        if kernel is None:
            fresh.append(SuiteKernel(suite=suite, key=each.key, family=each.op, place=place, **_kernel_fields(each)))
            done[each.key] = "added"
            continue
        fields = {**_kernel_fields(each), "place": place, "declared": True}
        different = [name for name, value in fields.items() if getattr(kernel, name) != value]
        for name in different:
            setattr(kernel, name, fields[name])
        if different:
            kernel.save(update_fields=different)
        if any(name != "place" for name in different):
            done[each.key] = "changed"
    SuiteKernel.objects.bulk_create(fresh, batch_size=500)
    for key, kernel in there.items():
        if not kernel.declared:                       # seen in an upload: no definition names it
            continue
        if not kernel.runs.exists():
            kernel.delete()
            done[key] = "removed"
        elif kernel.enabled:                          # its history stays
            SuiteKernel.objects.filter(pk=kernel.pk).update(enabled=False)
            done[key] = "switched off"
    return done


def _kernel_fields(each: KernelDefinition) -> dict[str, Any]:
    fields = {name: getattr(each, name) for name in KERNEL_FIELDS}
    return {name: dict(value) if isinstance(value, dict) else value for name, value in fields.items()}
