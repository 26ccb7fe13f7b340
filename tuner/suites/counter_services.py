"""Counters and timelines of builds asked for: by a person, a program, or a gate whose suite says so."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from django.db import transaction

from tuner.models import KernelRun, Suite, SuiteJob
from tuner.suites.counter_selectors import COUNTERS, live_job, why_not
from tuner.suites.errors import SuiteError
from tuner.suites.job_services import job_create

log = logging.getLogger(__name__)
MOST_KERNELS, MOST_BUILDS = 20, 4            # of one job: a kernel takes seconds for each build
AFTER_A_GATE = 4                             # slowest kernels whose counters a gate asks for by itself


def counters_ask(suite: Suite, kernels: Sequence[str], builds: Sequence[str], *, owner: Any = None) -> SuiteJob:
    """Queue a capture of these kernels for each build, as its newest run was launched. SuiteError names each wrong field.

    A job for the same that waits or runs is returned in place of a second one.
    """
    names, keys = list(dict.fromkeys(filter(None, builds))), list(dict.fromkeys(kernels))
    problems = {}
    if not 1 <= len(names) <= MOST_BUILDS:
        problems["builds"] = f"name 1 to {MOST_BUILDS} builds"
    if not 1 <= len(keys) <= MOST_KERNELS:
        problems["kernels"] = f"name 1 to {MOST_KERNELS} kernels"
    rows = list(suite.kernels.filter(key__in=keys, enabled=True).select_related("suite"))
    if missing := [key for key in keys if key not in {row.key for row in rows}]:
        problems["kernels"] = f"no enabled kernel {missing[0][:80]!r} in {suite.name}"
    if not problems and (why := why_not(rows[0], names)):
        problems["suite"] = why
    if problems:
        raise SuiteError(problems)
    with transaction.atomic():
        Suite.everything.select_for_update().get(pk=suite.pk)            # two who ask at once: one job
        standing = live_job(rows[0], names)
        if standing is not None and _same(standing, keys, names):
            return standing
        wanted, gpu = _builds(suite, keys, names)
        device = f"gpu:{gpu}" if gpu and suite.device.partition(":")[0] == "gpu" else suite.device
        return job_create(suite, builds=wanted, runs=0, kernels=keys, reason=COUNTERS, device=device, owner=owner)


def _same(job: SuiteJob, keys: Sequence[str], names: Sequence[str]) -> bool:
    return set(job.kernels or ()) >= set(keys) and {each["build"] for each in job.builds} >= set(names)


def _builds(suite: Suite, keys: Sequence[str], names: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """Each build with the configurations of its newest runs, and the GPU that they ran on. SuiteError where there are none."""
    runs = KernelRun.objects.filter(kernel__suite=suite, kernel__key__in=keys, build__name__in=names, rejected="", recorded="")
    newest = list(runs.order_by("kernel_id", "build_id", "-pk").distinct("kernel_id", "build_id").select_related("kernel", "build")
                  .defer("us"))
    wanted = []
    for name in names:
        mine = [run for run in newest if run.build.name == name]
        if not mine:
            raise SuiteError({"builds": f"{name} has no run of {keys[0] if len(keys) == 1 else 'these kernels'} on a GPU here: "
                                        "its runs say with which configuration a kernel is launched. Measure it first"})
        configs = {run.kernel.key: run.config for run in mine if run.config}
        wanted.append({"build": name, "configs": configs})
    return wanted, max(newest, key=lambda run: run.pk).gpu


def counters_of_slower(suite: Suite, slower: Sequence[str], old: str, new: str, *, owner: Any = None) -> SuiteJob | None:
    """A gate found these kernels SLOWER, worst first: their counters are captured where the suite says so. None: they are not."""
    if not suite.capture_slower or not slower or not old:
        return None
    try:
        return counters_ask(suite, slower[:AFTER_A_GATE], [old, new], owner=owner)
    except SuiteError as refused:
        log.info("suite %s: no counters of %s and %s: %s", suite.name, old, new, refused)
        return None
