"""Documents about security and deployment name files and tests that exist."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.product import PROJECT

NAMED = re.compile(r"\b((?:docs|profiles|static|templates|tests|tuner|webapp|workers)/[\w./-]*[\w/])(?:::(\w+))?")
ROWS = re.compile(r"^\| (\d+\.\d+\.\d+) \|[^|]+\| (yes|read|part|no|open|–) \|", re.M)


@pytest.mark.parametrize("name", ["threats", "asvs", "limits", "operate-deploy"])
def test_what_is_named_is_there(name: str) -> None:
    text = (PROJECT / "docs" / f"{name}.md").read_text()
    named = {(path, test) for path, test in NAMED.findall(text)}
    assert len(named) > 5
    for path, test in named:
        assert (PROJECT / path).exists(), path
        if test:
            assert re.search(rf"^(?:async )?def {test}\(", (PROJECT / path).read_text(), re.M), (path, test)
    for other in re.findall(r"\]\(([\w-]+\.md)\)", text):
        assert (PROJECT / "docs" / other).exists(), other


def test_every_line_of_the_standard_is_there_once_and_counted() -> None:
    text = (PROJECT / "docs/asvs.md").read_text()
    rows = ROWS.findall(text)
    assert len(rows) == len({number for number, _ in rows}) == 259       # level 2 of ASVS 4.0.3
    told = dict(re.findall(r"^\| (yes|read|part|no|open|–) \| (\d+) \|", text, re.M))
    assert {word: int(count) for word, count in told.items()} == Counter(word for _, word in rows)


def test_every_yes_names_its_test() -> None:
    rows = re.findall(r"^\| (\d+\.\d+\.\d+) \|[^|]+\| yes \|(.*)\|$", (PROJECT / "docs/asvs.md").read_text(), re.M)
    assert len(rows) > 100
    assert [number for number, why in rows if not re.search(r"\btests/[\w/]+\.py\b", why)] == []
