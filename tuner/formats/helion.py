"""Helion configurations: `helion.Config.save` files, and the `.best_config` entries of its autotune cache.

A saved file is the JSON object of the configuration (helion/runtime/config.py: to_json, from_json). A cache entry is
{"config": that JSON as text, "key": {"type", "fields"}, …} (helion/autotuner/local_cache.py); a RemoteCacheBackend has the same.
`block_sizes` lists the tile of each hl.tile loop in program order, so which of our parameters stands where is a table by operator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tuner.formats.document import Document, FormatError, Row, config_of, counted, json_of, positive

BLOCKS: dict[str, tuple[str | int, ...]] = {      # operator -> what stands in block_sizes; a number is fixed
    "matmul": ("BM", "BN", "BK"), "matmul_bias_act": ("BM", "BN", "BK"), "grouped_matmul": ("BM", "BN", "BK"),
    "attention": (1, "BM", "BN"), "gqa_attention": (1, "BM", "BN"), "layernorm": (1,), "softmax": (1,), "rmsnorm": (1,)}
REDUCTIONS = {"layernorm": "BLOCK", "rmsnorm": "BLOCK"}          # looped reductions: reduction_loops, one per row reduction
GROUPED = ("matmul", "matmul_bias_act", "grouped_matmul")         # GM is the L2 grouping
_SAME = ("num_warps", "num_stages", "maxnreg")


def write(operator: str, config: Mapping[str, Any]) -> str:
    """`helion.Config.load` reads it. What Helion has no word for is kept under its own name, as user-defined properties are."""
    return json.dumps(theirs(operator, config), indent=2)


def theirs(operator: str, config: Mapping[str, Any]) -> dict[str, Any]:
    left, found = dict(config), dict[str, Any]()
    if operator in BLOCKS:
        found["block_sizes"] = [left.pop(part, 1) if isinstance(part, str) else part for part in BLOCKS[operator]]
    if operator in REDUCTIONS and REDUCTIONS[operator] in left:
        found["reduction_loops"] = [left.pop(REDUCTIONS[operator])]
    if operator in GROUPED and "GM" in left:
        found["l2_groupings"] = [left.pop("GM")]
    return found | {name: left.pop(name) for name in _SAME if name in left} | left


def ours(operator: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """In our parameters where the operator's program order is known; else as it came."""
    left, found = dict(config), dict[str, Any]()
    blocks = left.get("block_sizes")
    if operator in BLOCKS and isinstance(blocks, list) and len(blocks) == len(BLOCKS[operator]):
        del left["block_sizes"]
        found |= {part: block for part, block in zip(BLOCKS[operator], blocks, strict=True) if isinstance(part, str)}
        loops, groups = left.get("reduction_loops"), left.get("l2_groupings")
        if operator in REDUCTIONS and isinstance(loops, list) and len(loops) == 1 and loops[0] is not None:
            found[REDUCTIONS[operator]] = left.pop("reduction_loops")[0]
        if operator in GROUPED and isinstance(groups, list) and len(groups) == 1:
            found["GM"] = left.pop("l2_groupings")[0]
    return found | left


def read(data: bytes, name: str, operator: str = "") -> Document:
    """A saved configuration, or an entry of the cache."""
    document = json_of(data, name)
    if not isinstance(document, dict):
        raise FormatError(name, "is no object")
    if isinstance(document.get("key"), dict) and isinstance(document.get("config"), str):
        return _entry(document, name, operator)
    return Document("helion", name, (Row(_checked(document, name, operator)),))


def _entry(document: Mapping[str, Any], name: str, operator: str) -> Document:
    inside = json_of(document["config"].encode("utf-8", "surrogatepass"), f"{name}: config")
    fields = document["key"].get("fields")
    fields = {str(key): str(value)[:300] for key, value in fields.items()} if isinstance(fields, dict) else {}
    row = Row(_checked(inside, name, operator), median_ms=positive(document.get("median_ms")))
    labels = {"specialization_key": "specialization", "kernel_source_hash": "kernel source", "backend": "backend"}
    told = [f"{label}: {fields[key]}" for key, label in labels.items() if fields.get(key)]
    runtime = fields.get("runtime_name", "")
    return Document("helion", name, (row,), gpu=fields.get("hardware", "")[:120], toolkit=f"cuda {runtime}" if runtime else "",
                    refused=counted([]), notes=tuple(told))


def _checked(value: Any, name: str, operator: str) -> dict[str, Any]:
    config = config_of(value, lists=True)
    if isinstance(config, str):
        raise FormatError(name, f"holds no helion.Config: {config}")
    if not {"block_sizes", "num_warps", "num_stages", "reduction_loops", "pid_type"} & set(config):
        raise FormatError(name, "names none of block_sizes, num_warps, num_stages", "Give a file of helion.Config.save.")
    return ours(operator, config)
