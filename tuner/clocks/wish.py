"""What an owner asks of a GPU's clocks while something is measured on it, and the words for what came of it. Needs no Django."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from profiles.base.refused import Refused

DEFAULT_GRAPHICS = "75%"
LOCKED = "SM clock locked at"
SHARE_PCT = (10, 100)               # of the highest graphics clock that the driver names
CLOCK_MHZ = (100, 10_000)           # above every clock that a GPU has so far
_GRAPHICS = re.compile(r"([0-9]{1,5})\s*(%|MHz)?\Z", re.IGNORECASE)


@dataclass(frozen=True)
class ClockWish:
    """graphics     "75%" of the highest graphics clock, or "1410": MHz
    memory_mhz   None: the memory clock is left alone
    persistence  whether persistence mode is switched on meanwhile
    required     whether a job fails where the driver refuses; else it runs unlocked and says so"""

    graphics: str = DEFAULT_GRAPHICS
    memory_mhz: int | None = None
    persistence: bool = True
    required: bool = False

    @classmethod
    def read(cls, graphics: Any = "", memory_mhz: Any = None, persistence: Any = True, required: Any = False) -> ClockWish:
        """Return the wish that a form, a request or a command gives. Raises Refused."""
        for name, value in (("persistence", persistence), ("required", required)):
            if not isinstance(value, bool):
                raise Refused({name: "say true or false"})
        return cls(_read_graphics(graphics), _read_memory(memory_mhz), persistence, required)

    def graphics_mhz(self, highest_mhz: int | None, supported_mhz: Sequence[int] = ()) -> int:
        """Return the graphics clock to set: of a share the highest supported clock that is not above it.

        highest_mhz    of the GPU; None where its driver does not say
        supported_mhz  clocks that the driver offers, in any order; () where it does not say
        Raises Refused for a share of an unknown clock, and for a clock that the driver does not offer.
        """
        if not self.graphics.endswith("%"):
            target_mhz = int(self.graphics)
            if supported_mhz and not min(supported_mhz) <= target_mhz <= max(supported_mhz):
                raise Refused({"graphics": f"the driver offers graphics clocks of {min(supported_mhz)} to {max(supported_mhz)} "
                                           f"MHz, not {target_mhz}"})
        elif highest_mhz is None:
            raise Refused({"graphics": f"{self.graphics} of the highest clock: the driver does not say that clock. Name MHz"})
        else:
            target_mhz = highest_mhz * int(self.graphics[:-1]) // 100
        return max((mhz for mhz in supported_mhz if mhz <= target_mhz), default=min(supported_mhz, default=target_mhz))

    @property
    def text(self) -> str:
        """For people: "75% of the highest graphics clock, persistence mode on"."""
        graphics = f"{self.graphics} of the highest graphics clock" if self.graphics.endswith("%") else f"{self.graphics} MHz"
        memory = f", memory {self.memory_mhz} MHz" if self.memory_mhz is not None else ""
        return f"{graphics}{memory}{', persistence mode on' if self.persistence else ''}{', required' if self.required else ''}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _read_graphics(given: Any) -> str:
    """Return "75%" or "1410"."""
    text = str(given if given is not None else "").strip() or DEFAULT_GRAPHICS
    match = _GRAPHICS.match(text)
    if match is None or isinstance(given, bool):
        raise Refused({"graphics": f"{text[:40]!r} is no clock: write MHz, as 1410, or a share of the highest, as 75%"})
    number, unit = int(match[1]), match[2] or "MHz"
    low, high = SHARE_PCT if unit == "%" else CLOCK_MHZ
    if not low <= number <= high:
        raise Refused({"graphics": f"{low} to {high} {unit}, not {number}"})
    return f"{number}%" if unit == "%" else str(number)


def _read_memory(given: Any) -> int | None:
    text = str(given if given is not None else "").strip()
    if not text:
        return None
    low, high = CLOCK_MHZ
    if isinstance(given, bool) or not (text.isascii() and text.isdecimal() and len(text) <= 5) or not low <= int(text) <= high:
        raise Refused({"memory_mhz": f"MHz, {low} to {high}, or nothing: the memory clock is left alone; not {text[:40]!r}"})
    return int(text)


def is_asked(lock: Mapping[str, Any] | None) -> bool:
    """Return whether anybody asked for the clocks of a measurement (`clock_lock` of its environment) to be held."""
    return bool(lock) and bool(lock.get("locked") or lock.get("asked"))       # type: ignore[union-attr]


def says_locked(timing: str | None) -> bool:
    """Return whether a text on how runs were timed says that clocks were locked."""
    return LOCKED in (timing or "")


def locked_text(lock: Mapping[str, Any] | None) -> str:
    """Return "SM clock locked at 1410 MHz", with the memory's where that is; "" where clocks were not locked.

    What is compared carries it in how it was timed: locked and unlocked are other conditions.
    """
    if not lock or not lock.get("locked"):
        return ""
    memory = f", memory clock at {lock['memory_mhz']} MHz" if lock.get("memory_mhz") else ""
    return f"{LOCKED} {lock.get('sm_mhz')} MHz{memory}"


def told_text(lock: Mapping[str, Any] | None) -> str:
    """Return all that is known of the clocks of a measurement, for people: "not recorded" where nobody wrote it down."""
    if not lock:
        return "not recorded"
    persistence = lock.get("persistence")
    mode = "" if persistence is None else f", persistence mode {'on' if persistence else 'off'}"
    by = f", by {lock['by']}" if lock.get("by") else ""
    why = str(lock.get("why") or "")
    if lock.get("locked"):
        return f"{locked_text(lock)}{mode}{by}{f' ({why})' if why else ''}"
    return f"not locked: {why or 'not asked for'}{mode}"
