"""Tuned files of vLLM's and SGLang's Triton kernels: JSON, batch size -> configuration.

Names and keys are those that the two projects read (state: autumn 2026):

* vLLM, vllm/model_executor/layers/fused_moe/fused_moe.py get_config_file_name, get_moe_configs:
  `E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json`, no space in block_shape, white space and "/" of
  the device's name become "_", every member of the H200 family is NVIDIA_H200; the key "triton_version" may stand beside the batch
  sizes. Found in the folder VLLM_TUNED_CONFIG_FOLDER, else beside the code.
* SGLang, …/fused_moe_triton_config.py: the same name with `block_shape=[128, 128]` as Python prints a list, then
  `,per_channel_quant=True` and `_down` for the second GEMM's own file, under `configs/triton_3_6_0/` of
  SGLANG_MOE_CONFIG_DIR. Every key is a batch size: a "triton_version" would break it.
* both also read `N=…,K=…,device_name=…,dtype=fp8_w8a8,block_shape=[128,128].json` for their block-scaled linear layers, in the
  folder `configs` beside that code alone. Every key is a batch size there, vLLM's too, and its H200 family is not one device.

At a launch both take the batch size nearest to the number of tokens, for both GEMMs of the layer, and pass every key of the
configuration to the kernel. N is the width after silu-and-mul. The name holds neither the hidden size nor how many experts a token
goes to, so whoever brings or takes a file says them: K=… topk=….
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.cache.formats.document import MAX_ROWS, Document, FormatError, Row, check_config, count_refusals, decode_json

PARAMETERS = {           # theirs -> ours, in the order that they write
    "BLOCK_SIZE_M": "BM", "BLOCK_SIZE_N": "BN", "BLOCK_SIZE_K": "BK", "GROUP_SIZE_M": "GM",
    "num_warps": "num_warps", "num_stages": "num_stages"}
PLAIN = {"KERNEL": "tiles", "SPLIT_K": 1, "STORE": "direct"}       # what their kernel is, in our words
DTYPES = {"": "bf16", "fp8_w8a8": "fp8", "float32": "fp32"}        # their word -> ours; both project use one file for bf16 and fp16
MOE, LINEAR = "grouped_matmul", "fp8_block_matmul"
UNSCALED = "matmul"                  # what linear layers in other blocks are read as, and those of before were
SCALED = ("fp8_w8a8", (128, 128))    # of the linear layers that LINEAR computes
_NAME = re.compile(
    r"(?:E=(?P<E>\d+),)?N=(?P<N>\d+)(?:,K=(?P<K>\d+))?,device_name=(?P<device>[^,]+?)(?:,dtype=(?P<dtype>\w+?))?"
    r"(?:,block_shape=\[(?P<rows>\d+), ?(?P<columns>\d+)\])?(?P<channel>,per_channel_quant=True)?(?P<down>_down)?\.json\Z")


@dataclass(frozen=True)
class Name:
    """What such a file name says; `experts` None: a linear layer, which has K instead."""

    width: int
    device: str                              # as in the name: NVIDIA_H200
    experts: int | None = None
    depth: int | None = None                 # K of a linear layer
    dtype: str = ""                          # their word: "", "fp8_w8a8", …
    block: tuple[int, int] | None = None
    per_channel: bool = False                # SGLang
    down: bool = False                       # SGLang: the second GEMM's file

    @property
    def gpu(self) -> str:
        """Return the GPU as its driver names it."""
        return self.device.replace("_", " ")


def parse_name(name: str) -> Name | None:
    """Return what a file name says; None when it is no such name."""
    match = _NAME.fullmatch(name.rsplit("/", 1)[-1])
    if match is None or (match["E"] is None) == (match["K"] is None) or any(len(match[g] or "") > 9 for g in "ENK"):
        return None
    block = (int(match["rows"][:6]), int(match["columns"][:6])) if match["rows"] else None
    return Name(int(match["N"]), match["device"][:120], int(match["E"]) if match["E"] else None,
                int(match["K"]) if match["K"] else None, match["dtype"] or "", block, bool(match["channel"]), bool(match["down"]))


def device_name(gpu: str, vllm: bool, *, linear: bool = False) -> str:
    """Return the GPU as each project spells it in a file name; of linear layers vLLM knows no family."""
    if not vllm:
        return re.sub(r"[ /\\]", "_", gpu)             # a name with a slash would be a folder, or a way out of it
    device = re.sub(r"[\s/]+", "_", gpu)
    return "NVIDIA_H200" if "H200" in device.split("_") and not linear else device


def vllm_name(name: Name) -> str:
    """Return vLLM's file name."""
    block = f",block_shape=[{name.block[0]},{name.block[1]}]" if name.block else ""
    return f"{_name_head(name)}{block}.json"


