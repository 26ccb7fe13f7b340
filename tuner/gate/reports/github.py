"""The body of GitHub's `POST /repos/{owner}/{repo}/check-runs` (REST API, "Create a check run"). Ridgepoint does not send it:
a pipeline does, with the token that it has anyway.

AMBIGUOUS is neutral by default: GitHub lets a required check that is neutral pass. `undecided="action_required"` makes it wait.
"""

from __future__ import annotations

import re
from typing import Any

from tuner.gate.reports import markdown, words
from tuner.gate.reports.words import SHA, GateDocument, is_first_of_suite, kernel_name

CONCLUSION = {"PASS": "success", "FASTER": "success", "SLOWER": "failure", "AMBIGUOUS": "neutral", "NO DATA": "action_required"}
UNDECIDED = ("neutral", "action_required", "failure")
LEVEL = {"SLOWER": "failure", "AMBIGUOUS": "warning", "NO DATA": "warning"}
SUMMARY_LIMIT = 65_535        # characters; counted in bytes here, which is never more lenient
ANNOTATIONS = 50              # of one request


def check_run(of: GateDocument, head_sha: str = "", undecided: str = "neutral",
            path: str = ".github") -> dict[str, Any]:
    """`head_sha`: of the commit; without one the build, where that is called by its sha. `path`: the file that annotations are
    put beside, for example the suite's definition; kernels have no line of code that is known."""
    sha = (head_sha or of.get("build", "")).lower()
    body: dict[str, Any] = {
        "name": f"Ridgepoint: {of.get('suite', 'kernels')}"[:100], "head_sha": sha if SHA.fullmatch(sha) else head_sha,
        **_state(of, undecided),
        "output": {"title": words.headline(of)[:255], "summary": markdown.comment(of, SUMMARY_LIMIT),
                   "annotations": _annotations(of, path)}}
    page = words.page_of(of)
    if page.startswith(("http://", "https://")):
        body["details_url"] = page
    if of.get("id"):
        body["external_id"] = f"gate-{of['id']}"
    if of.get("created"):
        body["started_at"] = _second(of["created"])
    return body


def _state(of: GateDocument, undecided: str) -> dict[str, Any]:
    status, verdict = of.get("status", "done"), of.get("verdict", "")
    if not verdict and status not in ("stopped", "failed"):
        return {"status": "in_progress" if status == "measuring" else "queued"}
    conclusion = CONCLUSION.get(verdict, "neutral" if status == "stopped" else "action_required")
    if is_first_of_suite(of):
        conclusion = "success"
    state = {"status": "completed", "conclusion": undecided if conclusion == "neutral" else conclusion}
    return {**state, "completed_at": _second(str(of["finished"]))} if of.get("finished") else state


def _annotations(of: GateDocument, path: str) -> list[dict[str, Any]]:
    if is_first_of_suite(of):
        return []
    return [{"path": path, "start_line": 1, "end_line": 1, "annotation_level": LEVEL[str(kernel["verdict"])],
             "title": f"{kernel['verdict']}: {kernel_name(kernel)}"[:255],
             "message": str(kernel.get("reason") or kernel["verdict"])[:4000]}
            for kernel in of.get("kernels", ()) if kernel.get("verdict") in LEVEL][:ANNOTATIONS]


def _second(stamp: str) -> str:
    """GitHub's form: 2026-11-22T00:25:00Z."""
    return re.sub(r"(\.\d+)?(\+00:00|Z)?\Z", "Z", stamp, count=1)
