"""Counter reports of tests/data, each read once per test process: reading one takes seconds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from profiles import ingest
from profiles.ingest.trace import CounterLaunch, Report

DATA = Path(__file__).resolve().parents[2] / "data"


def read(path: str | Path) -> Report:
    """The report of a path, or of one below tests/data. Nobody changes it."""
    return _read(DATA / path)


@cache
def _read(path: Path) -> Report:
    found = ingest.read(path)
    assert isinstance(found, Report)
    return found


def launches(name: str) -> list[CounterLaunch]:
    """Its launches that hold instructions."""
    return [launch for launch in read(name).launches if launch.instructions is not None]
