"""A comment for a pull request: the verdict, a short table with the worst first, how sure it is, where the evidence is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.gate.reports import words
from tuner.gate.reports.words import EvidenceDocument, GateDocument, KernelDocument, kernel_name
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
    rest = [kernel for kernel in kernels if not any(kernel is other for other in first)]
    top = [f"### {mark(of)} {escape(words.headline(of))}", ""]
    if of.get("reason"):
        top += [escape(of["reason"]), ""]
    if error := of.get("error"):
        top += [f"**{escape(error.get('what', ''))}** {escape(error.get('hint', ''))}", ""]
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
    page = words.page_of(kernel)
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
    sentences = [str(entry.get("says", "")) for entry in of.get("standing") or () if entry.get("says")]
    lines = [line for line in (*sentences[:SHOWN], *(of.get("notes") or ())[:SHOWN], of.get("green") or "") if line]
    shown = [line for line in lines if line not in str(of.get("reason", ""))]
    return [*(f"- {escape(line)[:1000]}" for line in shown), ""] if shown else []


def _footer(of: GateDocument) -> list[str]:
    lines = [f"<sub>{escape(line)}</sub>  " for line in (words.place_text(of), *words.error_rates(of)) if line]
    links: EvidenceDocument = of.get("links") or {"page": ""}
    reports: Mapping[str, str] = links.get("report") or {}
    texts = [link("Evidence: samples, clocks and counters of both builds", links.get("page")),
             link("compare the builds", links.get("compare")),
             link("JUnit", reports.get("junit")), link("JSON", reports.get("json"))]
    texts = [text for text in texts if text]
    return [*lines, *(["", " · ".join(texts)] if texts else [])]


def _take_fitting(lines: Any, room: int) -> tuple[list[str], int]:
    """Lines from the start while they fit, and the bytes that are left."""
    head = []
    for line in lines:
        size = len(line.encode()) + 1
        if size > room:
            break
        head.append(line)
        room -= size
    return head, room


def _kernels(n: int) -> str:
    return f"{n:,} kernel" + ("s" if n != 1 else "")


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)
