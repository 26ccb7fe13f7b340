"""Runs the tests that a change can reach, nearest first, for as long as they may take, and says what it leaves out.

    python -m tests.run.changed [--since COMMIT] [--minutes 5] [--list] [arguments of pytest …]

The change is what differs from COMMIT: by default from HEAD, or from the commit before it where nothing is changed. From a changed
module it goes up the imports: who imports it, who imports those. A test reaches what it imports, and the views behind the addresses
that it names; a template or script counts as the modules and templates that name it. How long a file of tests takes is what it took
last (`tests.run.durations`). Everything is run by `make test`.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.run.durations import seconds_by_file
from tests.run.parts import run_files
from tests.scale import CHANGED_KERNELS
from tests.test_layers import OURS, ROOT, imports, is_top, modules

FAR = 99
UNKNOWN_S = 5.0             # of a file of tests that was never timed
ADDRESS = re.compile(r"/[a-z][\w/.-]*/?")
NAMED = re.compile(r"[\"'](?:\.{0,2}/)*([\w./-]+\.(?:html|js|css|svg))[\"']")


@dataclass(frozen=True)
class Choice:
    """A file of tests, how many imports it is from the change, and how long it takes."""

    path: str
    distance: int
    seconds: float


def changed_files(since: str) -> list[str]:
    """Return the paths that differ from a commit, new ones included; "": from HEAD, or from its parent where nothing does."""
    def told(*arguments: str) -> list[str]:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    here = told("diff", "--name-only", since or "HEAD") + told("ls-files", "--others", "--exclude-standard")
    return here or ([] if since else told("diff", "--name-only", "HEAD~1"))


# ---- what imports and names what ----

@cache
def known() -> dict[str, Path]:
    """Return every module of ours and of the tests by its dotted name."""
    tests = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
             for path in sorted((ROOT / "tests").rglob("*.py"))}
    return {**dict(modules()), **tests}


@cache
def imports_of(module: str) -> tuple[str, ...]:
    """Return the modules of ours and of the tests that one imports."""
    names = known()
    return tuple(each.imported for each in imports(module, names[module], set(names)) if each.imported in names)


@cache
def imported_by() -> dict[str, set[str]]:
    """Return for each module those that import it; what ties everything together (settings, URLs, apps) imports nothing here."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in known():
        if not (is_top(module) and module.endswith((".urls", ".apps", ".settings"))):
            for each in imports_of(module):
                found[each].add(module)
    return found


@cache
def named_by() -> dict[str, set[str]]:
    """Return for each template, script and style the files that name it, by its path without its first folder."""
    found: dict[str, set[str]] = defaultdict(set)
    places = [*(ROOT / "templates").rglob("*.html"), *(ROOT / "static").rglob("*.js"),
              *(path for module, path in known().items() if module.split(".")[0] in OURS)]
    for path in places:
        for name in NAMED.findall(path.read_text(errors="replace")):
            found[name].add(str(path.relative_to(ROOT)))
            found[Path(name).name].add(str(path.relative_to(ROOT))) if path.suffix == ".js" else None
    return found


def distances(changed: Iterable[str]) -> dict[str, int]:
    """Return how far each module is from the nearest of the changed paths: 0 for a changed one, 1 for who imports it."""
    by_path = {str(path.relative_to(ROOT)): module for module, path in known().items()}
    far: dict[str, int] = {}
    queue: deque[tuple[str, int]] = deque((path, 0) for path in changed)
    seen: set[str] = set()
    while queue:
        path, distance = queue.popleft()
        if path in seen:
            continue
        seen.add(path)
        if module := by_path.get(path):
            far[module] = distance
            queue.extend((str(known()[each].relative_to(ROOT)), distance + 1) for each in imported_by()[module])
        else:
            short = path.partition("/")[2]
            named = named_by()[short] | (named_by()[Path(path).name] if path.endswith(".js") else set())
            queue.extend((each, distance + (0 if each.endswith(".py") else 1)) for each in named)
    return far


# ---- what a test reaches ----

def reached(test: Path) -> set[str]:
    """Return the modules that a file of tests imports, through helpers of the tests too, and the views whose addresses it names."""
    found, queue, seen = set[str](), [".".join(test.relative_to(ROOT).with_suffix("").parts)], set[str]()
    while queue:
        module = queue.pop()
        if module in seen:
            continue
        seen.add(module)
        ours = [each for each in imports_of(module) if not each.startswith("tests.")]
        found.update(ours)
        queue.extend(each for each in imports_of(module) if each not in ours)
    return found | set(views_named(test))


def views_named(test: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(test.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values)
        else:
            continue
        if address := ADDRESS.search(text):
            yield from view_module(address[0])


@cache
def view_module(address: str) -> tuple[str, ...]:
    from django.urls import Resolver404, resolve

    for each in dict.fromkeys((address, address.rstrip("/") + "/")):
        try:
            view = resolve(each).func
        except Resolver404:
            continue
        view = getattr(view, "cls", None) or getattr(view, "view_class", None) or view
        return (str(view.__module__),)
    return ()


def choose(changed: list[str], minutes: float) -> tuple[list[Choice], list[Choice]]:
    """Return the tests that the change reaches, nearest first and as many as take these minutes, and those that are left out."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    django.setup()
    far, took = distances(changed), seconds_by_file()
    named = [Path(path).name for path in changed if path.startswith("tests/data/")]
    choices = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = str(path.relative_to(ROOT))
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        distance = min((far.get(each, FAR) + 1 for each in reached(path)), default=FAR)
        distance = min(distance, far.get(module, FAR), *(1 if name in path.read_text() else FAR for name in named), FAR)
        if distance < FAR and not place.startswith("tests/gpu/"):
            choices.append(Choice(place, distance, took.get(place, UNKNOWN_S)))
    choices.sort(key=lambda each: (each.distance, each.seconds))
    chosen, left, seconds = list[Choice](), list[Choice](), 0.0
    for each in choices:
        fits = seconds + each.seconds <= 60 * minutes or each.distance == 0
        (chosen if fits else left).append(each)
        seconds += each.seconds if fits else 0
    return chosen, left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", default="", metavar="COMMIT")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--list", action="store_true", help="say what would run, and run nothing")
    options, arguments = parser.parse_known_args()
    changed = changed_files(options.since)
    chosen, left = choose(changed, options.minutes)
    kernels = [path for path in changed if path.startswith("tuner/tuning/kernels/")]
    minutes = sum(each.seconds for each in chosen) / 60
    print(f"{len(changed)} files changed: {len(chosen)} files of tests, about {minutes:.1f} minutes")
    if options.list:
        print("\n".join(f"  {each.distance}  {each.seconds:6.1f} s  {each.path}" for each in chosen))
    if left:
        print(f"left out, {sum(each.seconds for each in left) / 60:.1f} minutes farther away (make test runs them): "
              + ", ".join(each.path.removeprefix("tests/") for each in left))
    if kernels:
        print("kernels changed: all their architectures and shapes are tried, beyond these minutes")
    if options.list:
        return 0
    js = subprocess.run(["make", "--no-print-directory", "js"], cwd=ROOT).returncode if any(
        path.startswith(("static/js/", "tests/js/")) for path in changed) else 0
    if not chosen:
        return js
    os.environ[CHANGED_KERNELS] = os.pathsep.join(kernels)
    sums = run_files([each.path for each in chosen], extra=tuple(arguments))
    return js or int(any(each.exit_code for each in sums))


if __name__ == "__main__":
    sys.exit(main())
