"""What a Chakra execution trace holds, in a sentence: such a file is kept for download and not read further."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from pathlib import Path

import msgspec

from profiles.analysis.core.sentences import plural

MOST_BYTES = 256 << 20          # unpacked; of a larger one nothing is said
MOST_NAMES = 3
_NAME_CHARS = 60


class _Inputs(msgspec.Struct):
    shapes: list[object] = []


class _Node(msgspec.Struct):
    id: int
    name: str
    ctrl_deps: int = 0
    inputs: _Inputs = msgspec.field(default_factory=_Inputs)


class _Trace(msgspec.Struct):
    schema: str
    nodes: list[_Node]


def holds(path: Path) -> str:
    """Return nodes, operators, collectives and depth of a .json or .json.gz file; why not, where it cannot be told."""
    try:
        with (gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")) as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error):
        return "cut short"
    if len(data) > MOST_BYTES:
        return f"more than {MOST_BYTES >> 20} MB unpacked: not looked into"
    try:
        trace = msgspec.json.decode(data, type=_Trace)
    except (msgspec.DecodeError, RecursionError):       # a ValidationError is one
        return "no execution trace that can be read"
    return _sentence(trace.nodes) if "chakra" in trace.schema else "no Chakra trace by its schema"


def _sentence(nodes: list[_Node]) -> str:
    operators = [node for node in nodes if "::" in node.name]
    kinds = Counter(node.name[:_NAME_CHARS] for node in operators)
    collectives = sum("record_param_comms" in node.name for node in nodes)
    most = ", ".join(f"{name} × {count:,}" for name, count in kinds.most_common(MOST_NAMES))
    shaped = sum(bool(node.inputs.shapes) for node in operators)
    return "; ".join(part for part in (
        plural(len(nodes), "node"),
        f"{plural(len(operators), 'operator')} of {plural(len(kinds), 'kind')}, {shaped:,} with inputs' shapes",
        f"{_depth(nodes)} deep", plural(collectives, "collective") if collectives else "", most) if part)


def _depth(nodes: list[_Node]) -> int:
    """Return the most nodes on a way from a root: by the callers that nodes name, however they are ordered."""
    parents = {node.id: node.ctrl_deps for node in nodes}
    known: dict[int, int] = {}
    for start in parents:
        way, at = [], start
        while at in parents and at not in known and parents[at] != at:
            known[at] = 0                   # being walked: a circle ends here
            way.append(at)
            at = parents[at]
        depth = known.get(at, 1 if at in parents else 0)
        for each in reversed(way):
            depth += 1
            known[each] = depth
    return max(known.values(), default=0)
