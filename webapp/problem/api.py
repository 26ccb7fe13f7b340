"""One kernel problem as JSON: what its page says of profiled, tuned, served and guarded."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Scalar
from tuner.ceilings.selectors import CeilingJson
from tuner.gate.builds.selectors import RegressionJson, regression_json
from tuner.jobs.selectors import speedups
from tuner.tuning import operators
from webapp.problem import address, profiled, states
from webapp.problem.address import Problem

MOST_KERNELS = 20


class ProfiledKernelJson(TypedDict):
    profile: int
    kernel: int
    name: str
    build: str
    launches: int
    total_ns: int


class ProfiledJson(TypedDict):
    launches: int
    total_ns: int
    mean_ns: float | None
    kernels: list[ProfiledKernelJson]
    why: str


class TunedBestJson(TypedDict):
    """The last job that found something; `speedup`: over the default and the library."""

    job: int
    best_ms: float | None
    default_ms: float | None
    library_ms: float | None
    best_config: dict[str, Scalar] | None
    speedup: dict[str, float | None]
    recorded: str
    ceiling: CeilingJson | None
    keep_library: str | None


class TuneActiveJson(TypedDict):
    job: int
    status: str
    trials: int
    why_waiting: str


class TunedJson(TypedDict):
    done: TunedBestJson | None
    active: TuneActiveJson | None
    jobs: list[int]
    why: str


class ServedJson(TypedDict):
    rule: str
    why: str
    config: str                         # as text
    entry: int | None
    recorded: str
    keep_library: str | None
    launches: int
    code: str


class GuardVerdictJson(TypedDict):
    gate: int
    verdict: str
    build: str


class GuardRunJson(TypedDict):
    build: str
    p50_us: float | None


class GuardedJson(TypedDict):
    """The suite that watches it; without one `why` alone."""

    suite: str | None
    kernel: NotRequired[str]
    page: NotRequired[str]
    verdict: NotRequired[GuardVerdictJson | None]
    run: NotRequired[GuardRunJson | None]
    waiting: NotRequired[bool]
    why: str


class ProblemDeviceJson(TypedDict):
    value: str
    why_not: str


class ProblemJson(TypedDict):
    """An operator at one shape and type on one GPU: profiled, tuned, served, guarded."""

    operator: str
    dtype: str
    shape: dict[str, int]
    gpu: str
    page: str
    profiled: ProfiledJson
    tuned: TunedJson
    served: ServedJson
    guarded: GuardedJson
    regressions: list[RegressionJson]
    device: ProblemDeviceJson


class ProblemApi(APIView):
    """?operator=matmul&dtype=bf16&gpu=NVIDIA H200&M=4096&N=4096&K=4096"""

    @extend_schema(operation_id="problem", responses=ProblemJson, parameters=[
        OpenApiParameter("operator", str, required=True), OpenApiParameter("dtype", str), OpenApiParameter("gpu", str),
        OpenApiParameter("M", int, description="and the operator's other dimensions by name")])
    def get(self, request: Request) -> Response:
        """What is known of an operator at one shape and type on one GPU model; null where nobody did it yet, with why."""
        query = request.query_params.dict()
        operator = operators.find(query.get("operator", ""))
        if operator is None:
            raise ValidationError({"operator": [f"choose one of {', '.join(operators.all_operators())}"]})
        query.setdefault("dtype", operator.dtypes[0])
        problem = address.read(query)
        if problem is None:
            shape = {dim.name: int(query[dim.name]) if query.get(dim.name, "").isdecimal() and len(query[dim.name]) < 12 else -1
                     for dim in operator.dims}
            raise ValidationError({name: [what] for name, what in operator.problems(shape, query["dtype"]).items()})
        return Response(problem_json(problem))


def problem_json(one: Problem) -> ProblemJson:
    """Return the four states of a problem; times in ns and ms as named."""
    device = states.job_device(one)
    return {"operator": one.operator, "dtype": one.dtype, "shape": dict(one.shape), "gpu": one.gpu, "page": one.url,
            "profiled": _profiled(one), "tuned": _tuned(one), "served": _served(one), "guarded": _guarded(one),
            "regressions": [regression_json(regression["row"]) for regression in states.regressions(one)],
            "device": {"value": device.value, "why_not": device.why_not}}


def _profiled(problem: Problem) -> ProfiledJson:
    summary = profiled.of_problem(problem)
    kernels = {(row.kernel.profile_id, row.kernel_id): row for row in summary.rows}
    rows: list[ProfiledKernelJson] = [
        {"profile": row.kernel.profile_id, "kernel": row.kernel_id, "name": row.kernel.short_name,
         "build": row.kernel.profile.build, "launches": row.launches, "total_ns": row.total_ns}
        for row in list(kernels.values())[:MOST_KERNELS]]
    return {"launches": summary.launches, "total_ns": summary.total_ns, "mean_ns": summary.mean_ns, "kernels": rows,
            "why": "" if summary.launches else "no profile here has a launch of this shape and type on this GPU"}


def _tuned(problem: Problem) -> TunedJson:
    tuned = states.tuned(problem)
    done, active = tuned.done, tuned.active
    best: TunedBestJson | None = None if done is None else {
        "job": done.pk, "best_ms": done.best_ms, "default_ms": done.default_ms, "library_ms": done.library_ms,
        "best_config": done.best_config, "speedup": speedups(done), "recorded": done.recorded, "ceiling": tuned.ceiling,
        "keep_library": tuned.keep or None}
    return {"done": best, "active": {"job": active.pk, "status": active.status, "trials": tuned.trials,
                                     "why_waiting": tuned.why_waiting} if active else None,
            "jobs": [job.pk for job in tuned.jobs], "why": "" if tuned.jobs else "nobody searched it yet"}


def _served(problem: Problem) -> ServedJson:
    served = states.served(problem)
    return {"rule": served.rule, "why": served.why, "config": served.config, "entry": served.entry.pk if served.entry else None,
            "recorded": served.entry.recorded if served.entry else "",
            "keep_library": served.keep or None, "launches": served.launches, "code": served.lines}


def _guarded(problem: Problem) -> GuardedJson:
    guarded = states.guarded(problem)
    if guarded.kernel is None:
        return {"suite": None, "why": "no suite watches it"}
    verdict, run = guarded.verdict, guarded.run
    return {"suite": guarded.kernel.suite.name, "kernel": guarded.kernel.key,
            "page": reverse("suite", args=[guarded.kernel.suite_id]),
            "verdict": {"gate": verdict.gate_id, "verdict": verdict.verdict, "build": verdict.gate.build.name} if verdict else None,
            "run": {"build": run.build.name, "p50_us": run.p50_us} if run else None, "waiting": guarded.waiting, "why": ""}
