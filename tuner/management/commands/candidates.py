"""manage.py candidates submit FILE --operator NAME | list | show ID | cancel ID | source, allow, forbid OPERATOR

Exit code of submit and show: 0 FASTER or SAME, 1 SLOWER, 2 AMBIGUOUS, cancelled or not ended within --wait, 3 WRONG, 4 FAILED (it
does not run), 5 refused or not judged.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from profiles.base.refused import Refused
from profiles.base.words import pairs_text
from tuner.candidates import page_selectors, selectors, services
from tuner.candidates.verdicts import EXIT_CODE, TITLES, Verdict
from tuner.models import Candidate
from webapp.management.in_project import ProjectCommand

WAIT_S, LOOK_S = 900.0, 0.5
UNDECIDED, REFUSED = 2, 5
LISTED = 50


class Command(ProjectCommand):
    help = ("Submit kernels for operators and read what became of them. Exit code: 0 FASTER or SAME, 1 SLOWER, 2 AMBIGUOUS, "
            "cancelled or not ended within --wait, 3 WRONG, 4 FAILED (it does not run), 5 refused or not judged.")
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: CommandParser) -> None:
        kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
        submit = kinds.add_parser("submit", help="judge a kernel file or a diff; waits for the verdict")
        submit.add_argument("file", type=Path, help="a Python file or a unified diff; - for standard input")
        submit.add_argument("--operator", required=True)
        submit.add_argument("--shape", default="", metavar="M=4096,N=4096", help="default: the operator's first preset")
        submit.add_argument("--dtype", default="", help="default: the operator's first")
        submit.add_argument("--config", default="", metavar="NAME=VALUE,…", help="of the launch; default: the operator's")
        submit.add_argument("--note", default="", help="what was tried, and why")
        submit.add_argument("--parent", default="", metavar="ID", help="the candidate that this one goes on from")
        submit.add_argument("--gpu", default="", metavar="MODEL", help="to measure on; default: any")
        submit.add_argument("--wait", type=float, default=WAIT_S, metavar="S",
                            help="for the verdict (default %(default)s); 0: not at all")
        listing = kinds.add_parser("list", help="the newest candidates")
        listing.add_argument("--operator", default="")
        show = kinds.add_parser("show", help="one candidate")
        show.add_argument("--text", action="store_true", help="its file alone")
        cancel = kinds.add_parser("cancel", help="end a waiting or running candidate")
        for subparser in (show, cancel):
            subparser.add_argument("candidate", type=int, metavar="ID")
        source = kinds.add_parser("source", help="the files that an operator's kernels are written in: what a diff is against")
        allow = kinds.add_parser("allow", help="let candidates of an operator run")
        allow.add_argument("--per-day", default="", metavar="N", help="of one token, or person")
        allow.add_argument("--seconds", default="", metavar="S", help="that one may hold a GPU")
        forbid = kinds.add_parser("forbid", help="let none of an operator run any more")
        for subparser in (source, allow, forbid):
            subparser.add_argument("operator", metavar="OPERATOR")
        for subparser in kinds.choices.values():
            subparser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, *args: Any, what: str, **options: Any) -> None:
        try:
            status = getattr(self, what)(options) or 0
        except Refused as refused:
            raise CommandError(str(refused), returncode=REFUSED) from refused
        except Candidate.DoesNotExist as error:
            raise CommandError("there is no such candidate", returncode=REFUSED) from error
        if status:
            sys.exit(status)

    def submit(self, options: dict[str, Any]) -> int:
        try:
            text = sys.stdin.read() if str(options["file"]) == "-" else options["file"].read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{options['file']}: {error}", returncode=REFUSED) from error
        typed = {name: options[name] for name in ("operator", "shape", "dtype", "config", "note", "parent", "gpu")}
        candidate = page_selectors.submit({**typed, "text": text}, services.Submitter(None))
        end_s, last_step = time.monotonic() + options["wait"], ""
        while True:
            candidate.refresh_from_db()
            step = candidate.step or candidate.status
            if step != last_step and not options["json"]:
                why = selectors.ability(candidate)["why"] if candidate.status == Candidate.Status.WAITING else ""
                self.stderr.write(f"candidate {candidate.pk}: {step}{f'. {why}' if why else ''}")
            last_step = step
            if candidate.status not in page_selectors.LIVE or time.monotonic() >= end_s:
                return self._tell(candidate, options["json"])
            time.sleep(LOOK_S)

    def show(self, options: dict[str, Any]) -> int:
        candidate = Candidate.objects.get(pk=options["candidate"])
        if options["text"]:
            self.stdout.write(candidate.text, ending="")
            return 0
        return self._tell(candidate, options["json"])

    def _tell(self, candidate: Candidate, as_json: bool) -> int:
        """Write one candidate; return the exit code of its verdict."""
        if as_json:
            self.stdout.write(json.dumps(selectors.candidate_json(candidate)))
        else:
            self.stdout.write(f"candidate {candidate.pk}: {candidate.verdict or candidate.status} "
                              f"{candidate.reason or (candidate.error or {}).get('what', '')}".rstrip())
            for row in candidate.answer.get("rows", ()):
                beside = f"  candidate {100 * (row['ratio'] - 1):+.1f} %  {row['verdict']}" if "ratio" in row else ""
                self.stdout.write(f"  {TITLES.get(row['name'], row['name']):28} {row['median_us']:10.2f} µs  "
                                  f"{row['low_us']:.2f} to {row['high_us']:.2f}{beside}")
            if standing := selectors.standing(candidate):
                self.stdout.write(f"  {standing}")
        if candidate.status == Candidate.Status.DONE:
            return EXIT_CODE[Verdict(candidate.verdict)]
        return REFUSED if candidate.status == Candidate.Status.FAILED else UNDECIDED

    def list(self, options: dict[str, Any]) -> None:
        rows = selectors.candidate_list({"operator": options["operator"]})[:LISTED]
        if options["json"]:
            self.stdout.write(json.dumps([selectors.row_json(row) for row in rows]))
            return
        for row in rows:
            shape = pairs_text(row.shape)
            self.stdout.write(f"{row.pk:6} {row.operator} {row.dtype} {shape}  {row.verdict or row.status}  {row.note[:60]}")

    def cancel(self, options: dict[str, Any]) -> None:
        candidate = Candidate.objects.get(pk=options["candidate"])
        services.candidate_cancel(candidate)
        candidate.refresh_from_db()
        self._tell(candidate, options["json"])

    def source(self, options: dict[str, Any]) -> None:
        document = selectors.source_json(options["operator"])
        if options["json"]:
            self.stdout.write(json.dumps(document))
            return
        if not document["files"]:
            raise CommandError(f"the source of {options['operator']} is not on this host", returncode=REFUSED)
        for file in document["files"]:
            self.stdout.write(f"# {file['path']} {file['hash']}\n{file['text']}")

    def allow(self, options: dict[str, Any]) -> None:
        permit = services.permit_set(options["operator"], True, per_day=options["per_day"], seconds=options["seconds"], by=None)
        assert permit is not None
        self.stdout.write(json.dumps(selectors.permit_json(permit)) if options["json"] else
                          f"candidates of {permit.operator} may run: {permit.per_day} a day, {permit.seconds} s each")

    def forbid(self, options: dict[str, Any]) -> None:
        services.permit_set(options["operator"], False, by=None)
        self.stdout.write(json.dumps({"operator": options["operator"], "allowed": False}) if options["json"] else
                          f"candidates of {options['operator']} may not run")
