"""The document of a gate: what the API answers, what reports are made of, what webhooks carry. All times in µs.

Only `verdict` and `kernels` are sure to be there: the offline command judges files, which have no gate, no suite and no links.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from tuner.gate.stats.runs import shape_text

SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")          # of a git commit, in full


class DecidedDocument(TypedDict):
    """The quantity of a kernel's time that its verdict is of."""

    quantity: str                        # "p50", "p95", "mean"
    ratio: float | None                  # candidate / baseline
    ci: Sequence[float] | None


class KernelDocument(TypedDict, total=False):
    """One kernel: op, shape, config, verdict, ratio_p50, ci, ratio_p95 and reason are always there."""

    id: int
    key: str
    op: str
    shape: Mapping[str, Any]
    config: Mapping[str, Any] | None
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
    more_runs: int
    metrics: Sequence[Mapping[str, Any]]
    clocks: Mapping[str, Any]
    excluded: Sequence[str]
    ci_p95: Sequence[float] | None
    change: str | None                   # of the kernel's median: slower, faster, unchanged, unknown
    baseline: Mapping[str, Any]
    stays: str | None
    confirmed: bool
    environment: Mapping[str, Any] | None
    regression: int | None
    links: Mapping[str, Any]


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
    progress: Mapping[str, Any]
    rule: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]         # rounds that were measured
    jobs: Sequence[int]
    environment: Mapping[str, Any]       # gpu, toolkit, driver, recorded: where it was decided
    code: Mapping[str, str]              # build → commit (or "sha256:…") of code that workers fetched for it
    asked: Mapping[str, Any]
    asked_url: str
    alpha: float | None                  # stated risk of one false SLOWER in the whole suite
    plan: Mapping[str, Any]
    notes: Sequence[str]
    standing: Sequence[Mapping[str, Any]]        # earlier SLOWER verdicts of the build: "says", "stays", "accepted"
    green: str                           # of a build that is SLOWER: what makes it green
    offer: Mapping[str, Any] | None      # what can be measured where there is no baseline; "first": no other build was measured
    error: Mapping[str, Any] | None
    created: str
    finished: str | None
    kernels: Sequence[KernelDocument]
    links: Mapping[str, Any]


def as_text(of: Any) -> str:
    """Return one JSON document; refuses what JSON has no word for (NaN)."""
    return json.dumps(of, indent=2, allow_nan=False) + "\n"


def kernel_name(kernel: KernelDocument) -> str:
    """Return the suite's key, or operator, shape and, where a file holds several, configuration."""
    if kernel.get("key"):
        return str(kernel["key"])
    said = (str(kernel.get("op", "")), shape_text(kernel.get("shape")), shape_text(kernel.get("config")))
    return " ".join(filter(None, said)) or "kernel"


def is_first_of_suite(of: GateDocument) -> bool:
    """Return whether NO DATA is no failure: the build is the first that was measured."""
    return of.get("verdict") == "NO DATA" and bool((of.get("offer") or {}).get("first"))


def subject(of: GateDocument) -> str:
    """Return which build of which suite a gate judged."""
    build, suite = of.get("build") or "", of.get("suite") or ""
    build = build[:12] if SHA.fullmatch(build) else build
    return f"{build} of {suite}" if build and suite else build or suite or "candidate"
