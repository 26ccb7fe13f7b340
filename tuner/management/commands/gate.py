"""The gate on the command line: files against files, without a server or a database, or a suite on this server's rows."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import sys
import traceback
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tuner.gate import options as gate_options
from tuner.gate.client import GateError
from tuner.gate.stats.metrics import LIMITS, check_limits
from tuner.gate.stats.records import RunsError, read_runs
from tuner.gate.stats.results import suite_json
from tuner.gate.stats.rule import ERROR_EXIT_CODE, EXIT_CODE, RANGES, SIGN, Rule, Verdict
from tuner.gate.stats.suite import judge

OFFLINE = ("baseline", "candidate")
RULE = {"target": "a p50 slower by so much per cent is what the gate stops",
        "floor": "no smaller change of the p50 is called SLOWER, however sure",
        "target_p95": "the same for the p95", "floor_p95": "the same for the p95",
        "alpha": "risk of a false SLOWER for the whole suite, per cent",
        "beta": "risk of passing a kernel that is slower by the target, per cent"}


class Command(BaseCommand):
    help = ("Did a build get slower? Exit codes: 0 PASS or FASTER, 1 SLOWER, 2 AMBIGUOUS or NO DATA, 3 error. "
            "With --baseline and --candidate two files of runs are compared, and no server is needed.")
    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, allow_abbrev=False, **options)
        # argparse's own 2 would say "could not decide"
        parser.error = functools.partial(_wrong_use, parser)      # type: ignore[method-assign]
        return parser

    def run_from_argv(self, argv: list[str]) -> None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")              # a terminal without "→" is no error
        try:
            super().run_from_argv(argv)
        except Exception:                                         # Python's own 1 would say SLOWER
            traceback.print_exc(file=sys.stderr)
            sys.exit(ERROR_EXIT_CODE)

    def add_arguments(self, parser: ArgumentParser) -> None:
        files = parser.add_argument_group("over files of runs", "JSON Lines, .gz too: an object a run and kernel with "
                                          "run, op, shape, config and us, the samples in µs")
        files.add_argument("--baseline", type=Path, metavar="RUNS.jsonl")
        files.add_argument("--candidate", type=Path, metavar="RUNS.jsonl")
        files.add_argument("--limit", action="append", default=[], metavar="METRIC.LIMIT=NUMBER",
                           help=f"gate a number beside time, e.g. registers.max_increase=0.1; limits: {', '.join(LIMITS)}")
        files.add_argument("--in-turn", action="store_true",
                           help="the runs of both files were taken in turn (A B B A …): no drift of the machine lies between them")
        for name, description in RULE.items():
            files.add_argument(f"--{name.replace('_', '-')}", type=float, metavar="PER_CENT", dest=f"rule_{name}",
                               help=f"{description} (default {getattr(Rule(), name) * 100:g})")
        files.add_argument("--believable", type=float, metavar="TIMES", default=Rule().believable,
                           help="a p50 that changes by more is taken for a slip of units (default %(default)g)")
        parser.add_argument("--json", nargs="?", const="-", metavar="FILE",
                            help="the whole verdict as JSON; without FILE on standard output")
        gate_options.add_arguments(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        offline = [name for name in OFFLINE if options[name]]
        if len(offline) == 1:
            other = next(name for name in OFFLINE if name not in offline)
            raise CommandError(f"--{offline[0]} needs --{other} beside it", returncode=ERROR_EXIT_CODE)
        if offline:
            sys.exit(self._files(options))
        from tuner.gate.verdicts import services  # here: rows and all that goes with them take a second to import

        sys.exit(services.run_command(options, self.stdout, self.stderr))

    def _files(self, options: dict[str, Any]) -> int:
        rule, limits = _rule(options), _limits(options["limit"])
        try:
            gate_options.check_reports(options)
            baseline, candidate = read_runs(options["baseline"]), read_runs(options["candidate"])
        except RunsError as error:
            raise CommandError(f"{error} ({error.hint})", returncode=ERROR_EXIT_CODE) from None
        except GateError as error:
            raise CommandError(str(error), returncode=ERROR_EXIT_CODE) from None
        judged = suite_json(judge(baseline, candidate, rule, metrics=limits, allow_gone=options["allow_gone"],
                                  one_after_other=not options["in_turn"]))
        document: Any = {**judged, "rule": dataclasses.asdict(rule), "baseline": str(options["baseline"]),
                         "candidate": str(options["candidate"])}
        try:
            gate_options.write_reports(document, options)
        except (GateError, OSError) as error:
            raise CommandError(str(error), returncode=ERROR_EXIT_CODE) from None
        text = json.dumps(document, indent=1)
        if options["json"] == "-":
            self.stdout.write(text)
        else:
            if options["json"]:
                _write(Path(options["json"]), text.encode())
            self.stdout.write(_table(document))
        return EXIT_CODE[Verdict(document["verdict"])]


def _wrong_use(parser: CommandParser, message: str) -> NoReturn:
    parser.print_usage(sys.stderr)
    parser.exit(ERROR_EXIT_CODE, f"{parser.prog}: {message}\n")


def _rule(options: dict[str, Any]) -> Rule:
    numbers = {name: options[f"rule_{name}"] / 100 for name in RULE if options[f"rule_{name}"] is not None}
    for name, value in numbers.items():
        low, high = RANGES[name]
        if not low <= value <= high:
            raise CommandError(f"--{name.replace('_', '-')}: {value * 100:g} % makes no sense", returncode=ERROR_EXIT_CODE)
    low, high = RANGES["believable"]
    if not low <= options["believable"] <= high:
        raise CommandError(f"--believable: from {low:g} to {high:g} times", returncode=ERROR_EXIT_CODE)
    rule = dataclasses.replace(Rule(), believable=options["believable"], **numbers)
    if rule.floor > rule.target or rule.floor_p95 > rule.target_p95:
        raise CommandError("a floor lies above its target", returncode=ERROR_EXIT_CODE)
    return rule


def _limits(given: list[str]) -> dict[str, dict[str, Any]]:
    """"registers.max_increase=0.1" -> {"registers": {"max_increase": 0.1}}."""
    limits: dict[str, dict[str, Any]] = {}
    for text in given:
        name, _, value = text.partition("=")
        metric, _, limit = name.rpartition(".")
        try:
            limits.setdefault(metric, {})[limit] = float(value)
        except ValueError:
            raise CommandError(f"--limit {text}: expected METRIC.LIMIT=NUMBER", returncode=ERROR_EXIT_CODE) from None
    for where, what in check_limits(limits).items():
        raise CommandError(f"--limit {where}: {what}", returncode=ERROR_EXIT_CODE)
    return limits


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", returncode=ERROR_EXIT_CODE) from None


def _table(document: dict[str, Any]) -> str:
    lines = [f"{document['verdict']}: {document['reason']}", ""]
    for kernel in document["kernels"]:
        lines.append(f"{SIGN[kernel['verdict']]} {kernel['verdict']:<9} {kernel['name']}")
        lines.append(f"    {kernel['reason']}")
    return "\n".join([*lines, "", document["plan"].get("says", "")])


