"""NVIDIA's run-time compiler, through cuda-core: one configuration of a CUDA C++ function to machine code, with or without a GPU.

Binaries are kept in a folder by the hash of all that they are made from, so that what a compile process made ahead the process that
measures finds there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from profiles.base.refused import Refused
from tuner.tuning.cuda import host_headers
from tuner.tuning.cuda.defines import without_defines
from tuner.tuning.cuda.includes import with_own_headers
from tuner.tuning.cuda.slices import cut, kernels_of
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.tokens import is_word, join, split_at_commas

FOLDER = "cuda"                 # within Triton's cache folder, which workers already share between processes and clean
MAX_HEADERS = 200               # beside a kernel's file, which may include them
STANDARD, LATER = "c++17", "c++20"
_OF_LATER = re.compile(r'"auto" is not allowed here|\bc\+\+20\b|"(?:requires|concept|consteval|constinit)"', re.IGNORECASE)
_USED = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_ERROR = re.compile(r"^(?P<file>[^\n(]*)\((?P<line>\d+)\): (?:catastrophic )?error: (?P<what>.*)$", re.MULTILINE)
_CUDA_HEADER = r"could not open source file \"?(?:cuda_fp16|cuda_bf16|cuda_fp8|cooperative_groups|cuda_runtime|cuda_pipeline|mma)"
HINTS = ((re.compile(_CUDA_HEADER), "pip install nvidia-cuda-runtime"),
         (re.compile(r"could not open source file \"?crt/|cannot open source file \"?crt/"), "pip install nvidia-cuda-crt"),
         (re.compile(r"left out: [^)]*curand_|\"curand_?[A-Za-z]"), "pip install nvidia-curand"),
         (re.compile(r"could not open source file \"?(?:cub|cuda/|nv/|thrust)"), "pip install nvidia-cuda-cccl"))


class CompileFailed(Exception):
    """The compiler refused the text; the message names line and reason."""


@dataclass
class Binary:
    """Machine code of one function; has what Ridgepoint asks of Triton's compiled kernels.

    n_regs     registers per thread       n_spills  4-byte words of local memory per thread (its stack frame, as the driver counts)
    metadata   shared: bytes of shared memory per block, static and dynamic; num_warps: warps per block
    asm        {"cubin": bytes}
    """

    symbol: str
    cubin: bytes
    n_regs: int | None
    n_spills: int | None
    static_smem_bytes: int
    dynamic_smem_bytes: int = 0
    threads: int = 32

    @property
    def asm(self) -> dict[str, bytes]:
        return {"cubin": self.cubin}

    @property
    def metadata(self) -> SimpleNamespace:
        return SimpleNamespace(shared=self.static_smem_bytes + self.dynamic_smem_bytes, num_warps=-(-self.threads // 32))


def arch_of(capability: tuple[int, int]) -> str:
    """Return NVRTC's name of a GPU: from Hopper on the variant whose own instructions (wgmma, TMA) may be used."""
    major, minor = capability
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def include_folders() -> list[str]:
    """Return the folders of CUDA's own headers: of NVIDIA's wheels, of CUDA_HOME, and where toolkits lie; each header once.

    Packages are nvidia-cuda-runtime, nvidia-cuda-crt, nvidia-cuda-cccl and nvidia-curand. CUTLASS's are those of CUTLASS_PATH or
    of the package nvidia-cutlass.
    """
    folders_by_name: dict[str, str] = {}
    for library, header in HEADERS_OF.items():
        place = _packaged(library)
        for folder in (place, *_toolkit_folders(), *_cutlass_folders()):
            if folder and Path(folder, header).is_file():
                folders_by_name.setdefault(header, folder)
    return list(dict.fromkeys(folders_by_name.values()))


HEADERS_OF = {"cudart": "cuda_runtime.h", "cccl": "cuda/std/version", "curand": "curand_kernel.h", "crt": "crt/mma.h",
              "cutlass": "cutlass/cutlass.h"}


def _packaged(library: str) -> str:
    try:
        from cuda import pathfinder

        return str(pathfinder.find_nvidia_header_directory(library) or "")
    except Exception:                   # not installed, or a library that this version does not know
        return ""


def _cutlass_folders() -> list[str]:
    """Return where a checkout of CUTLASS and its package have their headers."""
    package = importlib.util.find_spec("cutlass_library")
    places = [Path(os.environ.get("CUTLASS_PATH") or "/nowhere", "include")]
    return [str(each) for each in (*places, *(Path(folder, "source", "include") for folder in (
        package.submodule_search_locations or () if package else ()))) if each.is_dir()]


def _toolkit_folders() -> list[str]:
    """Return the folders in which toolkits and conda keep headers, libcu++'s below them; those of torch's own wheel last."""
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")] + ["/usr/local/cuda"]
    homes += [str(Path(nvcc).resolve().parents[1])] if (nvcc := shutil.which("nvcc")) else []
    places = [Path(home, below) for home in homes if home for below in ("include", "targets/x86_64-linux/include",
                                                                        "targets/sbsa-linux/include")]
    nvidia = importlib.util.find_spec("nvidia")
    for package in nvidia.submodule_search_locations or () if nvidia else ():
        places += sorted(Path(package).glob("*/include"))
    return [str(place / below) for place in places for below in (".", "cccl") if (place / below).is_dir()]


