"""A second person joins by a link that the owner made, and works in one project: of the other nothing is shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.browser.visit import H200, eventually, reads, shows
from tests.ways.conftest import (
    Team,
    by_name,
    duration_ns,
    events_of,
    exact,
    import_files,
    invite,
    join,
    kernels_of,
    open_section,
    open_setting,
)

OURS, THEIRS = H200 / "kineto_layer.json.gz", H200 / "kineto_train.json.gz"      # of the first project, of the second


def test_who_is_invited_into_a_project_works_there_and_sees_nothing_else(team: Team, owner: Any,
                                                                                 visitors: Callable[[], Any]) -> None:
    import_files(owner, OURS, build="secret-build", model="secret-model")
    hidden = owner.locator("[data-files] a", has_text="Open").get_attribute("href")
    people = count_people(owner)
    make_project(owner, "Serving")
    import_files(owner, THEIRS, build="serving-1", model="serving")
    link = invite(owner, "engineer", "Serving")
    shows(owner.locator(".notice-ok"), "Invitation as engineer of Serving")
    reads(owner.locator(".answer"), f"{people} {'person' if people == 1 else 'people'}, 1 invited")

    guest = visitors()
    guest.goto(link)
    reads(guest.locator("h1"), "Join as engineer of Serving")
    join(guest, link, "nina")
    sees_its_project(guest)
    sees_nothing_else(guest, team, hidden)
    open_setting(owner, "People")
    reads(owner.locator(".answer"), f"{people + 1} people")
    row = owner.locator("tbody tr", has=owner.get_by_role("link", name="nina", exact=True))
    shows(row, "serving: engineer")
    assert guest.context.request.get(link).status == 403         # it was used
    open_project(owner, "Main")


def count_people(page: Any) -> int:
    open_setting(page, "People")
    return int(page.locator("main table[data-name=people] tbody tr").count())


def make_project(page: Any, name: str) -> None:
    """Settings · Projects · Create, and on into it by the bar's menu."""
    open_setting(page, "Projects")
    page.get_by_role("textbox", name="Name", exact=True).fill(name)
    page.get_by_role("button", name="Create").click()
    shows(page.locator(".answer"), "0 members")
    open_project(page, name)
    reads(page.locator(".answer"), "No profile yet")


def open_project(page: Any, name: str) -> None:
    page.locator("#project-menu summary").click()
    page.locator("#project-menu").get_by_role("link", name=name, exact=True).click()
    page.wait_for_url(f"**/p/{name.lower()}/")


def sees_its_project(page: Any) -> None:
    """One trace with just its kernel time, and what an engineer may do."""
    kernels = kernels_of(events_of(THEIRS))
    page.locator("#project-menu").wait_for(state="detached")                # one project: nothing to choose
    shows(page.locator(".answer").first, "1 trace of 1 build")
    assert round(exact(page.locator(".answer .num[title$=' ns']").first)) == duration_ns(kernels)
    open_section(page, "Profiles")
    reads(page.locator(".answer"), "1 profile: 1 ready.")
    row = page.locator("tr[data-profile]")
    expect(row).to_have_count(1)
    assert int(row.locator("[data-cell=launches]").get_attribute("data-value")) == len(kernels)
    assert round(float(row.locator("[data-cell=gpu_time_ns]").get_attribute("data-value"))) == duration_ns(kernels)
    top, _ = by_name(kernels).most_common(1)[0]
    assert row.locator("[data-cell=top_kernel]").get_attribute("data-value").partition("<")[0] in top       # its short name
    expect(page.get_by_role("link", name="Import", exact=True)).to_be_visible()
    open_setting(page, "Projects")
    reads(page.locator(".answer"), "1 project")
    page.locator("main").get_by_role("link", name="Serving").click()
    eventually(lambda: [" ".join(each.split()[:2]) for each in page.locator("main tbody tr").all_inner_texts()]
               == ["nina engineer", "olga owner"])


def sees_nothing_else(page: Any, team: Team, hidden: str) -> None:
    """Neither in the menus nor at the address of the other project's profile, nor by a search for its name."""
    page.locator("#user-menu summary").click()
    assert not {"People", "Audit log"} & set(page.locator("#user-menu a").all_inner_texts())
    for address in (hidden, hidden.replace("/p/main", ""), f"/api{re.sub('^/p/[a-z]+', '', hidden)}"):
        assert page.request.get(team.url + address).status == 404, address
    for address in ("/", "/profiles/", "/kernels/", "/search/?q=secret"):
        answer = page.request.get(team.url + address)
        assert answer.status == 200 and "secret-" not in answer.text().replace("q=secret", ""), address
