"""A comment for a pull request: the verdict, a short table with the worst first, how sure it is, where the evidence is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tuner.gates.reports import words
from tuner.gates.reports.document import GateDocument, KernelDocument, kernel_name

LIMIT = 60_000                # bytes; GitHub takes 65,536 characters in a comment
SHOWN = 20                    # kernels above the fold
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_ACTIVE = re.compile(r"([\\`*_{}\[\]<>#|~!])")
HEAD = ("| | kernel | baseline | candidate | change (p50) | interval | p95 | runs |",
        "|---|---|--:|--:|--:|--:|--:|--:|")


def text(of: GateDocument, limit: int = LIMIT) -> str:
    """GitHub-flavoured Markdown of at most `limit` bytes; kernels that do not fit are counted."""
    kernels = list(of.get("kernels", ()))
    first = [kernel for kernel in kernels if kernel.get("verdict") != "PASS"][:SHOWN] or kernels[:SHOWN]
    rest = [kernel for kernel in kernels if not any(kernel is each for each in first)]
    top = [f"### {mark(of)} {plain(words.headline(of))}", ""]
    if of.get("reason"):
        top += [plain(of["reason"]), ""]
    if of.get("error"):
        top += [f"**{plain((of['error'] or {}).get('what', ''))}** {plain((of['error'] or {}).get('hint', ''))}", ""]
    bottom = _bottom(of)
    room = limit - _size(top) - _size(bottom) - 400        # 400: heads of tables, the fold, and how many are left out
    rows, room = _fitting(map(_row, first), room)
    reasons, room = _fitting(_reasons(first[:len(rows)], str(of.get("reason", ""))), room)
    folded, _ = _fitting(map(_row, rest), room)
    lines = [*top, *((*HEAD, *rows, "") if rows else ()), *((*reasons, "") if reasons else ())]
    if folded:
        lines += [f"<details><summary>{_kernels(len(folded))} more</summary>", "", *HEAD, *folded, "", "</details>", ""]
    left = len(kernels) - len(rows) - len(folded)
    if left:
        lines += [f"{_kernels(left)} more on the gate's page.", ""]
    return "\n".join([*lines, *bottom]).rstrip() + "\n"


def mark(of: GateDocument) -> str:
    return {"SLOWER": "❌", "PASS": "✅", "FASTER": "✅", "AMBIGUOUS": "⚠️", "NO DATA": "⚠️"}.get(of.get("verdict", ""), "⏳")


def plain(value: Any) -> str:
    """Words of others as text: no markup, no mention of a person, one line."""
    one_line = _CONTROL.sub(" ", str(value)).strip()
    return _ACTIVE.sub(r"\\\1", one_line).replace("@", "@\u200b").replace("://", ":\u200b//").replace("www.", "www\u200b.")


def code(value: Any) -> str:
    """A name, word for word; a backtick would end it."""
    return "`" + (_CONTROL.sub(" ", str(value)).replace("`", "'").strip() or words.UNKNOWN) + "`"


def link(label: str, address: Any) -> str:
    """A link of our own making; a path stands as text, where nobody said under which address this server is reached."""
    address = str(address or "")
    if not re.fullmatch(r"https?://[^\s<>()\[\]|`\\]+", address):
        return f"{label}: {code(address)}" if address else ""
    return f"[{label}]({address})"


def _row(kernel: KernelDocument) -> str:
    verdict = str(kernel.get("verdict", ""))
    p95 = words.change(kernel.get("ratio_p95"))
    runs = " / ".join(str(kernel[side]) if kernel.get(side) is not None else words.UNKNOWN
                      for side in ("baseline_runs", "candidate_runs"))
    name = code(kernel_name(kernel)[:300]).replace("|", "\\|")      # a bar ends a table's cell even in code
    page = (kernel.get("links") or {}).get("page")
    name = f"[{name}]({page})" if page and link("", page).startswith("[") else name
    return (f"| {words.MARK.get(verdict, '')} {verdict} | {name} | {words.time_us(kernel.get('baseline_us'))} "
            f"| {words.time_us(kernel.get('candidate_us'))} | {words.change(kernel.get('ratio_p50'))} "
            f"| {words.interval(kernel.get('ci'))} | {p95} | {runs} |")


def _reasons(kernels: Sequence[KernelDocument], said: str) -> list[str]:
    """Why, kernel by kernel; what the gate's own reason says already is not said again."""
    lines = []
    for kernel in kernels:
        if kernel.get("reason") and kernel.get("verdict") != "PASS" and str(kernel["reason"]) not in said:
            lines.append(f"- {code(kernel_name(kernel)[:300])}: {plain(kernel['reason'])[:600]}")
        lines += [f"  - {code(metric.get('metric', ''))}: {plain(metric.get('reason', ''))[:300]}"
                  for metric in kernel.get("metrics") or () if metric.get("verdict") not in (None, "", "PASS")]
    return lines


def _bottom(of: GateDocument) -> list[str]:
    lines = [f"<sub>{plain(line)}</sub>  " for line in (words.where(of), *words.rates(of)) if line]
    links = of.get("links") or {}
    reports = links.get("report") or {}
    found = [link("Evidence: samples, clocks and counters of both builds", links.get("page")),
             link("compare the builds", links.get("compare")),
             link("JUnit", reports.get("junit")), link("JSON", reports.get("json"))]
    found = [each for each in found if each]
    return [*lines, *(["", " · ".join(found)] if found else [])]


def _fitting(lines: Any, room: int) -> tuple[list[str], int]:
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
