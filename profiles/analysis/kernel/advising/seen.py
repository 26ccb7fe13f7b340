"""What the facts of a launch say of a cause by themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """`text` has a line for each sentence.

    `least_pct`, `most_pct`: of the kernel's time, 0-100, an estimate; None where nobody can say, and why. `title`, `fix`: in place
    of the cause's, where the facts tell which of its kinds it is.
    """

    text: str
    least_pct: float | None = None
    most_pct: float | None = None
    why_unknown: str = ""
    always: bool = False             # said beside a finding of ours about the same, which does not hold these numbers
    title: str = ""
    fix: str = ""
