"""How a gate is said in one line. Unknown is an em dash, never zero."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from profiles.base.answers import ErrorJson, Scalar
from tuner.gate.stats.explanation import ExplanationJson
from tuner.gate.stats.metrics import JudgedMetricJson
from tuner.gate.stats.results import KernelClocksJson, PlanJson, percent_text
from tuner.gate.stats.rule import ORDER, finite_number
from tuner.gate.stats.runs import shape_text

# The document of a gate: what the API answers, what reports are made of, what webhooks carry. All times in µs.
#
# Only `verdict` and `kernels` are sure to be there: the offline command judges files, which have no gate, no suite and no
# links.

SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")          # of a git commit, in full


class DecidedDocument(TypedDict):
    """The quantity of a kernel's time that its verdict is of."""

    quantity: str                        # "p50", "p95", "mean"
    ratio: float | None                  # candidate / baseline
    ci: Sequence[float] | None


class BasisDocument(TypedDict, total=False):
    """What a kernel was compared with: how it was chosen, in words, and the builds."""

    mode: str
    says: str
    builds: Sequence[str]


class StaysDocument(TypedDict):
    """The earlier SLOWER verdict that stays, of a gate by its number; `by_itself`: nobody asked for the comparison."""

    gate: int
    by_itself: bool


class StandingDocument(TypedDict, total=False):
    """An earlier SLOWER verdict of the build: whether it stays, or was accepted."""

    kernel: str
    gate: int
    build: str
    stays: bool
    accepted: bool
    says: str
    by_itself: bool


class OfferDocument(TypedDict, total=False):
    """What can be measured where there is no baseline; `first`: no other build was measured; `again`: where it is asked for."""

    says: str
    baseline: str
    measurable: bool
    first: bool
    again: str


class PageDocument(TypedDict):
    page: str


class EvidenceDocument(PageDocument, total=False):
    """Where a gate's evidence is; `report`: by form."""

    api: str
    baselines: str
    compare: str
    report: Mapping[str, str]


class AttributedDocument(ExplanationJson):
    """Whether the build or the environment made the kernel slower; `before`: where the baseline was measured."""

    before: str


class KernelDocument(TypedDict, total=False):
    """One kernel: op, shape, config, verdict, ratio_p50, ci, ratio_p95 and reason are always there."""

    id: int
    key: str
    op: str
    shape: Mapping[str, int]
    config: Mapping[str, Scalar] | None
    family: str
    verdict: str
    reason: str
    ratio_p50: float | None              # candidate / baseline; 1.08 is 8 % slower
    decided: DecidedDocument             # which quantity of its time the verdict is of
    ci: Sequence[float] | None           # [low, high] of ratio_p50
    ratio_p95: float | None
    ratio_mean: float | None             # of the winsorised mean: GPU time a launch
    ci_mean: Sequence[float] | None
    speeds: str                          # where launches have two speeds: which, and how many
    believed: bool                       # false: so large a change is looked at as a slip of units
    back_at: str                         # build whose speed, from before the kernel became faster, it has again
    gone: bool                           # the baseline has it, and this build has no run of it
    p_value: float | None
    baseline_us: float | None            # median of run medians
    candidate_us: float | None
    baseline_runs: int
    candidate_runs: int
    detectable: float | None             # smallest slowdown that these runs could have shown; 0.034 is 3.4 %
    false_alarms: float | None           # share of comparisons of identical code that end SLOWER
    more_runs: int | None
    metrics: Sequence[JudgedMetricJson]
    clocks: KernelClocksJson
    excluded: Sequence[str]
    ci_p95: Sequence[float] | None
    change: str | None                   # of the kernel's median: slower, faster, unchanged, unknown
    baseline: BasisDocument
    stays: StaysDocument | None
    confirmed: bool
    environment: AttributedDocument | None       # what build and environment did since the baseline was measured elsewhere
    regression: int | None
    links: PageDocument


