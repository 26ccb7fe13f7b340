"""What is known to fail, each with the fault behind it. Whoever mends one deletes its line.

A case that is named here and passes is a failure.
"""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """`invariant`: the name of a test; `pattern`: of the case's name, a file or `file:page`; `reason`: the fault."""

    invariant: str
    pattern: str
    reason: str


KNOWN: tuple[Known, ...] = ()
