"""`manage.py worker QUEUE…`: serve the queues until stopped."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from workers import jobs
from workers.process import begin_again, work


class Command(BaseCommand):
    help = "Serve queues: ingest (files), replay (recorded landscapes, serving engines, schedules), messages (webhooks and " \
           "mails), gpu (captures and tuning on this machine's GPU), compile."
    requires_system_checks: list[str] = []      # `manage.py check` runs them; starting is quicker without

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("queues", nargs="+", choices=jobs.QUEUES, metavar="QUEUE", help=", ".join(jobs.QUEUES))

    def handle(self, *, queues: list[str], **options: Any) -> None:
        if not work(list(dict.fromkeys(queues))):
            begin_again()
