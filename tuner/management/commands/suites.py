"""Benchmark suites from the command line: files in and out, measuring, runs that were measured elsewhere."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from profiles.base.refused import Refused
from tuner.gate.code import selectors as code_selectors
from tuner.gate.code import services as code_services
from tuner.gate.history.sentences import plural
from tuner.gate.suite_pages import calibration_selectors, page_selectors
from tuner.gate.suites import counters, job_services, records, selectors, suite_services
from tuner.gate.suites.definition import DefinitionError, definition_document
from tuner.gate.suites.formats import MAX_BYTES, definition_toml, read_toml
from tuner.gate.suites.records import repeated_note
from tuner.gate.verdicts import services as gate_services
from tuner.models import CodeFetch, Suite, SuiteJob
from webapp.management.in_project import ProjectCommand, make_actions

POLL_S = 0.5


class Command(ProjectCommand):
    help = "Benchmark suites: list, show, apply, export, measure, counters, upload, calibrate."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: CommandParser) -> None:
        action = make_actions(parser)
        action("list", "suites with what they watch")
        for name, help in (("show", "kernels with their newest runs, and whether the runs are enough"),
                           ("calibrate", "identical runs against each other: false alarms, smallest slowdown that is seen")):
            subparser = action(name, help)
            subparser.add_argument("suite")
            for where in ("gpu", "toolkit", "driver", "recorded"):
                subparser.add_argument(f"--{where}", help="of the runs; left out: where it was measured last")
        applied = action("apply", "make the suites of these files, or bring them in line; twice changes nothing")
        applied.add_argument("file", type=Path, nargs="+")
        export_parser = action("export", "the suite as a file")
        export_parser.add_argument("suite")
        export_parser.add_argument("--out", type=Path, help="file to write; left out: standard output")
        measured = action("measure", "queue fresh runs of one or more builds, in turn")
        measured.add_argument("suite")
        measured.add_argument("--build", action="append", required=True)
        measured.add_argument("--runs", type=int)
        measured.add_argument("--device", default="")
        measured.add_argument("--wait", action="store_true", help="until the job has ended")
        looked = action("counters", "hardware counters and timelines of a kernel in two builds: captured, and beside each other")
        looked.add_argument("suite")
        looked.add_argument("--kernel", required=True, help="its key, as `show` prints it")
        looked.add_argument("--build", action="append", required=True, help="twice: the baseline's, then the other")
        looked.add_argument("--capture", action="store_true", help="queue a capture of both; without it: what is there")
        looked.add_argument("--wait", action="store_true", help="until the capture has ended")
        coded = action("code", "where workers load the code of a build from: show, allow, take away, try, stop that")
        coded.add_argument("suite")
        source = coded.add_mutually_exclusive_group()
        source.add_argument("--git", metavar="URL", help="https:// or ssh://")
        source.add_argument("--archives", action="store_true", help="archives that are uploaded for each build")
        source.add_argument("--none", action="store_true", help="builds are what the workers have")
        coded.add_argument("--folder", default="", help="inside, first on the path of the suite's processes")
        coded.add_argument("--archive", type=Path, metavar="FILE", help=".tar.gz or .zip of --build")
        coded.add_argument("--build", default="", help="of --archive, or to --try: a commit, a branch or a tag")
        coded.add_argument("--try", action="store_true", dest="tries", help="let a worker fetch --build, and wait for it")
        coded.add_argument("--stop", type=int, metavar="ID", help="of a try, as --json shows it")
        sent = action("upload", "runs of a build that were measured elsewhere: JSON lines, .gz too")
        sent.add_argument("suite")
        sent.add_argument("file", type=Path)
        sent.add_argument("--build", required=True)
        for where in ("gpu", "toolkit", "driver", "recorded"):
            sent.add_argument(f"--{where}", default="")
        sent.add_argument("--shard", default="", metavar="I/N", help="of N jobs with parts of the build; gates wait for all")
        sent.add_argument("--attempt", default="", help="the pipeline's job and try; in another the same names are other processes")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            answer, text = getattr(self, f"_{options['action']}")(options)
        except DefinitionError as error:
            raise CommandError("\n".join(map(str, error.problems))) from error
        except Refused as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}") from error
        self.stdout.write(json.dumps(answer, indent=2, default=str) if options["json"] else text)

    def _code(self, options: dict[str, Any]) -> tuple[Any, str]:
        suite = _suite(options["suite"])
        if options["none"]:
            code_services.code_forbid(suite, by=None)
        elif options["git"] or options["archives"]:
            code_services.code_allow(suite, kind="git" if options["git"] else "archive", address=options["git"] or "",
                                     folder=options["folder"], by=None)
        if options["archive"]:
            code_services.archive_put(suite, options["build"], options["archive"].read_bytes(), by=None)
        if options["stop"] is not None:
            return self._stop_try(suite, options["stop"])
        if options["tries"]:
            fetch = code_services.fetch_try(suite, options["build"], by=None)
            while fetch.status in (fetch.Status.WAITING, fetch.Status.RUNNING):
                time.sleep(POLL_S)
                fetch.refresh_from_db()
            document = code_selectors.fetch_json(fetch)
            if fetch.status == fetch.Status.STOPPED:
                raise CommandError(f"{fetch.build}: {fetch.said}")
            if fetch.error:
                raise CommandError(f"{fetch.build}: {fetch.error['what']}. {fetch.error['hint']}")
            return document, f"{fetch.build} is {fetch.commit}: {plural(fetch.files or 0, 'file')}, {fetch.size_bytes:,} bytes"
        code = code_selectors.code_json(suite)
        return code, f"{suite.name}: {code['kind'] or 'what the workers have'} {code['address']} {code['folder']}".rstrip()

    def _stop_try(self, suite: Suite, number: int) -> tuple[Any, str]:
        fetch = CodeFetch.objects.select_related("code").filter(pk=number, code__suite=suite).first()
        if fetch is None:
            raise CommandError(f"{suite.name} has no try {number}: manage.py suites code {suite.name} --json lists them")
        code_services.fetch_stop(fetch, by=None)
        fetch.refresh_from_db()
        return code_selectors.fetch_json(fetch), f"{fetch.build}: {fetch.said or fetch.status}"

    def _list(self, options: dict[str, Any]) -> tuple[Any, str]:
        rows = page_selectors.suite_rows(page_selectors.suites_counted()[:500])
        text = "\n".join(f"{row['suite'].name:<30} {row['suite'].kernel_count:>4} kernels  {row['suite'].runs} against "
                         f"{row['suite'].baseline_runs} runs  {row['suite'].device}" for row in rows)
        return [selectors.suite_json(row["suite"]) for row in rows], text or "No suite yet: manage.py suites apply FILE"

    def _show(self, options: dict[str, Any]) -> tuple[Any, str]:
        suite = _suite(options["suite"])
        _, environment = page_selectors.chosen_environment(suite, _where(options))
        lines = [page_selectors.line_json(line) for line in page_selectors.kernel_lines(
            suite.kernels.filter(enabled=True), environment)]
        plan = page_selectors.plan_json(suite)
        text = [f"{suite.name}: {plan['says']}", *(
            f"{line['key']:<60} " + (f"{line['p50_us']:>10.2f} µs  {line['runs']} runs, newest build {line['newest_build']}"
                                     if line["p50_us"] else "not measured") for line in lines)]
        return {**selectors.suite_json(suite), "plan": plan, "environment": environment, "kernels": lines}, "\n".join(text)

    def _calibrate(self, options: dict[str, Any]) -> tuple[Any, str]:
        suite = _suite(options["suite"])
        _, environment = page_selectors.chosen_environment(suite, _where(options))
        calibration = calibration_selectors.calibrate_suite(suite, environment)
        lines = [f"{kernel.kernel.key:<60} {kernel.found.says if kernel.found else 'no runs'}" for kernel in calibration.kernels]
        return calibration_selectors.calibration_json(calibration), "\n".join([calibration.says, *lines])

    def _apply(self, options: dict[str, Any]) -> tuple[Any, str]:
        files = [(path, _bytes(path, MAX_BYTES)) for path in options["file"]]
        definitions = []
        for path, data in files:                 # all are read before one is applied
            try:
                definitions.append((read_toml(data), data.decode("utf-8")))
            except DefinitionError as error:
                raise CommandError("\n".join(f"{path}: {problem}" for problem in error.problems)) from error
        changed = [suite_services.suite_put(definition, text=text) for definition, text in definitions]
        plans = [page_selectors.plan_json(change.suite) for change in changed]
        text = [line for change, plan in zip(changed, plans, strict=True) for line in (change.says, plan["says"])]
        return [{"suite": one.suite.name, "made": one.created, "changed": one.fields, "kernels": one.kernels, "plan": plan}
                for one, plan in zip(changed, plans, strict=True)], "\n".join(text)

    def _export(self, options: dict[str, Any]) -> tuple[Any, str]:
        suite = _suite(options["suite"])
        text = definition_toml(selectors.definition_of(suite))
        if options["out"]:
            options["out"].write_text(text, encoding="utf-8")
            return {"file": str(options["out"])}, f"{suite.name} is in {options['out']}."
        return definition_document(selectors.definition_of(suite)), text.rstrip()

    def _measure(self, options: dict[str, Any]) -> tuple[Any, str]:
        job = job_services.job_create(_suite(options["suite"]), builds=options["build"], runs=options["runs"],
                                      device=options["device"])
        job = _waited(job, options["wait"])
        document = selectors.job_json(job)
        return document, f"Job {job.pk}: {job.status}, {document['progress']['says']}."

    def _counters(self, options: dict[str, Any]) -> tuple[Any, str]:
        suite, builds = _suite(options["suite"]), options["build"]
        kernel = suite.kernels.filter(key=options["kernel"]).select_related("suite").first()
        if kernel is None or len(builds) != 2:
            raise CommandError("--build is given twice" if kernel else f"no kernel {options['kernel']!r} in {suite.name}")
        if options["capture"]:
            _waited(counters.request_counters(suite, [kernel.key], builds), options["wait"])
        found = counters.kernel_counters(kernel, *builds)
        document = counters.counters_json(found)
        lines = [f"{number.name:<40} {number.texts[0] or 'unknown':>14} {number.texts[1] or 'unknown':>14} "
                 + ("" if number.pct is None else f"{number.pct:+8.1f} %") for number in found.beside.numbers]
        why = found.beside.why.sentence if found.beside.why else ""
        under_way = f"job {found.job.pk} captures them" if found.job else found.why_not or "none was captured yet: --capture"
        return document, "\n".join([f"{kernel.key}: {builds[0]} and {builds[1]}", *lines, why] if lines else [
            f"No counters of {kernel.key}: {under_way.rstrip('.')}."]).rstrip()

    def _upload(self, options: dict[str, Any]) -> tuple[Any, str]:
        data = _bytes(options["file"], records.MAX_BYTES)
        stored = gate_services.upload_runs(
            _suite(options["suite"]), options["build"], data,
            **{name: options[name] for name in ("gpu", "toolkit", "driver", "recorded", "shard", "attempt")})
        why = f" ({stored.why[0]})" if stored.why else ""
        again = f" {note}." if (note := repeated_note(stored.repeated)) else ""
        counts = {name: getattr(stored, name) for name in ("stored", "known", "repeated", "rejected", "kernels")}
        return counts, (
            f"{plural(stored.stored, 'run')} of {plural(len(stored.kernels), 'kernel')} stored, "
            f"{stored.rejected} of them rejected{why}; "
            f"{stored.known} {'was' if stored.known == 1 else 'were'} there already.{again}")


def _waited(job: SuiteJob, wait: bool) -> SuiteJob:
    """The job, ended where `wait` says so. A failed one is an error."""
    while wait and job.status in selectors.LIVE:
        time.sleep(POLL_S)
        job = SuiteJob.objects.select_related("suite").get(pk=job.pk)
    if job.error:
        raise CommandError(f"job {job.pk} failed: {job.error['what']}. {job.error['hint']}")
    return job


def _suite(name: str) -> Suite:
    suite = selectors.suite_list().filter(name=name).first()
    if suite is None:
        raise CommandError(f"no suite {name!r}; there are {', '.join(Suite.objects.values_list('name', flat=True)) or 'none yet'}")
    return suite


def _where(options: dict[str, Any]) -> dict[str, str]:
    return {name: options[name] for name in ("gpu", "toolkit", "driver", "recorded") if options[name] is not None}


def _bytes(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most + 1)
