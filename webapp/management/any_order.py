"""Commands whose names and options stand in any order: `operators check --json FILE` as `operators check FILE --json`.

argparse takes all names that may be absent at the first one that is there, and refuses those that come after an option.
"""

from __future__ import annotations

from argparse import ArgumentParser, _SubParsersAction
from typing import Any

from django.core.management.base import CommandParser


class AnyOrder(CommandParser):
    """Takes names and options mixed."""

    _inside = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._inside:                    # argparse's own way to mix them comes back here, twice
            return super().parse_known_args(args, namespace)
        self._inside = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._inside = False


def take_any_order(parser: ArgumentParser) -> None:
    """Let a command's parser, or those of its sub-commands, take names and options mixed."""
    choices = [each for action in parser._actions if isinstance(action, _SubParsersAction) for each in action.choices.values()]
    for each in choices:
        take_any_order(each)
    if not choices and type(parser) is CommandParser:
        parser.__class__ = AnyOrder         # Django names the class of a command's parser itself
