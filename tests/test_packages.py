"""The five packages: each has a page that a newcomer reads in a minute, whose example runs, and imports what that page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_layers import CORE, OURS, ROOT, all_imports, lines, matches, modules

# package -> what it may import of Ridgepoint
PACKAGES = {
    "profiles.ingest": (),
    "profiles.analysis": ("profiles.base", "profiles.ingest"),
    "tuner.tuning": ("profiles.base", "profiles.ingest", "profiles.analysis", "profiles.capture.tools"),
    "tuner.gate.stats": (),
    "workers.agent": (),
}
MOST_LINES = 30
CODE = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def page(package: str) -> Path:
    return ROOT / package.replace(".", "/") / "README.md"


def within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in packages)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_page_is_short_and_says_what_may_be_imported(package: str) -> None:
    text = page(package).read_text()
    assert len(text.splitlines()) <= MOST_LINES
    may = text.partition("May import: ")[2].partition("Tests")[0]
    named = {each for each in re.findall(r"`([\w.]+)`", may) if "." in each}
    assert named == set(PACKAGES[package]) and ("nothing of Ridgepoint" in may) is not bool(PACKAGES[package])
    for folder in re.findall(r"(tests/[\w/]+)", text.partition("Tests")[2]):
        assert (ROOT / folder).is_dir(), folder


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_nothing_else_of_ours(package: str) -> None:
    """Nor a framework: `test_the_core_knows_no_framework` asks all of CORE."""
    assert all(matches(module, CORE) for module, _ in modules() if within(module, (package,)))
    foreign = [each for each in all_imports() if within(each.importer, (package,)) and each.imported.partition(".")[0] in OURS
               and not within(each.imported, (package, *PACKAGES[package]))]
    assert not foreign, lines(foreign)


@pytest.mark.process
def test_the_examples_run_where_nothing_is_set_up() -> None:
    """In one process that has no settings of Django: numpy is imported once."""
    code = "\n".join(example for package in PACKAGES for example in CODE.findall(page(package).read_text()))
    assert code.count("\nprint(") >= len(PACKAGES) - 1
    said = subprocess.run([sys.executable, "-c", f"{code}\nimport sys\nassert 'django' not in sys.modules"], cwd=ROOT,
                          env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert "12 trials; the fastest: {" in said.stdout and "SLOWER" in said.stdout and "482 slices on NVIDIA H200" in said.stdout
