"""`manage.py doctor`: true of what is there, and it starts nothing."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tests.product import PROJECT, clean_env
from webapp.operate import checks, doctor


def manage(home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(PROJECT / "manage.py"), *arguments], env=clean_env(home) | env, text=True,
                          capture_output=True, timeout=120)


@pytest.mark.process
def test_a_bare_machine_is_told_what_to_do_and_stays_bare(tmp_path: Path) -> None:
    home = tmp_path / "var"
    told = manage(home, "doctor", "--json")
    assert told.returncode == 1 and not home.exists(), told.stderr
    found = {check["name"]: check for check in json.loads(told.stdout)["checks"]}
    assert found["Python"]["state"] == found["Folder: temporary files"]["state"] == "ok"
    assert found["Database"]["state"] == found["Valkey"]["state"] == "bad" and "make run" in found["Database"]["hint"]
    assert found["Migrations"]["says"] == "unknown: see Database" and found["Queues"]["says"] == "unknown: see Valkey"
    assert [check["state"] for name, check in found.items() if name.startswith("Disk: ")].count("ok") >= 1


@pytest.mark.process
def test_a_wrong_setting_is_one_line(tmp_path: Path) -> None:
    told = manage(tmp_path, "doctor", RIDGEPOINT_DISK_REST="lots")
    assert told.returncode == 1 and told.stderr.startswith("RIDGEPOINT_DISK_REST is 'lots'") and "Traceback" not in told.stderr


@pytest.mark.django_db
@pytest.mark.servers
def test_over_what_runs_it_finds_the_server(capsys: Any) -> None:
    out = io.StringIO()
    call_command("doctor", stdout=out)
    assert "ok    Database" in out.getvalue() and "PostgreSQL" in out.getvalue() and "ok    Clocks" in out.getvalue()


@pytest.mark.django_db
def test_nobody_who_can_sign_in_is_bad(settings: Any, olga: Any) -> None:
    settings.LOCAL_MODE = False
    assert doctor.owner().state == checks.OK
    olga.delete()
    assert doctor.owner().state == checks.BAD and "createowner" in doctor.owner().hint


def test_a_key_that_others_can_read(settings: Any, tmp_path: Path) -> None:
    settings.HOME = tmp_path
    key = tmp_path / "secret_key"
    key.write_text("x" * 50)
    key.chmod(0o640)
    assert doctor.secret().state == checks.BAD and f"chmod 600 {key}" in doctor.secret().hint
    key.chmod(0o600)
    assert doctor.secret().state == checks.OK
    key.unlink()
    settings.SECRET_KEY = "short"
    assert doctor.secret().state == checks.BAD


def test_packages_are_held_against_the_lock(settings: Any, tmp_path: Path) -> None:
    assert doctor.packages().facts["missing"] == []
    settings.BASE_DIR = tmp_path
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["Django>=5", "no-such-thing>=1  ", "redis[x]>=8"]')
    (tmp_path / "requirements.lock").write_text("# tested\nDjango==1.0\nnot-here==2\n")
    found = doctor.packages()
    assert found.state == checks.BAD and found.facts["missing"] == ["no-such-thing"]
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["Django>=5"]')
    assert doctor.packages().state == checks.WARN and "(1.0)" in doctor.packages().says and "not-here" not in doctor.packages().says


@pytest.mark.parametrize(("local", "names", "https", "state"), [
    (True, ["localhost"], False, "ok"), (False, ["localhost"], False, "warn"), (False, ["*"], True, "warn"),
    (False, ["guard.example"], False, "warn"), (False, ["guard.example"], True, "ok")])
def test_hosts(settings: Any, local: bool, names: list[str], https: bool, state: str) -> None:
    settings.LOCAL_MODE, settings.ALLOWED_HOSTS, settings.HTTPS = local, names, https
    assert doctor.hosts().state == state


def test_an_old_backup(settings: Any, tmp_path: Path) -> None:
    settings.HOME, settings.LOCAL_MODE = tmp_path, False
    assert doctor.backup().state == checks.WARN
    (tmp_path / "backups").mkdir()
    kept = tmp_path / "backups" / "a.dump"
    kept.touch()
    assert doctor.backup().state == checks.OK
    os.utime(kept, (time.time() - 9 * 86_400,) * 2)
    assert doctor.backup().state == checks.WARN and doctor.backup().says == "9.0 days old"


def test_folders_that_cannot_be_written(settings: Any, tmp_path: Path) -> None:
    settings.HOME = Path("/proc/self")
    [found] = [check for check in doctor.folders() if check.name == "Folder: data folder"]
    assert found.state == checks.BAD and found.hint


def test_a_port_that_is_taken_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setattr(doctor, "PORT", taken.getsockname()[1])
        taken.listen()
        monkeypatch.setattr(doctor, "ASK_S", 0.2)
        assert doctor.port().state == checks.WARN
    assert doctor.port().state == checks.OK


def test_a_machine_without_a_gpu_is_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.gpu().state == checks.OK
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H100, 580.1'\n")
    program.chmod(0o755)
    monkeypatch.setattr(doctor, "_version", lambda name: {"torch": "2.13.0+cpu", "triton": None}[name])
    found = doctor.gpu()
    assert found.state == checks.WARN and "NVIDIA H100, 580.1" in found.says and "triton missing (3.7.1)" in found.says
