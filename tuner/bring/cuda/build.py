"""The host's part of a file compiled by the C++ compiler of this machine, within a bound of time and memory."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from profiles.base.refused import Refused
from tuner.bring.cuda.host_edits import TORCH
from tuner.bring.cuda.host_text import HostPart
from tuner.tuning.cuda import nvrtc

HEADERS = Path(__file__).with_name("include")
BUILD_S = 240.0                 # torch's headers alone take 15 to 60 s, by the machine
COMPILERS = ("g++", "c++", "clang++")
MOST_SAID = 600
_ERROR = re.compile(r"^(?P<file>[^\n:]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<what>.*)$", re.MULTILINE)
KEPT = "RIDGEPOINT_HOST_HEADERS"        # of a folder where torch's headers may be kept compiled, for many files one after another


def find_compiler() -> str:
    """Return the C++ compiler: CXX, else g++, c++, clang++. Raises Refused where there is none."""
    for name in (os.environ.get("CXX", ""), *COMPILERS):
        if name and (path := shutil.which(name)):
            return path
    raise Refused("a call of a host function needs a C++ compiler (g++), which this machine has not: give no call, or install one")


def build(part: HostPart, folder: Path, name: str, stem: str = "host") -> Path:
    """Return the library made of a host part, in a folder; without variants where it does not compile with them.

    Raises Refused with the compiler's first errors.
    """
    try:
        return _build(part, part.text, folder, name, stem)
    except Refused:
        if not part.plain:
            raise
    return _build(part, part.plain, folder, name, f"{stem}_plain")


def _build(part: HostPart, text: str, folder: Path, name: str, stem: str) -> Path:
    compiler = find_compiler()
    source, library = folder / f"{stem}.cpp", folder / f"{stem}.so"
    source.write_text(text, encoding="utf-8", errors="replace")
    kept = _kept_headers(compiler) if part.uses_torch else []
    command = [compiler, *_flags(part.uses_torch), *kept, "-shared", "-o", str(library), str(source), *_libraries(part.uses_torch)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=BUILD_S, cwd=folder)
    except subprocess.TimeoutExpired as error:
        raise Refused(f"the host's part was not compiled within {BUILD_S:.0f} s") from error
    if done.returncode:
        raise Refused(say_errors(done.stderr.decode(errors="replace"), name, part.left_out))
    return library


def say_errors(told: str, name: str, left_out: Sequence[str]) -> str:
    """Return the first errors of the file's own lines, else the first ones."""
    errors = [(Path(match["file"]).name, match["line"], match["what"]) for match in _ERROR.finditer(told)]
    own = [each for each in errors if each[0] == name] or errors
    said = "; ".join(f"{'' if file == name else f'{file} '}line {line}: {what}" for file, line, what in own[:3])
    hint = f" (left out: {', '.join(left_out[:6])})" if left_out else ""
    if missing := re.search(r"[‘']([A-Z]\w*)[’'] was not declared", said):
        hint += f" (a macro that the build gives: --shape {missing[1]}=NUMBER)"
    return f"the host's part does not compile: {said or told.strip()[-MOST_SAID:]}{hint}"[:2 * MOST_SAID]


def _flags(uses_torch: bool) -> list[str]:
    folders = [HEADERS, Path(sysconfig.get_paths()["include"]), *map(Path, nvrtc.include_folders())]
    if uses_torch:
        include = _torch_folder() / "include"
        folders += [include, include / "torch" / "csrc" / "api" / "include"]
    return ["-std=gnu++20" if uses_torch else "-std=gnu++17", "-O0", "-fPIC", "-w", "-fpermissive",
            "-fmax-errors=12", "-D__restrict__=", "-D__restrict=", "-DWITH_CUDA=1",
            *(f"-I{each}" for each in folders)]


def _libraries(uses_torch: bool) -> list[str]:
    if not uses_torch:
        return ["-Wl,-Bsymbolic"]
    folder = _torch_folder() / "lib"
    return ["-Wl,-Bsymbolic", f"-L{folder}", f"-Wl,-rpath,{folder}", "-lc10", "-ltorch_cpu", "-ltorch"]


def _torch_folder() -> Path:
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise Refused("the file uses PyTorch, which is not installed here")
    return Path(found.origin).parent


def _kept_headers(compiler: str) -> list[str]:
    """Return the flags that read torch's headers from a compiled copy, made where it is not there yet; [] without a folder."""
    if not (kept := os.environ.get(KEPT)):
        return []
    header = Path(kept, TORCH)
    if not header.with_name(f"{TORCH}.gch").exists():
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(f'#include "{HEADERS / TORCH}"\n')
        command = [compiler, *_flags(True), "-x", "c++-header", str(header), "-o", f"{header}.gch"]
        made = subprocess.run(command, capture_output=True)
        if made.returncode:
            raise Refused(made.stderr.decode(errors="replace")[-MOST_SAID:])
    return ["-include", str(header)]
