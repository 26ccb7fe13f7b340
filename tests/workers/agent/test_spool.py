"""Batches on disk: whole or not there, no number twice, whatever moment the process ends at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workers.agent.send import Spool

WRITER = """
import sys
from pathlib import Path
from workers.agent.send import Spool
spool = Spool(Path(sys.argv[1]))
while True:
    print(spool.put(lambda sequence: b"%d " % sequence * 20_000), flush=True)
"""


def numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.batch"))


def test_batches_leave_in_order_and_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert [spool.put(lambda sequence: b"%d" % sequence) for _ in range(3)] == [0, 1, 2]
    assert spool.oldest() == (0, b"0")
    spool.done(0)
    assert spool.oldest() == (1, b"1") and (spool.batches, spool.size_bytes) == (2, 2)
    for sequence in (1, 2):
        spool.done(sequence)
    again = Spool(tmp_path)
    assert again.agent == spool.agent and again.oldest() is None
    assert again.put(lambda sequence: b"x") == 3                # though no file says so


def test_the_oldest_go_where_room_is_short_and_are_counted_for_good(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most_bytes=250)
    for _ in range(5):
        spool.put(lambda sequence: bytes(100))
    assert numbers(tmp_path) == [3, 4] and spool.dropped == 3
    assert Spool(tmp_path, most_bytes=250).dropped == 3
    spool.put(lambda sequence: bytes(1000))                     # larger than all room: it alone stays
    assert numbers(tmp_path) == [5]


def test_a_refused_batch_is_set_aside_with_the_reason(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for _ in range(30):
        spool.set_aside(spool.put(lambda sequence: b"batch"), "400: no batch")
    assert spool.batches == 0 and spool.refused == 30 and Spool(tmp_path).refused == 30
    aside = tmp_path / "refused"
    assert len(list(aside.glob("*.batch"))) == 20 and (aside / "000000000029.reason").read_text() == "400: no batch"


def test_a_batch_that_cannot_be_made_leaves_a_gap_and_no_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    with pytest.raises(ZeroDivisionError):
        spool.put(lambda sequence: bytes(1 // 0))
    assert numbers(tmp_path) == [] and spool.put(lambda sequence: b"x") == 1


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"next": "many"}'])
def test_a_broken_state_does_not_give_a_number_twice(tmp_path: Path, broken: str) -> None:
    spool = Spool(tmp_path)
    last = [spool.put(lambda sequence: b"x") for _ in range(4)][-1]
    (tmp_path / "state.json").write_text(broken)
    again = Spool(tmp_path)
    assert again.put(lambda sequence: b"y") > last and again.agent != spool.agent


@pytest.mark.process
def test_killed_at_any_moment(tmp_path: Path) -> None:
    said: list[int] = []
    for round_number in range(6):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True,
                                 env={**os.environ, "PYTHONPATH": os.getcwd()})
        assert child.stdout
        first = child.stdout.readline()
        time.sleep(0.02 * round_number)
        child.kill()
        said += [int(line) for line in [first, *child.stdout.read().splitlines()] if line.strip()]
        child.wait()
    assert len(said) == len(set(said)) and said == sorted(said)
    kept = numbers(tmp_path)
    assert set(said) <= set(kept)                               # what was said to be stored is there
    for sequence in kept:
        assert (tmp_path / f"{sequence:012}.batch").read_bytes() == b"%d " % sequence * 20_000
    assert json.loads((tmp_path / "state.json").read_text())["next"] >= kept[-1] + 1
    Spool(tmp_path)
    assert not list(tmp_path.glob("*.part"))
