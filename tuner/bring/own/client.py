"""Tune a kernel file on a Ridgepoint server, without a package. One file, standard library only, Python 3.8 or later.

    export RIDGEPOINT_URL=https://tune.example RIDGEPOINT_TOKEN=rp_…       # an owner's token, scope "read and write"
    python ridgepoint_tune.py my_kernels.py:softmax --call "softmax(randn(8192, 4096))"
    python ridgepoint_tune.py ops/softmax.py --source https://github.com/my/kernels --commit v1.2 --call "softmax(randn(8, 4096))"
    python ridgepoint_tune.py acme/softmax.py --source acme-kernels==1.4 --call "softmax(randn(8192, 4096))"

The file is sent with the modules that it imports from its repository (or its folder); with --source a worker fetches it. Progress
goes to standard error, the winner and the line to add to the code to standard output. Exit code: 0 tuned, 1 nothing was faster or
right, 2 refused, 3 no answer. With --source and no file those that hold kernels are printed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import sys
import time
import urllib.error
import urllib.request
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

TUNED, NOTHING, REFUSED, NO_ANSWER = 0, 1, 2, 3
POLL_S, ASK_S, MAX_ANSWER = 1.0, 60.0, 64 << 20
MOST_FILES, MOST_BYTES, MOST_FOLDERS = 200, 4 << 20, 12
ROOTS = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg")
ENDED = ("done", "failed", "stopped")
CPP, MOST_LOOKED_AT = (".h", ".cuh", ".hpp", ".inl", ".cpp", ".cc"), 50000
WORD, INCLUDED = re.compile(r"[A-Za-z_]\w*"), re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([\w./-]+)[>"]', re.MULTILINE)
DECLARED = re.compile(r"^[A-Za-z_][\w:<>*&, \t]*?\b(\w+)\s*\(", re.MULTILINE)


class Refused(Exception):
    """The server refused, or a file cannot be read; str is for a person."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to wherever it points."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        raise Refused(f"the server redirects to {newurl[:200]}: give that address")


def ask(path: str, body: dict[str, Any] | None = None) -> Any:
    """Return the server's JSON. Raises Refused and OSError."""
    address, token = os.environ.get("RIDGEPOINT_URL", "").strip().rstrip("/"), os.environ.get("RIDGEPOINT_TOKEN", "").strip()
    if not address.startswith(("http://", "https://")):
        raise Refused("RIDGEPOINT_URL: an address like https://tune.example")
    headers = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": "ridgepoint-tune"}
    if token:
        headers["Authorization"] = f"Token {token}"
    request = urllib.request.Request(address + path, None if body is None else json.dumps(body).encode(), headers)
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=ASK_S) as answer:
            return json.loads(answer.read(MAX_ANSWER))
    except urllib.error.HTTPError as error:
        raise Refused(f"{error.code}: {error.read(2000).decode(errors='replace')}") from error


# ---- the file, and what it imports ----


def root_of(path: Path) -> Path:
    """Return the root of the file's repository; its folder where it lies in none."""
    for folder in list(path.parents)[:MOST_FOLDERS]:
        if any((folder / name).exists() for name in ROOTS):
            return folder
    top = path.parent
    while (top / "__init__.py").exists() and top.parent != top:
        top = top.parent
    return top


def siblings_of(path: Path, root: Path) -> dict[str, str]:
    """Return {path below the root: text} of the modules that a file imports, by any number of steps, and of their packages.

    What an `__init__` imports comes last, as far as there is room: it runs only where a name of it is needed.
    """
    texts: dict[Path, str] = {}
    waiting, left = [path], MOST_BYTES
    later: list[Path] = []
    while waiting or later:
        is_needed = bool(waiting)
        here = waiting.pop() if is_needed else later.pop(0)
        for file in (*_packages(here, root), *_imported(here, root)):
            if file in texts or file == path:
                continue
            text = file.read_text(encoding="utf-8", errors="replace")
            size = len(text.encode(errors="replace"))
            if size > left or len(texts) == MOST_FILES:
                if is_needed:
                    raise Refused(f"{path.name} imports more than {MOST_FILES} files or {MOST_BYTES:,} bytes of {root}")
                continue
            left -= size
            texts[file] = text
            (later if file.name == "__init__.py" or not is_needed else waiting).append(file)
    return {file.relative_to(root).as_posix(): text for file, text in texts.items()}


