"""WebKit as the second engine of the ways: Debian's MiniBrowser by WebKitWebDriver, over the W3C WebDriver protocol.

`apt-get install webkit2gtk-driver xvfb` brings it; whoever has no display gets one of Xvfb.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import requests

from tests.waiting import until

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"         # the key of an element's reference, W3C WebDriver section 11
WITHIN_S = 60.0


def find_browser() -> str:
    """Return where MiniBrowser is; "" where it, its driver, or a display is missing."""
    found = sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
    shown = os.environ.get("DISPLAY") or shutil.which("Xvfb")
    return str(found[-1]) if found and shutil.which("WebKitWebDriver") and shown else ""


class Browser:
    """One person's window; elements are named by CSS selectors."""

    def __init__(self, driver: str) -> None:
        """`driver`: address of a WebKitWebDriver, which has one session at a time."""
        options = {"binary": find_browser(), "args": ["--automation"]}
        asked = {"capabilities": {"alwaysMatch": {"webkitgtk:browserOptions": options}}}
        made = _ask("POST", f"{driver}/session", asked)
        self.engine = f"{made['capabilities']['browserName']} {made['capabilities']['browserVersion']}"
        self.session = f"{driver}/session/{made['sessionId']}"

    def close(self) -> None:
        _ask("DELETE", self.session)

    @property
    def url(self) -> str:
        return str(_ask("GET", f"{self.session}/url"))

    def goto(self, url: str) -> None:
        _ask("POST", f"{self.session}/url", {"url": url})

    def reload(self) -> None:
        _ask("POST", f"{self.session}/refresh", {})

    def ask(self, script: str, *arguments: Any) -> Any:
        """Return what a function's body returns in the page."""
        return _ask("POST", f"{self.session}/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, css: str) -> str:
        """Return the text of the first element, with single spaces; "" where there is none."""
        return str(self.ask("return (document.querySelector(arguments[0])?.innerText ?? '').replace(/\\s+/g, ' ').trim()", css))

    def shows(self, css: str, words: str) -> None:
        until(lambda: words in self.text(css), WITHIN_S)

    def fill(self, css: str, text: str) -> None:
        """Type into a field as a person does."""
        element = self._element(css)
        _ask("POST", f"{self.session}/element/{element}/clear", {})
        _ask("POST", f"{self.session}/element/{element}/value", {"text": text})

    def click(self, css: str) -> None:
        """Click what leads to another page, and wait until that is there."""
        self.ask("window.isOldPage = true")
        _ask("POST", f"{self.session}/element/{self._element(css)}/click", {})
        until(lambda: self.ask("return !window.isOldPage && document.readyState === 'complete'"), WITHIN_S)

    def _element(self, css: str) -> str:
        return str(_ask("POST", f"{self.session}/element", {"using": "css selector", "value": css})[ELEMENT])


def _ask(method: str, url: str, body: Any = None) -> Any:
    answer = requests.request(method, url, json=body, timeout=120)
    value = answer.json()["value"]
    assert answer.ok, value
    return value


@contextmanager
def open_browsers(home: Path) -> Iterator[Callable[[], Browser]]:
    """Give a function that opens a person's browser, with cookies of its own; what it started ends. `home`: its folder."""
    with ExitStack() as stack:
        env = {**os.environ, "HOME": str(home)}
        if not env.get("DISPLAY"):
            env["DISPLAY"] = f":{stack.enter_context(_screen())}"
        yield lambda: stack.enter_context(_browser(env))


@contextmanager
def _screen() -> Iterator[str]:
    """Start a display without a screen, and give its number."""
    read, write = os.pipe()
    server = subprocess.Popen(["Xvfb", "-displayfd", str(write), "-screen", "0", "1440x1000x24", "-nolisten", "tcp"],
                              pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        with os.fdopen(read) as told:
            yield told.readline().strip()
    finally:
        server.terminate()
        server.wait()


@contextmanager
def _browser(env: dict[str, str]) -> Iterator[Browser]:
    port = _free_port()
    driver = subprocess.Popen(["WebKitWebDriver", f"--port={port}"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: _is_ready(port), WITHIN_S)
        browser = Browser(f"http://127.0.0.1:{port}")
        try:
            yield browser
        finally:
            browser.close()
    finally:
        driver.terminate()
        driver.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _is_ready(port: int) -> bool:
    try:
        return bool(_ask("GET", f"http://127.0.0.1:{port}/status")["ready"])
    except requests.RequestException:
        return False
