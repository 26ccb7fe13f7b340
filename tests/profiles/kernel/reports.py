"""Counter reports of tests/data, each read once per test process: reading one takes seconds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from profiles import ingest
from profiles.ingest.trace import CounterLaunch, Report

DATA = Path(__file__).resolve().parents[2] / "data"


@cache
def read(name: str) -> Report:
    """The report of that path below tests/data. Nobody changes it."""
    found = ingest.read(DATA / name)
    assert isinstance(found, Report)
    return found


def launches(name: str) -> list[CounterLaunch]:
    """Its launches that hold instructions."""
    return [launch for launch in read(name).launches if launch.instructions is not None]
