"""A diff is applied where every line stands as it says, and refused with the hunk's name otherwise."""

from __future__ import annotations

import difflib
import random
import time

import pytest

from profiles.base.refused import Refused
from tuner.candidates import diffs

TEXT = "".join(f"line {at}\n" for at in range(1, 41))


def diff_of(before: str, after: str, context: int = 3, names: tuple[str, str] = ("a/tuner/x.py", "b/tuner/x.py")) -> str:
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), *names, n=context)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


@pytest.mark.parametrize("seed", range(40))
def test_what_difflib_writes_is_applied(seed: int) -> None:
    draw = random.Random(seed)
    before = [f"{draw.choice('abc')}\n" for _ in range(draw.randrange(1, 30))]
    after = [line for line in before if draw.random() > 0.3]
    for _ in range(draw.randrange(6)):
        after.insert(draw.randrange(len(after) + 1), f"{draw.choice('abcx')}\n")
    old, new = "".join(before), "".join(after)
    old, new = (text[:-1] if draw.random() < 0.2 else text for text in (old, new))
    if old == new:
        return
    diff = diff_of(old, new, draw.randrange(4))
    assert diffs.apply(old, diff) == new
    assert diffs.is_diff(diff) and diffs.file_of(diff) == "tuner/x.py"


def test_git_s_own_form_is_read() -> None:
    diff = ("diff --git a/x.py b/x.py\nindex 1234567..89abcde 100644\n--- a/x.py\n+++ b/x.py\n@@ -2,2 +2,2 @@ def f():\n line 2\n"
            "-line 3\n+new\n")
    assert diffs.apply(TEXT, diff) == TEXT.replace("line 3\n", "new\n", 1) and diffs.file_of(diff) == "x.py"
    bare = "@@ -2,2 +2,2 @@\n line 2\n-line 3\n+new"
    assert diffs.is_diff(bare) and diffs.file_of(bare) == "" and "new\nline 4" in diffs.apply(TEXT, bare)


def test_a_file_is_no_diff() -> None:
    for text in ("import triton\n@@ -1 +1 @@\n", "", "x = 1\n", "# --- a/x\n", "--- \n+++ \nx = 1\n"):
        assert not diffs.is_diff(text)


@pytest.mark.parametrize(("diff", "words"), [
    ("@@ -2,2 +2,2 @@\n line 2\n-line x\n+new\n",
     r"hunk 1 \(line 1 of the diff\) does not fit: line 3 of the file is “line 3”, .* “line x”"),
    ("@@ -3,2 +3,2 @@\n line 2\n-line 3\n+new\n", "these lines stand at line 2"),
    ("@@ -2,3 +2,2 @@\n line 2\n-line 3\n+new\n@@ -9 +9 @@\n",
     "hunk 1 .*: its header says 3 old and 2 new lines, it holds 2 and 2"),
    ("@@ -2,1 +2,1 @@\n line 2\n-line 3\n+new\n", "hunk 1 .* holds more lines than its header says"),
    ("@@ -2,2 +2,2 @@\n line 2\n-line 3\n+new\n@@ -2,1 +2,1 @@\n-line 2\n+y\n",
     "hunk 2 .* begins at line 2, above the end of the hunk"),
    ("@@ -40,3 +40,3 @@\n line 40\n-line 41\n+new\n line 42\n", "hunk 1 .* reaches line 42; the file has 40"),
    ("@@ -2,2 +2,2 @@\n line 2\r\n-line 3\r\n+new\r\n", "end with CR LF"),
    ("--- a/x\n+++ b/x\n", "holds no hunk"), ("@@ nonsense @@\n", "is no header of a hunk"),
    ("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-line 1\n", "makes or deletes a file"),
    ("rename from x\nrename to y\n@@ -1 +1 @@\n-line 1\n+y\n", "it renames a file"),
    ("new file mode 100644\n@@ -0,0 +1 @@\n+y\n", "it makes a file"),
    ("old mode 1\n@@ -1 +1 @@\n-line 1\n+y\n", "it changes a mode"),
    ("GIT binary patch\n@@ -1 +1 @@\n-line 1\n+y\n", "it is binary"), ("@@@ -1 -1 +1 @@@\n", "a diff of a merge"),
    ("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-line 1\n+y\n--- a/z\n+++ b/z\n@@ -1 +1 @@\n-line 1\n+y\n", "it changes 2 files"),
    ("--- a/x\n+++ b/z\n@@ -1 +1 @@\n-line 1\n+y\n", "names two files: x and z"),
    ("@@ -2,2 +2,2 @@\n line 2\n-line 3\n+new\n\\ No newline at end of file\n",
     "says that the file ends there; it has 37 lines more"),
    ("@@ -99999999 +1 @@\n-line 1\n+y\n", "is no header of a hunk"),
    ("@@ -1 +1,400 @@\n-line 1\n+y\n", "its header says 1 old and 400"),
    ("@@ -1 +1 @@\n-line 1\n+" + "y" * (300 << 10), "more than 262,144 bytes"),
    ("@@ -1,0 +2 @@\n+x\n" * 500, "more than 400 hunks"),
])
def test_what_does_not_fit_is_refused_with_its_place(diff: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        diffs.apply(TEXT, diff)


def test_a_removed_line_that_looks_like_a_name_is_a_line() -> None:
    text = "-- a/x\n++ b/z\nkept\n"
    diff = diff_of(text, "kept\n")
    assert "--- a/x\n" in diff.split("@@")[2] and diffs.apply(text, diff) == "kept\n" and diffs.file_of(diff) == "tuner/x.py"


@pytest.mark.parametrize("diff", [
    "@@ -1 +1 @@\n" * 20_000, "@@ -1,9999999 +1,9999999 @@\n" + " x\n" * 60_000, "\\" * 200_000, "-" * 200_000, "\n" * 200_000,
    "@@ -1,7 +1,7 @@\n" + "\\ No newline at end of file\n" * 7000])
def test_hostile_diffs_end_soon(diff: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(Refused):
        diffs.apply("x\n" * 60_000, diff)
    assert time.monotonic() - began_s < 20
