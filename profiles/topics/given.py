"""What an analysis of a trace is given beside the trace: ceilings measured on GPUs of its model, shapes that people typed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from profiles.analysis.core import gpus
from profiles.analysis.kernel.measured import MeasuredCeilings
from profiles.ceilings.selectors import measured_gpus
from profiles.models import Profile
from profiles.store.documents import typed_read


def ceilings_given(profile: Profile) -> dict[str, Any]:
    """Return {"ceilings": {model: {"label", "url", "rates"}}} of `analysis.trace.needed.topic`."""
    return {"ceilings": _measured(profile)}


def layer_given(profile: Profile) -> dict[str, Any]:
    """Return {"ceilings": {model: {"label", "url", "rates"}}, "typed": {kernel: {…}}} of `analysis.trace.layer.topic`.

    A trace does not say at which clock its kernels ran, and a measurement that drew all power ran at a low one: measured arithmetic
    is put at the clock that the data sheet's peak stands for.
    """
    return {"ceilings": _measured(profile), "typed": typed_read(profile.pk)}


def _measured(profile: Profile) -> dict[str, Any]:
    here = gpus.key(profile.gpu)
    return {one.gpu: {"label": f"{one.label}, at the data sheet's clock", "url": one.url, "rates": _rates(one)}
            for one in measured_gpus() if gpus.key(one.gpu) in here}


def _rates(measured: MeasuredCeilings) -> dict[str, float]:
    model = gpus.lookup(measured.gpu)
    return {key: each.at(model.peak_clock_hz(key)) if model and key in model.peaks else each.rate
            for key, each in measured.ceilings.items()}


def fingerprint(given: dict[str, Any]) -> str:
    """Return what tells a document of other given facts from this one's."""
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]
