"""Whose program becomes the private PostgreSQL, and what a start says where it cannot."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import tempfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from django.core.management import CommandError

from tests.product import PROJECT
from tests.waiting import until
from webapp.embedded import identity
from webapp.management.commands import serve


@pytest.fixture
def binaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ours, closed to others, and a folder for temporary files that everybody writes to."""
    shared = tmp_path / "tmp"
    shared.mkdir(mode=0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    bin_dir = tmp_path / "site" / "pgserver" / "pginstall18" / "bin"
    bin_dir.mkdir(parents=True)
    (bin_dir / "postgres").write_text("ours")
    (tmp_path / "site" / "pgserver.libs").mkdir()
    return bin_dir


def plant(bin_dir: Path, ending: str = "") -> Path:
    """A folder under the name that a copy has, with another program."""
    target = Path(tempfile.gettempdir()) / f"ridgepoint-pg-{int(bin_dir.stat().st_mtime)}{ending}"
    inside = target / "pgserver" / "pginstall18" / "bin"
    inside.mkdir(parents=True)
    (inside / "postgres").write_text("theirs")
    target.chmod(0o755)
    return target


def test_a_copy_is_made_once_and_can_be_entered(binaries: Path) -> None:
    first, second = (identity.copy_for_nobody(binaries) for _ in range(2))
    assert first == second and (first / "postgres").read_text() == "ours"
    assert stat.S_IMODE(first.parents[2].stat().st_mode) == 0o755 and (first.parents[2] / "pgserver.libs").is_dir()


def test_what_anybody_may_write_to_is_not_used(binaries: Path) -> None:
    plant(binaries)                                         # the name that was taken whoever had made it
    plant(binaries, "-open").chmod(0o777)
    elsewhere = plant(binaries, "-elsewhere")
    elsewhere.rename(elsewhere.with_name("somewhere"))
    elsewhere.symlink_to(elsewhere.with_name("somewhere"))
    assert (identity.copy_for_nobody(binaries) / "postgres").read_text() == "ours"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another account")
def test_what_another_account_made_is_not_used(binaries: Path) -> None:
    os.chown(plant(binaries, "-theirs"), 65534, 65534)
    assert (identity.copy_for_nobody(binaries) / "postgres").read_text() == "ours"


@pytest.mark.parametrize(("host", "told"), [
    ("192.0.2.1", "no address of this machine"), ("no-such-host.invalid", "no name that is known here")])
def test_a_host_that_is_not_ours_is_said_and_no_port_is_blamed(host: str, told: str) -> None:
    for port in (None, 18_123):
        with pytest.raises(CommandError, match=told):
            serve._listen(host, port)


def test_a_taken_port_is_still_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(CommandError, match="cannot listen"):
        serve._listen("127.0.0.1", taken.getsockname()[1])


def test_it_listens_on_an_address_of_ipv6_and_is_asked_there() -> None:
    try:
        listener = serve._listen("::1", 0)
    except CommandError as error:
        pytest.skip(str(error))
    assert listener.family == socket.AF_INET6
    answers = HTTPServer(("::1", 0), Ready, bind_and_activate=False)
    answers.socket.close()
    answers.socket = listener
    Thread(target=answers.serve_forever, daemon=True).start()
    until(lambda: serve._is_healthy(f"http://[::1]:{listener.getsockname()[1]}/health/ready"))
    answers.shutdown()
    answers.server_close()


class Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health/ready" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_make_says_that_a_folder_cannot_be_written_to(tmp_path: Path) -> None:
    """A read-only or full folder is no Python without its venv package; a full device is like a full disk, for root too."""
    (tmp_path / "Makefile").write_bytes((PROJECT / "Makefile").read_bytes())
    for name in ("pyproject.toml", "requirements.lock"):
        (tmp_path / name).touch()
    (tmp_path / ".venv-room").symlink_to("/dev/full")
    done = subprocess.run(["make", "install"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode and "nothing can be written to" in done.stdout and "venv package" not in done.stdout + done.stderr
