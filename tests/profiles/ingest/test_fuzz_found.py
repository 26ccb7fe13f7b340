"""Every file that fuzzing found to break a reader, for ever: it ends as a counted profile or as one clear error, in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzzing.judge import judged
from tests.fuzzing.mutations import MUTATIONS, mutate, mutations_of
from tests.fuzzing.seeds import DATA, FORMATS, seeds

FOUND = sorted(path for path in (DATA / "fuzz").glob("*-*") if path.is_file())


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_what_fuzzing_found_stays_mended(path: Path) -> None:
    found = judged(path, seconds=30)
    assert not found.wrong, found.told.get("trace", found.told)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_the_seeds_themselves_are_read(kind: str, tmp_path: Path) -> None:
    for content in seeds(kind)[:2]:
        (tmp_path / "seed").write_bytes(content)
        found = judged(tmp_path / "seed", seconds=30)
        assert not found.wrong and found.told["status"] == "ready", found


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_a_mutation_of_each_kind(kind: str, tmp_path: Path) -> None:
    """A taste of `make fuzz`; the long run is there."""
    first, *_ = seeds(kind)
    for number, name in enumerate(("flip", "cut", mutations_of(kind, first)[-1])):
        (tmp_path / "case").write_bytes(mutate(first, [(name, 7919 * (number + 1), 104729 * (number + 3))], first))
        found = judged(tmp_path / "case", seconds=30)
        assert not found.wrong, (name, found)


@pytest.mark.slow
def test_a_fault_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge itself: a reader that raises, hangs or dies is not allowed to."""
    import os
    import time

    from profiles import ingest

    (tmp_path / "x").write_bytes(b"x")
    for fault, told in ((lambda path: 1 // 0, "ZeroDivisionError"), (lambda path: time.sleep(9), "longer than 1 s"),
                        (lambda path: os.kill(os.getpid(), 9), "status -9"), (lambda path: bytearray(5 << 28), "MiB of memory")):
        monkeypatch.setattr(ingest, "read", fault)
        assert told in judged(tmp_path / "x", seconds=1 if "longer" in told else 90).wrong


def test_no_mutation_fails_on_anything() -> None:
    for name, change in MUTATIONS.items():
        for content in (b"", b"\x00", b"{", b"\xff" * 40, b'{"a": [1, 2.5, "x"]}', bytes(range(256))):
            for where, how in ((0, 0), (1, 1), (12345, 67), (2**40, 2**40)):
                assert isinstance(change(content, where, how, b"other"), bytes), name
