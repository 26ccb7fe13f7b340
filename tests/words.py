"""Words of visible text in each template: `python -m tests.words [FOLDER OR FILE …] [--at REVISION]` prints one line for each.

Counted is what a person reads in the flow of the page: text outside tags, template code, comments, code samples and the help panel.
`--tours BEFORE NOW` prints the words of whole pages instead, names and numbers with them, as two runs of `tests.tour` saw them.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_UNSEEN = re.compile(
    r"\{#.*?#\}|\{% comment %\}.*?\{% endcomment %\}|\{% block (?:help|title|head|scripts) %\}.*?\{% endblock %\}|<!--.*?-->"
    r"|<(script|style|template|pre|svg)\b.*?</\1>", re.S)
_CODE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.S)
_TAG = re.compile(r"<[^>]*>", re.S)
_WORD = re.compile(r"[^\W\d_][\w'’-]*")


def words(template: str) -> int:
    """Return how many words a template shows, all its branches together."""
    return len(_WORD.findall(_TAG.sub(" ", _CODE.sub(" ", _UNSEEN.sub(" ", template)))))


def _text(path: str, revision: str) -> str:
    if not revision:
        return (ROOT / path).read_text() if (ROOT / path).exists() else ""
    shown = subprocess.run(["git", "show", f"{revision}:{path}"], cwd=ROOT, capture_output=True, text=True, check=False)
    return shown.stdout if shown.returncode == 0 else ""


def _seen(tour: Path) -> dict[str, int]:
    """Return the words of each kind of page, of the first width and theme that it was seen in."""
    lines = [json.loads(line) for line in tour.read_text().splitlines()]
    return {line["page"]: line["words"] for line in reversed(lines)}


def _print_pages(before: dict[str, int], now: dict[str, int]) -> None:
    """Print a table of both, and the sums over the pages that both have."""
    both = before.keys() & now.keys()
    sums = sum(before[page] for page in both), sum(now[page] for page in both)
    print("| page | before | now |\n|---|---:|---:|")
    for page in sorted(now):
        print(f"| `{page}` | {before.get(page, '—')} | {now[page]} |")
    print(f"| pages that both have ({len(both)}) | {sums[0]} | {sums[1]} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", default=["templates"])
    parser.add_argument("--at", default="", help="a revision to compare with: its count stands first")
    parser.add_argument("--tours", nargs=2, type=Path, metavar=("BEFORE", "NOW"), help="tour.jsonl of two runs")
    asked = parser.parse_args()
    if asked.tours:
        _print_pages(*map(_seen, asked.tours))
        return
    files = sorted({str(file.relative_to(ROOT)) for path in asked.paths
                    for file in ([ROOT / path] if (ROOT / path).is_file() else (ROOT / path).rglob("*.html"))})
    before = [words(_text(file, asked.at)) if asked.at else 0 for file in files]
    now = [words(_text(file, "")) for file in files]
    for file, old, new in zip([*files, "all"], [*before, sum(before)], [*now, sum(now)], strict=True):
        print(f"{old:6} {new:6}  {file}" if asked.at else f"{new:6}  {file}")


if __name__ == "__main__":
    main()