def sources_of(path: Path, root: Path, function: str) -> dict[str, str]:
    """Return {path below the root: text} of what a CUDA C++ file includes, and of C++ files that name a function and its own.

    An include is looked for beside the file, then in each folder above it, then by the end of its path below the root.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    own = set(DECLARED.findall(text)) - {function}
    below = sorted(file for file in islice(root.rglob("*"), MOST_LOOKED_AT) if file.suffix in CPP and _is_below(file, root))
    waiting, texts, left = [path], dict[Path, str](), MOST_BYTES
    for file in below if function and not re.search(rf"\b{re.escape(function)}\s*\(", text) else ():
        other = file.read_text(encoding="utf-8", errors="replace") if file.suffix in (".cpp", ".cc") else ""
        if re.search(rf"\b{re.escape(function)}\b", other) and own & set(WORD.findall(other)):
            waiting.append(file)
    while waiting:
        here = waiting.pop()
        text = here.read_text(encoding="utf-8", errors="replace")
        if here != path:
            left -= len(text.encode(errors="replace"))
            if left < 0 or len(texts) == MOST_FILES:
                raise Refused(f"{path.name} includes more than {MOST_FILES} files or {MOST_BYTES:,} bytes of {root}")
            texts[here] = text
        for name in INCLUDED.findall(text):
            places = [folder / name for folder in (here.parent, *here.parents) if folder == root or root in folder.parents]
            there = next((place.resolve() for place in places if _is_below(place, root)), None)
            there = there or next((file for file in below if file.as_posix().endswith(f"/{name}")), None)
            if there and there != path and there not in texts and there not in waiting:
                waiting.append(there)
    return {file.relative_to(root).as_posix(): text for file, text in texts.items()}


def _packages(path: Path, root: Path) -> Iterator[Path]:
    """Yield the `__init__` of each package that a file lies in."""
    for folder in path.parents:
        if folder == root or not (folder / "__init__.py").is_file():
            return
        if _is_below(folder / "__init__.py", root):
            yield folder / "__init__.py"


def _imported(path: Path, root: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    top = path.parent
    while (top / "__init__.py").is_file() and top != root:
        top = top.parent
    above = [home for home in path.parents if home == root or root in home.parents]     # of several packages in one repository
    places = list(dict.fromkeys([top, *above, root / "src"]))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(places, alias.name.split("."), root)
        elif isinstance(node, ast.ImportFrom):
            base = places
            if node.level:
                folder = path.parent
                for _ in range(node.level - 1):
                    folder = folder.parent
                base = [folder]
            parts = (node.module or "").split(".") if node.module else []
            for alias in node.names:
                yield from _files(base, [*parts, alias.name], root)


def _files(folders: list[Path], parts: list[str], root: Path) -> Iterator[Path]:
    """Yield the files that `import a.b.c` runs: of a and a.b the `__init__`, and the module, as far as they lie below the root."""
    for folder in folders:
        place = folder
        for number, part in enumerate(parts):
            module, package = place / f"{part}.py", place / part / "__init__.py"
            here = [file for file in (package, module) if file.is_file() and _is_below(file, root)]
            if here:
                yield here[0].resolve()
            if not (place / part).is_dir():
                break
            place = place / part
            below = (*place.glob("*.py"), *place.glob("*/__init__.py"))
            if number == 0 and not here and not any(_is_below(file, root) for file in below):
                break


def _is_below(path: Path, root: Path) -> bool:
    place = path.resolve()
    return root in place.parents and "site-packages" not in place.parts


# ---- the way ----


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ridgepoint_tune.py", description="Tune a kernel file on a Ridgepoint server.")
    parser.add_argument("file", metavar="FILE.py[:KERNEL]", nargs="?", default="", help="with --source its path in there")
    parser.add_argument("--source", default="", help="a repository (https://host/team/kernels) or a package (NAME==VERSION)")
    parser.add_argument("--commit", default="", help="of the repository: a whole commit, a branch or a tag")
    parser.add_argument("--call", default="", help='"softmax(randn(8192, 4096))": one call of a function of the file')
    parser.add_argument("--reference", default="", metavar="NAME", help="a function of the file that computes the same in torch")
    parser.add_argument("--dtype", default="", choices=["", "bf16", "fp16", "fp32", "fp8"])
    parser.add_argument("--effort", default="normal", help="none, quick, normal, thorough, full")
    parser.add_argument("--device", default="gpu", help='"gpu", or one model: "gpu:NVIDIA H200"')
    options = parser.parse_args(argv)
    try:
        return tune(options)
    except Refused as refused:
        say(f"refused: {refused}")
        return REFUSED
    except (OSError, ValueError) as error:
        say(f"no answer: {error}")
        return NO_ANSWER


def tune(options: argparse.Namespace) -> int:
    """Check the file, start the job, follow it. Returns the exit code."""
    name, _, kernel = options.file.partition(":")
    check = ask("/api/operators/check/", {**_named(options, name), "call": options.call, "dtype": options.dtype})
    check = _followed(f"/api/operators/check/{check['id']}/", _step)
    if check["error"]:
        raise Refused(f"{check['error']['what']}. {check['error'].get('hint') or ''}".strip())
    if not name:
        return _list_found(check)
    kernels = [adapter["kernel"] for adapter in check["adapters"]]
    if kernel and kernel not in kernels and not options.call.lstrip().startswith(f"{kernel}("):
        raise Refused(f"{name} has no kernel {kernel}, and that is not the function that is called; "
                      f"its kernels: {', '.join(kernels) or 'none'}")
    answer = ask(f"/api/operators/check/{check['id']}/tune/", {
        "kernel": kernel if kernel in kernels else "", "reference": options.reference, "effort": options.effort,
        "device": options.device})
    job = answer["job"]
    say(f"job {job['id']}: {answer['operator']}" + ("" if answer["independent"] else
                                                    "; compared with the default's own result, which is not independent"))
    job = _followed(f"/api/tune/{job['id']}/", _progress)
    return tell(answer["operator"], job)


def _named(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return what is checked: where it lies, or the file's text and what it imports. Raises Refused."""
    if options.source:
        return {"source": options.source, "commit": options.commit, "path": name}
    path = Path(name).resolve()
    if not name or not path.is_file():
        raise Refused(f"{name}: there is no such file" if name else "name a file, or --source")
    root = root_of(path)
    function = options.call.partition("(")[0].strip()
    siblings = siblings_of(path, root) if path.suffix == ".py" else sources_of(path, root, function)
    if siblings:
        say(f"with it: {', '.join(sorted(siblings))}")
    folder = path.parent.relative_to(root).as_posix() if siblings else ""
    return {"text": path.read_text(encoding="utf-8", errors="replace"), "file": path.name, "siblings": siblings,
            "folder": "" if folder == "." else folder}


