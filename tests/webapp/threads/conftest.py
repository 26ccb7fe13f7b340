"""A regression and a finding to talk about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from profiles.models import Finding, Profile
from tuner.models import Build, Regression, Suite


@pytest.fixture
def regression(db: None) -> Regression:
    suite = Suite.objects.create(name="nightly", kind="uploaded")
    build = Build.objects.create(name="b2", at=datetime(2026, 11, 2, tzinfo=UTC))
    return Regression.objects.create(suite=suite, family="softmax", build=build, gpu="H200", kernels=["softmax/1"], ratio=1.08,
                                     found_by="gate")


def make_profile(**fields: Any) -> Profile:
    return Profile.objects.create(**{"name": "run", "status": "ready", "kind": "trace", "format": "kineto", "gpu": "H200",
                                     "model": "llama", **fields})


@pytest.fixture
def finding(db: None) -> Finding:
    profile = make_profile()
    return Finding.objects.create(profile=profile, rule="time.idle", severity="high", title="GPU idle 30 %",
                                  advice="overlap `copies`", worth_ns=5e9)

