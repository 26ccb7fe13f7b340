"""A profile is shared by a link: who has it reads just that profile, with the numbers that its owner sees, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, eventually, reads
from tests.ways.conftest import OWNER, Team, by_name, events_of, exact, import_files, kernels_of, watching

SHARED, KEPT = H200 / "kineto_layer_stack.json.gz", H200 / "kineto_layer.json.gz"


@pytest.fixture(scope="module")
def sharer(team: Team, owner_context: Any) -> Iterator[Any]:
    """The owner's page, on the profile that is shared: it was imported by clicks, with another one that is not shared."""
    with watching() as open_page, closing(open_page(owner_context)) as page:
        page.goto(team.url)
        import_files(page, SHARED, KEPT, build="share-1", model="shared")
        page.locator("[data-files] li", has_text=SHARED.name).get_by_role("link", name="Open").click()
        page.wait_for_url("**/profiles/*/")
        yield page


def test_who_has_the_link_sees_that_profile_and_nothing_else(team: Team, sharer: Any, visitors: Callable[[], Any]) -> None:
    counted_alike(sharer)
    told = told_by(sharer)
    link = share(sharer)

    guest = visitors()
    guest.goto(link)
    reads(guest.get_by_role("navigation", name="Main"), "Shared by a link, read only")
    counted_alike(guest)
    assert told_by(guest) == told
    goes_through_its_pages(guest)
    sees_nothing_else(guest, team)
    end_the_link(sharer, guest, link)


def test_no_link_leads_a_guest_to_the_sign_in_page(sharer: Any, visitors: Callable[[], Any]) -> None:
    open_links(sharer)
    sharer.get_by_role("button", name="Make a link").click()
    guest = visitors()
    guest.goto(sharer.locator("#share-link").inner_text())
    guest.locator("table.top-kernels tbody tr").first.wait_for()
    here = re.sub("^https?://[^/]+", "", guest.url)
    links = guest.locator("main a[href^='/'], .subbar a[href^='/']").evaluate_all("all => all.map((one) => one.pathname)")
    away = sorted({re.sub(r"\d+", "N", each) for each in links if not each.removeprefix("/api").startswith(here)})
    assert not away, " ".join(away)


def counted_alike(page: Any) -> None:
    """The table of kernels is what the file's events sum up to."""
    expect(page.locator("#analysis")).to_have_count(0)                  # the page opens anew once its analyses are there
    kernels = kernels_of(events_of(SHARED))
    totals = by_name(kernels)
    rows = page.locator("table.top-kernels tbody tr")
    expect(rows.first).to_be_visible()
    shown = [(round(exact(row.locator("td").nth(2).locator(".num"))), int(row.locator("td").nth(3).inner_text().replace(",", "")))
             for row in rows.all()]
    launches = {name: sum(each["name"] == name for each in kernels) for name in totals}
    expected = [(total, launches[name]) for name, total in totals.most_common()]
    assert shown == expected[:len(shown)] and shown


def told_by(page: Any) -> list[str]:
    """Return what the profile's page says in words and numbers: its answer, the run in numbers, its kernels."""
    parts = (".answer", ".strip .strip-value", "table.top-kernels td.num", "#integrity li")
    return [" ".join(text.split()) for part in parts for text in page.locator(part).all_inner_texts()]


def open_links(page: Any) -> None:
    """From the profile, or a page of its links, to its links."""
    if "/sharing/" in page.url:
        page.locator(".crumbs a").click()
    page.locator("#profile-actions summary").click()
    page.get_by_role("link", name="Share by link").click()


def share(page: Any) -> str:
    open_links(page)
    reads(page.locator(".answer"), "Not shared")
    page.get_by_label("Valid for (days)").fill("3")
    page.get_by_role("button", name="Make a link").click()
    reads(page.locator(".answer"), "1 link opens this profile")
    return str(page.locator("#share-link").inner_text())


def goes_through_its_pages(page: Any) -> None:
    """Tabs of the profile open: its timeline, its kernels, its report."""
    for title in ("Timeline", "Kernels", "Report"):
        page.locator("nav.tabs").get_by_role("link", name=title, exact=True).click()
        expect(page.locator("nav.tabs a[aria-current]", has_text=title)).to_be_visible()
        expect(page.get_by_role("navigation", name="Main")).to_have_text("Shared by a link, read only")


def sees_nothing_else(page: Any, team: Team) -> None:
    """Any other address asks for a sign-in; the profile's page leads to none and offers nothing that changes it."""
    pk = int(page.url.partition("/profiles/")[2].partition("/")[0])
    others = [f"/profiles/{pk + by}/" for by in (-1, 1)]                    # the one beside it was imported with it
    for address in ("/", "/profiles/", "/kernels/", "/compare/", "/tune/", "/people/", *others, f"/sharing/{pk}/"):
        answer = page.request.get(team.url + address)
        assert "/accounts/login/" in answer.url, address
        assert "share-1" not in answer.text() and "kineto" not in answer.text(), address
    for address in ("/api/profiles/", *(f"/api{each}" for each in others), f"/api/sharing/{pk}/"):
        assert page.request.get(team.url + address).status in (401, 403), address
    assert page.request.delete(f"{team.url}/api/profiles/{pk}/").status in (401, 403)
    expect(page.locator("#profile-actions a.mark-bad")).to_have_count(0)
    assert OWNER not in page.request.get(page.url).text()                   # who uploaded it


def end_the_link(owner: Any, guest: Any, link: str) -> None:
    """The owner sees that it was opened once, and ends it: the guest is out at the next click."""
    open_links(owner)
    reads(owner.locator("tbody td.num"), "1")
    owner.get_by_role("button", name=re.compile("^End the link")).click()
    reads(owner.locator(".answer"), "Not shared")
    guest.reload()
    eventually(lambda: "/accounts/login/" in guest.url)
    assert guest.request.get(link).status == 403
