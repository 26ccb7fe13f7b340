"""`manage.py backup DIR|s3://bucket/prefix`: rows, objects and keys, while the product runs; and what earlier ones came to."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.backup import check, make
from webapp.backup.errors import BackupError, readable
from webapp.backup.manifest import choose
from webapp.backup.seal import VARIABLE, read_passphrase
from webapp.backup.stores import Store, is_bucket_error, open_place


class Command(BaseCommand):
    help = (f"Back up rows, objects and keys while the product runs. The secret key is sealed under {VARIABLE} (or the file that "
            f"{VARIABLE}_FILE names). Exit codes: 0 done, 1 failed, 3 the backup is damaged, 4 refused.")
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("place", metavar="DIR|s3://bucket/prefix", help="holds all backups; equal objects lie there once")
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--check", action="store_true", help="read a backup again, all of it; say what is missing or damaged")
        what.add_argument("--list", action="store_true", help="list the backups of the place")
        what.add_argument("--keep", type=int, metavar="N", help="then remove all but the newest N backups and their objects")
        parser.add_argument("--backup", metavar="NAME", help="with --check: which one (default: the newest)")
        parser.add_argument("--full", action="store_true", help="copy every object anew: after --check found a damaged one")
        parser.add_argument("--json", action="store_true", help="print the result as JSON; progress goes to standard error")

    def handle(self, *, place: str, **options: Any) -> None:
        if options["keep"] is not None and options["keep"] < 1:
            raise CommandError(f"--keep {options['keep']}: at least 1", returncode=2)
        try:
            store, passphrase = open_place(place), read_passphrase(os.environ)
            if options["list"]:
                self._list(store, options["json"])
            elif options["check"]:
                self._check(store, options["backup"], passphrase, options["json"])
            else:
                self._make(store, passphrase, options)
        except Exception as error:
            if not isinstance(error, BackupError | OSError) and not is_bucket_error(error):
                raise
            raise CommandError(str(error), returncode=getattr(error, "exit_code", 1)) from error

    def _make(self, place: Store, passphrase: str | None, options: dict[str, Any]) -> None:
        made = make.backup_make(place, say=self._say, passphrase=passphrase, keep=options["keep"], full=options["full"])
        for warning in made.manifest.left_out:
            self._say(f"not in this backup: {warning}")
        if options["json"]:
            document = asdict(made.manifest)
            self._print({**{name: document[name] for name in ("name", "made", "objects", "object_bytes", "rows", "left_out")},
                         "place": place.name, "copied": made.copied, "copied_bytes": made.copied_bytes, "pruned": made.pruned})
        else:
            self.stdout.write(make.summary(made))
            if made.pruned:
                self.stdout.write(f"removed {', '.join(made.pruned)}")

    def _check(self, place: Store, name: str | None, passphrase: str | None, as_json: bool) -> None:
        checked = check.backup_check(place, choose(place, name), say=self._say, passphrase=passphrase)
        manifest = checked.manifest
        if as_json:
            self._print({"name": manifest.name, "whole": checked.is_whole, "faults": checked.faults, "objects": checked.objects})
        else:
            for line in checked.describe():
                self.stdout.write(line)
        if not checked.is_whole:
            raise CommandError(f"{manifest.name} is damaged: {len(checked.describe()):,} faults. `backup --full` makes another, "
                               "which copies every object anew", returncode=3)
        if not as_json:
            self.stdout.write(f"{manifest.name} is whole: {manifest.objects:,} objects, {readable(manifest.object_bytes)}")

    def _list(self, place: Store, as_json: bool) -> None:
        listed = check.backups_describe(place)
        if as_json:
            self._print(listed)
            return
        for row in listed:
            text = (f"{row['rows']:,} rows, {row['objects']:,} objects, {readable(float(str(row['object_bytes'])))}"
                    f"{', secret key' if row['keys'] else ''}" if "rows" in row else row.get("error", ""))
            self.stdout.write(f"{row['name']}  {row['state']}  {text}".rstrip())
        if not listed:
            self.stdout.write(f"no backup in {place.name}")

    def _say(self, line: str) -> None:
        self.stderr.write(line)

    def _print(self, document: Any) -> None:
        self.stdout.write(json.dumps(document, indent=1))
