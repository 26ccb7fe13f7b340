"""A child that answers over two pipes from behind the walls of `sandboxed`: for code of others that is asked again and again.

A fork of the worker's warm parent for such children (warm_walled), or a new process: the walls are the same.

What it sends is read like an upload by who asks; here it is kept within its bounds of memory, and it ends with its asker.

Triton needs a C compiler for a launch (its launcher is compiled on the host): how it is seen behind the walls.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.core import sandboxed, warm
from workers.core.child import Child, ChildDied, SandboxError
from workers.core.sandbox_inside import NO_WALLS, SYSTEM

WATCH_S = 0.3               # a session has a dozen of such children
OUTSIDE = "0"               # the parent of the first process of a process namespace, as that sees it


@dataclass(frozen=True)
class Walls:
    """What the child sees beside the system's programs and this Python, and its bounds (`sandboxed.run` has the words).

    write    folders that it may write to, which the children of one session share
    environ  variables of every child, before those of one
    """

    read: Sequence[Path] = ()
    write: Sequence[Path] = ()
    devices: Sequence[Path] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    bounds: sandboxed.Bounds = field(default_factory=sandboxed.Bounds)

    def spawn(self, module: str, environ: Mapping[str, str]) -> WalledChild:
        """Start `python -m module` behind them."""
        return WalledChild(module, environ, self)

    def without_gpu(self) -> Walls:
        """Return the same walls without the nodes of a GPU."""
        return Walls(self.read, self.write, (), self.environ, self.bounds)


class WalledChild(Child):
    """See Child. Where the host allows no walls it is not started, unless its owner lets files run with limits alone."""

    def __init__(self, module: str, environ: Mapping[str, str], walls: Walls) -> None:
        self._walls = walls
        self.over = ""                                  # the bound that it was ended for
        self._ended = threading.Event()
        self._root = Path(tempfile.mkdtemp(prefix="ridgepoint-sandbox-"))
        try:
            super().__init__(module, environ)
        except BaseException:
            shutil.rmtree(self._root, ignore_errors=True)
            raise
        self._watcher = threading.Thread(target=self._watch, name="bounds", daemon=True)
        self._watcher.start()

    def _start(self, module: str, environ: Mapping[str, str], to_child: int, from_child: int
               ) -> subprocess.Popen[bytes] | warm.ForkedProcess:
        why = sandboxed.why_not()
        if why and not sandboxed.may_go_without():
            raise SandboxError(f"not run: {why}", "allow user namespaces on the worker's host, or read docs/bring.md: The sandbox")
        spec = sandboxed.spec_of(
            [sys.executable, "-m", module, str(to_child), str(from_child), str(os.getpid()) if why else OUTSIDE], self._root,
            read=self._walls.read, write=self._walls.write, devices=self._walls.devices, walls=not why,
            environ={**self._walls.environ, **environ}, bounds=self._walls.bounds)
        forked = None if why else warm.fork(module, spec["env"], to_child, from_child, self._output.fileno(), walls=spec)
        if forked is not None:
            return forked
        process: subprocess.Popen[bytes] = warm.spawner(os.getpid()).submit(
            subprocess.Popen, [sys.executable, "-I", "-S", str(sandboxed.INSIDE), json.dumps(spec)], cwd="/", env={},
            stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT, pass_fds=(to_child, from_child),
            start_new_session=True).result()
        return process

    def ask(self, message: dict[str, Any], limit_s: float, stop: threading.Event) -> dict[str, Any]:
        """See Child.ask. Raises ChildDied for what is no answer, too."""
        try:
            answer = super().ask(message, limit_s, stop)
        except RecursionError as error:
            raise ChildDied(f"sent a message without end; {self.kill()}") from error
        except ChildDied as died:
            raise ChildDied(f"was ended: {self.over}" if self.over else str(died)) from died
        if self.process.poll() == NO_WALLS:
            raise ChildDied(f"was not started: {self.kill()}")
        return answer

    def _watch(self) -> None:
        """End it where it takes more than it may, all of its processes together."""
        bounds = self._walls.bounds
        while not self._ended.wait(WATCH_S) and self.process.poll() is None:
            if sandboxed.uses_more(self.process.pid, bounds.memory_mb << 20):
                self.over = f"it needs more memory than {bounds.memory_mb:,} MiB"
            elif sandboxed.available_bytes() < sandboxed.LEFT_MB << 20:
                self.over = "the machine has too little memory left"
            elif (size := sum(map(sandboxed.folder_bytes, self._walls.write))) > bounds.room_mb << 20:
                self.over = f"it wrote {size >> 20:,} MiB; at most {bounds.room_mb:,}"
            if self.over:
                self._end_group()
                return

    def close(self) -> None:
        """End it, and all that it started."""
        self._ended.set()
        self._watcher.join()
        super().close()
        shutil.rmtree(self._root, ignore_errors=True)


NAMES = ("gcc", "clang")            # in Triton's order (triton.runtime.build)


@dataclass(frozen=True)
class CCompiler:
    """`environ` and `read` for `sandboxed.run`; both empty where the system's own compiler is found there anyway, or none is."""

    environ: Mapping[str, str]
    read: tuple[Path, ...]


def find(environ: Mapping[str, str] = os.environ) -> CCompiler:
    """Return the compiler that $CC names, or the first of NAMES on $PATH.

    Of one that lies outside of the system's folders its own folder is shown too, that above `bin`; one that lies in a home folder's
    own `bin`, or right below the root, is not: more than a compiler would be shown.
    """
    named = environ.get("CC", "").split()               # "ccache gcc" and flags are not Triton's way: it starts one file
    location = next((path for name in (named[:1] or NAMES) if (path := shutil.which(name, path=environ.get("PATH")))), None)
    if location is None:
        return CCompiler({}, ())
    program = Path(location).absolute()
    folders = tuple(dict.fromkeys(_folder(place) for place in (program, program.resolve()) if not _is_system(place)))
    if any(folder in (Path("/"), Path.home()) or folder in Path.home().parents for folder in folders):
        return CCompiler({}, ())
    return CCompiler({"CC": str(program)}, folders)


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in SYSTEM)


def _folder(path: Path) -> Path:
    return path.parent.parent if path.parent.name == "bin" else path.parent
