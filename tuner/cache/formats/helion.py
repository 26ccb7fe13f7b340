"""Helion configurations: `helion.Config.save` files and `.best_config` cache entries.

A saved file is the JSON object of the configuration (helion/runtime/config.py: to_json, from_json). A cache entry is
{"config": that JSON as text, "key": {"type", "fields"}, …} (helion/autotuner/local_cache.py); a RemoteCacheBackend has the same.
`block_sizes` lists the tile of each hl.tile loop in program order, so which of our parameters stands where is a table by operator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from profiles.base.numbers import positive_number
from tuner.cache.formats.document import Document, FormatError, Row, check_config, count_refusals, decode_json

BLOCKS: dict[str, tuple[str | int, ...]] = {      # operator -> what stands in block_sizes; a number is fixed
    "matmul": ("BM", "BN", "BK"), "matmul_bias_act": ("BM", "BN", "BK"), "grouped_matmul": ("BM", "BN", "BK"),
    "attention": (1, "BM", "BN"), "gqa_attention": (1, "BM", "BN"), "layernorm": (1,), "softmax": (1,), "rmsnorm": (1,)}
REDUCTIONS = {"layernorm": "BLOCK", "rmsnorm": "BLOCK"}          # looped reductions: reduction_loops, one per row reduction
GROUPED = ("matmul", "matmul_bias_act", "grouped_matmul")         # GM is the L2 grouping
_SAME = ("num_warps", "num_stages", "maxnreg")


def write(operator: str, config: Mapping[str, Any]) -> str:
    """Return text that `helion.Config.load` reads; other parameters keep their names."""
    return json.dumps(to_helion_config(operator, config), indent=2)


def to_helion_config(operator: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in Helion's settings."""
    left, settings = dict(config), dict[str, Any]()
    if operator in BLOCKS:
        settings["block_sizes"] = [left.pop(part, 1) if isinstance(part, str) else part for part in BLOCKS[operator]]
    if operator in REDUCTIONS and REDUCTIONS[operator] in left:
        settings["reduction_loops"] = [left.pop(REDUCTIONS[operator])]
    if operator in GROUPED and "GM" in left:
        settings["l2_groupings"] = [left.pop("GM")]
    return settings | {name: left.pop(name) for name in _SAME if name in left} | left


def from_helion_config(operator: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in our parameters where the operator is known, else as it came."""
    left, params = dict(config), dict[str, Any]()
    blocks = left.get("block_sizes")
    if operator in BLOCKS and isinstance(blocks, list) and len(blocks) == len(BLOCKS[operator]):
        del left["block_sizes"]
        params |= {part: block for part, block in zip(BLOCKS[operator], blocks, strict=True) if isinstance(part, str)}
        loops, groups = left.get("reduction_loops"), left.get("l2_groupings")
        if operator in REDUCTIONS and isinstance(loops, list) and len(loops) == 1 and loops[0] is not None:
            params[REDUCTIONS[operator]] = left.pop("reduction_loops")[0]
        if operator in GROUPED and isinstance(groups, list) and len(groups) == 1:
            params["GM"] = left.pop("l2_groupings")[0]
    return params | left


def read(data: bytes, name: str, operator: str = "") -> Document:
    """Read a saved configuration or a cache entry."""
    document = decode_json(data, name)
    if not isinstance(document, dict):
        raise FormatError(name, "is no object")
    if isinstance(document.get("key"), dict) and isinstance(document.get("config"), str):
        return _read_entry(document, name, operator)
    return Document("helion", name, (Row(_check_config(document, name, operator)),))


def _read_entry(document: Mapping[str, Any], name: str, operator: str) -> Document:
    inside = decode_json(document["config"].encode("utf-8", "surrogatepass"), f"{name}: config")
    fields = document["key"].get("fields")
    fields = {str(key): str(value)[:300] for key, value in fields.items()} if isinstance(fields, dict) else {}
    row = Row(_check_config(inside, name, operator), median_ms=positive_number(document.get("median_ms")))
    labels = {"specialization_key": "specialization", "kernel_source_hash": "kernel source", "backend": "backend"}
    notes = [f"{label}: {fields[key]}" for key, label in labels.items() if fields.get(key)]
    runtime = fields.get("runtime_name", "")
    return Document("helion", name, (row,), gpu=fields.get("hardware", "")[:120], toolkit=f"cuda {runtime}" if runtime else "",
                    refused=count_refusals([]), notes=tuple(notes))


def _check_config(value: Any, name: str, operator: str) -> dict[str, Any]:
    config = check_config(value, lists=True)
    if isinstance(config, str):
        raise FormatError(name, f"holds no helion.Config: {config}")
    if not {"block_sizes", "num_warps", "num_stages", "reduction_loops", "pid_type"} & set(config):
        raise FormatError(name, "names none of block_sizes, num_warps, num_stages", "Give a file of helion.Config.save.")
    return from_helion_config(operator, config)
