"""The tools. A tool is an async function of one of these modules and one line in TOOLS.

Its name is the function's, its docstring and its arguments' annotations are what a program reads. It asks the API (`webapp.agents.
caller`), so that role, project and limits are those of the token; one that begins work takes it from the token's budget first
(`webapp.agents.caller`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from webapp.agents.tools import candidates, checks, jobs, kernels, problems, profiles, search


@dataclass(frozen=True)
class AgentTool:
    """`writes`: it changes something, which takes a token of scope "write" and the role; `destroys`: it ends what was begun."""

    run: Callable[..., Awaitable[dict[str, Any]]]
    title: str
    writes: bool = False
    destroys: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__


TOOLS = (
    AgentTool(profiles.list_profiles, "List profiles"),
    AgentTool(kernels.list_worst_kernels, "Rank kernels"),
    AgentTool(kernels.get_family, "Show a kernel family"),
    AgentTool(kernels.get_kernel, "Show a kernel with its evidence"),
    AgentTool(kernels.get_source, "Show a kernel's hot lines"),
    AgentTool(profiles.get_step, "What a step needs"),
    AgentTool(profiles.compare_profiles, "Compare two profiles"),
    AgentTool(problems.list_operators, "List operators"),
    AgentTool(problems.get_operator, "Show an operator's search space"),
    AgentTool(problems.get_problem, "Show a kernel problem"),
    AgentTool(jobs.list_jobs, "List tune jobs"),
    AgentTool(jobs.get_job, "Show a tune job"),
    AgentTool(problems.get_served_config, "Show the served configuration"),
    AgentTool(problems.list_regressions, "List regressions"),
    AgentTool(profiles.list_capture_targets, "List what may be captured"),
    AgentTool(profiles.get_capture, "Show a capture"),
    AgentTool(checks.get_kernel_check, "Show a check of a kernel file"),
    AgentTool(candidates.get_kernel_source, "Show an operator's source"),
    AgentTool(candidates.list_candidates, "List candidates"),
    AgentTool(candidates.get_candidate, "Show a candidate"),
    AgentTool(search.search, "Search by name"),
    AgentTool(search.get_budget, "Show the token's budget"),
    AgentTool(jobs.start_tune_job, "Start a tune job", writes=True),
    AgentTool(jobs.stop_job, "Stop a tune job", writes=True, destroys=True),
    AgentTool(checks.check_kernel, "Check a kernel file", writes=True),
    AgentTool(checks.tune_kernel, "Tune a checked kernel", writes=True),
    AgentTool(candidates.submit_candidate, "Submit a candidate kernel", writes=True),
    AgentTool(candidates.cancel_candidate, "Cancel a candidate", writes=True, destroys=True),
    AgentTool(profiles.start_capture, "Start a capture", writes=True),
    AgentTool(profiles.stop_capture, "Stop a capture", writes=True, destroys=True),
)
