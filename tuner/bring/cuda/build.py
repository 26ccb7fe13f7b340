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
from tuner.bring.cuda.headers import HEADERS, kept_headers, make_headers
from tuner.bring.cuda.host_text import HostPart
from tuner.tuning.cuda import nvrtc

BUILD_S = 240.0                 # torch's headers alone take 15 to 60 s, by the machine
COMPILERS = ("g++", "c++", "clang++")
MOST_SAID = 600
_ERROR = re.compile(r"^(?P<file>[^\n:]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<what>.*)$", re.MULTILINE)
_NOT_FOUND = re.compile(r"fatal error: ([\w./-]+): No such file")
# where a header that is missing comes from
_PACKAGES = ((re.compile(r"(?:cuda/std|cuda/|cub/|thrust/|nv/)"), "libcu++ and CUB: pip install nvidia-cuda-cccl"),
             (re.compile(r"crt/|mma"), "pip install nvidia-cuda-crt"), (re.compile(r"curand"), "pip install nvidia-curand"),
             (re.compile(r"cuda_|cuda\.h|driver_types|vector_types"), "pip install nvidia-cuda-runtime"))


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
    command = [compiler, *_flags(part.uses_torch)]
    flags = kept_headers(command, _torch_folder()) if part.uses_torch else []
    command = [*command, *flags, "-shared", "-o", str(library), str(source), *_libraries(part.uses_torch)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=BUILD_S, cwd=folder)
    except subprocess.TimeoutExpired as error:
        raise Refused(f"the host's part was not compiled within {BUILD_S:.0f} s") from error
    if done.returncode:
        raise Refused(say_errors(done.stderr.decode(errors="replace"), name, part.left_out))
    return library


def say_errors(text: str, name: str, left_out: Sequence[str]) -> str:
    """Return the first errors of the file's own lines, else the first ones."""
    errors = [(Path(match["file"]).name, match["line"], match["what"]) for match in _ERROR.finditer(text)]
    own = [error for error in errors if error[0] == name] or errors
    summary = "; ".join(f"{'' if file == name else f'{file} '}line {line}: {what}" for file, line, what in own[:3])
    hint = f" (left out: {', '.join(left_out[:6])})" if left_out else ""
    if absent := _NOT_FOUND.search(text):
        hint += next((f" ({package})" for pattern, package in _PACKAGES if pattern.match(absent[1])), "")
    if any(each.startswith(("cutlass/", "cute/")) for each in left_out) and re.search(r"cutlass|cute", summary):
        hint += (" (CUTLASS: its types are read where it is installed, pip install nvidia-cutlass; a host that launches its "
                 "kernels cannot be called)")
    if missing := re.search(r"[‘']([A-Z]\w*)[’'] was not declared", summary):
        hint += f" (a macro that the build gives: --shape {missing[1]}=NUMBER)"
    return f"the host's part does not compile: {summary or text.strip()[-MOST_SAID:]}{hint}"[:2 * MOST_SAID]


def _flags(uses_torch: bool) -> list[str]:
    folders = [HEADERS, Path(sysconfig.get_paths()["include"]), *map(Path, nvrtc.include_folders())]
    if uses_torch:
        include = _torch_folder() / "include"
        folders += [include, include / "torch" / "csrc" / "api" / "include"]
    return ["-std=gnu++20" if uses_torch else "-std=gnu++17", "-O0", "-fPIC", "-w", "-fpermissive",
            "-fmax-errors=12", "-D__restrict__=", "-D__restrict=", "-D__declspec(x)=", "-DWITH_CUDA=1",
            *(f"-I{folder}" for folder in folders)]


def _libraries(uses_torch: bool) -> list[str]:
    if not uses_torch:
        return ["-Wl,-Bsymbolic"]
    folder = _torch_folder() / "lib"
    return ["-Wl,-Bsymbolic", f"-L{folder}", f"-Wl,-rpath,{folder}", "-lc10", "-ltorch_cpu", "-ltorch"]


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise Refused("the file uses PyTorch, which is not installed here")
    return Path(spec.origin).parent


def has_headers() -> bool:
    """Return whether the folder of `headers.FOLDER` holds torch's headers for this compiler and version."""
    try:
        return bool(kept_headers([find_compiler(), *_flags(True)], _torch_folder()))
    except Refused:
        return False


def keep_headers(root: Path) -> bool:
    """Compile torch's headers into a folder, for all files after that; return whether it holds them. No kernel's file is read."""
    try:
        return make_headers(root, [find_compiler(), *_flags(True)], _torch_folder())
    except Refused:
        return False
