"""Folders of builds' code on this worker: an owner names a pattern, as "/builds/{build}"."""

from __future__ import annotations

import re
from pathlib import Path

from workers.core.child import SandboxError

PLACE = "{build}"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")


def build_folder(pattern: str, build: str) -> Path | None:
    """Return the folder of a build; None where the suite measures none. Raises SandboxError."""
    if not pattern:
        return None
    root, place, rest = pattern.partition(PLACE)
    if not place or not root.startswith("/"):
        raise SandboxError(f"the suite's folder of builds {pattern!r} is no absolute path with {PLACE} in it",
                           "An owner changes it: /srv/builds/{build}")
    if not _NAME.fullmatch(build) or ".." in build:
        raise SandboxError(f"build {build!r} cannot be a folder's name", "Letters, digits and . _ + - name a folder of builds.")
    path = (Path(root) / f"{build}{rest}") if root.endswith("/") else Path(f"{root}{build}{rest}")
    inside = Path(root).resolve() if root.endswith("/") else Path(root).parent.resolve()
    real = path.resolve()
    if not real.is_dir():
        raise SandboxError(f"this worker has no folder {path}", "Put the build's code there, then measure it again.")
    if not real.is_relative_to(inside) or real == inside:
        raise SandboxError(f"{path} leads out of {inside}", "A link may not lead out of the folder of builds.")
    return real
