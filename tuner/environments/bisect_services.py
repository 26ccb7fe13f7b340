"""Measuring the builds that a bisect plan names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.environments import bisect_selectors
from tuner.jobs import devices
from tuner.models import Suite, SuiteJob
from tuner.suites.services import SuiteError, job_create


def bisect_measure(suite: Suite, kernel_key: str, builds: Sequence[str], owner: Any = None, *, gpu: str = "",
                   runs: int | None = None) -> SuiteJob:
    """Queue fresh runs of this kernel for these builds, interleaved. Raises SuiteError, or LookupError for what is not known."""
    found = bisect_selectors.bisect(suite, kernel_key, gpu=gpu)
    if found.why_not:
        raise SuiteError({"suite": found.why_not})
    on_gpu = suite.device == devices.GPU or suite.device.startswith(f"{devices.GPU}:")
    device = f"{devices.GPU}:{found.environment.gpu}" if on_gpu and found.environment.gpu else suite.device
    return job_create(suite, builds=list(builds), runs=runs, kernels=[kernel_key], reason="bisect", device=device, owner=owner)
