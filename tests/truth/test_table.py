"""docs/truth.md holds what a count says today: of some small files here, of all by `python -m tests.truth.table`."""

from __future__ import annotations

import pytest

from tests.scale import DEEP
from tests.truth import table

SAMPLED = table.kineto_files()[:: 1 if DEEP else 12]


@pytest.mark.parametrize("file", SAMPLED)
def test_a_trace_is_what_the_page_says(file: str) -> None:
    said = table.PAGE.read_text()
    for row in table.of_kineto(file):
        assert row.line() in said, "python -m tests.truth.table writes the page anew"


@pytest.mark.parametrize("file", table.NSYS)
def test_an_nsys_file_is_what_the_page_says(file: str) -> None:
    rows = list(table.of_nsys(file, table.NSYS[file]))
    assert rows and all(row.line() in table.PAGE.read_text() for row in rows)


def test_no_number_of_the_page_is_another_without_a_reason() -> None:
    """And a number that is another shows: the page could say so."""
    assert "| **no** |" not in table.PAGE.read_text() and " 0 otherwise." in table.PAGE.read_text()
    assert "**no**" in table.Row("a.json", "kernel launches", 5, None, "", 6).line()
    other = table.Row("a/graph.sqlite.gz", "kernel launches", 5, 4.0, "nsys stats", 5)
    assert "definition: " in other.line() and "**no**" in table.Row("b.sqlite", "kernel launches", 5, 4.0, "nsys stats", 5).line()
    assert "**no**" in table.Row("a/graph.sqlite.gz", "kernel launches", 4, 4.0, "nsys stats", 5).line()
