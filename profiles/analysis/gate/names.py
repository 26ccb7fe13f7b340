"""What a shape and a configuration are called: the text by which two files mean the same one, and the one that people read.

Files of other people's making say a shape as {"M": 4096}, as [4096, 4096] or as "4096x4096", and one side's 4096 may be the
other's 4096.0 (pandas) or "4096" (a CSV file): numbers of one value are one name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

NUMBER = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?")


def same(*values: Any) -> str:
    """Equal for what is the same; the order of names does not count."""
    return json.dumps([_plain(value) for value in values], sort_keys=True, default=str)


def told(value: Any) -> str:
    """{"M": 4096, "N": 64} is "M=4096 N=64", [4096, 64] is "4096×64"."""
    return " ".join(parts(value))


def parts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{name}={told(each)}" for name, each in value.items()]
    if isinstance(value, list | tuple):
        return ["×".join(told(each) for each in value)] if value else []
    return [] if value is None else [str(value)]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()} or None          # nothing said, in either way
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, str) and NUMBER.fullmatch(value):
        value = float(value) if "." in value else int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value
