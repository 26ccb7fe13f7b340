"""The topic "time" as one result: what a page, a program and a command say of where the time of a trace went."""

from __future__ import annotations

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.result import Result
from profiles.analysis.trace.time import numbers, sentences, tables
from profiles.analysis.trace.time.facts import TimeFacts


def time_result(frame: Frame) -> Result:
    """Return where the time went per GPU, step, phase and range, and what holds the GPUs back."""
    facts = TimeFacts(frame)
    if not facts.devices:
        return Result(sentences.no_work_text(frame), applies=False)
    return Result(sentences.answer(facts), numbers.numbers(facts), tables.tables(facts), sentences.findings(facts))
