"""`make audit`: known vulnerabilities of what requirements.lock names.

Exit code 0: all of it was looked up, and nothing is known. 1: something is known. 2: advisories could not be read for all of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from webapp.supply.pins import LOCKED_EXTRAS, ROOT, UNLOCKED

WITHIN_S = 600
CLEAN, KNOWN, NOT_AUDITED = 0, 1, 2         # exit codes


def report(dependencies: Sequence[dict[str, Any]], unlocked: Sequence[str] = ()) -> tuple[list[str], int]:
    """Return the lines to print and the exit code.

    `dependencies` as pip-audit's JSON has them: each with `vulns`, or with `skip_reason` where it could not be looked up.
    `unlocked`: requirements without a locked file, which are named and fail nothing.
    """
    skipped = [dependency for dependency in dependencies if "skip_reason" in dependency]
    pairs = [(dependency, vulnerability) for dependency in dependencies for vulnerability in dependency.get("vulns", ())]
    lines = [f"{dependency['name']} {dependency['version']}: {vulnerability['id']}"
             + (f", fixed in {', '.join(vulnerability['fix_versions'])}" if vulnerability["fix_versions"] else "")
             for dependency, vulnerability in pairs]
    if skipped:
        lines.append(f"NOT AUDITED, {len(skipped)} of {len(dependencies)}: {', '.join(each['name'] for each in skipped)}")
        lines.append(f"  reason: {skipped[0]['skip_reason']}")
    lines += [f"not locked, not audited: {name} (audit it where it is installed)" for name in unlocked]
    lines.append(f"{len(dependencies) - len(skipped)} of {len(dependencies)} packages audited, {len(pairs)} known vulnerabilities")
    return lines, KNOWN if pairs else CLEAN if dependencies and not skipped else NOT_AUDITED


def audit(lock: Path) -> tuple[list[str], int]:
    """Ask pip-audit about every package of the lock file; return as `report` does."""
    done = subprocess.run([sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner", "off",
                           "--format", "json", "-r", str(lock)], capture_output=True, text=True, timeout=WITHIN_S)
    try:
        dependencies = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        why = (done.stderr.strip() or "pip-audit said nothing").splitlines()[-1]
        return [f"NOT AUDITED, nothing of {lock.name}: {why}"], NOT_AUDITED
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return report(dependencies, [each for extra in LOCKED_EXTRAS for each in extras[extra] if each.startswith(UNLOCKED)])


if __name__ == "__main__":
    told, code = audit(ROOT / "requirements.lock")
    sys.stdout.write("\n".join(told) + "\n")
    sys.exit(code)
