"""A gate is asked for: checked before anything is run, then decided from runs that came along, or measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from tuner.baselines.selectors import Env, Expected, environments_of
from tuner.builds.services import BuildRefused, build_seen
from tuner.cache import toolkit
from tuner.gates import rounds_selectors
from tuner.gates.decide_services import device_of, gate_advance, gate_published
from tuner.gates.refusal_services import GateRefused
from tuner.gates.rules_selectors import rule_of
from tuner.models import Build, Gate, Suite
from tuner.suites.orders import configs_problem
from tuner.suites.services import SuiteError, job_create, runs_store
from tuner.trial import storable
from workers import jobs

ENVIRONMENT = {"gpu": 116, "toolkit": 80, "cuda": 40, "triton": 40, "driver": 40, "device": 120, "recorded": 120}   # -> characters
MOST_RUNS, MOST_PLACES = 200, 10


def gate_create(suite: Suite | str, build: str, *, owner: Any = None, environment: Mapping[str, Any] | None = None,
                against: str = "", parent: str = "", branch: str = "", title: str = "", author: str = "", url: str = "",
                at: datetime | None = None, configs: Mapping[str, Any] | None = None, runs: int | None = None,
                records: Sequence[Any] | bytes | None = None, request_key: str = "") -> Gate:
    """Ask whether a build made a suite slower. Raises GateRefused, and then nothing was made.

    runs     fresh runs of the build to measure; None: the suite's
    records  runs that CI measured itself, as lines of a runs file; the answer is then known at once
    against  a build to compare with, instead of the baseline
    request_key  of the caller's making: a request that is sent again, because its answer was lost, finds the gate it made
    """
    if request_key and (standing := _standing(request_key, owner, suite, build)) is not None:
        return standing
    found = suite_found(suite)
    asked = environment_read(environment)
    uploaded = found.kind == Suite.Kind.UPLOADED
    if records is not None and not uploaded:
        raise GateRefused({"runs": f"suite {found.name} is measured by workers: give a number; only an uploaded suite takes runs"})
    if uploaded and runs is not None:
        raise GateRefused({"runs": f"suite {found.name} is not measured here: send its runs, not their number"})
    if not found.enabled:
        raise GateRefused({"suite": f"{found.name} is switched off"}, 409)
    keys = {kernel.key: kernel for kernel in found.kernels.filter(enabled=True)}
    if configs is not None and (problem := configs_problem(configs, keys)):
        raise GateRefused({"configs": problem})
    try:
        with transaction.atomic():
            row = build_seen(build, parent=parent, branch=branch, title=title, author=author, url=url, at=at)
            gate = Gate.objects.create(suite=found, build=row, against=_against(against, row, found), environment=asked, url=row.url
                                       if url else "", owner=owner, configs=dict(configs or {}), request_key=request_key,
                                       status=Gate.Status.WAITING if uploaded else Gate.Status.MEASURING)
            if uploaded:
                _stored(gate, records)
            else:
                _ordered(gate, runs)
            transaction.on_commit(lambda: gate_published(gate), robust=True)
    except IntegrityError:                         # the same request, sent twice, has just committed
        if request_key and (standing := _standing(request_key, owner, suite, build)) is not None:
            return standing
        raise
    except (BuildRefused, SuiteError) as error:
        raise GateRefused({_FIELD.get(name, name) or "runs": problem for name, problem in error.fields.items()}) from error
    if uploaded:
        gate_advance(gate.pk)
        gate.refresh_from_db()
    return gate


def _standing(request_key: str, owner: Any, suite: Suite | str, build: str) -> Gate | None:
    """The gate that this very request made before."""
    if not storable(request_key) or len(request_key) > 80 or not request_key.isprintable():
        raise GateRefused({"Idempotency-Key": "at most 80 printable characters"})
    gate = Gate.objects.select_related("suite", "build", "against").filter(owner=owner, request_key=request_key).first()
    if gate is not None and (gate.suite.name, gate.build.name) != (getattr(suite, "name", suite), build.strip()):
        raise GateRefused({"Idempotency-Key": f"gate {gate.pk} of another suite or build was asked for with it"}, 409)
    return gate


_FIELD = {"builds": "build", "records": "runs"}          # what the suites call it, and what the request does


def suite_found(suite: Suite | str) -> Suite:
    if isinstance(suite, Suite):
        return suite
    found = Suite.objects.filter(name=suite).first() if isinstance(suite, str) and storable(suite) else None
    if found is None:
        known = list(Suite.objects.order_by("name").values_list("name", flat=True)[:20])
        raise GateRefused({"suite": f"there is no such suite; there {'are' if len(known) != 1 else 'is'} "
                                    f"{', '.join(known) or 'none yet: make one under /suites/new/'}"}, 404)
    return found


def environment_read(given: Mapping[str, Any] | None) -> dict[str, str]:
    """Texts of known names; empty ones are not said. cuda and triton are one: the toolkit."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise GateRefused({"environment": "an object with gpu, toolkit (or cuda and triton), driver, device"})
    read: dict[str, str] = {}
    for name, value in given.items():
        if name not in ENVIRONMENT:
            raise GateRefused({"environment": f"choose among {', '.join(ENVIRONMENT)}"})
        if not isinstance(value, str) or not storable(value) or len(value) > ENVIRONMENT[name] or not (value or " ").isprintable():
            raise GateRefused({"environment": f"{name}: at most {ENVIRONMENT[name]} printable characters"})
        if value.strip():
            read[name] = value.strip()
    parts = {name: read.pop(name) for name in ("cuda", "triton") if name in read}
    return {"toolkit": toolkit(parts), **read} if parts else read


