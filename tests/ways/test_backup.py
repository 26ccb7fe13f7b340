"""What people see is backed up and restored elsewhere: they sign in there as before, and the same pages say the same."""

from __future__ import annotations

import difflib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200
from tests.product import PROJECT, START_WITHIN_S, clean_env
from tests.ways.conftest import (
    Team,
    by_name,
    duration_ns,
    events_of,
    import_files,
    kernels_of,
    manage,
    open_section,
    open_setting,
    reload_until,
    sign_in,
)

FILE = H200 / "kineto_layer_stack.json.gz"
AGO = re.compile(r"just now|\b\d+ \w+ ago")
PASSPHRASE = {"RIDGEPOINT_BACKUP_PASSPHRASE": "correct horse battery staple"}


@pytest.fixture
def restored(team: Team, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """`restored()` backs the team's product up, restores it into another folder, and returns the address of its web server."""
    started: list[subprocess.Popen[bytes]] = []

    def make() -> str:
        place, home = tmp_path / "backups", tmp_path / "home"
        manage(team.home, "backup", str(place), **PASSPHRASE)
        manage(tmp_path, "restore", str(place), "--to", str(home), **PASSPHRASE)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            os.set_inheritable(listener.fileno(), True)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            started.append(subprocess.Popen(
                [sys.executable, str(PROJECT / "manage.py"), "web", "--fd", str(listener.fileno())], cwd=PROJECT,
                env=clean_env(home) | {"RIDGEPOINT_SIGN_IN": "1"}, pass_fds=[listener.fileno()],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wait_for(url)
        return url
    yield make
    for each in started:
        each.terminate()
        each.wait(60)


def wait_for(url: str) -> None:
    end = time.monotonic() + START_WITHIN_S
    while time.monotonic() < end:
        try:
            with urlopen(f"{url}/health/ready", timeout=START_WITHIN_S):
                return
        except (URLError, OSError):
            time.sleep(0.05)
    raise TimeoutError(url)


def test_what_was_restored_says_the_same(owner: Any, restored: Callable[[], str], visitors: Callable[[], Any]) -> None:
    import_files(owner, FILE, build="kept-1", model="kept")
    before = pages(owner)
    later = visitors()
    later.goto(restored())
    sign_in(later)
    for name, now in pages(later).items():
        assert "\n".join(difflib.unified_diff(before[name], now, lineterm="", n=0)) == "", name


def pages(page: Any) -> dict[str, list[str]]:
    """Walk from Overview by clicks; return what each page says, after its numbers were counted."""
    kernels = kernels_of(events_of(FILE))
    told = {}
    open_section(page, "Profiles")
    row = page.locator("tr[data-profile]", has_text=FILE.name).first
    assert int(row.locator("[data-cell=launches]").get_attribute("data-value")) == len(kernels)
    assert round(float(row.locator("[data-cell=gpu_time_ns]").get_attribute("data-value"))) == duration_ns(kernels)
    row.get_by_role("link", name=FILE.name).click()
    page.locator("table.top-kernels tbody tr").first.wait_for()
    reload_until(page, lambda: page.get_by_text("open to make it").count() == 0)         # until a worker has made every analysis
    told["profile"] = said(page)
    page.locator("nav.tabs").get_by_role("link", name="Kernels", exact=True).click()
    page.locator("table[data-enhanced] tbody tr").first.wait_for()
    told["kernels"] = said(page)
    assert {round(float(each.get_attribute("data-value"))) for each in page.locator("tbody td:nth-child(4)").all()} == set(
        by_name(kernels).values())
    open_section(page, "Profiles")                          # its grade is there once every analysis is
    told["profiles"] = said(page)
    open_setting(page, "People")
    told["people"] = said(page)
    return told


def said(page: Any) -> list[str]:
    """Return the page's words once all of it is there, line by line, without how long ago something was."""
    expect(page.locator("main table[data-grid]:not([data-enhanced]), #analysis")).to_have_count(0)
    return AGO.sub("", page.locator("main").inner_text()).splitlines()
