"""What a webhook carries and a mail says: about a gate, a regression, or nothing but that it works."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tuner.gate.reports import markdown, words
from tuner.gate.reports.words import GateDocument

KERNELS = 20                  # in a message; the page has them all
MAIL_BYTES = 60_000


def gate_message(of: GateDocument) -> dict[str, Any]:
    """Return {"event", "verdict", "subject", "text", "mail", "gate"}.

    `text` is what chat systems show of a webhook's JSON.
    """
    kernels = list(of.get("kernels", ()))
    short = {**of, "kernels": kernels[:KERNELS], "kernels_left_out": max(0, len(kernels) - KERNELS)}
    page = words.page_of(of)
    return {"event": "gate", "verdict": of.get("verdict") or "FAILED", "subject": words.headline(of),
            "text": " ".join(filter(None, (_defuse(words.headline(of) + "."), _defuse(of.get("reason", "")), page))),
            "mail": markdown.comment(of, MAIL_BYTES), "gate": short}


def regression_message(row: Mapping[str, Any], event: str) -> dict[str, Any]:
    """Return the message about a regression.

    `row`: suite, family, kind, build, good, gpu, toolkit, driver, recorded, kernels, ratio, low, high, state, note, page.
    """
    change = _change_text(row)
    sentence = f"{row['family']} of {row['suite']} is slower since {row['build']}: {change}"
    if drift := row.get("kind") == "drift":
        since = row.get("good") or "the oldest build"
        sentence = f"{row['family']} of {row['suite']} drifted from {since} to {row['build']}: {change}"
    subject = sentence if event == "found" else f"{row['family']} of {row['suite']}, slower since {row['build']}: {event}"
    place = {name: str(row.get(name) or "") for name in ("gpu", "toolkit", "driver", "recorded")}
    lines = [sentence + (f"; {row['good']} was not" if row.get("good") and not drift else "") + ".",
             words.place_text({"environment": place}),
             f"Kernels: {', '.join(map(str, list(row.get('kernels') or ())[:KERNELS]))}" if row.get("kernels") else "",
             f"State: {row.get('state', '')}" + (f", {row['note']}" if row.get("note") else ""), str(row.get("page", ""))]
    return _slowdown_message("regression", event, subject, lines, row)


def production_message(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message about a kernel that production found slower.

    `row`: short_name, kernel, gpu_model, from_build, to_build, since, before_us, after_us, ratio, low, high, simulated, page.
    """
    label = "Simulated: " if row.get("simulated") else ""
    subject = (f"{label}{row['short_name']} is slower in production on {row['gpu_model'] or 'unknown GPU'} since {row['since']}: "
               f"{_change_text(row)}")
    same = row["from_build"] == row["to_build"]
    lines = [f"{subject}.", f"Kernel: {row['kernel']}",
             f"Build: {row['to_build']}, unchanged" if same else f"Builds: {row['from_build']} → {row['to_build']}",
             f"A launch: {words.time_text(row.get('before_us'))} → {words.time_text(row.get('after_us'))}",
             f"State: {row.get('state', '')}", str(row.get("page", ""))]
    return _slowdown_message("production", "found", subject, lines, row)


def _change_text(row: Mapping[str, Any]) -> str:
    """"+8.2 % (+7.2 … +9.0 %)"; without the interval where it is not known."""
    ends = words.interval_text([row.get("low"), row.get("high")])
    return words.change_text(row.get("ratio")) + (f" ({ends})" if ends != words.UNKNOWN else "")


def _slowdown_message(kind: str, event: str, subject: str, lines: Iterable[str], row: Mapping[str, Any]) -> dict[str, Any]:
    return {"event": kind, "what": event, "subject": subject, "text": f"{_defuse(subject)}. {row.get('page', '')}".strip(),
            "mail": "\n\n".join(filter(None, lines)), kind: dict(row)}


def trial_message(who: str, page: str) -> dict[str, Any]:
    """Return a message that only shows whether messages arrive."""
    sentence = f"A test of Ridgepoint, asked for by {who}. Verdicts of gates arrive like this."
    return {"event": "test", "subject": "Ridgepoint: a test message", "text": f"{sentence} {page}".strip(),
            "mail": f"{sentence}\n\n{page}".strip()}


def _defuse(said: Any) -> str:
    """Chat systems act on <!channel>, <address|words> and @all in others' words: here they stay words."""
    return re.sub(r"<(?=\S)", "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}", str(said)).replace("@", "@\u200b")
