"""From a problem to a job and to an entry of a suite, with nothing left to fill in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.utils.text import slugify

from profiles.base.refused import Refused
from tuner.gate.suites.definition import Definition, KernelDefinition, kernel_key
from tuner.gate.suites.selectors import definition_of
from tuner.gate.suites.suite_services import suite_put
from tuner.jobs import new_services
from tuner.jobs.create_services import DEFAULT_EFFORT
from tuner.models import Suite, SuiteKernel, TuneJob
from tuner.tuning.search.strategies import DEFAULT
from webapp.problem import states
from webapp.problem.address import Problem


def start_job(problem: Problem, owner: Any) -> TuneJob:
    """Queue a search of it; one that waits or runs already is that job. Raises Refused."""
    if active := states.tuned(problem).active:
        return active
    fields = {"operator": problem.operator, "dtype": problem.dtype, "shape": [dict(problem.shape)],
              "device": states.job_device(problem).value, "strategy": DEFAULT, "effort": DEFAULT_EFFORT}
    return TuneJob.objects.get(pk=new_services.create_jobs(owner, fields)[1])


def suite_name(gpu: str) -> str:
    """Return the suite that problems of a GPU model are guarded in."""
    return f"problems-{slugify(gpu) or 'any-gpu'}"[:60]


def guard(problem: Problem, owner: Any) -> SuiteKernel:
    """Make it an entry of its GPU's suite: whatever the cache serves is measured. Doing it twice changes nothing. Refused."""
    if there := states.guarded(problem).kernel:
        return there
    name, key = suite_name(problem.gpu), kernel_key(problem.operator, problem.shape, problem.dtype)
    entry = KernelDefinition(key=key, op=problem.operator, shape=dict(problem.shape), dtype=problem.dtype, config_from="cache")
    suite = Suite.everything.filter(name=name).first()
    if suite is not None and suite.kind != Suite.Kind.OPERATORS:
        raise Refused({"name": f"{name} is a suite of kind {suite.kind}: rename it, then guard again"})
    if suite is None:
        definition = Definition(name=name, title=f"Kernel problems of {problem.gpu or 'any GPU'}",
                                device=f"gpu:{problem.gpu}" if problem.gpu else "gpu", kernels=[entry])
    else:
        old_definition = definition_of(suite)
        others = [kernel for kernel in old_definition.kernels if kernel.key != key]
        definition = replace(old_definition, kernels=[*others, entry])
    put = suite_put(definition, owner=owner, text="")
    return put.suite.kernels.get(key=key)