def _against(name: str, build: Build, suite: Suite) -> Build | None:
    if not name:
        return None
    if name == build.name:
        raise GateRefused({"against": "the build itself: name an earlier one, or leave it out"})
    known = Build.objects.filter(name=name).first() if storable(name) else None
    if known is None and not rounds_selectors.measurable_again(suite):
        raise GateRefused({"against": "no build of this name is known, and its runs cannot be measured here: send them first"})
    return known or build_seen(name)


def _stored(gate: Gate, records: Sequence[Any] | bytes | None) -> None:
    """Runs that came along, and where they were taken: the gate speaks of that environment."""
    if records is None:
        return
    asked = gate.environment
    where = {name: asked.get(name, "") for name in ("gpu", "toolkit", "driver", "recorded")}
    stored = runs_store(gate.suite, gate.build, records, **where, owner=gate.owner)
    if not stored.runs:
        raise GateRefused({"runs": "no run in what was sent"})
    rows = gate.build.runs.filter(pk__in=stored.runs, rejected="").order_by()
    places = [Env(*place) for place in rows.values_list("gpu", "toolkit", "driver", "recorded").distinct()[:MOST_PLACES]]
    if len(places) == 1:
        gate.gpu, gate.toolkit, gate.driver, gate.recorded = places[0].gpu, places[0].toolkit, places[0].driver, places[0].recorded
    gate.report = {"mixed": sorted(place.text for place in places)} if len(places) > 1 else {}
    gate.save(update_fields=["gpu", "toolkit", "driver", "recorded", "report"])


def _ordered(gate: Gate, runs: int | None) -> None:
    """The first round. Refused before anything is run where so few runs could decide nothing."""
    suite = gate.suite
    if runs is not None and not (isinstance(runs, int) and not isinstance(runs, bool) and 1 <= runs <= MOST_RUNS):
        raise GateRefused({"runs": f"a whole number from 1 to {MOST_RUNS}"})
    known_gpu(suite, gate.environment)
    baselines = rounds_selectors.expected_baselines(suite, gate.environment, gate.build, gate.against)
    planned = rounds_selectors.planned(suite, runs, baselines)
    if not planned["enough"]:
        raise GateRefused({"runs": planned["says"]})
    ours = {"build": gate.build.name, "configs": gate.configs}
    builds = [ours]
    other = _partner(gate, baselines) if planned["interleaved"] or _unmeasured(gate, baselines) else ""
    number = planned["candidate_runs"]
    if other:
        keys = list(suite.kernels.filter(enabled=True).values_list("key", flat=True))
        builds = [{"build": other, "configs": rounds_selectors.configs_of(suite, other, keys)}, ours]
        number = rounds_selectors.runs_each(planned["kernels"], number, rule_of(suite.rule))
    job_create(suite, builds=builds, runs=number, gate=gate, reason="gate", device=device_of(suite, gate.environment),
               owner=gate.owner)
    gate.rounds = 1
    gate.save(update_fields=["rounds"])


def _unmeasured(gate: Gate, baselines: Sequence[Expected]) -> bool:
    """Somebody named the build to compare with, and it has too few runs."""
    return gate.against is not None and rounds_selectors.measurable_again(gate.suite) and not any(each.runs for each in baselines)


def _partner(gate: Gate, baselines: Sequence[Expected]) -> str:
    if gate.against is not None:
        return gate.against.name
    return next((each.builds[0].name for each in baselines if each.builds), "")


def known_gpu(suite: Suite, asked: Mapping[str, str]) -> None:
    """A GPU that no worker has and no run was ever taken on would be waited for without end."""
    gpu = asked.get("gpu")
    if not gpu:
        return
    alive = {each["name"] for worker in jobs.workers() for each in worker.get("gpus") or []}
    seen = {env.gpu for env in environments_of(suite)} - {""}
    if gpu not in alive | seen:
        known = ", ".join(sorted(alive | seen)) or "none"
        raise GateRefused({"environment": f"no worker has a GPU of the model {gpu}; known: {known}"}, 409)
