"""axe-core objects to nothing on the pages that everybody passes, in light and dark; `python -m tests.tour --axe` visits all."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.visit import H200, uploaded
from tests.product import Product

PAGES = ("/", "/profiles/", "/kernels/", "/fleet/", "/fleet/agents/", "/tune/", "/tune/new/", "/captures/new/", "/gates/new/",
         "/cache/", "/workers/", "/docs/formats/", "/profiles/{trace}/", "/profiles/{trace}/kernels/", "/profiles/{trace}/analysis/causes/",
         "/profiles/{trace}/timeline/", "/profiles/{report}/", "/profiles/{report}/roofline/")


@pytest.fixture(scope="module")
def pages(product: Product, playwright: Any, server_url: str) -> list[str]:
    ids = {"trace": uploaded(playwright, server_url, H200 / "kineto_train.json.gz"),
           "report": uploaded(playwright, server_url, H200 / "full.ncu-rep.gz")}
    return [each.format(**ids) for each in PAGES]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_objects_to_nothing(page: Any, pages: list[str], theme: str) -> None:
    axe, found = Axe(), []
    page.emulate_media(color_scheme=theme)
    for address in pages:
        page.goto(address)
        page.wait_for_load_state("networkidle")
        answer = axe.run(page, options={"resultTypes": ["violations"]}).response
        found += [(address, each["id"], each["nodes"][0]["target"]) for each in answer["violations"]]
    assert found == []
