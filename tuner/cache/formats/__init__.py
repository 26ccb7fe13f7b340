"""Configurations as other projects write them, both ways. A new format is one file here and one line in FORMATS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.cache.formats import fused_moe, helion, triton_text, tvm
from tuner.cache.formats.document import Document, FormatError


@dataclass(frozen=True)
class Format:
    """A format: its title, what it carries, and whether whole spaces come in it."""

    title: str
    says: str                      # what one finds in such a file
    needs: str                     # what the file does not say and a person must
    trials: bool = False           # every trial with its time: read by tuner.tuning.measure.landscape
    reads: bool = True
    writes: bool = True


FORMATS: dict[str, Format] = {
    "triton": Format("triton.Config list", "Python text with triton.Config(…) calls", "operator, type, shape, GPU"),
    "triton-cache": Format("Triton autotune cache", "<kernel>.autotune.json with each configuration's time",
                           "operator, type, shape, GPU", writes=False),
    "vllm": Format("vLLM", "E=…,N=…,device_name=….json (MoE), N=…,K=…,….json (fp8 linear): a configuration per batch size",
                   "of MoE K (hidden size), topk"),
    "sglang": Format("SGLang", "the same under configs/triton_<version>/, linear under configs/", "of MoE K (hidden size), topk"),
    "helion": Format("Helion", "helion.Config.save files and .best_config cache entries", "operator, type, shape"),
    "tvm": Format("TVM tuning log", "trials of AutoTVM, Ansor and MetaSchedule with times, a line each",
                  "GPU; the task, where there are several", writes=False),
    "t4": Format("T4 results", "every trial of a search: results with times in ms", "operator, type, shape, GPU", trials=True),
    "kernel-tuner": Format("Kernel Tuner cache", "every trial of a search, as Kernel Tuner keeps it", "type, shape", trials=True),
}


def guess_format(name: str, head: bytes) -> str | None:
    """Return the format by the file's name, then its first bytes; None when it is none."""
    plain = name.rsplit("/", 1)[-1]
    if fused_moe.parse_name(plain):
        return "sglang" if "/triton_" in name or "_down" in plain or "per_channel_quant" in plain else "vllm"
    if plain.endswith(".best_config"):
        return "helion"
    text = head[:4096].decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if tvm.is_log(text):
        return "tvm"
    if not text.startswith("{"):
        return "triton" if "Config(" in head[:1 << 20].decode("utf-8", "replace") else None
    for mark, kind in (('"configs_timings"', "triton-cache"), ('"tune_params_keys"', "kernel-tuner"), ('"results"', "t4"),
                        ('"block_sizes"', "helion"), ('"schema_version"', "t4"), ('"num_warps"', "helion")):
        if mark in text:
            return kind
    return None


def read_configs(format: str, data: bytes, name: str, operator: str = "", dims: Mapping[str, int] | None = None) -> Document:
    """Return the configurations of a file. Raises FormatError; trials go through landscape.

    `operator` and `dims` are what a person says of a file that does not say it itself.
    """
    if format == "triton":
        return triton_text.read(data, name)
    if format == "triton-cache":
        return triton_text.read_cache(data, name)
    if format in ("vllm", "sglang"):
        return fused_moe.read(data, name, dims)
    if format == "helion":
        return helion.read(data, name, operator)
    if format == "tvm":
        return tvm.read(data, name, operator)
    raise FormatError(name[-120:], "is of no format of configurations", f"Choose one of {', '.join(FORMATS)}.")
