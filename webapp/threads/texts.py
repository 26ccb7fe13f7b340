"""Comments as HTML: Markdown as in docs/, without raw HTML, without pictures, links that tell nothing; who is mentioned."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from django.utils.html import escape
from markdown_it import MarkdownIt
from markdown_it.token import Token

MOST_CHARACTERS = 10_000
MOST_MENTIONS = 20
NAME = re.compile(r"(?<![\w@.+\-/])@([\w.+\-]{1,150}(?:@[\w.\-]+)?)")


def html_of(text: str, people: Collection[str] = ()) -> str:
    """Return the HTML of a comment; names of `people` after an @ are marked.

    markdown-it shows raw HTML as text and refuses javascript:, vbscript:, file: and data: links; a picture becomes a link to it,
    so that who reads asks nobody outside for anything.
    """
    reader = MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable(["table", "strikethrough"])
    tokens = reader.parse(text[:MOST_CHARACTERS])
    for token in tokens:
        if token.children is not None:
            token.children = list(_inline(token.children, people))
        if token.type in ("heading_open", "heading_close"):
            token.tag = "h4"            # below the page's own headings
    html: str = reader.renderer.render(tokens, reader.options, {})
    return html.replace("<table>", '<div class="table-scroll"><table>').replace("</table>", "</table></div>")


def _inline(children: Iterable[Token], people: Collection[str]) -> Iterable[Token]:
    links = 0
    for child in children:
        if child.type == "link_open":
            links += 1
            child.attrs.update({"rel": "nofollow noreferrer noopener", "target": "_blank"})
        elif child.type == "link_close":
            links -= 1
        if child.type == "image":
            words = f"picture: {child.content or child.attrs.get('src', '')}"
            if links:
                yield _text(words)
            else:
                yield Token("link_open", "a", 1, attrs={"href": child.attrs["src"], "rel": "nofollow noreferrer noopener",
                                                        "target": "_blank"})
                yield _text(words)
                yield Token("link_close", "a", -1)
        elif child.type == "text" and not links and "@" in child.content:
            yield from _marked(child.content, people)
        else:
            yield child


def _text(words: str) -> Token:
    return Token("text", "", 0, content=words)


def _marked(text: str, people: Collection[str]) -> Iterable[Token]:
    done = 0
    for match in NAME.finditer(text):
        name = _known(match[1], people)
        if name is None:
            continue
        yield _text(text[done:match.start()])
        yield Token("html_inline", "", 0, content=f"<b>@{escape(name)}</b>")         # ours: raw HTML of the text was no token
        done = match.start() + 1 + len(name)
    yield _text(text[done:])


def _known(written: str, people: Collection[str]) -> str | None:
    """Return the person that "bob.", at the end of a sentence, or "bob" names."""
    for name in (written, written.rstrip(".-+"), written.partition("@")[0].rstrip(".-+")):
        if name in people:
            return name
    return None


def mentioned(text: str, people: Collection[str]) -> list[str]:
    """Return the people that a text mentions outside of code, in order, at most MOST_MENTIONS."""
    reader = MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable(["table", "strikethrough"])
    tokens = [child for token in reader.parse(text[:MOST_CHARACTERS]) for child in token.children or ()]
    parts = [token.content for token in tokens if token.type == "text"]
    names = [name for part in parts for match in NAME.finditer(part) if (name := _known(match[1], people))]
    return list(dict.fromkeys(names))[:MOST_MENTIONS]