def _headers(folder: Path) -> list[Path]:
    return sorted(path for pattern in ("*.h", "*.cuh", "*.hpp", "*.inl") for path in folder.glob(pattern))[:MAX_HEADERS]


def headers_hash(folder: Path | None) -> str:
    """Return the hash of the headers beside a kernel's file; "" where there are none."""
    if folder is None:
        return ""
    digest = hashlib.sha256()
    headers = _headers(folder)
    for header in headers:
        digest.update(header.name.encode() + b"\0" + header.read_bytes())
    return digest.hexdigest() if headers else ""


def find_header(name: str) -> str:
    """Return the header that is read for an include: CUDA's own, of libcu++, one that stands in for a host's; "" for none."""
    if name in host_headers.HEADERS:
        return name
    if name.startswith(host_headers.FOLDERS_OF_TORCH):
        return "ridgepoint_torch.h"
    if name in host_headers.OF_HOST or name.startswith(host_headers.FOLDERS_OF_HOST):
        return ""
    return name if any((folder / name).is_file() for folder in map(Path, _include_folders())) else ""


@cache
def _include_folders() -> tuple[str, ...]:
    return tuple(include_folders())


def text_of(text: str, expression: str, defines: Mapping[str, str], folder: Path | None, name: str = "kernel.cu"
            ) -> tuple[str, list[str]]:
    """Return what is compiled of a file for one of its functions, and the headers that were left out because nothing has them.

    Headers of its own stand in their places, macros and constants that `defines` gives are left out, and so is all that the
    function does not name. A text that cannot be read stays as it is.
    """
    whole = with_own_headers(text, folder, name) if folder is not None else text
    whole = without_defines(_with_pragmas(whole), defines.keys())
    try:
        part, missing = cut(Source(whole), expression, find_header)
    except Refused:
        return whole, []                        # the compiler says what is wrong with it
    if _OF_EARLIER_CUB.search(part):
        part = f'#include "{host_headers.EARLIER_CUB}"\n#line 1 "{name}"\n{part}'
    return part, missing


_OF_EARLIER_CUB = re.compile(r"\bcub::(?:Sum|Max|Min|Difference|Division|Equality|Inequality)\b")


def _with_pragmas(text: str) -> str:
    """Return the text with `#pragma unroll` for a macro that stands for it, which another preprocessor reads as a directive."""
    for macro in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+#[ \t]*pragma\b", text, re.MULTILINE):
        match = re.search(rf"^[ \t]*#[ \t]*define[ \t]+{macro}[ \t]+(#[^\n]*)", text, re.MULTILINE)
        text = re.sub(rf"^([ \t]*){macro}\b", rf"\g<1>{match[1].rstrip()}" if match else macro, text, flags=re.MULTILINE)
        text = re.sub(rf"^[ \t]*#[ \t]*define[ \t]+{macro}[ \t][^\n]*", "", text, flags=re.MULTILINE)
    return text


def compile_function(text: str, expression: str, defines: Mapping[str, str], arch: str, *, folder: Path | None = None,
                     options: Sequence[str] = (), name: str = "kernel.cu") -> Binary:
    """Return the machine code of `expression` ("scale", or "scale<128, float>") for `arch`, from the cache if it is there.

    folder   where headers of the kernel's own lie
    options  of OPTIONS, as `--use_fast_math` or `--maxrregcount=64`
    Raises CompileFailed, ImportError without cuda-core, ValueError for an option that is not taken.
    """
    flags = _flags(options)
    version = _nvrtc_version()
    part, missing = text_of(text, expression, defines, folder, name)
    expression = _told_apart(part, expression)
    made_from = [part, expression, sorted(defines.items()), arch, sorted(flags.items()), version, STANDARD]
    key = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()
    if (entry := _read_kept(key)) is not None:
        return entry
    try:
        module, log = _compiled(part, expression, defines, arch, flags, name, STANDARD)
    except Exception as error:
        if not _OF_LATER.search(str(error)):
            raise CompileFailed(say_error(str(error), missing)) from error
        try:
            module, log = _compiled(part, expression, defines, arch, flags, name, LATER)
        except Exception as again:
            raise CompileFailed(say_error(str(again), missing)) from again
    symbol = _as_text(module.symbol_mapping.get(expression) or module.symbol_mapping.get(expression.encode()) or expression)
    if f".text.{symbol}".encode() not in bytes(module.code):          # declared and nowhere defined
        raise CompileFailed(f"{expression} has no body here" + (f" (left out: {', '.join(missing[:6])})" if missing else ""))
    binary = _binary(symbol, bytes(module.code), log)
    _keep(key, binary)
    return binary


