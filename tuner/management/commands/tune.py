"""Tune jobs from the command line: what the pages do, over the same services."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser

from profiles.base.refused import Refused
from profiles.base.words import pairs_text
from profiles.models import Profile
from tuner.ceilings.selectors import job_grid
from tuner.jobs import control_services, create_services, groups, quarantine, selectors
from tuner.jobs.create_services import DEFAULT_EFFORT, EFFORTS
from tuner.jobs.groups import group_json
from tuner.jobs.worth_selectors import hot_shapes
from tuner.models import Quarantine, TuneGroup, TuneJob
from tuner.tuning.measure.policy import KINDS
from tuner.tuning.operators import find
from tuner.tuning.search.strategies import DEFAULT, STRATEGIES
from webapp.management.in_project import ProjectCommand

LOOK_EVERY_S = 0.5
LISTED = 50
RESTS = (*selectors.ENDED, TuneJob.Status.PAUSED)


class Command(ProjectCommand):
    help = "Start, watch and steer tune jobs, alone or in groups; order the queue; see and lift the quarantine."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: CommandParser) -> None:
        kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
        add = _make_adder(kinds)
        new = add("new", "start a job", self.new)
        new.add_argument("operator")
        new.add_argument("shape", nargs="+", metavar="NAME=VALUE", help="M=4096 N=4096 K=4096")
        new.add_argument("--dtype", default="", help="default: the operator's first")
        new.add_argument("--wait", action="store_true", help="until it ends")
        _add_budget(new)
        listing = add("list", "the newest jobs", self.list)
        listing.add_argument("--status", choices=TuneJob.Status.values)
        for name, description in (("show", "one job"), ("wait", "until a job ends or rests"), ("stop", "end a job"),
                                  ("pause", "free its worker, keep its trials"), ("resume", "back into the queue")):
            add(name, description, getattr(self, name)).add_argument("job", type=int)
        extend = add("extend", "more budget; an ended job goes on from its rows", self.extend)
        extend.add_argument("job", type=int)
        extend.add_argument("--trials", type=int, metavar="N")
        extend.add_argument("--seconds", type=float, metavar="S", help="default: in proportion to the trials")
        add("queue", "waiting jobs in the order in which they are taken", self.queue)
        move = add("move", "put a waiting job elsewhere in the queue", self.move)
        move.add_argument("job", type=int)
        place = move.add_mutually_exclusive_group()
        place.add_argument("--before", type=int, metavar="JOB")
        place.add_argument("--after", type=int, metavar="JOB")
        group = add("group", "many shapes as one order", self.group)
        group.add_argument("name")
        group.add_argument("shapes", nargs="*", metavar="OPERATOR:DTYPE:M=…,N=…")
        group.add_argument("--profile", type=int, metavar="ID", help="its shapes of most GPU time")
        group.add_argument("--top", type=int, default=10, metavar="N", help="of the profile's shapes, so many (default 10)")
        _add_budget(group)
        add("quarantine", "configurations that no worker runs", self.quarantine)
        add("lift", "let workers run a configuration again", self.lift).add_argument("row", type=int)

    def handle(self, *args: Any, run: Callable[[dict[str, Any]], Any], **options: Any) -> None:
        try:
            answer = run(options)
        except Refused as error:
            raise CommandError("\n".join(f"{name}: {problem}" for name, problem in error.fields.items())) from error
        except (TuneJob.DoesNotExist, Quarantine.DoesNotExist, Profile.DoesNotExist) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(answer))
            return
        for row in answer if isinstance(answer, list) else [answer]:
            self.stdout.write(_line(row))

    # ---- one line of the help each ----

    def new(self, options: dict[str, Any]) -> Mapping[str, Any]:
        operator = find(options["operator"])
        dtype = options["dtype"] or (operator.dtypes[0] if operator else "")
        job = create_services.tune_create(owner=None, operator=options["operator"], shape=_parse_shape(options["shape"]),
                                          dtype=dtype,
                                   **_typed_options(options))
        return self._wait_for_end(job) if options["wait"] else selectors.job_json(job)

    def list(self, options: dict[str, Any]) -> Sequence[Mapping[str, Any]]:
        jobs = selectors.job_list()
        jobs = jobs.filter(status=options["status"]) if options["status"] else jobs
        return [selectors.job_json(job) for job in jobs[:LISTED]]

    def show(self, options: dict[str, Any]) -> Mapping[str, Any]:
        job = _find_job(options["job"])
        return {**selectors.job_json(job), "grid": job_grid(job), "failures": selectors.failures_by_reason(job)}

    def wait(self, options: dict[str, Any]) -> Mapping[str, Any]:
        return self._wait_for_end(_find_job(options["job"]))

    def stop(self, options: dict[str, Any]) -> Mapping[str, Any]:
        return selectors.job_json(control_services.tune_stop(_find_job(options["job"])))

    def pause(self, options: dict[str, Any]) -> Mapping[str, Any]:
        return selectors.job_json(control_services.tune_pause(_find_job(options["job"])))

    def resume(self, options: dict[str, Any]) -> Mapping[str, Any]:
        return selectors.job_json(control_services.tune_resume(_find_job(options["job"])))

    def extend(self, options: dict[str, Any]) -> Mapping[str, Any]:
        return selectors.job_json(control_services.tune_extend(_find_job(options["job"]), options["trials"], options["seconds"]))

    def queue(self, options: dict[str, Any]) -> Sequence[Mapping[str, Any]]:
        return [selectors.job_json(job) for job in control_services.waiting_jobs()]

    def move(self, options: dict[str, Any]) -> Sequence[Mapping[str, Any]]:
        beside = {name: _find_job(options[name]) for name in ("before", "after") if options[name] is not None}
        control_services.queue_move(_find_job(options["job"]), **beside)
        return self.queue(options)

    def group(self, options: dict[str, Any]) -> Mapping[str, Any]:
        shapes: list[dict[str, Any]] = [_parse_problem(text) for text in options["shapes"]]
        source: dict[str, Any] = {}
        if options["profile"] is not None:
            profile = Profile.objects.get(pk=options["profile"])
            source = {"profile": profile.pk, "name": profile.name}
            shapes += [{"operator": hot.operator, "shape": dict(hot.shape), "dtype": hot.dtype, "worth_s": hot.worth.seconds}
                       for hot in hot_shapes(profile, options["top"])]
        group = groups.group_create(owner=None, name=options["name"], shapes=shapes, source=source, **_typed_options(options))
        return group_json(TuneGroup.objects.get(pk=group.pk))

    def quarantine(self, options: dict[str, Any]) -> Sequence[Mapping[str, Any]]:
        return [quarantine.quarantine_json(row) for row in quarantine.quarantine_list()]

    def lift(self, options: dict[str, Any]) -> Mapping[str, Any]:
        row = quarantine.quarantine_lift(Quarantine.objects.get(pk=options["row"]), None)
        return quarantine.quarantine_json(row)

    def _wait_for_end(self, job: TuneJob) -> Mapping[str, Any]:
        while job.status not in RESTS:
            time.sleep(LOOK_EVERY_S)
            job.refresh_from_db()
        return selectors.job_json(job)


def _make_adder(kinds: Any) -> Callable[[str, str, Callable[[dict[str, Any]], Any]], ArgumentParser]:
    def add(name: str, told: str, run: Callable[[dict[str, Any]], Any]) -> ArgumentParser:
        parser: ArgumentParser = kinds.add_parser(name, help=told, description=told)
        parser.add_argument("--json", action="store_true", help="exactly one JSON document on standard output")
        parser.set_defaults(run=run)
        return parser
    return add


def _add_budget(parser: ArgumentParser) -> None:
    parser.add_argument("--device", default="gpu", help='"gpu", "gpu:NVIDIA H200" or "replay:LANDSCAPE" (default gpu)')
    parser.add_argument("--strategy", default=DEFAULT, choices=list(STRATEGIES), help=f"default: {DEFAULT}")
    parser.add_argument("--effort", default=DEFAULT_EFFORT, choices=list(EFFORTS), help=f"default: {DEFAULT_EFFORT}")
    parser.add_argument("--trials", type=int, metavar="N", help="instead of the effort's")
    parser.add_argument("--seconds", type=float, metavar="S", help="instead of the effort's")
    parser.add_argument("--plateau", type=int, metavar="N", help="trials in a row that win nothing end it; instead of the effort's")
    parser.add_argument("--ceiling", type=float, metavar="PCT", help="a best at so many percent of what the GPU can do ends it: 95")
    parser.add_argument("--timing", choices=list(KINDS), default="cold", help="L2 flushed, warm, or a CUDA graph (default cold)")
    parser.add_argument("--seed", type=int, default=0, metavar="K")
    parser.add_argument("--values", action="append", default=[], metavar="NAME=V,V,…", help="a parameter's values, not its own")
    parser.add_argument("--constraint", action="append", default=[], metavar="EXPRESSION",
                        help='beside the operator\'s own: "BM * BN <= 8192"')


def _typed_options(options: dict[str, Any]) -> dict[str, Any]:
    plain = {name: options[name] for name in ("device", "strategy", "effort", "plateau", "seed", "timing")}
    return {**plain, "ceiling_pct": options["ceiling"], "budget_trials": options["trials"], "budget_seconds": options["seconds"],
            "space": _typed_space(options)}


def _typed_space(options: dict[str, Any]) -> dict[str, Any] | None:
    if not options["values"] and not options["constraint"]:
        return None
    pairs = [text.partition("=") for text in options["values"]]
    if bad := [name for name, sign, values in pairs if not name or not sign or not values]:
        raise CommandError(f"{bad[0]}: write values like BM=64,128")
    return {"parameters": {name: values for name, _, values in pairs}, "constraints": options["constraint"]}


def _parse_shape(parts: Sequence[str]) -> dict[str, int]:
    shape = {}
    for part in parts:
        name, _, value = part.partition("=")
        if not name or not value.isdecimal() or len(value) > 12:
            raise CommandError(f"{part}: write a dimension like M=4096")
        shape[name] = int(value)
    return shape


def _parse_problem(text: str) -> dict[str, Any]:
    parts = text.split(":")
    if len(parts) != 3:
        raise CommandError(f"{text}: write a shape like matmul:bf16:M=4096,N=4096,K=4096")
    return {"operator": parts[0], "dtype": parts[1], "shape": _parse_shape(parts[2].split(","))}


def _find_job(pk: int) -> TuneJob:
    return TuneJob.objects.get(pk=pk)


def _line(row: Mapping[str, Any]) -> str:
    """One row as a person reads it."""
    if "signature" in row:
        state = f"lifted {row['lifted']}" if row["lifted"] else "in force"
        return f"{row['id']:5}  {row['reason']:8} {state:9} {row['operator']} {row['dtype']} {row['config']}"
    if "jobs" in row:
        lines = [f"group {row['id']}: {row['name']}, {len(row['jobs'])} shapes"]
        return "\n".join([*lines, *(_line(job) for job in row["jobs"])])
    shape = pairs_text(row["shape"])
    best = f"{row['best_ms']:.6g} ms" if row["best_ms"] else "—"
    gain = f", {row['default_ms'] / row['best_ms']:.2f}× the default" if row["best_ms"] and row["default_ms"] else ""
    if (ceiling := row.get("ceiling")) and ceiling["share"]:
        gain += f", {100 * ceiling['share']:.3g} % of the ceiling ({1e3 * ceiling['ms']:.4g} µs, {ceiling['source']})"
    trials = f"{row['trials']:5} trials  " if "trials" in row else ""
    outcome = row.get("outcome") or {}
    if keep := row.get("keep_library"):        # before the time, which nobody should use
        best = f"{keep}; {best}"
    else:
        gain += f"; {outcome['text']}" if outcome.get("text") else ""
    gain += f", prepared in {row['prepare_s']:.1f} s" if row.get("prepare_s") else ""
    gain += f"; {row['grid']['text']}" if row.get("grid") else ""
    error = f"  {row['error']['what']} {row['error']['hint']}" if row.get("error") else ""
    return f"{row['id']:5}  {row['status']:8} {trials}{row['operator']} {row['dtype']} {shape}  {best}{gain}{error}"
