"""Commands over the rows of projects: `--project` names the one that is worked in.

Names and options stand in any order: `operators check --json FILE` as `operators check FILE --json`. argparse takes all names
that may be absent at the first one that is there, and refuses those that come after an option.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, _SubParsersAction
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.models import Project
from workers.scope import within


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
    for subparser in choices:
        take_any_order(subparser)
    if not choices and type(parser) is CommandParser:
        parser.__class__ = AnyOrder         # Django names the class of a command's parser itself


HELP = "the slug of the project to work in (manage.py projects lists them); without it all are seen, and new rows go to the first"


class ProjectCommand(BaseCommand):
    """A command with `--project`, before or after its sub-commands; names and options stand in any order.

    Raises CommandError where there is no such project.
    """

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **options)
        _add_argument(parser, default="")
        take_any_order(parser)
        return parser

    def execute(self, *args: Any, **options: Any) -> str | None:
        slug = options.pop("project", "")
        with within(_project_id(slug)) if slug else nullcontext():
            return super().execute(*args, **options)


def make_actions(parser: CommandParser) -> Callable[[str, str], CommandParser]:
    """Return what adds an action to a command: its name and help; each takes `--json`."""
    actions = parser.add_subparsers(dest="action", required=True)

    def action(name: str, help: str) -> CommandParser:
        subparser: CommandParser = actions.add_parser(name, help=help)
        subparser.add_argument("--json", action="store_true", help="exactly one JSON document on standard output")
        return subparser

    return action


def _project_id(slug: str) -> int:
    pk = Project.objects.filter(slug=slug).values_list("pk", flat=True).first()
    if pk is None:
        raise CommandError(f"there is no project {slug}: manage.py projects lists them")
    return int(pk)


def _add_argument(parser: ArgumentParser, default: str) -> None:
    parser.add_argument("--project", default=default, metavar="SLUG", help=HELP)
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for subparser in set(action.choices.values()):
                _add_argument(subparser, SUPPRESS)           # what stands before the sub-command is kept
