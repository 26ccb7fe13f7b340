"""What of requirements.lock an install takes, as pip reads it: `python webapp/supply/pins.py WHAT [EXTRA…]` prints it.

    pip          pip itself, of the version that takes hashes of constraints
    roots        what pyproject.toml asks for, with the extras named: exact versions and hashes; requirements.lock as constraints
                 gives those of all that they need
    unpinned     the extras alone as pyproject.toml writes them (torch: its builds differ between machines)
    versions     all versions without hashes, as constraints of `unpinned`
    inputs       what requirements.lock is made from (make lock)

Needs the standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
UNLOCKED = ("torch", "triton")                  # and what no install of ours has: the environments of bench
LOCKED_EXTRAS = ("test", "clickhouse", "check", "gpu", "cuda")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?")


class Pin(NamedTuple):
    """`marker` as in the file, "" for none; `hashes` as sha256:<hex> of every file of that version."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    def line(self, extras: str = "") -> str:
        marker = f" ; {self.marker}" if self.marker else ""
        return f"{self.name}{extras}=={self.version}{marker}" + "".join(f" --hash={digest}" for digest in self.hashes)


class NotLocked(Exception):
    """requirements.lock does not name what pyproject.toml asks for."""


def read_lock(path: Path) -> dict[str, list[Pin]]:
    """Return the pins by normalized name; several where the version depends on a marker."""
    pins: dict[str, list[Pin]] = {}
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            spec, *hashes = line.split("--hash=")
            requirement, _, marker = spec.partition(";")
            name, _, version = requirement.partition("==")
            pins.setdefault(normalize(name), []).append(
                Pin(name.strip(), version.strip(), marker.strip(), tuple(digest.strip() for digest in hashes)))
    return pins


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def roots(requirements: Sequence[str], pins: dict[str, list[Pin]]) -> Iterator[str]:
    """Yield the pinned line of each requirement. Raises NotLocked where one has none."""
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        own_pins = pins.get(normalize(match[1])) if match else None
        if match is None or not own_pins:
            raise NotLocked(f"requirements.lock does not name {requirement!r}: make lock writes it anew")
        yield from (pin.line(match[2] or "") for pin in own_pins)


def inputs(project: dict[str, Any]) -> list[str]:
    """Return what requirements.lock is resolved from: pip, what is needed, and the extras that are installed beside it."""
    extras = [requirement for extra in LOCKED_EXTRAS for requirement in project["optional-dependencies"][extra]]
    return ["pip", *project["dependencies"], *(requirement for requirement in extras if not requirement.startswith(UNLOCKED))]


def main(what: str, extras: Sequence[str]) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if what == "inputs":
        return inputs(project)
    requirements = [requirement for extra in extras for requirement in project["optional-dependencies"][extra]]
    if what == "unpinned":
        return requirements
    pins = read_lock(ROOT / "requirements.lock")
    if what == "versions":
        return [pin._replace(hashes=()).line() for versions in pins.values() for pin in versions]
    if what == "pip":
        return list(roots(["pip"], pins))
    if what == "roots":
        return list(roots([*project["dependencies"], *requirements], pins))
    raise SystemExit(__doc__)


if __name__ == "__main__":
    try:
        sys.stdout.write("\n".join(main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:])) + "\n")
    except NotLocked as error:
        sys.exit(str(error))
