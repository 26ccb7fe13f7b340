"""The tables that this folder rests on: which files are asked about, and what is known to fail."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from profiles.models import Profile
from tests.truth.files import CORPUS, COUNTERS, DATA, EVERY_FILE, FILES, LEFT_OUT, SUMMARY, TRACE, Recording, each_file
from tests.truth.known import KNOWN


@each_file(TRACE, COUNTERS, SUMMARY)
def test_a_file_becomes_the_profile_that_the_table_says(profile: Profile) -> None:
    file = next(each for each in FILES if each.number == profile.pk)
    assert (profile.format, profile.kind) == (file.format, file.kind)
    assert (profile.kernels.exists(), bool(profile.gpu_time_ns)) == (file.has_kernels, file.has_times)


def test_every_file_has_a_format_and_an_id_of_its_own() -> None:
    assert not [each.name for each in EVERY_FILE if not each.format]
    assert len({each.number for each in EVERY_FILE}) == len(EVERY_FILE)


def test_every_pattern_of_what_is_left_out_leaves_something_out() -> None:
    paths = [path.relative_to(folder).as_posix() for folder in (DATA, CORPUS) if folder.is_dir() for path in folder.rglob("*")]
    if CORPUS.is_dir():
        assert not [pattern for pattern in LEFT_OUT if not any(fnmatch(path, pattern) for path in paths)]


def test_what_is_known_to_fail_is_asked() -> None:
    texts = (path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    tests = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert not [each for each in KNOWN if each.invariant not in tests]
    assert not [each for each in KNOWN if not any(_about(each.pattern, file) for file in EVERY_FILE) and CORPUS.is_dir()]


def _about(pattern: str, file: Recording) -> bool:
    return fnmatch(file.name, pattern.partition(":")[0])


def test_the_shared_corpus_is_asked() -> None:
    if not CORPUS.is_dir():
        pytest.skip("../shared/corpus does not lie beside the project: its files are not asked")
    assert any(each.path.is_relative_to(CORPUS) for each in EVERY_FILE)
