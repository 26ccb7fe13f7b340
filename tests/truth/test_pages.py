"""No page of a ready profile answers with an error or shows an empty figure.

`make test` asks every file for its overview, and every kind of page of one file of each kind; of pages to which formats make a
difference one file of every format for a third of them, so that each format is asked for some. `make test-deep` asks all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from profiles.models import Profile
from tests.scale import DEEP
from tests.truth.asking import Asking
from tests.truth.files import FILES, Recording, param
from tests.truth.pages import PAGES, Page, empty_figures

VARIED_IN = 3                   # of a page's formats `make test` asks
INVARIANT = "test_a_page_answers_and_its_figures_are_not_empty"


def _cases() -> Iterator[tuple[Recording, Page, bool]]:
    """Every file with every page that it has, and whether that is for `make test-deep`."""
    for page in PAGES:
        files = [each for each in FILES if page.is_of(each)]
        least: dict[str, Recording] = {}            # by kind and by format
        for file in sorted(files, key=lambda each: each.hash(page.name)):
            least.setdefault(file.kind, file)
            least.setdefault(file.format, file)
        for file in files:
            chosen = page.varies and least[file.format] == file and file.hash(f"{page.name}, varied") % VARIED_IN == 0
            deep = page.name != "overview" and least[file.kind] != file and not chosen
            if DEEP or not deep:            # four thousand cases that are skipped would take seconds
                yield file, page, deep


@pytest.mark.django_db          # what a page may write is rolled back
@pytest.mark.parametrize(("profile", "shown"), [
    param(INVARIANT, file, page, deep=deep, about=page.name) for file, page, deep in _cases()], indirect=["profile"])
def test_a_page_answers_and_its_figures_are_not_empty(profile: Profile, shown: Page, ask: Asking) -> None:
    address = shown.address(profile, profile.kernels.first())
    status, content = ask.answer(address)
    assert status == 200, (address, status, content[:300])
    assert not empty_figures(content.decode()), address
