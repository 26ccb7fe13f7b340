"""`manage.py mcp`: the tools for programs that write kernels, over standard input and output."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webapp.agents.stdio import NotConnected, run


class Command(BaseCommand):
    help = ("Serve the tools of a running Ridgepoint over standard input and output, for clients of the Model Context Protocol "
            "that start programs. RIDGEPOINT_URL names the server, RIDGEPOINT_TOKEN holds an API token. Starts nothing.")
    requires_system_checks: list[str] = []

    def handle(self, **options: Any) -> None:
        try:
            run(os.environ)
        except* NotConnected as several:
            raise CommandError(str(several.exceptions[0])) from None
