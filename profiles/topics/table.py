"""Every topic, in the order in which the profile page shows them. A new one: a function in `profiles/analysis/`, a template
in `templates/profiles/topics/`, the type of its numbers in `profiles/topics/documents/`, and a line here; a picture on its page: a
line in `profiles/topics/pages.py`.

What an analysis of a trace is given beside the trace: ceilings measured on GPUs of its model, shapes that people typed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from profiles.analysis.core import gpus
from profiles.analysis.core.result import Result
from profiles.analysis.kernel.ceilings import MeasuredCeilings
from profiles.analysis.trace.account.result import VERSION as CAUSES_VERSION
from profiles.analysis.trace.communication.result import communication_result
from profiles.analysis.trace.critical.topic import critical_result
from profiles.analysis.trace.launching.topic import launches_result
from profiles.analysis.trace.layer.topic import layer_result
from profiles.analysis.trace.lead import causes_with_lead, needed_with_lead
from profiles.analysis.trace.memory.result import memory_result
from profiles.analysis.trace.needed.topic import VERSION as NEEDED_VERSION
from profiles.analysis.trace.operators.topic import operators_result
from profiles.analysis.trace.sampled.topic import sampled_result
from profiles.analysis.trace.sequences.topic import sequences_result
from profiles.analysis.trace.time.result import time_result
from profiles.base.answers import FindingJson
from profiles.ceilings.selectors import measured_gpus
from profiles.ingest.trace import SummaryTable
from profiles.models import Profile
from profiles.store.objects import typed_read


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
    return {entry.gpu: {"label": f"{entry.label}, at the data sheet's clock", "url": entry.url, "rates": _rates(entry)}
            for entry in measured_gpus() if gpus.key(entry.gpu) in here}


def _rates(measured: MeasuredCeilings) -> dict[str, float]:
    model = gpus.lookup(measured.gpu)
    return {key: ceiling.at(model.peak_clock_hz(key)) if model and key in model.peaks else ceiling.rate
            for key, ceiling in measured.ceilings.items()}


def fingerprint(given: dict[str, Any]) -> str:
    """Return what tells a document of other given facts from this one's."""
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]


Times = dict[str, float]                    # part of a time → ns


class TopicDocument(TypedDict):
    """What one analysis of the whole trace found; names in `answer` stand in backticks."""

    version: int
    written: int
    applies: bool
    answer: str
    tables: list[SummaryTable]
    findings: list[FindingJson]
    seconds: float
    given: NotRequired[str]
    refused_mb: NotRequired[float]              # it exceeded so much memory, or time: not tried again until more is allowed
    refused_s: NotRequired[float]


@dataclass(frozen=True)
class Topic:
    """One analysis of a trace: workers compute it; what its page shows beside the document stands in `topics.pages`."""

    name: str                       # in URLs: "launches"
    title: str
    question: str                   # that its page answers
    version: int                    # of `compute`: a document of another version is made again
    compute: Callable[..., Result]  # of the frame, and of what `given` returns where there is one
    given: Callable[[Profile], dict[str, Any]] | None = None        # facts of the database: a document of others is made again

    @property
    def template(self) -> str:
        return f"profiles/topics/{self.name}.html"


TOPICS: tuple[Topic, ...] = (
    Topic("causes", "Causes", "What did the time of each GPU go to, where does that start, and what is there to win?",
          CAUSES_VERSION, causes_with_lead),
    Topic("needed", "Needed", "What does a step need at least, what does it do besides, and what would each change win?",
          NEEDED_VERSION, needed_with_lead, ceilings_given),
    Topic("time", "Time", "Where did the time of each GPU go, and which of three things holds it back?", 10, time_result),
    Topic("operators", "Operators", "Which operators and modules own the GPU's time, and could more of it run on tensor cores?", 5,
          operators_result),
    Topic("layer", "Layer", "What do the kernels of a layer compute and move, and how near are they to the GPU's ceilings?", 5,
          layer_result, layer_given),
    Topic("communication", "Communication", "How fast do collectives move data, and who waits for whom, how long and why?", 4,
          communication_result),
    Topic("memory", "Memory", "What holds the GPU's memory, what makes its peak, and what of it is unused?", 3, memory_result),
    Topic("launches", "Launches", "Is the host fast enough for the GPU, and what does the way from call to kernel cost?", 3,
          launches_result),
    Topic("sequences", "Sequences", "Which kernels come one after the other again and again, and could be one?", 1,
          sequences_result),
    Topic("critical-path", "Critical path", "What did the run really wait for, and what would make it shorter?", 2,
          critical_result),
    Topic("gpu-metrics", "GPU metrics", "How busy were SMs, tensor cores and DRAM while kernels ran, as they were sampled?", 2,
          sampled_result),
)


def topic_of(name: str) -> Topic | None:
    return next((topic for topic in TOPICS if topic.name == name), None)
