"""Names of libraries that a host calls beside its own kernels: cuBLAS, cuSPARSE, cuDNN, …, CUB's device algorithms, Thrust.

A library's header is not read: of the names that a host uses stand-ins are declared, whose calls are told and passed over.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from tuner.tuning.cuda.tokens import is_word

_OF_C = re.compile(r"(?:cublas|cusparse|cusolver|cudnn|cufft|curand|nccl|nvtx)(?:[A-Z_]\w*|Lt\w+)")
_CONSTANT = re.compile(r"(?:CUBLAS(?:LT)?|CUSPARSE|CUSOLVER|CUDNN|CUFFT|CURAND)_\w+"
                       r"|nccl(?:Success|Sum|Float\d*|Half|Int\d*|Max|Min)")
_HANDLE = re.compile(r"\w*(?:[hH]andle|Desc(?:r|riptor)?|Comm|Generator|Preference|Plan|Layout|Context)(?:_t)?$")
_OF_THE_DEVICE = re.compile(r"curand_")                     # of kernels
_STATE = re.compile(r"curandState\w*")                      # of a thread: a host asks for room of many
THRUST, CUB = "ridgepoint_thrust.h", "ridgepoint_cub.h"
_WITHIN = re.compile(r"(?:Block|Warp)[A-Z]\w+")
_DOUBLE_BUFFER = ("namespace cub { template <class T> struct DoubleBuffer { T *d_buffers[2]; int selector = 0; "
                  "DoubleBuffer(T *a, T *b) : d_buffers{a, b} {} T *Current() { return d_buffers[0]; } "
                  "T *Alternate() { return d_buffers[1]; } }; }")


def stand_ins(words: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the lines that declare what a text uses of libraries; `known`: names that the text itself declares."""
    named = [word for word in dict.fromkeys(words) if is_word(word) and word not in known]
    called = {words[index] for index in range(len(words) - 1) if words[index + 1] in ("(", "<")}
    before = {words[index + 1] for index in range(len(words) - 1) if words[index] in ("::", ".", "->")}
    lines = []
    constants = [word for word in named if _CONSTANT.fullmatch(word)]
    if constants:
        constants.sort(key=lambda word: not word.upper().endswith("SUCCESS"))
        lines.append(f"enum {{ {', '.join(constants)} }};")
    for word in named:
        if not _OF_C.fullmatch(word) or _OF_THE_DEVICE.match(word) or word in constants or word in before:
            continue
        if _STATE.fullmatch(word):
            lines.append(f"struct {word} {{ unsigned long long held[8]; }};")
        elif word.endswith("_t") or word not in called:
            lines.append(f"typedef {'void *' if _HANDLE.match(word) else 'int '}{word};")
        else:
            lines.append(f'template <class... A> inline int {word}(A &&...) {{ ::ridgepoint::pass_over("{word}"); return 0; }}')
    lines += _of_cub(words)
    if "thrust" in words:
        lines.append(f'#include "{THRUST}"')
    return lines


def _of_cub(words: Sequence[str]) -> Iterator[str]:
    """Yield CUB's algorithms of a whole GPU, as the text calls them: asked for the room that they need they say one byte.

    Its classes of a block or a warp are read from its own headers: a host asks how much shared memory they take.
    """
    within = list(dict.fromkeys(words[index + 2] for index in range(len(words) - 2) if words[index:index + 2] == ["cub", "::"]
                                and _WITHIN.fullmatch(words[index + 2])))
    if within:
        yield f'#include "{CUB}"'
    for name in within:
        words_of = re.findall(r"[A-Z][a-z]+", name)
        header = f"<cub/{words_of[0].lower()}/{'_'.join(words_of).lower()}.cuh>"
        yield f"#if __has_include({header})\n#include {header}\n#endif"
    calls_by_kind: dict[str, dict[str, None]] = {}
    for index in range(len(words) - 4):
        if words[index:index + 2] == ["cub", "::"] and words[index + 2].startswith("Device") and words[index + 3] == "::":
            calls_by_kind.setdefault(words[index + 2], {})[words[index + 4]] = None
    if "cub" in words and "DoubleBuffer" in words:
        yield _DOUBLE_BUFFER
    for kind, functions in calls_by_kind.items():
        members = " ".join(
            f"template <class... A> static cudaError_t {function}(void *room, size_t &bytes, A &&...) {{ if (!room) bytes = 1; "
            f'else ::ridgepoint::pass_over("cub::{kind}::{function}"); return cudaSuccess; }}' for function in functions)
        yield f"namespace cub {{ struct {kind} {{ {members} }}; }}"
    for name in ("Sum", "Max", "Min", "ArgMax", "ArgMin"):
        if any(words[index:index + 3] == ["cub", "::", name] for index in range(len(words) - 2)):
            yield f"namespace cub {{ struct {name} {{}}; }}"
