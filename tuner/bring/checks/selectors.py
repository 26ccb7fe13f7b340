"""Pasted kernel files for pages and programs, and who could check one now."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from django.db.models import QuerySet

from profiles.base.answers import ErrorJson, Scalar, make_answer
from tuner.models import KernelCheck
from workers import jobs

QUEUES = ("compile", "gpu")         # whose workers have Triton and NVRTC; the first costs no GPU
HOW = "start one where torch and Triton are installed: manage.py worker compile"


def check_list() -> QuerySet[KernelCheck]:
    """Return the project's, newest first, without their texts."""
    return KernelCheck.objects.defer("text", "result", "adapters").select_related("owner")


def living_queues() -> list[str]:
    """Return the queues, of those that can check, that a living worker serves."""
    served = {queue for worker in jobs.workers() for queue in worker["queues"]}
    return [queue for queue in QUEUES if queue in served]


class CheckAbilityJson(TypedDict):
    able: bool
    why: str


def ability() -> CheckAbilityJson:
    """Return {"able", "why"}: whether a living worker compiles what is pasted, and what to do where none does."""
    workers = [worker for worker in jobs.workers() if set(QUEUES) & set(worker["queues"])]
    if not workers:
        return {"able": False, "why": f"No compile or gpu worker is running: {HOW}. Until then you see what the text tells."}
    if all("missing" in worker["tools"].get("triton", {"missing": ""}) for worker in workers):
        return {"able": True, "why": "No compile or gpu worker has Triton: Python files are read and not compiled. "
                                     "On its host: pip install torch triton."}
    return {"able": True, "why": ""}


class StepJson(TypedDict):
    """What is done before samples are compiled, since when, for how many seconds at most."""

    what: str
    since: str
    most_s: float


class FoundFileJson(TypedDict):
    """A file that holds kernels: the names of the first, and how many there are."""

    path: str
    kernels: list[str]
    count: int


class CheckSourceJson(TypedDict, total=False):
    """Where a file comes from: a commit of a repository (`kind` "git"), or a version of a package; `found`: files of kernels."""

    kind: str
    address: str
    commit: str
    name: str
    version: str
    path: str
    resolved: str
    files: int
    found: list[FoundFileJson]


class ParameterValuesJson(TypedDict):
    name: str
    values: list[Scalar]


class CheckProblemJson(TypedDict):
    """What keeps a kernel from being compiled, and what to do; `missing`: something that the file needs is not here."""

    what: str
    do: str
    missing: bool


class ConstexprJson(TypedDict):
    value: Scalar
    chosen: str


class RecordedLaunchJson(TypedDict):
    """What a call was seen to launch: its grid, constexprs and who chose each, options."""

    call: str
    grid: list[int]
    grid_formula: str
    options: dict[str, Scalar]
    dims: dict[str, Scalar]
    constexprs: dict[str, ConstexprJson]
    heuristics: list[str]
    key: list[str]
    gluon: bool
    restores: list[str]


class SampleJson(TypedDict):
    """A configuration that was compiled for a GPU's architecture: what the compiler made of it, or its error."""

    gpu: str
    config: dict[str, Scalar]
    error: NotRequired[str]
    registers: NotRequired[float | None]
    spills: NotRequired[float | None]
    smem_bytes: NotRequired[float | None]
    occupancy_pct: NotRequired[float | None]
    seconds: NotRequired[float | None]


class CheckedKernelJson(TypedDict):
    """A kernel of the file: its parameters and arguments, the configurations that can run, samples that were compiled."""

    name: str
    kind: str
    line: int
    parameters: list[ParameterValuesJson]
    arguments: list[dict[str, Scalar]]
    size: int | None
    valid: int | None
    pruned: dict[str, int]
    default: dict[str, Scalar]
    assumed: dict[str, Scalar]
    problems: list[CheckProblemJson]
    notes: list[str]
    recorded: RecordedLaunchJson | None
    compiled: list[SampleJson]
    measured: None


class CheckResultJson(TypedDict, total=False):
    file: str
    operators: list[CheckedKernelJson]
    call: str
    proposals: list[str]
    step: StepJson


class AdapterConstraintJson(TypedDict):
    reason: str
    expression: str


class AdapterSpaceJson(TypedDict):
    """The space of an adapter that can be edited; `listed`: the autotuner's own configurations."""

    params: list[ParameterValuesJson]
    constraints: list[AdapterConstraintJson]
    default: dict[str, Scalar]
    names: dict[str, Scalar]
    listed: bool


class BesideFileJson(TypedDict):
    file: str
    text: str


class ListedConfigsJson(TypedDict):
    """The autotuner's own configurations: names of parameters, and a row of values for each."""

    names: list[str]
    rows: list[list[Scalar]]


class AdapterJson(TypedDict):
    """A kernel's adapter as text with what is left to do, and a file beside it; or `why` none was written."""

    kernel: str
    why: NotRequired[str]
    file: NotRequired[str]
    text: NotRequired[str]
    to_do: NotRequired[list[str]]
    beside: NotRequired[BesideFileJson | None]
    space: NotRequired[AdapterSpaceJson | None]
    called: NotRequired[bool]                   # it was written from a call
    references: NotRequired[dict[str, str]]
    configs: NotRequired[ListedConfigsJson | None]


class KernelCheckJson(TypedDict):
    """A check of a kernel file; `proposals`: calls that would do, `compiled` of `samples`; `adapters`: written for its kernels."""

    id: int
    file: str
    source: CheckSourceJson | None
    shape: dict[str, int]
    dtype: str
    call: str
    proposals: list[str]
    status: str
    compiled: int
    samples: int
    step: StepJson | None
    result: CheckResultJson
    adapters: list[AdapterJson]
    error: ErrorJson | None
    worker: str
    by: str | None
    created: str
    finished: str | None


def check_json(check: KernelCheck) -> KernelCheckJson:
    """Return everything about a check but the file's text."""
    return make_answer(KernelCheckJson, check, call=check.result.get("call", ""), proposals=check.result.get("proposals", []),
                       step=step_of(check),
                       by=check.owner.get_username() if check.owner else None)


def step_of(check: KernelCheck) -> StepJson | None:
    """Return what a running check does before samples are compiled; None where it does nothing of that kind."""
    step: StepJson | None = check.result.get("step")
    return step if check.status == KernelCheck.Status.RUNNING and not check.samples else None


def adapter_of(check: KernelCheck, kernel: str) -> dict[str, Any] | None:
    """Return the adapter of one kernel that can be edited; None where there is none."""
    return next((adapter for adapter in check.adapters if adapter["kernel"] == kernel and adapter.get("space")), None)
