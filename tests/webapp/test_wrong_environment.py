"""What the environment names wrongly is said in one line, by its name, before anything starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from tests.product import PROJECT, clean_env
from webapp.management.commands.serve import _listen
from webapp.settings import _checked


@pytest.mark.process
@pytest.mark.parametrize(("name", "why"), [("file", "Not a directory"), ("round", "Too many levels of symbolic links")])
def test_a_data_folder_that_can_be_none(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "round").symlink_to(tmp_path / "round")
    home = tmp_path / name / "data" if name == "round" else tmp_path / name
    done = subprocess.run([sys.executable, "manage.py", "serve"], cwd=PROJECT, env=clean_env(home), text=True, capture_output=True,
                          timeout=60)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith(f"RIDGEPOINT_HOME={home} cannot be used: {why}") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(("url", "fits"), [
    ("", True), ("redis://:pw@cache/0", True), ("unix:/tmp/valkey.sock", True), ("http://cache", False), ("cache:6379", False)])
def test_an_address_of_another_kind(url: str, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "REDIS_URL", url)
    if fits:
        assert _checked("REDIS_URL", ("redis", "unix")) == url
    else:
        with pytest.raises(ImproperlyConfigured, match="REDIS_URL begins with none of redis:, unix:"):
            _checked("REDIS_URL", ("redis", "unix"))


def test_a_port_that_is_none() -> None:
    with pytest.raises(CommandError, match="PORT=70000 is no port"):
        _listen("127.0.0.1", 70000)
