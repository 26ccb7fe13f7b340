"""The look's scale: every sheet takes sizes of type, space and colours from the properties of css/base/ridgepoint.css."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CSS = Path(__file__).resolve().parents[2] / "static" / "css"
BASE = CSS / "base" / "ridgepoint.css"
PAPER = re.compile(r"@page[^}]*\}|@media print \{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")      # paper has sizes in points and no dark theme
SHEETS = sorted(path for path in CSS.rglob("*.css") if "timeline" not in path.parts)      # css/timeline is sized with its canvas
SIZES = re.compile(r"inherit|0|var\(--(?:title|section|body|label)\)|calc\(var\(--label\) \* [\d /]+\)")
FONT = re.compile(r"inherit|var\(--body\)(?:/\S+)? var\(--(?:font|mono)\)")
COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl)a?\(")
SPACE = re.compile(r"-?1px|0|auto|-?[\d.]+(?:em|ch|%|vh|vw)|var\(--(?:half|u\d+|before|[a-z]+-[a-z-]+)\)|!important")


def _declarations(sheet: Path) -> Iterator[tuple[str, str]]:
    text = re.sub(r"/\*.*?\*/", "", PAPER.sub("", sheet.read_text()), flags=re.S)
    for body in re.findall(r"\{([^{}]*)\}", text):
        for declaration in body.split(";"):
            name, colon, value = declaration.partition(":")
            if colon:
                yield name.strip(), value.strip()


def _names(sheet: Path) -> str:
    return str(sheet.relative_to(CSS))


@pytest.mark.parametrize("sheet", SHEETS, ids=_names)
def test_type_is_of_the_scale(sheet: Path) -> None:
    strays = [f"{name}: {value}" for name, value in _declarations(sheet)
              if (name == "font-size" and not SIZES.fullmatch(value)) or (name == "font" and not FONT.fullmatch(value))]
    assert strays == []


@pytest.mark.parametrize("sheet", SHEETS, ids=_names)
def test_space_is_of_the_grid(sheet: Path) -> None:
    strays = []
    for name, value in _declarations(sheet):
        if re.fullmatch(r"(?:padding|margin)(?:-[a-z-]+)?|(?:row-|column-)?gap", name):
            parts = re.sub(r"calc\(-1 \* (var\(--[a-z-]*\w+\))\)", r"\1", value).split()
            strays += [f"{name}: {value}"] if not all(SPACE.fullmatch(part) for part in parts) else []
    assert strays == []


@pytest.mark.parametrize("sheet", [sheet for sheet in SHEETS if sheet != BASE], ids=_names)
def test_colours_are_named_once(sheet: Path) -> None:
    strays = [f"{name}: {value}" for name, value in _declarations(sheet) if COLOUR.search(value)]
    assert strays == []


def test_the_scale_itself() -> None:
    said = dict(_declarations(BASE))
    assert [said[f"--{name}"] for name in ("title", "section", "body", "label")] == ["20px", "14px", "13px", "11px"]
    steps = {name: value for name, value in said.items() if re.fullmatch(r"--u\d+", name)}
    assert steps and all(value == f"{4 * int(name[3:])}px" for name, value in steps.items())
