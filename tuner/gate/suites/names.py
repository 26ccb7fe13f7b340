"""One spelling of an environment: names that differ in case, blanks or the order of their parts are one."""

from __future__ import annotations

import re
from collections.abc import Iterable

# between two versions: a comma, or only a blank or a stroke before the next name that toolkits have
_BETWEEN = re.compile(r"\s*[,;]\s*|(?<=\d)\s+(?:[/|+&]\s*|and\s+)?(?=(?:cuda|triton|torch|python|rocm|hip|cudnn|nvcc|jax)\b)",
                      re.IGNORECASE)


def toolkit_spelling(text: str) -> str:
    """Return "cuda 13.0, triton 3.6.0" of "Triton 3.6.0,  CUDA 13.0", "cuda-13.0 triton v3.6.0" and "cuda13.0, triton=3.6.0"."""
    parts = {" ".join(part.split()).lower() for part in _BETWEEN.split(text)}
    return ", ".join(sorted(re.sub(r"^([a-z]+)[\s:=_-]*v?(?=\d)", r"\1 ", part) for part in parts - {""}))


def driver_spelling(text: str) -> str:
    """Return a driver's version without blanks around it, "driver" or "v" before it."""
    return re.sub(r"^(?:nvidia\s+)?(?:driver)?[\s:=]*v?(?=\d)", "", " ".join(text.split()), flags=re.IGNORECASE)


def gpu_spelling(text: str, known: Iterable[str] = ()) -> str:
    """Return a GPU's name with single blanks, spelled as one of `known` where only the case differs."""
    name = " ".join(text.split())
    return next((each for each in known if each.casefold() == name.casefold()), name)
