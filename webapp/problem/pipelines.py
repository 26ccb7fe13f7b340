"""The CI files of docs/gate-ci.md, finished: this server's address and this suite in place of the examples'."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from webapp.frame.documents import FOLDER

SYSTEMS = {"GitHub Actions": ".github/workflows/kernels.yml", "GitLab": ".gitlab-ci.yml", "Jenkins": "Jenkinsfile",
           "Buildkite": ".buildkite/pipeline.yml"}


@dataclass(frozen=True)
class Pipeline:
    """A file for one CI system, and where it belongs in a repository."""

    system: str
    path: str
    text: str


@cache
def _blocks() -> dict[str, str]:
    """Return the first code block below each system's heading."""
    found = {}
    for section in (FOLDER / "gate-ci.md").read_text().split("\n## ")[1:]:
        block = re.search(r"^```\w+\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        if (system := section.partition("\n")[0]) in SYSTEMS and block:
            found[system] = block[1]
    return found


def pipelines(server: str, suite: str) -> list[Pipeline]:
    """Return a file for each system; `server` as "https://host"."""
    def finished(text: str) -> str:
        return text.replace("https://guard.example", server).replace("--suite serving", f"--suite {suite}")

    return [Pipeline(system, path, finished(_blocks()[system])) for system, path in SYSTEMS.items()]