class GateProgressJson(TypedDict, total=False):
    """Kernel runs of the round that is measured now, and why its job waits; nothing without one."""

    done: int
    wanted: int
    job: int
    round: int
    waits: str
    says: str


class RoundDocument(TypedDict):
    """A round that was measured: its suite job, and of what; `kernels` null: all of the suite."""

    job: int
    builds: Sequence[str]
    runs: int
    kernels: Sequence[str] | None
    status: str
    why: str


class GateDocument(TypedDict, total=False):
    """One build of one suite, judged; kernels worst first."""

    id: int
    suite: str
    build: str
    against: str | None
    branch: str
    title: str
    status: str                          # waiting | measuring | done | stopped | failed
    clocks_held: Sequence[str]           # what was done to the clocks of the GPUs, in words; [] where nothing was asked
    verdict: str                         # "" while it goes on
    exit_code: int | None
    reason: str
    parent: str
    rounds: int
    progress: GateProgressJson
    rule: Mapping[str, float]
    history: Sequence[RoundDocument]     # rounds that were measured
    jobs: Sequence[int]
    environment: Mapping[str, str]       # gpu, toolkit, driver, recorded: where it was decided
    code: Mapping[str, str]              # build → commit (or "sha256:…") of code that workers fetched for it
    asked: Mapping[str, str]
    asked_url: str
    alpha: float | None                  # stated risk of one false SLOWER in the whole suite
    plan: PlanJson
    notes: Sequence[str]
    standing: Sequence[StandingDocument]
    green: str                           # of a build that is SLOWER: what makes it green
    offer: OfferDocument | None
    error: ErrorJson | None
    created: str
    finished: str | None
    kernels: Sequence[KernelDocument]
    links: EvidenceDocument


def as_text(of: Any) -> str:
    """Return one JSON document; refuses what JSON has no word for (NaN)."""
    return json.dumps(of, indent=2, allow_nan=False) + "\n"


def page_of(of: GateDocument | KernelDocument) -> str:
    """Return the address of its page, "" where it names none."""
    links: Mapping[str, object] = of.get("links") or {}
    return str(links.get("page") or "")


def kernel_name(kernel: KernelDocument) -> str:
    """Return the suite's key, or operator, shape and, where a file holds several, configuration."""
    if kernel.get("key"):
        return str(kernel["key"])
    parts = (str(kernel.get("op", "")), shape_text(kernel.get("shape")), shape_text(kernel.get("config")))
    return " ".join(filter(None, parts)) or "kernel"


def is_first_of_suite(of: GateDocument) -> bool:
    """Return whether NO DATA is no failure: the build is the first that was measured."""
    return of.get("verdict") == "NO DATA" and bool((of.get("offer") or {}).get("first"))


def subject(of: GateDocument) -> str:
    """Return which build of which suite a gate judged."""
    build, suite = of.get("build") or "", of.get("suite") or ""
    build = build[:12] if SHA.fullmatch(build) else build
    return f"{build} of {suite}" if build and suite else build or suite or "candidate"


UNKNOWN = "—"


def change_text(ratio: Any) -> str:
    """1.081 -> "+8.1 %"."""
    return percent_text(finite_number(ratio))


def interval_text(ci: Any) -> str:
    """[1.072, 1.09] -> "+7.2 … +9.0 %"."""
    ends = [finite_number(end) for end in ci] if isinstance(ci, list | tuple) and len(ci) == 2 else [None, None]
    if any(end is None for end in ends):
        return UNKNOWN
    return " … ".join(change_text(end).removesuffix(" %") for end in ends) + " %"


def share_text(value: Any) -> str:
    """0.034 -> "3.4 %", 0.0002 -> "0.02 %"; two digits, and what is smaller than shown says so."""
    share = finite_number(value)
    if share is None:
        return UNKNOWN
    return "< 0.001 %" if 0 < share < 0.00001 else f"{100 * share:.2g} %" if abs(share) < 0.1 else f"{100 * share:.0f} %"


