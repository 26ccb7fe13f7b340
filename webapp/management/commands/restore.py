"""`manage.py restore DIR|s3://bucket/prefix`: bring a backup into an empty installation."""

from __future__ import annotations

import json
import os
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.backup.errors import BackupError
from webapp.backup.restore import backup_restore
from webapp.backup.seal import VARIABLE, read_passphrase
from webapp.backup.stores import is_bucket_error, open_place


class Command(BaseCommand):
    help = ("Bring a backup into an empty installation; web and workers must be stopped. The passphrase of its keys comes from "
            f"{VARIABLE} or the file that {VARIABLE}_FILE names. Exit codes: 0 done, 1 failed, 3 the backup is damaged, 4 refused.")
    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        return super().create_parser(prog_name, subcommand, allow_abbrev=False, **kwargs)     # --replace is typed in full

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("place", metavar="DIR|s3://bucket/prefix")
        parser.add_argument("--backup", metavar="NAME", help="which one (default: the newest; `backup --list` names them)")
        parser.add_argument("--to", metavar="FOLDER", help="data folder to fill, in place of RIDGEPOINT_HOME")
        parser.add_argument("--replace", action="store_true", help="delete all data that the installation holds; never abbreviated")
        parser.add_argument("--without-keys", action="store_true", help="leave the sealed secret key where it is")
        parser.add_argument("--skip-damaged", action="store_true", help="leave damaged objects out and ingest their profiles again")
        parser.add_argument("--json", action="store_true", help="print the result as JSON; progress goes to standard error")

    def handle(self, *, place: str, **options: Any) -> None:
        try:
            restored = backup_restore(
                open_place(place), options["backup"], say=self._say, passphrase=read_passphrase(os.environ),
                replace=options["replace"], without_keys=options["without_keys"], skip_damaged=options["skip_damaged"])
        except Exception as error:
            if not isinstance(error, BackupError | OSError) and not is_bucket_error(error):
                raise
            raise CommandError(str(error), returncode=getattr(error, "exit_code", 1)) from error
        manifest = restored.manifest
        for note in restored.notes:
            self._say(f"note: {note}")
        for key, wrong in restored.lost.items():
            self._say(f"left out: {key}: {wrong}")
        if options["json"]:
            self.stdout.write(json.dumps({
                "name": manifest.name, "made": manifest.made, "home": str(settings.HOME),
                "objects": manifest.objects - len(restored.lost),
                "rows": manifest.rows, "left_out": restored.lost, "notes": restored.notes}, indent=1))
        else:
            self.stdout.write(f"restored {manifest.name} into {settings.HOME}: {sum(manifest.rows.values()):,} rows, "
                              f"{manifest.objects - len(restored.lost):,} objects")

    def _say(self, line: str) -> None:
        self.stderr.write(line)
