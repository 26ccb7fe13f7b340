"""Folders of work: gone with the work, and gone when the process that worked was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from profiles.ingest import scratch

_HOLDS = ("import sys, time\nfrom profiles.ingest import scratch\n"
          "with scratch.folder() as path:\n (path / 'content').write_bytes(b'x' * 1000)\n print(path, flush=True)\n time.sleep(60)")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_gone_with_the_work(temporary: Path) -> None:
    with scratch.folder() as path:
        (path / "inner").mkdir()
        (path / "inner" / "file").write_text("words")
        with scratch.folder() as other:
            assert other != path and path.is_dir()
    with pytest.raises(ZeroDivisionError), scratch.folder():
        raise ZeroDivisionError
    assert not list(temporary.iterdir())


def test_what_a_killed_process_left_goes_with_the_next_and_not_before(temporary: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", _HOLDS], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "TMPDIR": str(temporary)}, cwd=Path(__file__).parents[3])
    assert child.stdout
    held = Path(child.stdout.readline().strip())
    assert held.parent == temporary
    with scratch.folder():
        assert (held / "content").is_file(), "its process works on"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert held.is_dir()
    with scratch.folder() as path:
        assert not held.exists() and path.is_dir()


def test_what_is_none_of_ours_stays(temporary: Path) -> None:
    other, link = temporary / "ridgepoint-capture-1", temporary / f"{scratch.PREFIX}link"
    other.mkdir()
    link.symlink_to(other)
    with scratch.folder():
        pass
    assert other.is_dir() and link.is_symlink()
