"""What trials of other values say of one launch (`trials`, as `session` tells them): who stays right, and how its grid went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

RIGHT, UNTRIED = "right", "not tried"
LEAST = 2                   # of which a value has a smaller one


@dataclass(frozen=True)
class Evidence:
    """The trials of one launch."""

    tries: Sequence[Mapping[str, Any]] = field(default=())

    def _own(self, name: str, fourth: bool = False) -> list[Mapping[str, Any]]:
        """Return the trials of a constexpr that were run: of the choices that set it the one that changes least beside it.

        fourth  with that of a fourth of its value
        """
        known = [one for one in self.tries if name in one["names"] and not one["verdict"].startswith(UNTRIED)
                 and (not one["choice"] or one["is"] == self._value(one, name)) and (fourth or not self._is_fourth(one, name))]
        least = min((trial["changes"] for trial in known), default=0)
        return [trial for trial in known if trial["changes"] == least]

    def _is_fourth(self, one: Mapping[str, Any], name: str) -> bool:
        return bool(int(self._value(one, name) or 0) * 4 <= one["was"].get(name, 0))

    def is_fourth_wrong(self, name: str) -> bool:
        """Return whether a fourth of a value was seen to leave something else."""
        return any(one["verdict"] != RIGHT for one in self._own(name, fourth=True) if self._is_fourth(one, name))

    def of(self, name: str, fourth: bool = False) -> str:
        """Return "right" where other values of a constexpr, smaller ones too, left the same; what did not; "" where none ran."""
        own = self._own(name, fourth)
        wrong = next((trial for trial in own if trial["verdict"] != RIGHT), None)
        if wrong is not None:
            return f"with {self._value(wrong, name)} in its place {wrong['verdict']}"
        smaller = [trial["was"].get(name, 0) < LEAST or self._value(trial, name) < trial["was"].get(name, 0) for trial in own]
        return RIGHT if any(smaller) else ""            # a larger one alone may cover a size

    def is_half_right(self, name: str) -> bool:
        """Return whether smaller values left the same where a larger one did not."""
        own = self._own(name, fourth=True)
        smaller = [trial["verdict"] == RIGHT for trial in own if self._value(trial, name) < trial["was"].get(name, 0)]
        larger = [trial["verdict"] == RIGHT for trial in own if self._value(trial, name) > trial["was"].get(name, 0)]
        return bool(smaller) and bool(larger) and all(smaller) and not any(larger)

    def is_alone(self, name: str) -> bool:
        """Return whether a constexpr was seen to stay right, no other changed with it."""
        return any(tuple(trial["names"]) == (name,) and trial["verdict"] == RIGHT for trial in self.tries)

    def is_block(self, name: str) -> bool:
        """Return whether what the kernel loads or stores at once was seen to follow a constexpr."""
        return any(name in trial["names"] and trial["tiles"] for trial in self.tries)

    def why_untried(self, name: str) -> str:
        """Return why another value could not be tried; "" where one was, or none was to be."""
        return next((trial["verdict"].partition(": ")[2] for trial in self.tries
                     if name in trial["names"] and trial["verdict"].startswith(UNTRIED)), "")

    def points(self, blocks: Sequence[str]) -> list[tuple[Mapping[str, Any], dict[int, int]]]:
        """Return each launch that stayed right where blocks alone were others, with the numbers of its call that were."""
        return [(trial["launch"], dict(trial["sizes"])) for trial in self.tries
                if trial["verdict"] == RIGHT and set(trial["names"]) <= set(blocks)]

    @staticmethod
    def _value(one: Mapping[str, Any], name: str) -> Any:
        return one["launch"]["constexprs"].get(name, {}).get("value")


def evidence_of(record: Mapping[str, Any], at: int) -> Evidence:
    """Return that of the launch at `at`."""
    return Evidence([trial for trial in record.get("tries", ()) if trial["at"] == at])
