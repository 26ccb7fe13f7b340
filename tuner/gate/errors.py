"""Why nothing was made or changed: which field is wrong, and what would be right."""

from __future__ import annotations

from collections.abc import Mapping


class Refusal(ValueError):
    """Nothing was written. `webapp.errors` makes the API's answer of it; pages put each problem beside its field.

    fields  name of the field ("" for the request as a whole) -> what is wrong and what would be valid
    status  what HTTP answers (404: no such row, 409: not now)
    """

    def __init__(self, fields: Mapping[str, str], status: int = 400) -> None:
        super().__init__("; ".join(f"{name}: {problem}" if name else problem for name, problem in fields.items()))
        self.fields, self.status = dict(fields), status

    def renamed(self, names: Mapping[str, str]) -> Refusal:
        """Return the same with the names that whoever asked gave its fields."""
        return Refusal({names.get(name, name): problem for name, problem in self.fields.items()}, self.status)


class Superseded(Exception):
    """Another worker holds the job, or it was ended: what this one still has is not written."""
