"""Builds on the command line: did we get slower, one build beside another, what is known of a build, regressions."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.utils.dateparse import parse_datetime

from profiles.base.refused import Refused
from tuner.gate.builds import selectors as regression_selectors
from tuner.gate.builds.services import ensure_build
from tuner.gate.history import page_selectors, selectors, sentences
from tuner.gate.stats.results import percent_text, suite_json
from webapp.management.in_project import ProjectCommand

TEXTS = ("parent", "branch", "title", "author", "url")
MOST_LISTED = 30


class Command(ProjectCommand):
    help = "Did we get slower? Without a name: the series of a suite's kernels over builds. With one: that build beside another."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("build", nargs="?", help="a build: its kernels against the build before")
        parser.add_argument("--against", default="", help="another build than the one before; baseline: what a gate compares with")
        parser.add_argument("--suite", default="")
        parser.add_argument("--gpu", default="")
        parser.add_argument("--branch", default="")
        parser.add_argument("--list", action="store_true", help="all builds, newest first")
        parser.add_argument("--regressions", action="store_true", help="what got slower: open and acknowledged regressions")
        parser.add_argument("--seen", action="store_true", help="say what is known of the build, with the options that follow")
        for name in ("parent", "title", "author", "url"):
            parser.add_argument(f"--{name}", default="", help=f"--seen: its {name}")
        parser.add_argument("--at", default="", help="--seen: when it was committed, as 2026-11-21T18:30:00+00:00")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, *_: Any, **options: Any) -> None:
        if options["seen"]:
            document, lines = self._seen(options)
        elif options["regressions"]:
            document, lines = _regressions(options)
        elif options["build"]:
            document, lines = _one(options)
        elif options["list"]:
            document, lines = _list()
        else:
            document, lines = _series(options)
        self.stdout.write(json.dumps(document) if options["json"] else "\n".join(lines))

    def _seen(self, options: dict[str, Any]) -> tuple[Any, list[str]]:
        if not options["build"]:
            raise CommandError("--seen needs the build's name", returncode=3)
        moment = None
        if options["at"]:
            try:
                moment = parse_datetime(options["at"])
            except ValueError:
                moment = None
            if moment is None:
                raise CommandError("at: a date and time, as 2026-11-21T18:30:00+00:00", returncode=3)
        try:
            build = ensure_build(options["build"], **{name: options[name] for name in TEXTS}, at=moment)
        except Refused as refused:
            raise CommandError(str(refused), returncode=3) from refused
        return selectors.build_json(build), [f"{build.name}, {build.at:%Y-%m-%d %H:%M}"]


def _list() -> tuple[Any, list[str]]:
    rows = selectors.build_rows(selectors.build_names()[:MOST_LISTED])
    lines = [f"{row['at']:%Y-%m-%d %H:%M}  {row['name']:<42} {row['gate'].verdict if row['gate'] else '—':<10} "
             f"{row['runs']:>6,} kernel runs {row['regressions'] or 'no'} open regression{'' if row['regressions'] == 1 else 's'}"
             for row in rows]
    return [selectors.row_json(row) for row in rows], lines or ["No build yet."]


def _regressions(options: dict[str, Any]) -> tuple[Any, list[str]]:
    regressions = regression_selectors.regression_list({"state": "watched", "suite": options["suite"], "gpu": options["gpu"]})
    rows = list(regressions[:regression_selectors.LIST_LIMIT])
    lines = [sentences.regressions_sentence(*regression_selectors.count_states(regressions)) if rows else "No regression is open."]
    lines += [f"  {row.state:<13} {row.family:<40} {sentences.size_text(row)} since {row.build.name}, last good "
              f"{row.good.name if row.good else 'unknown'} ({row.suite.name}, {row.gpu or 'unknown GPU'})" for row in rows]
    return [regression_selectors.regression_json(row) for row in rows], lines


def _one(options: dict[str, Any]) -> tuple[Any, list[str]]:
    build = selectors.find_build(options["build"])
    if build is None:
        raise CommandError(f"no build {options['build']}", returncode=3)
    comparison = selectors.compare_build(build, {"suite": options["suite"], "against": options["against"]})
    if options["against"] and (comparison is None or comparison.label.removeprefix("the ") != options["against"]):
        raise CommandError(f"{options['against']} was not measured where {build.name} was", returncode=3)
    lines = [selectors.comparison_sentence(build, comparison)]
    for kernel in comparison.kernels if comparison else []:
        ratio = percent_text(kernel.p50.ratio if kernel.p50 else None)
        lines.append(f"  {kernel.verdict:<10} {kernel.key:<48} {ratio:>8}  {kernel.reason}")
    return {**selectors.build_json(build), "answer": lines[0], "against": comparison.label if comparison else None,
            "judged": suite_json(comparison.judged) if comparison and comparison.judged else None}, lines


def _series(options: dict[str, Any]) -> tuple[Any, list[str]]:
    choice = page_selectors.read_choice({name: options[name] for name in ("suite", "gpu", "branch")})
    if choice is not None and choice.missed:
        raise CommandError(choice.missed, returncode=3)
    page = page_selectors.load_page(choice) if choice else None
    if choice is None or page is None:
        return {"answer": None, "series": []}, ["No suite has a run yet."]
    answer = sentences.page_sentence(page)
    lines = [answer, f"{choice.suite.name} on {choice.where['text']}"]
    lines += [f"  {sentences.series_text(row.series)}" for row in page.rows]
    return {"answer": answer, "suite": choice.suite.name, "on": choice.where["text"], "kernels": [
        {"kernel": series.kernel.key, "builds": len(series.points), "newest_us": series.points[-1].median_us,
         "changes": [vars(step) for step in series.steps]} for series in page.found]}, lines
