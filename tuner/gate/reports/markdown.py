"""A comment for a pull request: the verdict, a short table with the worst first, how sure it is, where the evidence is.
And a check run of GitHub that holds it.

The body of GitHub's `POST /repos/{owner}/{repo}/check-runs` (REST API, "Create a check run"). Ridgepoint does not send it:
a pipeline does, with the token that it has anyway.

AMBIGUOUS is neutral by default: GitHub lets a required check that is neutral pass. `undecided="action_required"` makes it wait.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tuner.gate.reports import words
from tuner.gate.reports.words import SHA, GateDocument, KernelDocument, is_first_of_suite, kernel_name
from tuner.gate.stats.rule import SIGN

LIMIT = 60_000                # bytes; GitHub takes 65,536 characters in a comment
SHOWN = 20                    # kernels above the fold
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_ACTIVE = re.compile(r"([\\`*_{}\[\]<>#|~!])")
HEAD = ("| | kernel | baseline | candidate | change (p50) | interval | p95 | runs |",
        "|---|---|--:|--:|--:|--:|--:|--:|")


def comment(of: GateDocument, limit: int = LIMIT) -> str:
    """Return GitHub-flavoured Markdown of at most `limit` bytes; kernels that do not fit are counted."""
    kernels = list(of.get("kernels", ()))
    first = [kernel for kernel in kernels if kernel.get("verdict") != "PASS"][:SHOWN] or kernels[:SHOWN]
    rest = [kernel for kernel in kernels if not any(kernel is each for each in first)]
    top = [f"### {mark(of)} {escape(words.headline(of))}", ""]
    if of.get("reason"):
        top += [escape(of["reason"]), ""]
    if of.get("error"):
        top += [f"**{escape((of['error'] or {}).get('what', ''))}** {escape((of['error'] or {}).get('hint', ''))}", ""]
    top += _earlier(of)
    bottom = _footer(of)
    room = limit - _size(top) - _size(bottom) - 400        # 400: heads of tables, the fold, and how many are left out
    rows, room = _take_fitting(map(_row, first), room)
    reasons, room = _take_fitting(_reasons(first[:len(rows)], str(of.get("reason", ""))), room)
    folded, _ = _take_fitting(map(_row, rest), room)
    lines = [*top, *((*HEAD, *rows, "") if rows else ()), *((*reasons, "") if reasons else ())]
    if folded:
        lines += [f"<details><summary>{_kernels(len(folded))} more</summary>", "", *HEAD, *folded, "", "</details>", ""]
    left = len(kernels) - len(rows) - len(folded)
    if left:
        lines += [f"{_kernels(left)} more on the gate's page.", ""]
    return "\n".join([*lines, *bottom]).rstrip() + "\n"


def mark(of: GateDocument) -> str:
    return {"SLOWER": "❌", "PASS": "✅", "FASTER": "✅", "AMBIGUOUS": "⚠️", "NO DATA": "⚠️"}.get(of.get("verdict", ""), "⏳")


def escape(value: Any) -> str:
    """Return words of others as text: no markup, no mention of a person, one line."""
    one_line = _CONTROL.sub(" ", str(value)).strip()
    return _ACTIVE.sub(r"\\\1", one_line).replace("@", "@\u200b").replace("://", ":\u200b//").replace("www.", "www\u200b.")


def code(value: Any) -> str:
    """Return a name as code, word for word; a backtick would end it."""
    return "`" + (_CONTROL.sub(" ", str(value)).replace("`", "'").strip() or words.UNKNOWN) + "`"


def link(label: str, address: Any) -> str:
    """Return a link of our own making; a path stands as text where the server's address is not known."""
    address = str(address or "")
    if not re.fullmatch(r"https?://[^\s<>()\[\]|`\\]+", address):
        return f"{label}: {code(address)}" if address else ""
    return f"[{label}]({address})"


def _row(kernel: KernelDocument) -> str:
    verdict = str(kernel.get("verdict", ""))
    p95 = words.change_text(kernel.get("ratio_p95"))
    runs = " / ".join(str(kernel[side]) if kernel.get(side) is not None else words.UNKNOWN
                      for side in ("baseline_runs", "candidate_runs"))
    name = code(kernel_name(kernel)[:300]).replace("|", "\\|")      # a bar ends a table's cell even in code
    page = (kernel.get("links") or {}).get("page")
    name = f"[{name}]({page})" if page and link("", page).startswith("[") else name
    return (f"| {SIGN.get(verdict, '')} {verdict} | {name} | {words.time_text(kernel.get('baseline_us'))} "
            f"| {words.time_text(kernel.get('candidate_us'))} | {words.change_text(kernel.get('ratio_p50'))} "
            f"| {words.interval_text(kernel.get('ci'))} | {p95} | {runs} |")


def _reasons(kernels: Sequence[KernelDocument], said: str) -> list[str]:
    """Why, kernel by kernel; what the gate's own reason says already is not said again."""
    lines = []
    for kernel in kernels:
        if kernel.get("reason") and kernel.get("verdict") != "PASS" and str(kernel["reason"]) not in said:
            lines.append(f"- {code(kernel_name(kernel)[:300])}: {escape(kernel['reason'])[:600]}")
        lines += [f"  - {code(metric.get('metric', ''))}: {escape(metric.get('reason', ''))[:300]}"
                  for metric in kernel.get("metrics") or () if metric.get("verdict") not in (None, "", "PASS")]
    return lines


def _earlier(of: GateDocument) -> list[str]:
    """Earlier verdicts of the build, who accepted what, and what makes it green."""
    said = [str(each.get("says", "")) for each in of.get("standing") or () if each.get("says")]
    lines = [line for line in (*said[:SHOWN], *(of.get("notes") or ())[:SHOWN], of.get("green") or "") if line]
    shown = [line for line in lines if line not in str(of.get("reason", ""))]
    return [*(f"- {escape(line)[:1000]}" for line in shown), ""] if shown else []


def _footer(of: GateDocument) -> list[str]:
    lines = [f"<sub>{escape(line)}</sub>  " for line in (words.place_text(of), *words.error_rates(of)) if line]
    links = of.get("links") or {}
    reports = links.get("report") or {}
    found = [link("Evidence: samples, clocks and counters of both builds", links.get("page")),
             link("compare the builds", links.get("compare")),
             link("JUnit", reports.get("junit")), link("JSON", reports.get("json"))]
    found = [each for each in found if each]
    return [*lines, *(["", " · ".join(found)] if found else [])]


def _take_fitting(lines: Any, room: int) -> tuple[list[str], int]:
    """Lines from the start while they fit, and the bytes that are left."""
    taken = []
    for line in lines:
        size = len(line.encode()) + 1
        if size > room:
            break
        taken.append(line)
        room -= size
    return taken, room


def _kernels(n: int) -> str:
    return f"{n:,} kernel" + ("s" if n != 1 else "")


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


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
        "output": {"title": words.headline(of)[:255], "summary": comment(of, SUMMARY_LIMIT),
                   "annotations": _annotations(of, path)}}
    page = str((of.get("links") or {}).get("page") or "")
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