def _told_apart(part: str, expression: str) -> str:
    """Return the expression of a kernel; with its type where a function of the device has the same name."""
    if not re.search(rf"__device__[^;{{}}()]*\b{re.escape(expression)}\s*\(", part):
        return expression
    try:
        source = Source(part)
    except Refused:
        return expression
    kernel = next((item for item in kernels_of(source, expression) if item.template < 0), None)
    if kernel is None or not any(item.kind == "function" for item in source.of_name[kernel.names[0]]):
        return expression
    given = [words[:words.index("=")] if "=" in words else words for words in split_at_commas(source.arguments_of(kernel))]
    types = [join(words[:-1] if len(words) > 1 and is_word(words[-1]) else words) for words in given]
    return f"(void (*)({', '.join(types)})){expression}"


def _compiled(part: str, expression: str, defines: Mapping[str, str], arch: str, flags: Mapping[str, Any], name: str, standard: str
              ) -> tuple[Any, str]:
    """Return what NVRTC makes of a text in a standard of C++, and its log. Raises what it raises."""
    from cuda import core as cuda_core

    log = io.StringIO()
    includes = [host_headers.folder().name, *_include_folders()]
    options = cuda_core.ProgramOptions(
        name=name, arch=arch, define_macro=list(defines.items()) or None, include_path=includes,
        pre_include=["ridgepoint_types.h"], ptxas_options=["-v"], std=standard, lineinfo=True,
        device_as_default_execution_space=True, **flags)
    module = cuda_core.Program(part, "c++", options).compile("cubin", name_expressions=(expression,), logs=log)
    return module, log.getvalue()


def load() -> None:
    """Import cuda-core and open the compiler's library, which a process does before it forks. Raises ImportError."""
    from cuda import core  # noqa: F401

    _nvrtc_version()
    _include_folders()
    host_headers.folder()


def say_error(text: str, missing: Sequence[str] = ()) -> str:
    """Return the first errors of a compile log, a line each, and what would help; `missing`: headers that were left out."""
    errors = [f"{_file(match['file'])}line {match['line']}: {match['what'].strip()}" for match in _ERROR.finditer(text)][:4]
    message = "; ".join(errors) or text.strip()[:600]
    for pattern, do in HINTS:
        if pattern.search(text):
            message += f" ({do})"
    if missing and re.search(r"is undefined|has no|not a (?:class|namespace|template)|is not a", text):
        message += f" (not here, and left out: {', '.join(missing[:6])})"
    return message[:1200]


def _file(path: str) -> str:
    """Return a header's name before its line; "" for the kernel's own text, whose name has no folder."""
    return f"{path.rpartition('/')[2]} " if "/" in path else ""


OPTIONS = {"--use_fast_math": ("use_fast_math", True), "-use_fast_math": ("use_fast_math", True), "--fmad=false": ("fma", False),
           "--restrict": ("restrict", True), "--extra-device-vectorization": ("extra_device_vectorization", True)}
_REGISTERS = re.compile(r"--?maxrregcount=(\d{1,3})$")


def _flags(options: Sequence[str]) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    for option in options:
        if option in OPTIONS:
            name, value = OPTIONS[option]
            flags[name] = value
        elif match := _REGISTERS.match(option):
            flags["max_register_count"] = int(match[1])
        else:
            raise ValueError(f"option {option!r}: one of {', '.join(OPTIONS)}, --maxrregcount=N")
    return flags


def _nvrtc_version() -> str:
    from cuda.bindings import nvrtc

    return ".".join(map(str, nvrtc.nvrtcVersion()[1:]))


def _binary(symbol: str, cubin: bytes, log: str) -> Binary:
    """Return the binary with the facts that ptxas prints of it: those of the function alone, which is the only entry."""
    registers, smem, stack = _USED.search(log), _SMEM.search(log), _STACK.search(log)
    return Binary(symbol, cubin, int(registers[1]) if registers else None, int(stack[1]) // 4 if stack else None,
                  int(smem[1]) if smem else 0)


def _as_text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _place(key: str) -> Path | None:
    root = os.environ.get("TRITON_CACHE_DIR")
    return Path(root) / FOLDER / key if root else None


def _read_kept(key: str) -> Binary | None:
    place = _place(key)
    if place is None:
        return None
    try:
        facts = json.loads(place.with_suffix(".json").read_text())
        cubin = place.with_suffix(".cubin").read_bytes()
        return Binary(facts["symbol"], cubin, facts["registers"], facts["spills"], facts["smem_bytes"])
    except (OSError, ValueError, KeyError):
        return None


def _keep(key: str, binary: Binary) -> None:
    """Write binary and facts: the facts last, and each file as a whole, so that a reader never sees half of one."""
    place = _place(key)
    if place is None:
        return
    facts = {"symbol": binary.symbol, "registers": binary.n_regs, "spills": binary.n_spills, "smem_bytes": binary.static_smem_bytes}
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for suffix, content in ((".cubin", binary.cubin), (".json", json.dumps(facts).encode())):
            with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
                file.write(content)
            os.replace(file.name, place.with_suffix(suffix))
    except OSError:
        return                          # a cache that is full costs a compile, nothing else
