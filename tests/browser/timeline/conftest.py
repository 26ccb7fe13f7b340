"""A page that the tests of a file share: to load a timeline costs more than most tests of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.browser.conftest import _OURS
from tests.browser.visit import WITHIN_MS

# what an address says is taken over as on Back: without a query, all is as when the page opened
AS_OPENED = """(path) => {
  for (const each of document.querySelectorAll("dialog[open]")) each.close();
  for (const each of document.querySelectorAll("details[open]")) each.open = false;
  document.activeElement.blur();
  history.pushState(null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
}"""


@pytest.fixture(scope="module")
def _shared(browser: Any) -> Iterator[tuple[Any, list[str]]]:
    wrong: list[str] = []
    with closing(browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")) as context:
        page = context.new_page()
        page.set_default_timeout(WITHIN_MS)
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: None if _OURS.match(request.url) else wrong.append(request.url))
        yield page, wrong


@pytest.fixture
def shared(_shared: tuple[Any, list[str]], request: pytest.FixtureRequest, server_url: str) -> Iterator[Callable[[str], Any]]:
    """Give a function that shows a path of the site as if it had just been opened; errors of the page fail the test."""
    page, wrong = _shared
    failed = request.session.testsfailed

    def show(path: str) -> Any:
        page.set_viewport_size({"width": 1440, "height": 900})
        page.mouse.move(0, 0)
        if page.url.split("?")[0] == server_url + path:
            page.evaluate(AS_OPENED, path)
        else:
            page.goto(server_url + path)
        return page

    yield show
    said = [*wrong]
    wrong.clear()
    if said or request.session.testsfailed > failed:
        page.goto("about:blank")                # the next test is not to stumble over what this one left
    assert said == []
