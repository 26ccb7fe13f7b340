"""What an analysis of a trace is given beside the trace: ceilings measured on GPUs of its model, shapes that people typed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from profiles.analysis.core import gpus
from profiles.ceilings.selectors import measured_gpus
from profiles.models import Profile
from profiles.store.typed import typed_read


def layer_given(profile: Profile) -> dict[str, Any]:
    """Return {"ceilings": {model: {"label", "url", "rates"}}, "typed": {kernel: {…}}} of `analysis.trace.layer.topic`."""
    here = gpus.key(profile.gpu)
    measured = {one.gpu: {"label": one.label, "url": one.url, "rates": {key: each.rate for key, each in one.ceilings.items()}}
                for one in measured_gpus() if gpus.key(one.gpu) in here}
    return {"ceilings": measured, "typed": typed_read(profile.pk)}


def fingerprint(given: dict[str, Any]) -> str:
    """Return what tells a document of other given facts from this one's."""
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]
