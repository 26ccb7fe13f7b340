"""Django's `migrate`, which first says what would lock a large table."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate

from webapp.upgrades.locks import pending_locks
from webapp.upgrades.states import fields_copied


class Command(migrate.Command):
    requires_system_checks: list[str] = []      # `manage.py check` runs them

    def handle(self, *args: Any, **options: Any) -> None:
        if options["database"] == "default" and not options["fake"] and not options["check_unapplied"]:
            for lock in pending_locks():
                self.stderr.write(f"{lock}")
        with fields_copied():
            super().handle(*args, **options)
