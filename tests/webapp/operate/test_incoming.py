"""Bodies on their way to the disk: in a folder of the web process, which the next one removes where it was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tests.product import PROJECT
from webapp.management.commands import web

# as a web process that was killed while a body came in
KILLED = """
import os, signal
from profiles.ingest import scratch
with scratch.folder() as folder:
    (folder / "body.upload.gz").write_bytes(b"half of it")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.process
def test_what_a_killed_process_left_of_a_body_goes_with_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                     settings: Any) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=PROJECT, env={"TMPDIR": str(tmp_path), "PYTHONPATH": str(PROJECT)})
    left, = tmp_path.glob("*/*.upload.gz")
    assert killed.returncode == -signal.SIGKILL and left.exists()
    seen = list[Path]()
    monkeypatch.setattr(web.scratch.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(web.scratch.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(web, "warm_up", lambda: None)
    monkeypatch.setattr(web.uvicorn.Server, "run", lambda self, sockets: seen.append(Path(settings.FILE_UPLOAD_TEMP_DIR)))
    call_command("web")
    assert not left.exists() and seen[0].parent == tmp_path and not seen[0].exists()
