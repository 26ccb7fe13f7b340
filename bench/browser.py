"""A headless Chromium for the benches: pages of a web server of our own, frames as the browser paints them, memory."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync")
SIZE = {"width": 1440, "height": 900}
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Times between animation frames until told to stop: `stop()` answers them in ms.
RECORD = """() => {
  const gaps = []; let last = 0, going = true;
  const tick = (time) => { if (last) gaps.push(time - last); last = time; if (going) requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
  window.benchFrames = () => { going = false; return gaps; };
}"""
# What the browser itself can do at this moment: a canvas of the timeline's size, repainted in one colour at every frame.
EMPTY = """async (ms) => {
  const canvas = document.createElement("canvas"), gaps = [];
  canvas.width = 1220; canvas.height = 700; document.body.append(canvas);
  const context = canvas.getContext("2d", { alpha: false }), began = performance.now(); let last = 0;
  await new Promise((done) => {
    const tick = (time) => {
      context.fillStyle = gaps.length % 2 ? "#fff" : "#eee"; context.fillRect(0, 0, 1220, 700);
      if (last) gaps.push(time - last); last = time;
      if (performance.now() - began < ms) requestAnimationFrame(tick); else done();
    };
    requestAnimationFrame(tick);
  });
  return gaps;
}"""


def chromium() -> str | None:
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


@contextmanager
def server(home: Path) -> Iterator[str]:
    """The web process alone, freshly started: nothing is decoded in it yet. Gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"RIDGEPOINT_HOME": str(home)}
    process = subprocess.Popen([sys.executable, "manage.py", "web", "--port", str(port)], cwd=ROOT, env=environment)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(1200):
            try:
                urllib.request.urlopen(f"{address}/health/", timeout=2).read()
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise RuntimeError("the web server does not answer")
        yield address
    finally:
        process.terminate()
        process.wait(60)


class Browser:
    """One page, and what its renderer process holds."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable")

    def heap_bytes(self) -> int:
        """JavaScript heap and the buffers that it refers to."""
        metrics = {each["name"]: each["value"] for each in self._session.send("Performance.getMetrics")["metrics"]}
        return int(metrics["JSHeapUsedSize"])

    def renderer_bytes(self) -> int:
        """Proportional memory of the largest renderer process (pages shared with other processes count in part)."""
        return max((_proportional(child) for child in psutil.Process().children(recursive=True) if _is_renderer(child)), default=0)


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        context = running.new_context(viewport=SIZE)
        try:
            yield Browser(context.new_page())
        finally:
            running.close()


def _is_renderer(process: psutil.Process) -> bool:
    try:
        return "--type=renderer" in process.cmdline()
    except psutil.Error:
        return False


def _proportional(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def poll(page: Page, script: str, within_s: float = 60) -> Any:
    """The script's first true answer (`wait_for_function` needs eval, which the pages forbid)."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if found := page.evaluate(script):
            return found
        page.wait_for_timeout(20)
    raise TimeoutError(script)
