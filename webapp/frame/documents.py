"""The documents of docs/ as pages, and the files that they show or offer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from django.conf import settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

FOLDER: Path = settings.BASE_DIR / "docs"
FILES = {".png": "image/png", ".webp": "image/webp", ".json": "application/json", ".jsonl": "text/plain", ".gz": "application/gzip",
         ".xz": "application/x-xz"}


@dataclass(frozen=True)
class Document:
    """A rendered document; `headings` are the anchors and texts of its second level."""

    name: str
    title: str
    html: str
    headings: tuple[tuple[str, str], ...]


@cache
def titles() -> dict[str, str]:
    """Return the title of every document by its name, by title."""
    titles_by_name = {path.stem: path.read_text().partition("\n")[0].removeprefix("# ").strip() for path in FOLDER.glob("*.md")}
    return dict(sorted(titles_by_name.items(), key=lambda each: each[1].lower()))


@cache
def document(name: str) -> Document | None:
    """Return a document, rendered once; None where there is none of this name. Raw HTML in it is shown as text."""
    if name not in titles():
        return None
    reader = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    tokens = reader.parse((FOLDER / f"{name}.md").read_text())
    headings = _anchor_headings(tokens)
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open":
                child.attrs["href"] = page_link(str(child.attrs["href"]))
            elif child.type == "image":
                child.attrs["loading"] = "lazy"
    html = str(reader.renderer.render(tokens, reader.options, {}))
    html = re.sub(r"<th[^>]*></th>", "<td></td>", html)         # a heading without words is none
    html = html.replace("<table>", '<div class="table-scroll"><table>').replace("</table>", "</table></div>")
    return Document(name, titles()[name], html, headings)


def _anchor_headings(tokens: list[Token]) -> tuple[tuple[str, str], ...]:
    """Give headings the ids that links to them use; return those of the second level."""
    headings: list[tuple[str, str]] = []
    for opening, inside in pairwise(tokens):
        if opening.type == "heading_open":
            text = "".join(child.content for child in inside.children or ())
            opening.attrs["id"] = slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            if opening.tag == "h2":
                headings.append((slug, text))
    return tuple(headings)


def page_link(address: str) -> str:
    """Return where a link of a document leads in the product: "gate.md#rule" -> "../gate/#rule"; files are beside the pages."""
    path, mark, anchor = address.partition("#")
    return f"../{path.removesuffix('.md')}/{mark}{anchor}" if path.endswith(".md") and "/" not in path else address


def file_of(name: str) -> Path | None:
    """Return a picture or data file of docs/; None where there is none, and for what lies elsewhere."""
    path = (FOLDER / name).resolve()
    return path if path.is_relative_to(FOLDER.resolve()) and path.suffix in FILES and path.is_file() else None
