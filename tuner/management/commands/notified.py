"""Who is told of verdicts, from the command line: what the page does, over the same services."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser

from profiles.base.refused import Refused
from tuner.gate.channels import selectors, sending_services, services
from tuner.gate.channels.kinds import KINDS
from tuner.models import Delivery, Notified
from webapp.management.in_project import ProjectCommand

LOOK_EVERY_S = 0.5


class Command(ProjectCommand):
    help = "List, add, test and remove the channels that are told of verdicts; see what became of messages."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: CommandParser) -> None:
        kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")

        def command(name: str, told: str) -> ArgumentParser:
            added: ArgumentParser = kinds.add_parser(name, help=told, description=told)
            added.add_argument("--json", action="store_true", help="exactly one JSON document on standard output")
            return added

        command("list", "places, with their addresses whole")
        add = command("add", "tell one more place; the secret of a webhook is shown once")
        add.add_argument("kind", choices=list(KINDS))
        add.add_argument("address")
        add.add_argument("--suite", help="this one alone")
        add.add_argument("--verdicts", nargs="+", default=[], choices=services.EVENTS, metavar="VERDICT",
                         help=f"default: {' and '.join(services.DEFAULT_EVENTS)}; of {', '.join(services.EVENTS)}")
        add.add_argument("--secret", default="", help="of a webhook's signature; default: one of our making")
        for name, description in (("remove", "with its messages"), ("on", "switch it on"), ("off", "switch it off")):
            command(name, description).add_argument("place", type=int)
        test = command("test", "send it a message that says that it is a test")
        test.add_argument("place", type=int)
        test.add_argument("--wait", type=float, default=30.0, metavar="S", help="for a worker to send it (default 30)")
        command("messages", "the newest messages").add_argument("--to", type=int, metavar="PLACE")
        command("again", "try a message again").add_argument("message", type=int)

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            answer = getattr(self, f"_{options['what']}")(options)
        except Refused as refused:
            raise CommandError(str(refused)) from refused
        except (Notified.DoesNotExist, Delivery.DoesNotExist) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(answer))
            return
        for row in answer if isinstance(answer, list) else [answer]:
            self.stdout.write(_line(row))

    def _list(self, options: dict[str, Any]) -> Sequence[Mapping[str, Any]]:
        return [selectors.destination_json(row, whole=True) for row in selectors.list_destinations()]

    def _add(self, options: dict[str, Any]) -> Mapping[str, Any]:
        fields = {name: options[name] for name in ("kind", "address", "suite", "verdicts", "secret")}
        row = services.add_destination(**fields)
        return {**selectors.destination_json(row, whole=True), "secret": services.secret_of(row)}

    def _remove(self, options: dict[str, Any]) -> Mapping[str, Any]:
        row = Notified.objects.get(pk=options["place"])
        document = {**selectors.destination_json(row, whole=True), "removed": True}
        row.delete()
        return document

    def _on(self, options: dict[str, Any], enabled: bool = True) -> Mapping[str, Any]:
        row = services.change_destination(Notified.objects.get(pk=options["place"]), enabled=enabled)
        return selectors.destination_json(row, whole=True)

    def _off(self, options: dict[str, Any]) -> Mapping[str, Any]:
        return self._on(options, enabled=False)

    def _test(self, options: dict[str, Any]) -> Mapping[str, Any]:
        row = services.send_test(Notified.objects.get(pk=options["place"]), "the command line")
        until = time.monotonic() + options["wait"]
        while row.status == "waiting" and not row.tries and time.monotonic() < until:
            time.sleep(LOOK_EVERY_S)
            row.refresh_from_db()
        return selectors.delivery_json(row, whole=True)

    def _messages(self, options: dict[str, Any]) -> Sequence[Mapping[str, Any]]:
        return [selectors.delivery_json(row, whole=True) for row in selectors.newest_deliveries(options["to"])]

    def _again(self, options: dict[str, Any]) -> Mapping[str, Any]:
        row = Delivery.objects.select_related("to").get(pk=options["message"])
        sending_services.retry_delivery(row)
        row.refresh_from_db()
        return selectors.delivery_json(row, whole=True)


def _line(row: Mapping[str, Any]) -> str:
    """One row as a person reads it."""
    if "event" in row:
        outcome = row["error"] or row["answer"] or "no worker has tried it yet"
        return f"{row['id']:5}  {row['status']:8} {row['tries']} tries  {row['event']:<10} {row['subject']}  {outcome}"
    state = "removed" if row.get("removed") else "on" if row["enabled"] else "off"
    secret = f"\nsecret (not shown again): {row['secret']}" if row.get("secret") else ""
    of = f"{', '.join(row['verdicts'])} of {row['suite'] or 'every suite'}"
    return f"{row['id']:5}  {state:7} {row['kind']:8} {row['address']}  {of}{secret}"
