"""`make bench` (or `python -m bench [name…]`): every speed beside its reference and budget, as a table.

A bench is a module with `run() -> list[dict]`; each row holds
    what        what was measured, in words
    measured    the figure with its unit, as text
    reference   what it is compared to, measured in the same run
    ratio       measured to reference, as a number (None where there is nothing to divide)
    budget      what it must keep, as text ("" where none is promised)
    ok          whether it does (None where none is promised)
Each bench is a process of its own: what one held in memory is not counted for the next. Writes docs/bench.md (all benches) and
var/bench.json. Exits with 1 when a budget is not kept.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from webapp.embedded import ensure

# title of the page's section -> its benches, and what is to be known of their figures
SECTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "Start": (("start",), ""),
    "Ingest, tiles, timeline": (("ingest", "tiles", "frames"), """\
The timeline is that of 50 million slices (26 GB of JSON); more about it: [scale.md](scale.md). The server's tiles and the memory
of the page change from run to run by a fifth."""),
    "Analyses and pages": (("analyses", "web.pages", "web.visits"), """\
*Alone*: nothing of the profile is in memory. *Frame shared*: as the worker makes them after an ingest, with what all of them read
in memory. Pages show the documents so made. *Complete*: the last change of a page in Chromium at 1440 × 900, after a first
visit."""),
    "Tuner": (("client", "racing", "watchers", "tune.warm_start"), """\
What a whole job takes on a GPU, from Start to its end: [tuner-gpu.md](tuner-gpu.md)."""),
    "The guard of a large team": (("guard",), """\
`python -m bench guard` fills a database with rows of a generator: a suite of 3,000 kernels with 15 runs of one build and 5 of the
next, 500 builds × 60 kernels × 5 runs, 2,000 gates, 5,000 regressions. Figures of two quiet runs of one day differed by up to 2.5
times; the CPU time is the answering process's own and holds anywhere."""),
    "The fleet, simulated": (("fleet", "fleet.pages"), """\
1,250 hosts of 8 GPUs, 500 kernels a host and minute with a heavy tail. One minute of the whole fleet stands for a day of each
series; the other 29 days are copies of it at day level."""),
}
BENCHES = tuple(name for names, _ in SECTIONS.values() for name in names)
ROOT = Path(__file__).resolve().parent.parent
ONE = "--one"                       # a bench in this process, its rows into a file
COLUMNS = ("what", "measured", "reference", "ratio", "budget", "ok")


def main(names: list[str]) -> int:
    unknown = set(names) - set(BENCHES)
    if unknown:
        sys.stderr.write(f"no bench {', '.join(unknown)}: there are {', '.join(BENCHES)}\n")
        return 2
    rows: list[dict[str, Any]] = []
    for name in names or BENCHES:
        sys.stderr.write(f"bench {name} …\n")
        rows += [{"bench": name, **row} for row in _in_a_process(name)]
    sys.stdout.write(_table(rows) + "\n")
    (ROOT / "var").mkdir(exist_ok=True)
    (ROOT / "var" / "bench.json").write_text(json.dumps(rows, indent=1))
    if not names:
        (ROOT / "docs").mkdir(exist_ok=True)
        (ROOT / "docs" / "bench.md").write_text(_page(rows))
    return 1 if any(row.get("ok") is False for row in rows) else 0


def _in_a_process(name: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="ridgepoint-bench-") as folder:
        answer = Path(folder, "rows.json")
        subprocess.run([sys.executable, "-m", "bench", ONE, name, str(answer)], check=True)
        rows: list[dict[str, Any]] = json.loads(answer.read_text())
        return rows


def _run_one(name: str, answer: str) -> int:
    _servers()
    Path(answer).write_text(json.dumps(importlib.import_module(f"bench.{name}").run()))
    return 0


def _servers() -> None:
    """Private servers and an object store of the benchmark's own, kept between runs."""
    os.environ["RIDGEPOINT_HOME"] = str(ROOT / "var" / "bench")
    for name in ("DATABASE_URL", "REDIS_URL", "RIDGEPOINT_S3_BUCKET"):
        os.environ.pop(name, None)
    os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
    ensure.begin_servers(ROOT / "var" / "bench")
    ensure.wait_for_servers()
    import django

    django.setup()
    from webapp import schema  # needs the app registry

    schema.bring_up_to_date()


def _table(rows: list[dict[str, Any]]) -> str:
    shown = [COLUMNS, *([_cell(row.get(column)) for column in COLUMNS] for row in rows)]
    widths = [max(len(line[i]) for line in shown) for i in range(len(COLUMNS))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in shown]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _page(rows: list[dict[str, Any]]) -> str:
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    parts = [f"# Speed\n\nWritten by `make bench` on {datetime.date.today()}: {machine}, no GPU needed. Each figure stands beside "
             "a reference\nthat was measured in the same run, so the ratios hold on other machines too."]
    for title, (names, note) in SECTIONS.items():
        own = [row for row in rows if row["bench"] in names]
        parts += [f"## {title}", *([note] if note else []), _table(own)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(_run_one(*sys.argv[2:]) if sys.argv[1:2] == [ONE] else main(sys.argv[1:]))
