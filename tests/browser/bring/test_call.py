"""One call of a pasted kernel's host function: proposed, taken with a click, sent with the file: in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.visit import eventually, fits, shows
from tests.tuner.bring.files import ADD

pytestmark = pytest.mark.browser
CALL = "add(randn(4096, 1024), randn(4096, 1024))"


def test_a_call_that_the_file_shows_is_taken_and_one_that_is_none_is_refused_at_its_field(page: Any, server_url: str) -> None:
    page.goto(f"{server_url}/tune/operators/check/")
    page.get_by_label("Kernel file").fill(ADD)
    page.get_by_label("One call").fill("add(lambda: 1)")
    page.get_by_role("button", name="Check", exact=True).click()
    shows(page.locator("#check-form"), "only calls, tensors")
    page.get_by_label("One call").fill("")
    page.get_by_role("button", name="Check", exact=True).click()
    page.wait_for_url("**/check/*/")
    page.locator("#check-file summary").click()
    page.get_by_role("button", name=CALL).click()
    eventually(lambda: page.get_by_label("One call").input_value() == CALL)
    page.set_viewport_size({"width": 1000, "height": 800})
    fits(page)
    page.get_by_role("button", name="Check", exact=True).click()
    page.wait_for_url("**/check/*/")
    eventually(lambda: page.get_by_label("One call").input_value() == CALL)