def sglang_name(name: Name) -> str:
    """Return SGLang's file name."""
    block = f",block_shape=[{name.block[0]}, {name.block[1]}]" if name.block else ""
    return f"{_name_head(name)}{block}{',per_channel_quant=True' if name.per_channel else ''}{'_down' if name.down else ''}.json"


def sglang_folder(triton: str, *, linear: bool = False) -> str:
    """Return SGLang's folder: "3.6.0" -> configs/triton_3_6_0; of linear layers one for all versions."""
    return "configs" if linear else f"configs/triton_{triton.replace('.', '_')}"


def _name_head(name: Name) -> str:
    dims = f"E={name.experts},N={name.width}" if name.experts is not None else f"N={name.width},K={name.depth}"
    return f"{dims},device_name={name.device}{f',dtype={name.dtype}' if name.dtype else ''}"


def write(by_batch: Mapping[int, Mapping[str, Any]], triton_version: str = "") -> str:
    """Return the file's text, batch sizes ascending; `triton_version` for vLLM's MoE files only."""
    document: dict[str, Any] = {"triton_version": triton_version} if triton_version else {}
    document |= {str(batch): to_moe_config(config) for batch, config in sorted(by_batch.items())}
    return json.dumps(document, indent=4) + "\n"


def to_moe_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in their parameters, nothing else."""
    return {name: config[ours] for name, ours in PARAMETERS.items() if ours in config}


def why_not(config: Mapping[str, Any]) -> str:
    """Return why their kernel cannot run a configuration; "" when it can."""
    other = next((name for name, value in PLAIN.items() if config.get(name, value) != value), None)
    missing = [name for name in PARAMETERS.values() if name not in config]
    if other is not None:
        return f"{other}={config[other]} is a kernel that they do not have"
    return f"it does not name {', '.join(missing)}" if missing else ""


def from_moe_config(config: Mapping[str, Any], experts: bool = False) -> dict[str, Any]:
    """Return a configuration in our parameters."""
    plain = {"KERNEL": PLAIN["KERNEL"]} if experts else {}
    return {PARAMETERS.get(name, name): value for name, value in config.items() if (name, value) != ("SPLIT_K", 1)} | plain


def gemm_shape(name: Name, batch: int, hidden: int, topk: int) -> dict[str, int]:
    """The matrix product of the layer that a file's configuration is for: the first, into both halves of silu-and-mul; of a
    down projection's own file the second. Rows are tokens times experts per token."""
    wide, deep = (hidden, name.width) if name.down else (2 * name.width, hidden)
    return {"M": batch * topk, "E": name.experts or 1, "N": wide, "K": deep}


def read(data: bytes, name: str, dims: Mapping[str, int] | None = None) -> Document:
    """Read a file under its project's name; `dims`: K (hidden size) and topk of a MoE layer."""
    spec, dims = parse_name(name), dims or {}
    if spec is None:
        raise FormatError(name[-120:], "its name is none that vLLM or SGLang reads",
                          "Keep the file's own name: E=…,N=…,device_name=….json holds what it is for.")
    document = decode_json(data, name[-120:])
    if not isinstance(document, dict) or len(document) > MAX_ROWS:
        raise FormatError(name[-120:], "is no object of batch sizes")
    if spec.experts is not None and not (dims.get("K") and dims.get("topk")):
        raise FormatError(name[-120:], "its name holds neither the hidden size nor the experts per token",
                          "Say them: K=2048 topk=8, for example.")
    version = document.pop("triton_version", "")
    rows, refusals = [], []
    for batch, value in document.items():
        config = check_config(value)
        if not batch.isdecimal() or len(batch) > 10 or not 0 < int(batch) < 1 << 31:
            refusals.append("a key that is no batch size")
        elif isinstance(config, str):
            refusals.append(config)
        else:
            shape = {"M": int(batch), "N": spec.width, "K": spec.depth or 0}
            if spec.experts is not None:
                shape = gemm_shape(spec, int(batch), dims["K"], dims["topk"])
            rows.append(Row(from_moe_config(config, spec.experts is not None), shape))
    if not rows:
        raise FormatError(name[-120:], "holds no configuration by batch size")
    word = spec.dtype + (f" [{spec.block[0]},{spec.block[1]}]" if spec.block else "")
    scaled = spec.experts is None and (spec.dtype, spec.block) == SCALED
    linear = LINEAR if scaled else UNSCALED
    other = f"recorded for {word}: another kernel than an unscaled one, with the same tile parameters"
    notes = [other] if word and not scaled else []
    if spec.down:
        notes.append("SGLang's file for the second GEMM (down projection)")
    return Document("sglang" if spec.down or spec.per_channel else "vllm", name, tuple(rows),
                    operator=MOE if spec.experts is not None else linear, dtype=DTYPES.get(spec.dtype, spec.dtype),
                    gpu=spec.gpu, toolkit=f"triton {version}" if isinstance(version, str) and version else "",
                    refused=count_refusals(refusals), notes=tuple(notes))
