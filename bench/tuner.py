"""`make bench-tuner`: every search method on every recorded space, beside Kernel Tuner's and Optuna's, in one run.

Public spaces: the published score over time (bench.search.arena), failures and the search's own CPU time counted.
H200 landscapes: trials until one is within 5 % of the best. Writes docs/tuner-bench.md and docs/leaderboard.json (what the
leaderboard page shows). What is finished is kept in var/bench-tuner.jsonl: a run that is interrupted goes on; `--fresh`
forgets it. A method is measured anew when its code or its package's version changes.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bench.search.arena import Arena, Player, Run, arenas, play, random_trials_to_within, score, strategy_player, trials_to_within
from tuner.tuning.search.strategies import STRATEGIES

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
KEPT = ROOT / "var" / "bench-tuner.jsonl"
REPEATS = 20
MOST_TRIALS = 400         # of one search on a landscape of the H200; it ends earlier where it has found what it looks for
LEFT_OUT = ("exhaustive",)


@dataclass(frozen=True)
class Task:
    """One method on one shape of one file: all its repeats."""

    path: str
    shape: int
    method: str
    version: str
    repeats: int

    @property
    def key(self) -> str:
        return json.dumps([self.path, self.shape, self.method, self.version, self.repeats])


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=REPEATS)
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options.add_argument("--methods", nargs="+", help="only these")
    options.add_argument("--spaces", nargs="+", default=[], help="only files whose name holds one of these")
    options.add_argument("--write", action="store_true", help="write the tables of what is measured by now, and measure nothing")
    options.add_argument("--again", action="store_true",
                         help="put what is measured in place of the same cells of docs/leaderboard.json, and keep the others")
    options.add_argument("--fresh", action="store_true", help="forget what earlier runs measured")
    given = options.parse_args()
    if given.fresh:
        KEPT.unlink(missing_ok=True)
    done = _kept()
    methods = [name for name in _versions() if not given.methods or name in given.methods]
    tasks = [task for task in _tasks(methods, given.repeats)
             if not given.spaces or any(part in task.path for part in given.spaces)]
    waiting = [] if given.write else [task for task in tasks if task.key not in done]
    KEPT.parent.mkdir(exist_ok=True)
    with ProcessPoolExecutor(given.processes) as pool, KEPT.open("a") as kept:
        for number, (task, row) in enumerate(zip(waiting, pool.map(measure, waiting), strict=True), 1):
            done[task.key] = row
            kept.write(json.dumps({"key": task.key, "row": row}) + "\n")
            kept.flush()
            sys.stderr.write(f"{number}/{len(waiting)} {row['space']}: {row['method']} {_short(row)}\n")
    rows = _best_known(done, tasks) if given.write else [done[task.key] for task in tasks]
    whole = given.again or (not given.methods and not given.spaces)
    document = _measured_again(rows) if given.again else _document(rows, given.repeats)
    text = _page(document)
    sys.stdout.write(text)
    if whole:
        (ROOT / "docs" / "leaderboard.json").write_text(json.dumps(document, indent=1) + "\n")
        (ROOT / "docs" / "tuner-bench.md").write_text(text)
    return 0


def _tasks(methods: list[str], repeats: int) -> Iterator[Task]:
    versions = _versions()
    files = [*sorted(DATA.glob("h200/landscapes/*.json.gz")), *sorted(DATA.glob("public_spaces/*.json.xz"))]
    for path in files:
        for shape in range(len(_arenas(str(path)))):
            for method in methods:
                yield Task(str(path.relative_to(ROOT)), shape, method, versions[method], repeats)


@lru_cache(maxsize=2)
def _arenas(path: str) -> tuple[Arena, ...]:
    return tuple(arenas(Path(path)))


def _versions() -> dict[str, str]:
    """Every method, ours first, with what its result depends on."""
    source = b"".join(path.read_bytes() for path in sorted((ROOT / "tuner" / "search" / "strategies").glob("*.py")))
    mine = hashlib.sha256(source + (ROOT / "tuner" / "space.py").read_bytes()).hexdigest()[:12]
    found = {name: mine for name in STRATEGIES if name not in LEFT_OUT}
    for package, prefix in (("kernel_tuner", "kt_"), ("optuna", "optuna_")):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            sys.stderr.write(f"{package} is not installed: its methods are left out (make bench-tuner installs it)\n")
            continue
        found |= {name: version for name in _references() if name.startswith(prefix)}
    return found


def _references() -> dict[str, tuple[str, Player]]:
    from bench.tuner_references import REFERENCES

    return REFERENCES


def measure(task: Task) -> dict[str, Any]:
    """All repeats of one method on one space."""
    arena = _arenas(str(ROOT / task.path))[task.shape]
    ours = task.method in STRATEGIES
    title, player = (STRATEGIES[task.method].title, strategy_player(task.method)) if ours else _references()[task.method]
    public = "public_spaces" in task.path
    best = float(np.nanmin(arena.ms))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")       # Kernel Tuner and SciPy warn about flat functions and constant parameters
        runs = [_run(arena, player, seed, public, best) for seed in range(task.repeats)]
    found = trials_to_within(runs, best)
    row: dict[str, Any] = {
        "space": arena.name, "public": public, "configurations": len(arena.space), "method": task.method, "title": title,
        "random_expects": random_trials_to_within(arena.ms), "reached": sum(n is not None for n in found),
        "repeats": task.repeats, "trials": _median_or_none(found), "worst": max(found) if None not in found else None}
    if public:
        distribution = arena.distribution
        row |= {"score": score(runs, distribution), "budget_s": float(distribution.times()[-1]),
                "search_share_pct": _search_share(runs)}
    return row


def _run(arena: Arena, player: Player, seed: int, public: bool, best: float) -> Run:
    """On a landscape of the H200 a search ends where it has found what it looks for."""
    if public:
        return play(arena, player, seed)
    return play(arena, player, seed, trials=min(MOST_TRIALS, len(arena.space)), until_ms=best * 1.05)


def _search_share(runs: list[Run]) -> float:
    """Per cent of all time that the search itself took."""
    total = sum(float(run.time_s[-1]) for run in runs if len(run.time_s))
    return 100.0 * sum(run.search_s for run in runs) / total if total else 0.0


def _median_or_none(found: list[int | None]) -> float | None:
    """Median trials, runs that never arrived counted as later than all others; None where most never did."""
    ordered = sorted(n if n is not None else 10**9 for n in found)
    middle = statistics.median(ordered)
    return float(middle) if middle < 10**8 else None


def _kept() -> dict[str, dict[str, Any]]:
    if not KEPT.exists():
        return {}
    rows = [json.loads(line) for line in KEPT.read_text().splitlines() if line.endswith("}")]
    return {row["key"]: row["row"] for row in rows}


def _best_known(done: dict[str, dict[str, Any]], tasks: list[Task]) -> list[dict[str, Any]]:
    """Of each method on each space the row of most repeats that is still of its version."""
    found = []
    for task in tasks:
        same = [row for key, row in done.items() if json.loads(key)[:4] == json.loads(task.key)[:4]]
        found += [max(same, key=lambda row: row["repeats"])] if same else []
    return found


def _short(row: dict[str, Any]) -> str:
    trials = "never" if row["trials"] is None else f"{row['trials']:g}"
    return f"score {row['score']:+.3f}, {trials} trials to 5 %" if row["public"] else f"{trials} trials to 5 %"


def _document(rows: list[dict[str, Any]], repeats: int) -> dict[str, Any]:
    """What the leaderboard shows."""
    packages = {name: importlib.metadata.version(name) for name in ("kernel_tuner", "optuna", "scikit-learn", "numpy")
                if _installed(name)}
    searches = _searches(rows) if rows else str(repeats)
    return {"date": datetime.date.today().isoformat(), "repeats": searches, "python": platform.python_version(),
            "packages": packages, "methods": _methods(rows), "rows": rows}


def _measured_again(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the kept document with these rows in it, and since when those of a method hold."""
    kept = json.loads((ROOT / "docs" / "leaderboard.json").read_text())
    new = {(row["space"], row["method"]): row for row in rows}
    merged = [new.pop((row["space"], row["method"]), row) for row in kept["rows"]] + list(new.values())
    dates = {**kept.get("again", {}), **{row["method"]: datetime.date.today().isoformat() for row in rows}}
    return {**kept, "again": dates, "repeats": _searches(merged), "methods": _methods(merged), "rows": merged}


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _methods(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line per method, best mean score first."""
    found = []
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        public, recorded = _complete(rows, mine, True), _complete(rows, mine, False)
        ratios = [row["random_expects"] / row["trials"] for row in recorded if row["trials"]]
        hard = [row["trials"] for row in recorded if row["random_expects"] >= 30]
        found.append({
            "method": method, "title": mine[0]["title"], "ours": method in STRATEGIES,
            "mean_score": statistics.fmean(row["score"] for row in public) if public else None,
            "worst_score": min(row["score"] for row in public) if public else None,
            "fewer_than_random": statistics.geometric_mean(ratios) if len(ratios) == len(recorded) and ratios else None,
            "median_hard": statistics.median(hard) if hard and None not in hard else None,
            "never": sum(row["trials"] is None for row in recorded)})
    return sorted(found, key=lambda each: -(each["mean_score"] if each["mean_score"] is not None else -9))


def _complete(rows: list[dict[str, Any]], mine: list[dict[str, Any]], public: bool) -> list[dict[str, Any]]:
    """A method's rows of one kind; none where it was not measured on every space: a mean over fewer compares with nothing."""
    spaces = {row["space"] for row in rows if row["public"] == public}
    found = [row for row in mine if row["public"] == public]
    return found if {row["space"] for row in found} == spaces else []


def _page(document: dict[str, Any]) -> str:
    """docs/tuner-bench.md."""
    rows, methods = document["rows"], document["methods"]
    lines = ["# Search methods on recorded spaces", "",
             f"`make bench-tuner`, {document['date']}"
             + "".join(f"; {name} again on {date}" for name, date in document.get("again", {}).items())
             + f", {_searches(rows)} searches a cell, Python {document['python']}, "
             + ", ".join(f"{name} {version}" for name, version in document["packages"].items()) + ".", "",
             "Score: 0 is random search, 1 the optimum found at once (methodology of autotuning_methodology: recorded time of "
             "compiling, running and framework, and the search's own CPU time). References run with their own defaults.", ""]
    for public, heading in ((True, "score"), (False, "median trials to within 5 % of the best")):
        spaces = list(dict.fromkeys(row["space"] for row in rows if row["public"] == public))
        if not spaces:
            continue
        names = [each["method"] for each in methods]
        lines += [f"## {heading.capitalize()}", "", "| space | configurations | random expects | " + " | ".join(names) + " |",
                  "|---|---|---|" + "---|" * len(names)]
        for space in spaces:
            by = {row["method"]: row for row in rows if row["space"] == space}
            any_row = next(iter(by.values()))
            cells = [_cell(by.get(name), public) for name in names]
            known = [space, f"{any_row['configurations']:,}", f"{any_row['random_expects']:.0f}"]
            lines.append("| " + " | ".join([*known, *cells]) + " |")
        summary = [_total(each, public) for each in methods]
        lines += [f"| **{'mean' if public else 'fewer than random, geometric mean'}** | | | " + " | ".join(summary) + " |", ""]
    return "\n".join(lines) + "\n"


def _searches(rows: list[dict[str, Any]]) -> str:
    """"20", or "6 to 20" where a large space was given fewer."""
    low, high = min(row["repeats"] for row in rows), max(row["repeats"] for row in rows)
    return str(high) if low == high else f"{low} to {high}"


def _cell(row: dict[str, Any] | None, public: bool) -> str:
    if row is None:
        return "—"
    if public:
        return f"{row['score']:+.2f}"
    return "never" if row["trials"] is None else f"{row['trials']:g}"


def _total(method: dict[str, Any], public: bool) -> str:
    value = method["mean_score"] if public else method["fewer_than_random"]
    if value is None:
        return "—"
    return f"**{value:+.2f}**" if public else f"{value:.1f}×"


if __name__ == "__main__":
    sys.exit(main())
