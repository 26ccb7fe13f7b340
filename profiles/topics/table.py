"""Every topic, in the order in which the profile page shows them. A new one: a function in `profiles/analysis/`, a template
in `templates/profiles/topics/`, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from profiles.analysis.communication.result import communication_result
from profiles.analysis.critical.topic import critical_result
from profiles.analysis.found import Result
from profiles.analysis.frame import Frame
from profiles.analysis.launching.topic import launches_result
from profiles.analysis.memory.result import memory_result
from profiles.analysis.operators.topic import operators
from profiles.analysis.sequences.topic import sequences_result
from profiles.analysis.temporal.result import time_result
from profiles.models import Profile
from profiles.topics import communication as communication_page
from profiles.topics import critical_path as critical_page
from profiles.topics import launches as launches_page
from profiles.topics import memory as memory_page
from profiles.topics import operators as operators_page
from profiles.topics import sequences as sequences_page
from profiles.topics import time as time_page

Context = Callable[[Profile, dict[str, Any], Mapping[str, str]], dict[str, Any]]


def _plain(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Topic:
    """`context(profile, document, params of the URL)` gives the template what it needs beyond the document."""

    name: str                       # in URLs: "launches"
    title: str
    question: str                   # that its page answers
    version: int                    # of `compute`: a document of another version is made again
    compute: Callable[[Frame], Result]
    context: Context = _plain

    @property
    def template(self) -> str:
        return f"profiles/topics/{self.name}.html"


TOPICS: tuple[Topic, ...] = (
    Topic("time", "Time", "Where did the time of each GPU go, and which of three things holds it back?", 6, time_result,
          time_page.context),
    Topic("operators", "Operators", "Which operators and modules own the GPU's time, and could more of it run on tensor cores?", 2,
          operators, operators_page.context),
    Topic("communication", "Communication", "How fast do collectives move data, and who waits for whom, how long and why?", 3,
          communication_result, communication_page.context),
    Topic("memory", "Memory", "What holds the GPU's memory, what makes its peak, and what of it is unused?", 3, memory_result,
          memory_page.context),
    Topic("launches", "Launches", "Is the host fast enough for the GPU, and what does the way from call to kernel cost?", 2,
          launches_result, launches_page.context),
    Topic("sequences", "Sequences", "Which kernels come one after the other again and again, and could be one?", 1,
          sequences_result, sequences_page.context),
    Topic("critical-path", "Critical path", "What did the run really wait for, and what would make it shorter?", 1,
          critical_result, critical_page.context),
)


def topic_of(name: str) -> Topic | None:
    return next((topic for topic in TOPICS if topic.name == name), None)
