"""Why nothing was made or changed: which field is wrong, what would be right, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Refused(ValueError):
    """What was asked for is not done, and nothing was written.

    `webapp.errors` makes the API's answer of it; pages put each problem beside its field.

    fields  name of the field ("" for the request as a whole) -> what is wrong and what would be valid
    hint    what to do, where no field says it
    status  what HTTP answers (403: not allowed, 404: no such row, 409: not now)
    whole   under which name the API's answer has the request as a whole among its fields; "": it is no field there
    """

    def __init__(self, why: str | Mapping[str, str], *, hint: str = "", status: int = 400, whole: str = "") -> None:
        self.fields = {"": why} if isinstance(why, str) else dict(why)
        self.hint, self.status, self.whole = hint, status, whole
        super().__init__("; ".join(f"{name}: {problem}" if name else problem for name, problem in self.fields.items()))

    @property
    def what(self) -> str:
        """What is wrong, without the names of the fields."""
        return "; ".join(self.fields.values())

    def renamed(self, names: Mapping[str, str]) -> Refused:
        """Return the same with the names that whoever asked gave its fields."""
        return Refused({names.get(name, name): problem for name, problem in self.fields.items()}, hint=self.hint,
                       status=self.status, whole=self.whole)

    def show_in(self, *forms: Any, named: bool = False) -> None:
        """Put each problem beside its field in Django's forms; what is no field of any goes above the first, `named` or not."""
        for form in forms:
            form.is_valid()
        for name, problem in self.fields.items():
            owner = next((form for form in forms if name in form.fields), None)
            if owner:
                owner.add_error(name, problem)
            else:
                forms[0].add_error(None, f"{name}: {problem}" if named and name else problem)