def time_text(value: Any) -> str:
    """184.8 -> "184.8 µs"; four significant digits."""
    us = finite_number(value)
    if us is None:
        return UNKNOWN
    return f"{us:.4g} µs" if us < 10_000 else f"{us / 1000:.4g} ms"


def headline(of: GateDocument) -> str:
    """Return verdict, build and suite, and what weighs most."""
    verdict, status = of.get("verdict", ""), of.get("status", "done")
    if not verdict:
        says = (of.get("progress") or {}).get("says", "")
        outcome = {"failed": "ended with an error", "stopped": "was stopped before it was decided",
                   "waiting": "waits for runs"}.get(status, "is being measured")
        return f"{subject(of)} {outcome}" + (f": {says}" if says and status == "measuring" else "")
    return f"{verdict}: {subject(of)}" + (f", {worst}" if (worst := _worst_kernel(of)) else "")


def verdict_counts(of: GateDocument) -> str:
    """"1 SLOWER, 12 PASS", worst first."""
    counts = Counter(str(kernel.get("verdict", "")) for kernel in of.get("kernels", ()))
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in ORDER if counts[verdict])


def error_rates(of: GateDocument) -> list[str]:
    """Return what may be wrong with the answer: the risk of a false SLOWER, and what could not be seen."""
    lines = []
    kernels = list(of.get("kernels", ()))
    if (alpha := finite_number(of.get("alpha"))) is not None:
        lines.append(f"A suite of identical code ends SLOWER in at most {share_text(alpha)} of gates.")
    risks = [(value, kernel) for kernel in kernels if (value := finite_number(kernel.get("false_alarms"))) is not None]
    if risks:
        value, kernel = max(risks, key=lambda each: each[0])
        often = f"at most {share_text(value)} of comparisons end SLOWER ({kernel_name(kernel)})" if value else "none ends SLOWER"
        lines.append(f"Among the baseline's own runs, {often}.")
    slowdowns = [(value, kernel) for kernel in kernels if (value := finite_number(kernel.get("detectable"))) is not None]
    if slowdowns:
        low, high = min(slowdowns, key=lambda each: each[0]), max(slowdowns, key=lambda each: each[0])
        ends = share_text(low[0])
        if len(slowdowns) > 1:
            ends += f" to {share_text(high[0])}, largest for {kernel_name(high[1])}"
        lines.append(f"Smallest slowdown that these runs could show: {ends}.")
    unknown = sum(finite_number(kernel.get("detectable")) is None for kernel in kernels)
    if unknown and kernels:
        lines.append(f"Unknown for {unknown} of {len(kernels)} kernels: too few runs to tell what they could show.")
    return lines


def place_text(of: GateDocument) -> str:
    """Return GPU, toolkit, driver and whether it was recorded."""
    place = of.get("environment") or {}
    driver = f"driver {place['driver']}" if place.get("driver") else ""
    return ", ".join(str(part) for part in (place.get("gpu"), place.get("toolkit"), driver, place.get("recorded")) if part)


def _worst_kernel(of: GateDocument) -> str:
    kernel: KernelDocument | None = next(iter(of.get("kernels", ())), None)
    if kernel is None or of.get("verdict") == "PASS":
        return verdict_counts(of)
    by = kernel.get("decided") or {"quantity": "p50", "ratio": kernel.get("ratio_p50"), "ci": None}
    ratio = f" {change_text(by['ratio'])}" if finite_number(by["ratio"]) is not None else ""
    ratio = f" {by['quantity']}{ratio}" if ratio and by["quantity"] != "p50" else ratio
    more = sum(other.get("verdict") == kernel.get("verdict") for other in of.get("kernels", ())) - 1
    return f"{kernel_name(kernel)}{ratio}" + (f" and {more} more" if more > 0 else "")
