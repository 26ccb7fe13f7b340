"""Builds × environments on the command line: effects, who did it, and re-validation after a new environment."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder

from profiles.base.refused import Refused
from tuner.gate.environments import observation_selectors, selectors
from tuner.gate.stats.effects import percent_text
from tuner.models import GpuEnvironment, Suite
from tuner.revalidation import policy_services, search_services
from tuner.revalidation.policy_services import environment_forget
from webapp.management.in_project import ProjectCommand


class Command(ProjectCommand):
    help = "Effects of build, toolkit, driver and GPU on a suite; what a new environment made doubtful in the cache."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--suite", help="name of a suite: its effects and who made a kernel slower")
        parser.add_argument("--kernel", default="", help="key of one of its kernels")
        parser.add_argument("--recorded", action="store_true", help="recorded runs instead of those measured here")
        parser.add_argument("--revalidate", action="store_true", help="queue jobs for the hottest doubtful winners")
        parser.add_argument("--by-itself", choices=["on", "off"], help="measure doubtful winners again without being asked")
        parser.add_argument("--most-entries", type=int, help="… at most so many of each GPU model and environment")
        parser.add_argument("--most-seconds", type=float, help="… that take so many GPU-seconds")
        parser.add_argument("--searches", choices=["on", "off"], help="search the hottest again under a new toolkit, one at a time")
        parser.add_argument("--most-searches", type=int, help="… at most so many of each GPU model and environment")
        parser.add_argument("--search-seconds", type=float, help="… each for so many GPU-seconds")
        parser.add_argument("--from-hour", type=int, help="… beginning from this hour on (UTC, 0 to 23)")
        parser.add_argument("--until-hour", type=int, help="… and before this one (UTC, 1 to 24)")
        parser.add_argument("--forget", type=int, metavar="ID", help="an environment that was seen, by its id: what it alone made "
                                                                      "doubtful is verified again")
        parser.add_argument("--json", action="store_true")

    def handle(self, *arguments: Any, **options: Any) -> None:
        document, lines = self._suite(options) if options["suite"] else ({}, [])
        if options["forget"] is not None:
            lines += self._forget(options["forget"])
        if options["by_itself"]:
            try:
                policy_services.set_policy(by=None, by_itself=options["by_itself"] == "on", most_entries=options["most_entries"],
                                    most_seconds=options["most_seconds"])
            except Refused as error:
                raise CommandError(str(error)) from error
        if options["searches"]:
            try:
                search_services.set_searches(by=None, searches=options["searches"] == "on", **{name: options[name] for name in (
                    "most_searches", "search_seconds", "from_hour", "until_hour")})
            except Refused as error:
                raise CommandError(str(error)) from error
        job_pks = [job.pk for job in policy_services.revalidate_now(None)] if options["revalidate"] else []
        document |= policy_services.overview_json(policy_services.overview()) | {"jobs": job_pks}
        document["searches"] = search_services.overview_json(search_services.overview())
        if options["json"]:
            self.stdout.write(json.dumps(document, cls=DjangoJSONEncoder, indent=2))
            return
        now = document["revalidation"]
        lines += [f"{one['id']}  {one['gpu']}: {one['toolkit']}, driver {one['driver'] or '—'}"
                  f"{' (newest)' if one['newest'] else ''}: {one['verified']} winners stand, {one['unverified']} are doubtful"
                  for one in document["seen"]]
        lines.append(f"{now['unverified']} doubtful winners; the {len(now['next'])} hottest take about "
                     f"{now['expected_gpu_seconds']:.0f} s of GPU time; they are measured "
                     f"{'by themselves' if now['by_itself'] else 'when asked'}")
        search = document["searches"]
        when = f"by themselves, from {search['from_hour']} to {search['until_hour']} h UTC" if search["by_itself"] else "when asked"
        lines.append(f"{search['due']} configurations were found under an older toolkit; they are searched again {when}")
        lines += [f"{len(job_pks)} jobs queued"] if options["revalidate"] else []
        self.stdout.write("\n".join(lines))

    def _forget(self, pk: int) -> list[str]:
        environment = GpuEnvironment.objects.filter(pk=pk).first()
        if environment is None:
            raise CommandError(f"no environment has the id {pk}: manage.py environments lists them")
        back = environment_forget(environment, None)
        return [f"forgotten: {environment}; {back} winner{' is' if back == 1 else 's are'} verified again"]

    def _suite(self, options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        suite = Suite.objects.filter(name=options["suite"]).first()
        if suite is None:
            raise CommandError(f"no suite is named {options['suite']}")
        if options["kernel"] and not suite.kernels.filter(key=options["kernel"]).exists():
            raise CommandError(f"{suite.name} has no kernel {options['kernel']!r}")
        counts = observation_selectors.runs_by_kind(suite)
        found = selectors.load_picture(suite, kernel=options["kernel"], recorded=options["recorded"] or not counts["measured"])
        lines = [found.attribution.says]
        lines += [f"  {effect.factor} {effect.level} against {effect.reference}: " + (
            f"{percent_text(effect.ratio)} [{percent_text(effect.low)}, {percent_text(effect.high)}], {effect.kernels} kernels"
            if effect.ratio else f"— {effect.why}")
            for effect in found.attribution.suite]
        if found.compared is not None:
            lines += [found.compared.says, *(f"  {key}: {one.kind}. {one.says}" for key, one in found.compared.kernels)]
        lines += [f"  {one.kernel}: {one.fact} {one.before:g} → {one.after:g} by {one.factor} {one.reference} → {one.level}"
                  for one in found.facts]
        return {"suite": suite.name, **selectors.picture_json(found)}, lines
