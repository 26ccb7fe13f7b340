"""The summary as Markdown. Names and sentences may come from an uploaded file: none of them can leave its cell or line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from profiles.analysis.core.sentences import pct_text, time_text

_UNKNOWN = "—"
_SPECIAL = re.compile(r"([\\|*_\[\]<>#~])")
_SPACE = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")


def markdown(document: dict[str, Any]) -> str:
    """Return the summary as Markdown.

    `document` is `selectors.summary`'s.
    """
    facts = document["profile"]
    parts = [f"# {plain(facts['name'])}", _facts(facts)]
    if document.get("error"):
        return "\n\n".join([*parts, f"**Could not be read**: {sentence(str(document['error'].get('what', '')))}"]) + "\n"
    if "answer" not in document:
        return "\n\n".join([*parts, f"Not ready: {facts['status']}."]) + "\n"
    parts.append(f"**{sentence(document['answer'])}**")
    parts.append(f"Integrity: {plain(document['integrity']['said'])}.")
    if document["integrity"].get("plausibility"):
        parts += ["## Plausibility", _doubts(document["integrity"]["plausibility"])]
    if document["gpus"]:
        parts += ["## Where the time went", _gpus(document["gpus"])]
    if document["analyses"]:
        parts += ["## Analyses", "\n".join(_analysis(analysis) for analysis in document["analyses"])]
    if document["findings"]:
        parts += [f"## Findings ({len(document['findings'])} of {document['findings_in_all']})",
                  "\n".join(f"{number}. {_finding(finding)}" for number, finding in enumerate(document["findings"], 1))]
    if document["kernels"]:
        parts += [f"## Kernels ({len(document['kernels'])} of {document['kernels_in_all']}, most time first)",
                  _kernels(document["kernels"])]
    parts.append("## Links\n\n" + "\n".join(f"- {name}: {url}" for name, url in document["links"].items()))
    return "\n\n".join(parts) + "\n"


def plain(text: str) -> str:
    """Return one line of text in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", _SPACE.sub(" ", text).replace("`", "'"))


def code(text: str) -> str:
    """Return a name as a code span, in a cell too."""
    return f"`{_SPACE.sub(' ', text).replace('`', chr(39)).replace('|', '¦')}`" if text.strip() else _UNKNOWN


def sentence(text: str) -> str:
    """Return a sentence with names in backticks."""
    return "".join(code(piece) if index % 2 else plain(piece) for index, piece in enumerate(text.split("`")) if piece)


def _facts(facts: dict[str, Any]) -> str:
    pairs = [("kind", facts["kind"]), ("format", facts["format"]), ("GPU", facts["gpu"]), ("build", facts["build"]),
             ("model", facts["model"]), ("recorded", facts["recorded"]), ("steps", facts["steps"]),
             ("wall", time_text(facts["wall_ns"]) if facts["wall_ns"] else None),
             ("GPU time", time_text(facts["gpu_time_ns"]) if facts["gpu_time_ns"] else None),
             ("launches", f"{facts['launches']:,}" if facts["launches"] is not None else None)]
    return " · ".join(f"{name}: {plain(str(value))}" for name, value in pairs if value not in (None, ""))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first column is text, the others numbers."""
    lines = [list(columns), [":--", *["--:"] * (len(columns) - 1)], *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _gpus(gpus: Sequence[dict[str, Any]]) -> str:
    parts = ("compute", "communication", "memory", "idle")
    return table(["GPU", "wall", *parts], [
        [plain(f"{gpu['label']} {gpu['name']}".strip()), time_text(gpu["wall_ns"]),
         *(f"{time_text(gpu[f'{part}_ns'])} ({pct_text(100 * gpu[f'{part}_ns'] / gpu['wall_ns'])})" if gpu["wall_ns"] else _UNKNOWN
           for part in parts)] for gpu in gpus])


def _doubts(doubts: Sequence[dict[str, Any]]) -> str:
    return table(["in doubt", "count", "of", "first", "last"], [
        [plain(doubt["label"]), f"{doubt['count']:,}", f"{doubt['of']:,}" if doubt["of"] is not None else _UNKNOWN,
         *(time_text(doubt[name]) if doubt[name] is not None else _UNKNOWN for name in ("first_ns", "last_ns"))]
        for doubt in doubts])


def _analysis(analysis: dict[str, Any]) -> str:
    answer = sentence(analysis["answer"]) if analysis["answer"] else "a worker makes it."
    return f"- **{plain(analysis['title'])}**: {answer} ({analysis['page']})"


def _finding(finding: dict[str, Any]) -> str:
    worth = f" Worth up to {time_text(finding['worth_ns'])}." if finding["worth_ns"] else ""
    alike = f" ({finding['alike']} more of this kind.)" if finding["alike"] else ""
    actions = "".join(f" [{name}]({url})" for name, url in finding["actions"].items())
    return f"**{finding['severity']}**: {sentence(finding['title'])}.{worth}{alike} {sentence(finding['advice'])}{actions}"


def _kernels(kernels: Sequence[dict[str, Any]]) -> str:
    return table(["kernel", "share", "launches", "total", "mean", "p95", "bound"], [
        [code(kernel["short_name"]), pct_text(kernel["share_pct"]) if kernel["share_pct"] is not None else _UNKNOWN,
         f"{kernel['launches']:,}", time_text(kernel["total_ns"]) if kernel["total_ns"] is not None else _UNKNOWN,
         time_text(kernel["mean_ns"]) if kernel["mean_ns"] is not None else _UNKNOWN,
         time_text(kernel["p95_ns"]) if kernel["p95_ns"] is not None else _UNKNOWN, kernel["bound"] or _UNKNOWN]
        for kernel in kernels])
