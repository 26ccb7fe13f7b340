"""manage.py clocks list | allow UUID | forbid UUID: what workers may do with the clocks of GPUs while they measure."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from profiles.base.refused import Refused
from tuner.clocks import selectors, services
from tuner.clocks.wish import DEFAULT_GRAPHICS, ClockWish


class Command(BaseCommand):
    help = "Let workers hold the clocks of a GPU while tune jobs and suites run on it, or leave them alone."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
        kinds.add_parser("list", help="every GPU, what is allowed, held now, and how it last went")
        allow = kinds.add_parser("allow", help="hold the clocks of a GPU from the next job on")
        allow.add_argument("--graphics", default=DEFAULT_GRAPHICS, help="MHz, or a share of the highest (default %(default)s)"
                           .replace("%(default)s", DEFAULT_GRAPHICS.replace("%", "%%")))
        allow.add_argument("--memory", default="", metavar="MHZ", help="memory clock; default: left alone")
        allow.add_argument("--no-persistence", action="store_true", help="leave persistence mode as it is")
        allow.add_argument("--required", action="store_true", help="fail a job where the driver refuses")
        forbid = kinds.add_parser("forbid", help="leave the clocks of a GPU alone from the next job on")
        for subparser in (allow, forbid):
            subparser.add_argument("uuid", metavar="UUID", help="as manage.py clocks list and nvidia-smi -L name it")
        for subparser in kinds.choices.values():
            subparser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, *args: Any, what: str, **options: Any) -> None:
        try:
            if what == "allow":
                wish = ClockWish.read(options["graphics"], options["memory"], not options["no_persistence"], options["required"])
                services.rule_set(options["uuid"], wish, by=None)
            elif what == "forbid":
                services.rule_remove(options["uuid"])
        except Refused as refused:
            raise CommandError(str(refused)) from refused
        cards = [card for card in selectors.clock_list() if what == "list" or card["uuid"] == options["uuid"]]
        if options["json"]:
            self.stdout.write(json.dumps({"gpus": cards}, indent=2))
            return
        for card in cards:
            wish = ClockWish(card["graphics"], card["memory_mhz"], card["persistence"], card["required"])
            holder_text = f"; held by {card['held']['by']}" if card["held"] else ""
            self.stdout.write(f"{card['uuid']} {card['gpu'] or 'unknown GPU'} on {card['host'] or 'unknown host'}: "
                              f"{wish.text if card['allowed'] else 'clocks left alone'}{holder_text}")
            if card["last"]:
                self.stdout.write(f"  last: {card['last_says']}{'; ' + card['last']['left'] if card['last'].get('left') else ''}")
