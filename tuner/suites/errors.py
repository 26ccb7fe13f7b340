"""What can be wrong with a request about suites: each wrong field is named, and says what would be valid."""

from __future__ import annotations

from collections.abc import Mapping


class SuiteError(Exception):
    """Nothing was written. `fields`: name of the field ("" for the request as a whole) -> what is wrong and what would be valid."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {problem}" if name else problem for name, problem in fields.items()))
        self.fields = dict(fields)


class Superseded(Exception):
    """Another worker holds the job, or it was ended: what this one still has is not written."""
