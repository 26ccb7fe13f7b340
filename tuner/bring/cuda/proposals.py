"""Calls that the signatures of a CUDA C++ file's host functions suggest; sizes are for who takes one to change."""

from __future__ import annotations

from pathlib import Path

from profiles.base.refused import Refused
from tuner.bring.cuda.host_edits import Parameter, is_device_only, parameters_of
from tuner.bring.cuda.host_text import host_functions
from tuner.tuning.cuda.includes import with_own_headers
from tuner.tuning.cuda.source import Source

MOST = 8
_WHOLE = ("int", "int32_t", "int64_t", "long", "unsigned", "size_t", "uint32_t", "unsigned int", "long long")
_TENSOR = "randn(1024, 1024)"
_POINTERS = {**dict.fromkeys(("float", "double", "half", "__half", "__nv_bfloat16", "T", "scalar_t", "void"), _TENSOR),
             "int": "zeros(1024, dtype=int32)", "int64_t": "zeros(1024, dtype=int64)"}


def propose_cuda_calls(path: Path, text: str) -> list[str]:
    """Return a call of each host function that launches a kernel and takes what a call can give; [] where none does."""
    try:
        source = Source(with_own_headers(text, path.parent, path.name))
    except Refused:
        return []
    calls = []
    for name in host_functions(source):
        for item in source.of_name[name]:
            if item.kind == "function" and item.body >= 0 and not is_device_only(source, item):
                texts = [_given(spec) for spec in parameters_of(source, item) if not spec.default and "Stream" not in spec.type]
                if texts and None not in texts:
                    calls.append(f"{name}({', '.join(map(str, texts))})")
    return list(dict.fromkeys(calls))[:MOST]


def _given(parameter: Parameter) -> str | None:
    plain = " ".join(word for word in parameter.type.replace("&", " ").replace("*", " * ").split()
                     if word not in ("const", "__restrict__", "struct", "volatile"))
    if plain.endswith("Tensor"):
        return _TENSOR
    if plain.endswith("*"):
        return _POINTERS.get(plain.removesuffix("*").strip())
    if plain in _WHOLE:
        return "1024"
    return {"float": "1.0", "double": "1.0", "bool": "False", "std::string": "''"}.get(plain)
