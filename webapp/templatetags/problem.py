"""`{% problem_url operator dtype shape gpu %}`: the page of a kernel problem, "" where no operator takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template

from tuner.models import TuneJob
from webapp.problem import address, states

register = template.Library()


@register.simple_tag
def problem_url(operator: str, dtype: str, shape: Mapping[str, Any], gpu: str | None) -> str:
    """Return the address of a job's, an entry's or a suite kernel's problem."""
    made = address.make(operator, dtype, shape, gpu or "")
    return made.url if made else ""


@register.inclusion_tag("problem/_actions.html", takes_context=True)
def problem_actions(context: Mapping[str, Any], job: TuneJob) -> dict[str, Any]:
    """"Use this" and "Guard this" of a job that is done, as its problem's page has them; nothing for another one."""
    made = address.make(job.operator, job.dtype, job.shape, job.gpu)
    if made is None or job.status != TuneJob.Status.DONE:
        return {}
    return {"served": states.served(made), "guarded": states.guarded(made), "fields": made.fields, "back_job": job.pk,
            "perms": context.get("perms"), "csrf_token": context.get("csrf_token")}