def _list_found(check: dict[str, Any]) -> int:
    """Print the files of a repository or a package that hold kernels; return the exit code."""
    locations = (check.get("source") or {}).get("found") or []
    for location in locations:
        print(f"{location['path']}: {', '.join(location['kernels'])}")
    return TUNED if locations else NOTHING


def _followed(path: str, words: Any) -> dict[str, Any]:
    """Return what stands at an address once it has ended; its progress is said when it changes."""
    last = ""
    while True:
        document: dict[str, Any] = ask(path)
        now = f"{document['status']}: {words(document)}"
        if now != last:
            say(now)
            last = now
        if document["status"] in ENDED:
            return document
        time.sleep(POLL_S)


def _step(check: dict[str, Any]) -> str:
    step = check.get("step")
    if step:
        return f"{step['what']}, at most {step['most_s']:.0f} s"
    return f"{check['compiled']} of {check['samples']} samples compiled"


def _progress(job: dict[str, Any]) -> str:
    best = f", best {1e3 * job['best_ms']:.2f} µs" if job["best_ms"] else ""
    return f"{job['trials']} trials, {job['rejected']} rejected{best}"


def tell(operator: str, job: dict[str, Any]) -> int:
    """Print the winner and the line to add; return the exit code."""
    if job["status"] != "done" or not job["best_config"]:
        error = job["error"] or {"what": job["status"]}
        print(f"{error['what']} {error.get('hint') or ''}".strip())
        return NOTHING
    print(" ".join(f"{name}={value}" for name, value in job["best_config"].items()))
    times: list[tuple[str, Any]] = [("best", job["best_ms"]), ("default", job["default_ms"]), ("reference", job["library_ms"])]
    print(", ".join(f"{name} {1e3 * ms:.2f} µs" for name, ms in times if ms))
    if (job["outcome"] or {}).get("text"):
        print(job["outcome"]["text"])
    print(f'add above the kernel: @ridgepoint_client.tuned("{operator}")')
    return TUNED


def say(line: str) -> None:
    """Tell the person at the terminal."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
