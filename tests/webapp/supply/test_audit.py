"""`make audit` succeeds only where every locked package was looked up and nothing is known of it; `make check` where nothing is."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.product import PROJECT
from webapp.supply.audit import KNOWN, NOT_AUDITED, report

CLEAN: dict[str, Any] = {"name": "idna", "version": "3.20", "vulns": []}
BAD: dict[str, Any] = {"name": "old", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"], "description": "…"}]}
SKIPPED: dict[str, Any] = {"name": "private", "skip_reason": "not found"}


def test_all_looked_up_and_clean() -> None:
    lines, code = report([CLEAN], ["torch==2.13.0"])
    assert code == 0 and lines == ["not locked, not audited: torch==2.13.0 (audit it where it is installed)",
                                  "1 of 1 packages audited, 0 known vulnerabilities"]


@pytest.mark.parametrize(("dependencies", "line", "wanted"), [
    ([CLEAN, BAD], "old 1: PYSEC-1, fixed in 2", KNOWN), ([CLEAN, SKIPPED], "NOT AUDITED, 1 of 2: private", NOT_AUDITED),
    ([BAD, SKIPPED], "NOT AUDITED, 1 of 2: private", KNOWN), ([], "0 of 0 packages audited", NOT_AUDITED)])
def test_anything_else_is_named_and_is_no_success(dependencies: list[dict[str, Any]], line: str, wanted: int) -> None:
    lines, code = report(dependencies)
    assert code == wanted != 0 and any(each.startswith(line) for each in lines)


@pytest.mark.process
@pytest.mark.skipif(find_spec("pip_audit") is None, reason="pip-audit is not installed (make check installs it)")
def test_without_a_network_nothing_is_green(tmp_path: Path) -> None:
    (tmp_path / "requirements.lock").write_text(f"idna==3.20 --hash=sha256:{'0' * 64}\n")
    code = ("import sys; from pathlib import Path; from webapp.supply.audit import audit; "
            "lines, code = audit(Path(sys.argv[1])); print(*lines, sep='\\n'); sys.exit(code)")
    nowhere = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https")}
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "requirements.lock"], cwd=PROJECT, capture_output=True, text=True,
                          env={**os.environ, **nowhere, "XDG_CACHE_HOME": str(tmp_path)}, timeout=120)
    assert done.returncode == NOT_AUDITED and "NOT AUDITED" in done.stdout, done.stdout + done.stderr
