"""What pages of one room show of another: a problem's page, gates between two builds, own kernels.

`{% problem_url operator dtype shape gpu %}` is "" where no operator takes it; `gates_between old new`, `own_tunes check adapters`,
`own_jobs check` and `own_kernel name` are taken `as` a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import template

from tuner.bring.own import selectors
from tuner.gate.verdicts import page_selectors
from tuner.jobs.create_services import DEFAULT_EFFORT, EFFORTS
from tuner.models import Gate, KernelCheck, OwnKernel, TuneJob
from webapp.problem import address, states

register = template.Library()


@register.simple_tag
def problem_url(operator: str, dtype: str, shape: Mapping[str, Any], gpu: str | None) -> str:
    """Return the address of a job's, an entry's or a suite kernel's problem."""
    problem = address.make(operator, dtype, shape, gpu or "")
    return problem.url if problem else ""


@register.inclusion_tag("problem/_actions.html", takes_context=True)
def problem_actions(context: Mapping[str, Any], job: TuneJob) -> dict[str, Any]:
    """"Use this" and "Guard this" of a job that is done, as its problem's page has them; nothing for another one."""
    problem = address.make(job.operator, job.dtype, job.shape, job.gpu)
    if problem is None or job.status != TuneJob.Status.DONE:
        return {}
    return {"served": states.served(problem), "guarded": states.guarded(problem), "fields": problem.fields, "back_job": job.pk,
            "perms": context.get("perms"), "csrf_token": context.get("csrf_token")}


@register.simple_tag
def gates_between(old: str, new: str) -> list[Gate]:
    """Return gates that judged `new` against `old`, newest first; none without single builds."""
    return page_selectors.gates_between(old, new) if old and new else []


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
