"""One spelling of an environment: names that differ in case, blanks or the order of their parts are one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tuner.cache.entries.gpu_names import spell_as

# between two versions: a comma, or only a blank or a stroke before the next name that toolkits have
_BETWEEN = re.compile(r"\s*[,;]\s*|(?<=\d)\s+(?:[/|+&]\s*|and\s+)?(?=(?:cuda|triton|torch|python|rocm|hip|cudnn|nvcc|jax)\b)",
                      re.IGNORECASE)


def toolkit_spelling(text: str) -> str:
    """Return "cuda 13.0, triton 3.6.0" of "Triton 3.6.0,  CUDA 13.0", "cuda-13.0 triton v3.6.0" and "CUDA version 13.0"…"""
    parts = {" ".join(part.split()).lower() for part in _BETWEEN.split(text)}
    return ", ".join(sorted(re.sub(r"^([a-z]+)(?:[\s:=_-]*(?:\1|version|v)(?![a-z]))*[\s:=_-]*(?=\d)", r"\1 ", part)
                            for part in parts - {""}))


def driver_spelling(text: str) -> str:
    """Return a driver's version without blanks around it, "driver", "version" or "v" before it."""
    return re.sub(r"^(?:nvidia\s+)?(?:driver)?\s*(?:version)?[\s:=]*v?(?=\d)", "", " ".join(text.split()), flags=re.IGNORECASE)


def gpu_spelling(text: str, known: Iterable[str] = ()) -> str:
    """Return a GPU's name with single blanks, spelled as one of `known` where only case, strokes or its maker's name differ."""
    return spell_as(" ".join(text.split()), known)
