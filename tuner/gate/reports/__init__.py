"""What a pipeline takes away from a gate: one document, and four forms of it. No rows, no Django."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.gate.reports import github, junit, markdown, words


@dataclass(frozen=True)
class Report:
    """One form: `make(document)` answers with its bytes."""

    title: str
    media: str
    ending: str
    make: Callable[[Any], bytes]


REPORTS: dict[str, Report] = {
    "md": Report("Markdown for a pull request", "text/markdown; charset=utf-8", "md", lambda of: markdown.comment(of).encode()),
    "junit": Report("JUnit XML", "application/xml", "xml", junit.junit_xml),
    "json": Report("JSON", "application/json", "json", lambda of: words.as_text(of).encode()),
    "github": Report("GitHub check run", "application/json", "github.json",
                     lambda of: words.as_text(github.check_run(of)).encode()),
}
