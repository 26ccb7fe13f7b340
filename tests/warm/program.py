"""What a fork of `tests.warm.parent` begins with that runs a program's text: the text and its arguments, on standard input."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence


def request(text: str, arguments: Sequence[str]) -> bytes:
    """Return what `main` reads."""
    return json.dumps({"text": text, "arguments": list(arguments)}).encode()


def main(arguments: Sequence[str]) -> None:
    """Run the program that standard input names as `python -c` does."""
    with os.fdopen(os.dup(0), "rb") as asked:
        told = json.load(asked)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = ["-c", *told["arguments"]]
    exec(compile(told["text"], "<program>", "exec"), {"__name__": "__main__"})         # noqa: S102 - a test's own text
