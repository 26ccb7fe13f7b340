"""Own kernels on pages of others: `own_tunes check adapters`, `own_jobs check`, `own_kernel name`, each `as` a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import template

from tuner.bring.own import selectors
from tuner.jobs.create_services import DEFAULT_EFFORT, EFFORTS
from tuner.models import KernelCheck, OwnKernel, TuneJob

register = template.Library()


@register.simple_tag
def own_tunes(check: KernelCheck, adapters: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what each kernel of a check is tuned with, or why it cannot be yet, and the efforts."""
    rows = [{"kernel": each["kernel"], "why": selectors.why_not(check, each), "references": list(each.get("references") or {}),
             "called": bool(each.get("called"))} for each in adapters]
    efforts = [{"name": name, "effort": effort, "default": name == DEFAULT_EFFORT} for name, effort in EFFORTS.items()]
    return {"rows": rows, "able": any(not each["why"] for each in rows), "efforts": efforts}


@register.simple_tag
def own_jobs(check: KernelCheck) -> list[TuneJob]:
    """Return the newest tune jobs of a check's kernels."""
    return selectors.jobs_of(check)


@register.simple_tag
def own_kernel(name: str) -> OwnKernel | None:
    """Return the own kernel of an operator's name; None for any other operator."""
    return selectors.kernel_named(name)
