"""What a way needs: watched pages over the product that all browser tests share, and a second product where people sign in."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import _OURS, _kept_context, browser_type_launch_args, context, page, watched
from tests.browser.visit import WITHIN_MS, WORKED_MS, poll
from tests.product import PROJECT, Product, clean_env, seed_database

__all__ = ["_kept_context", "browser_type_launch_args", "context", "page", "watched"]
OWNER, PASSWORD = "olga", "correct horse battery"


@dataclass(frozen=True)
class Team:
    """A product where people sign in, and its owner is `OWNER`."""

    product: Product
    url: str
    home: Path


@pytest.fixture(scope="session")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """As on a server that several people use; empty but for its owner at first."""
    home = tmp_path_factory.mktemp("team")
    seed_database(home)
    product = Product(home, "--gpus", "0", env={"RIDGEPOINT_SIGN_IN": "1"})
    try:
        product.wait_until_up()
        manage(home, "createowner", OWNER, RIDGEPOINT_PASSWORD=PASSWORD)
        yield Team(product, product.url, home)
    finally:
        product.stop()


@contextmanager
def watching() -> Iterator[Callable[[Any], Any]]:
    """Give a function that opens a page in a browser's context; errors in the consoles of its pages fail at the end."""
    wrong: list[str] = []

    def open_page(context: Any) -> Any:
        page = context.new_page()
        page.set_default_timeout(WITHIN_MS)
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: None if _OURS.match(request.url) else wrong.append(request.url))
        return page

    yield open_page
    assert wrong == []


@pytest.fixture
def visitors(browser: Any) -> Iterator[Callable[[], Any]]:
    """`visitors()` is the page of another person, in a browser of their own."""
    with ExitStack() as contexts, watching() as open_page:
        yield lambda: open_page(contexts.enter_context(closing(browser.new_context())))


@pytest.fixture(scope="session")
def owner_context(browser: Any, team: Team) -> Iterator[Any]:
    """The browser of the team's owner, who signed in once; its page stays open, and with it what the site's scripts compiled to."""
    with closing(browser.new_context()) as context, watching() as open_page:
        page = open_page(context)
        page.goto(team.url)
        sign_in(page)
        yield context


@pytest.fixture
def owner(owner_context: Any, team: Team) -> Iterator[Any]:
    """A page of the owner's browser, on the first page that one sees."""
    with watching() as open_page, closing(open_page(owner_context)) as page:
        page.goto(team.url)
        yield page


def manage(home: Path, *arguments: str, **env: str) -> str:
    """Run a command of the product over a data folder; return what it printed."""
    done = subprocess.run([sys.executable, str(PROJECT / "manage.py"), *arguments], cwd=PROJECT, env=clean_env(home) | env,
                          capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def sign_in(page: Any, name: str = OWNER, password: str = PASSWORD) -> None:
    """From the page that asks who one is to the one that was wanted."""
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.locator("#user-menu summary", has_text=name).wait_for()


def follow(page: Any, link: Any) -> None:
    """Click a link, and wait until the page that it leads to is there with its scripts: the menus are the same on every page."""
    with page.expect_navigation():
        link.click()


def open_section(page: Any, section: str, tab: str = "") -> None:
    """Click a name in the bar, then one of its tabs."""
    follow(page, page.get_by_role("navigation", name="Main").get_by_role("link", name=section, exact=True))
    if tab:
        follow(page, page.locator("nav.tabs").get_by_role("link", name=tab, exact=True))


def open_setting(page: Any, title: str) -> None:
    """Click an entry of the person's menu."""
    page.locator("#user-menu summary").click()
    follow(page, page.locator("#user-menu").get_by_role("link", name=title, exact=True))


def invite(page: Any, role: str, project: str = "") -> str:
    """Make an invitation on Settings · People; return its link, which is shown this once."""
    open_setting(page, "People")
    page.get_by_label("Role", exact=True).select_option(role)
    if project:
        page.get_by_label("Project", exact=True).select_option(label=project)
    page.get_by_role("button", name="Make a link").click()
    return str(page.locator("#invitation-link").inner_text())


def join(page: Any, link: str, name: str) -> None:
    """Open an invitation and make the account; who does so is signed in."""
    page.goto(link)
    page.get_by_label("User name").fill(name)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Password again").fill(PASSWORD)
    page.get_by_role("button", name="Make the account").click()
    page.locator("#user-menu summary", has_text=name).wait_for()


def make_token(page: Any, name: str) -> str:
    """Make a token that reads and writes on Settings · API tokens; return it, which is shown this once."""
    open_setting(page, "API tokens")
    page.get_by_role("textbox", name="Name", exact=True).fill(name)
    page.get_by_role("button", name="Create").click()
    return str(page.locator("#new-token").inner_text())


def import_files(page: Any, *files: Path, build: str = "", model: str = "") -> None:
    """Bring files in by the form of Profiles · Import, and wait there until all of them are read."""
    open_section(page, "Profiles")
    follow(page, page.get_by_role("link", name="Import", exact=True))
    page.fill("#u-build", build)
    page.fill("#u-model", model)
    page.set_input_files("#file", [str(each) for each in files])
    page.click("[data-submit]")
    poll(page, f"""[...document.querySelectorAll("[data-files] > li")].filter(
        (row) => row.textContent.includes("✓ ready")).length === {len(files)}""", within_ms=WORKED_MS)


def reload_until(page: Any, seen: Callable[[], bool], every_ms: int = 1000) -> None:
    """Reload a page that does not follow by itself what workers do, until it shows what is wanted."""
    for _ in range(WORKED_MS // every_ms):
        if seen():
            return
        page.wait_for_timeout(every_ms)
        page.reload()
    raise TimeoutError(page.locator("main").inner_text())


def events_of(file: Path) -> list[dict[str, Any]]:
    """Return the events of a Kineto file as its JSON holds them."""
    content = file.read_bytes()
    events: list[dict[str, Any]] = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)["traceEvents"]
    return events


def kernels_of(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in events if each.get("cat") == "kernel"]


def duration_ns(events: Iterable[dict[str, Any]]) -> int:
    """Return the sum of the events' durations."""
    return sum(round(each["dur"] * 1000) for each in events)


def exact(where: Any) -> float:
    """Return the number behind a shown one: what its hover says, in the hover's unit."""
    return float(where.get_attribute("title").split()[0].replace(",", ""))


def by_name(events: Iterable[dict[str, Any]]) -> Counter[str]:
    """Return the ns of each kernel's name."""
    found: Counter[str] = Counter()
    for each in events:
        found[each["name"]] += round(each["dur"] * 1000)
    return found
