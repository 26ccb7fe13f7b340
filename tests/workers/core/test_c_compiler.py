"""The C compiler behind walls: found as Triton finds it, started there, and nothing shown beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from workers.core import sandboxed, walled


def place(folder: Path, name: str = "gcc") -> Path:
    """Put a compiler of its own into `folder`: a script that starts the system's."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / name
    program.write_text('#!/bin/sh\nexec /usr/bin/cc "$@"\n')
    program.chmod(0o755)
    return program


def test_the_systems_own_needs_nothing_shown() -> None:
    assert walled.find({"PATH": "/usr/bin:/bin"}).read == ()
    assert walled.find({"PATH": "/nowhere"}) == walled.CCompiler({}, ())


def test_one_elsewhere_is_named_with_its_folder(tmp_path: Path) -> None:
    program = place(tmp_path / "toolchain")
    for environ in ({"CC": str(program), "PATH": "/usr/bin"}, {"PATH": f"{program.parent}:/usr/bin"}):
        found = walled.find(environ)
        assert found.environ == {"CC": str(program)} and found.read == (tmp_path / "toolchain",)
    linked = tmp_path / "cc"
    linked.symlink_to(program)
    assert set(walled.find({"CC": str(linked)}).read) == {tmp_path, tmp_path / "toolchain"}


def test_a_home_folder_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "people" / "ada"
    monkeypatch.setenv("HOME", str(home))
    assert walled.find({"CC": str(place(home))}) == walled.CCompiler({}, ())
    assert walled.find({"CC": str(place(tmp_path / "people"))}) == walled.CCompiler({}, ())
    assert walled.find({"CC": str(place(home / "gcc-14"))}).read == (home / "gcc-14",)


@pytest.mark.skipif(bool(sandboxed.why_not()), reason="no walls on this host")
@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler here")
def test_it_compiles_behind_walls(tmp_path: Path) -> None:
    found = walled.find({"CC": str(place(tmp_path / "toolchain")), "PATH": "/usr/bin"})
    (tmp_path / "secret").write_text("x")
    code = f"""
import os, pathlib, subprocess
pathlib.Path("a.c").write_text("int main(void) {{ return 7; }}")
subprocess.check_call([os.environ["CC"], "a.c", "-o", "a"])
print(subprocess.call(["./a"]), os.path.exists({str(tmp_path / "secret")!r}))
"""
    lines: list[bytes] = []
    ending = sandboxed.run(["/usr/bin/python3", "-c", code], read=found.read, environ=found.environ, on_line=lines.append)
    assert lines == [b"7 False"], ending
