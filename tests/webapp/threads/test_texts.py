"""Comments as HTML: nothing of a text becomes markup of its own, nothing is fetched from outside."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from webapp.threads.texts import html_of, mentioned

PEOPLE = {"bob", "alice", "ann.lee", "m@example.org"}


@pytest.mark.parametrize("text", [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[x](javascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "![x](javascript:alert(1))", "<a href='https://x' onclick=y>", "[x](vbscript:a)", "```<script>\n<script>x\n```",
    "@<b>bob",
    '[x](https://e.org "\\" onmouseover=\\"y")', "![\\\"><script>](https://e.org/x.png)", "<!-- --><svg/onload=y>"])
def test_no_markup_of_the_text_is_kept(text: str) -> None:
    for tag, attributes in tags(html_of(text, PEOPLE)):
        assert tag in {"p", "a", "code", "pre", "blockquote", "b"}, tag
        assert set(attributes) <= {"href", "rel", "target", "title", "class"}, attributes
        assert attributes.get("href", "https:").startswith("https:"), attributes


def tags(html: str) -> list[tuple[str, dict[str, str]]]:
    """The elements that a browser finds."""
    found: list[tuple[str, dict[str, str]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            found.append((tag, dict(attrs)))

    Reader().feed(html)
    return found


def test_a_picture_becomes_a_link() -> None:
    html = html_of("![the trace](https://e.org/x.png)")
    assert "<img" not in html and 'href="https://e.org/x.png"' in html and "picture: the trace" in html and "noreferrer" in html
    assert html_of("[![a](https://e.org/x.png)](https://e.org)").count("<a ") == 1


def test_people_are_marked_and_others_are_not() -> None:
    html = html_of("ask @bob. and @nobody, `@alice`, me@bob.org and @ann.lee.", PEOPLE)
    assert "<b>@bob</b>." in html and "<b>@ann.lee</b>." in html and "<code>@alice</code>" in html and "<b>@nobody" not in html
    assert html.count("<b>") == 2


def test_who_is_mentioned() -> None:
    text = "@bob, @alice: see @bob\n\n    @ann.lee in code\n\n@m@example.org"
    assert mentioned(text, PEOPLE) == ["bob", "alice", "m@example.org"]
    assert mentioned("mail to x@bob or a/@alice", PEOPLE) == []


def test_nesting_and_length_are_bounded() -> None:
    assert len(html_of(">" * 50_000)) < 200_000
    assert len(html_of("[" * 10_000)) < 100_000
