"""Samples of Python stacks (`nsys profile --python-sampling=true`): NVTX marks whose payload is the stack.

NVIDIA documents no layout of them. Read here as two public programs decode real exports: 32 bytes in front of any NVTX payload
(domain, schema and sizes), then uint64, uint32 thread state, uint32 number of frames, and per frame three uint64: text ids of
function and file, and the line; innermost first. What does not fit to the byte, or names texts that are not there, is no sample.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import NamedTuple

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.nsys.export import MAX_DETAILS

MAX_FRAMES = 512
MAX_BYTES = 48 + 24 * MAX_FRAMES
SHOWN = 64                       # frames of a stack that are kept, innermost first
_STARTS = (32, 0)                # behind the header of NVTX payloads; of exports without one
_HEAD, _FRAME = struct.Struct("<QII"), struct.Struct("<QQQ")


class Frame(NamedTuple):
    function: str
    file: str
    line: int


def parse_stack(data: bytes, strings: Mapping[int, str]) -> list[Frame] | None:
    """Return the frames, innermost first; None where the payload is no Python stack."""
    for start in _STARTS:
        size = len(data) - start - _HEAD.size
        if size <= 0 or size % _FRAME.size or _HEAD.unpack_from(data, start)[2] != size // _FRAME.size:
            continue
        frames = [_FRAME.unpack_from(data, start + _HEAD.size + at) for at in range(0, size, _FRAME.size)]
        if all(function in strings and file in strings and line < 1 << 31 for function, file, line in frames):
            return [Frame(strings[function], strings[file], line) for function, file, line in frames[:SHOWN]]
    return None


def stack_numbers(frames: list[Frame], build: TraceBuilder) -> tuple[int, int]:
    """Return the ids of name and detail of a sample: its innermost function, and its stack."""
    text = json.dumps({"stack": [f"{each.function} ({each.file}:{each.line})" for each in frames]}, ensure_ascii=False)
    known = text in build.details or len(build.details) < MAX_DETAILS
    return build.names[frames[0].function or "(unnamed function)"], build.details[text] if known else -1
