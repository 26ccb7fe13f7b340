"""What is in a fetched tree, or one file of it with what it imports: `python -m tuner.bring.own.picked`, behind walls.

The request is JSON on standard input: {"root": folder, "path": "ops/softmax.py"}; with "path": "" files that hold kernels are
listed. The answer is one line: {"text", "siblings"} | {"found": [{"path", "count", "kernels"}]} | {"refused": why}. Nothing runs.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from tuner.bring.cuda.host_text import files_that_call
from tuner.bring.own.client import Refused, siblings_of
from tuner.bring.travel.files import headers_of

MOST_FOUND, MOST_NAMES = 500, 12
ASIDE = re.compile(r"(?:^|/)(?:tests?|testing|benchmarks?|docs?|examples?|third_?party|vendor)/|(?:^|/)(?:test_|conftest)")
DECORATOR = re.compile(r"@(?:\w+\.)*(?:jit|autotune|heuristics|kernel)\b")
BY_CALL = re.compile(r"\btriton\.jit\((\w+)\)")
FUNCTION = re.compile(r"(?:async )?def\s+(\w+)")
BOUNDS = re.compile(r"__(?:launch_bounds|maxnreg|cluster_dims)__\s*\([^()]{0,200}(?:\([^()]{0,200}\)[^()]{0,200}){0,4}\)")
CUDA = re.compile(r"__global__\s[^;{(]{0,200}?(\w+)\s*\(")


def main() -> int:
    """Answer one request."""
    request = json.load(sys.stdin)
    root = Path(request["root"]).resolve()
    answer = read_one(root, request["path"]) if request["path"] else {"found": list_files(root)}
    print(json.dumps(answer))
    return 0


def read_one(root: Path, path: str) -> dict[str, Any]:
    """Return a file's text and what it imports, as far as that lies in the tree."""
    file = root / path
    if not file.is_file() or root not in file.resolve().parents:
        near = sorted(candidate.relative_to(root).as_posix() for candidate in root.rglob(file.name))[:3]
        return {"refused": f"there is no file {path}" + (f"; there is {', '.join(near)}" if near else "")}
    try:
        siblings = siblings_of(file, root) if file.suffix == ".py" else headers_of(file, root) | _callers(file, root)
    except Refused as refused:
        return {"refused": str(refused).replace(f"{root}", "the tree")}
    return {"text": file.read_text(encoding="utf-8", errors="replace"), "siblings": siblings}


def _callers(file: Path, root: Path) -> dict[str, str]:
    """Return the C++ files that call a CUDA C++ file's host functions, with their headers."""
    texts: dict[str, str] = {}
    for caller in files_that_call(file):
        texts |= {caller.relative_to(root).as_posix(): caller.read_text(errors="replace"), **headers_of(caller, root)}
    return texts


def list_files(root: Path) -> list[dict[str, Any]]:
    """Return the files that hold kernels: those of tests and examples last, of the others those with most kernels first."""
    entries: list[dict[str, Any]] = []
    for file in root.rglob("*"):
        if file.suffix not in (".py", ".cu", ".cuh") or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        names = list(dict.fromkeys(decorated(text) if file.suffix == ".py" else CUDA.findall(BOUNDS.sub(" ", text))))
        if names:
            entries.append({"path": file.relative_to(root).as_posix(), "count": len(names), "kernels": names[:MOST_NAMES]})
    return sorted(entries, key=lambda each: (bool(ASIDE.search(each["path"])), -each["count"], each["path"]))[:MOST_FOUND]


def decorated(text: str) -> list[str]:
    """Return the functions below a decorator of Triton's or Helion's; those of torch.jit are not such."""
    names, is_kernel = BY_CALL.findall(text), False
    for line in map(str.lstrip, text.splitlines()):
        if line.startswith("@"):
            is_kernel |= bool(DECORATOR.match(line)) and not line.startswith("@torch.")
        elif match := FUNCTION.match(line):
            names += [match[1]] if is_kernel else []
            is_kernel = False
        elif line.startswith("class "):
            is_kernel = False
    return names


if __name__ == "__main__":
    sys.exit(main())
