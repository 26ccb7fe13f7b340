"""A file that is no Python is refused where it is handed in, with its line; whatever it is made of, the reader stays well."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.candidates import diffs
from tuner.candidates.diffs import why_no_python


@pytest.mark.parametrize(("text", "why"), [
    ("import torch\n\ndef launch(x):\n    return x\n", ""), ("é = '☃'\n", ""), ("x = 1\\d\n", "line 1: "),
    ("def launch(:\n", "line 1: invalid syntax"), ("x = 1\n  y = 2\n", "line 2: unexpected indent"),
    ("x = (1,\n", "line 1: '(' was never closed"), ("return 3\n", "line 1: 'return' outside function"),
    ("x = 'a\n", "line 1: unterminated string literal")])
def test_the_line_and_the_reason_are_told(text: str, why: str) -> None:
    assert why_no_python(text).startswith(why) and bool(why_no_python(text)) == bool(why)


def test_nothing_of_it_runs(tmp_path: Path) -> None:
    assert why_no_python(f"open({str(tmp_path)!r} + '/made', 'w')\nimport os\nos._exit(3)\n") == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["(" * 200_000, "-" * 200_000 + "1", "x = " + "[" * 5000 + "]" * 5000],
                         ids=["brackets", "signs", "lists"])
def test_a_text_that_is_made_to_harm_its_reader_is_refused(text: str) -> None:
    assert why_no_python(text)
    assert why_no_python("x = 1\n") == ""


def test_what_takes_too_much_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diffs, "READ_S", 0.001)
    assert why_no_python("x = 1\n") == diffs.TOO_MUCH
