"""Put the pictures that `tests.tour` made onto sheets: `python -m tests.sheets FOLDER OUT`. One sheet a width and theme.

OUT/WIDTH-THEME.webp shows every kind of page from its top on, its address below; a sheet is a few hundred kB."""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from tests.tour import file_name

ACROSS, THUMB, LABEL, GAP, QUALITY = 8, {1440: (360, 225), 1000: (300, 240), 390: (180, 390)}, 16, 8, 60


def sheet(folder: Path, lines: list[dict[str, Any]], width: int, theme: str) -> Image.Image:
    """Return the sheet of one width and theme."""
    wide, high = THUMB.get(width, (300, 240))
    rows = -(-len(lines) // ACROSS)
    ink, ground = ("#ddd", "#111") if theme == "dark" else ("#333", "#fff")
    found = Image.new("RGB", (GAP + ACROSS * (wide + GAP), GAP + rows * (high + LABEL + GAP)), ground)
    draw, font = ImageDraw.Draw(found), ImageFont.load_default(10)
    for at, line in enumerate(lines):
        x, y = GAP + at % ACROSS * (wide + GAP), GAP + at // ACROSS * (high + LABEL + GAP)
        with Image.open(folder / f"{file_name(line['page'])}-{width}-{theme}.png") as picture:
            found.paste(picture.convert("RGB").resize((wide, high), Image.Resampling.LANCZOS), (x, y))
        draw.rectangle((x, y, x + wide - 1, y + high - 1), outline="#888")
        draw.text((x, y + high + 2), line["page"][:60], ink, font)
    return found


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("out", type=Path)
    asked.add_argument("--name", default="", help="begins the files' names")
    options = asked.parse_args()
    groups: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for text in (options.folder / "tour.jsonl").read_text().splitlines():
        line = json.loads(text)
        groups[line["width"], line["theme"]].append(line)
    options.out.mkdir(parents=True, exist_ok=True)
    for (width, theme), lines in groups.items():
        path = options.out / f"{options.name}{width}-{theme}.webp"
        sheet(options.folder, lines, width, theme).save(path, quality=QUALITY, method=6)
        sys.stdout.write(f"{path}: {len(lines)} pages, {path.stat().st_size // 1000} kB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
