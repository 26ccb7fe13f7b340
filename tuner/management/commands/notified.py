"""Who is told of verdicts, from the command line: what the page does, over the same services."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tuner.gates.refusal_services import GateRefused
from tuner.models import Delivery, Notified
from tuner.notify import selectors as notify_selectors
from tuner.notify import sending_services
from tuner.notify import services as notify_services

LOOK_EVERY_S = 0.5


class Command(BaseCommand):
    help = "List, add, test and remove the webhooks and mailboxes that are told of verdicts; see what became of messages."

    def add_arguments(self, parser: CommandParser) -> None:
        kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")

        def command(name: str, told: str) -> ArgumentParser:
            added: ArgumentParser = kinds.add_parser(name, help=told, description=told)
            added.add_argument("--json", action="store_true", help="exactly one JSON document on standard output")
            return added

        command("list", "places, with their addresses whole")
        add = command("add", "tell one more place; the secret of a webhook is shown once")
        add.add_argument("kind", choices=Notified.Kind.values)
        add.add_argument("address")
        add.add_argument("--suite", help="this one alone")
        add.add_argument("--verdicts", nargs="+", default=[], choices=notify_selectors.EVENTS, metavar="VERDICT",
                         help=f"default: {' and '.join(notify_selectors.TOLD)}; of {', '.join(notify_selectors.EVENTS)}")
        add.add_argument("--secret", default="", help="of a webhook's signature; default: one of our making")
        for name, told in (("remove", "with its messages"), ("on", "switch it on"), ("off", "switch it off")):
            command(name, told).add_argument("place", type=int)
        test = command("test", "send it a message that says that it is a test")
        test.add_argument("place", type=int)
        test.add_argument("--wait", type=float, default=30.0, metavar="S", help="for a worker to send it (default 30)")
        command("messages", "the newest messages").add_argument("--to", type=int, metavar="PLACE")
        command("again", "try a message again").add_argument("message", type=int)

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            found = getattr(self, f"_{options['what']}")(options)
        except GateRefused as refused:
            raise CommandError(str(refused)) from refused
        except (Notified.DoesNotExist, Delivery.DoesNotExist) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(found))
            return
        for row in found if isinstance(found, list) else [found]:
            self.stdout.write(_line(row))

    def _list(self, options: dict[str, Any]) -> list[dict[str, Any]]:
        return [notify_selectors.place_json(row, whole=True) for row in notify_selectors.places()]

    def _add(self, options: dict[str, Any]) -> dict[str, Any]:
        given = {name: options[name] for name in ("kind", "address", "suite", "verdicts", "secret")}
        row = notify_services.notified_create(**given)
        return {**notify_selectors.place_json(row, whole=True), "secret": notify_services.secret_of(row)}

    def _remove(self, options: dict[str, Any]) -> dict[str, Any]:
        row = Notified.objects.get(pk=options["place"])
        said = {**notify_selectors.place_json(row, whole=True), "removed": True}
        notify_services.notified_delete(row)
        return said

    def _on(self, options: dict[str, Any], enabled: bool = True) -> dict[str, Any]:
        row = notify_services.notified_change(Notified.objects.get(pk=options["place"]), enabled=enabled)
        return notify_selectors.place_json(row, whole=True)

    def _off(self, options: dict[str, Any]) -> dict[str, Any]:
        return self._on(options, enabled=False)

    def _test(self, options: dict[str, Any]) -> dict[str, Any]:
        row = notify_services.notified_test(Notified.objects.get(pk=options["place"]), "the command line")
        until = time.monotonic() + options["wait"]
        while row.status == "waiting" and not row.tries and time.monotonic() < until:
            time.sleep(LOOK_EVERY_S)
            row.refresh_from_db()
        return notify_selectors.delivery_json(row, whole=True)

    def _messages(self, options: dict[str, Any]) -> list[dict[str, Any]]:
        return [notify_selectors.delivery_json(row, whole=True) for row in notify_selectors.deliveries(options["to"])]

    def _again(self, options: dict[str, Any]) -> dict[str, Any]:
        row = Delivery.objects.select_related("to").get(pk=options["message"])
        sending_services.delivery_again(row)
        row.refresh_from_db()
        return notify_selectors.delivery_json(row, whole=True)


def _line(row: dict[str, Any]) -> str:
    """One row as a person reads it."""
    if "event" in row:
        told = row["error"] or row["answer"] or "no worker has tried it yet"
        return f"{row['id']:5}  {row['status']:8} {row['tries']} tries  {row['event']:<10} {row['subject']}  {told}"
    state = "removed" if row.get("removed") else "on" if row["enabled"] else "off"
    secret = f"\nsecret (not shown again): {row['secret']}" if row.get("secret") else ""
    of = f"{', '.join(row['verdicts'])} of {row['suite'] or 'every suite'}"
    return f"{row['id']:5}  {state:7} {row['kind']:8} {row['address']}  {of}{secret}"
