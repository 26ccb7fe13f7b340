"""`make bench` (or `python -m bench [name…]`): every speed beside its reference and budget, as a table.

A bench is a module with `run() -> list[dict]`; each row holds
    what        what was measured, in words
    measured    the figure with its unit, as text
    reference   what it is compared to, measured in the same run
    ratio       measured to reference, as a number (None where there is nothing to divide)
    budget      what it must keep, as text ("" where none is promised)
    ok          whether it does (None where none is promised)
Writes docs/bench.md (all benches) and var/bench.json. Exits with 1 when a budget is not kept.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from webapp.embedded import ensure

BENCHES = ("start", "ingest", "tiles", "analyses", "pages", "frames", "client", "racing", "watchers", "guard", "fleet")
ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ("what", "measured", "reference", "ratio", "budget", "ok")


def main(names: list[str]) -> int:
    unknown = set(names) - set(BENCHES)
    if unknown:
        sys.stderr.write(f"no bench {', '.join(unknown)}: there are {', '.join(BENCHES)}\n")
        return 2
    _servers()
    rows: list[dict[str, Any]] = []
    for name in names or BENCHES:
        sys.stderr.write(f"bench {name} …\n")
        rows += [{"bench": name, **row} for row in importlib.import_module(f"bench.{name}").run()]
    table = _table(rows)
    sys.stdout.write(table + "\n")
    (ROOT / "var").mkdir(exist_ok=True)
    (ROOT / "var" / "bench.json").write_text(json.dumps(rows, indent=1))
    if not names:
        (ROOT / "docs").mkdir(exist_ok=True)
        (ROOT / "docs" / "bench.md").write_text(_page(table))
    return 1 if any(row.get("ok") is False for row in rows) else 0


def _servers() -> None:
    """Private servers and an object store of the benchmark's own, kept between runs."""
    os.environ["RIDGEPOINT_HOME"] = str(ROOT / "var" / "bench")
    for name in ("DATABASE_URL", "REDIS_URL", "RIDGEPOINT_S3_BUCKET"):
        os.environ.pop(name, None)
    os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
    ensure.start_servers(ROOT / "var" / "bench")
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


def _page(table: str) -> str:
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return (f"# Speed\n\nWritten by `make bench` on {datetime.date.today()}: {machine}, no GPU needed. Each figure stands beside a "
            f"reference\nthat was measured in the same run, so the ratios hold on other machines too.\n\n{table}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
