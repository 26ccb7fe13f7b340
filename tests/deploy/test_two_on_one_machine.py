"""Two installations of one machine: ports, servers, data and sign-ins of their own, and either may stop."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.product import PROJECT, Product, clean_env, seed_database
from tests.scale import deep_only

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.deep, deep_only, pytest.mark.timeout(600)]
PASSWORD = "correct horse battery staple"
TRACE = PROJECT / "tests" / "data" / "h200" / "kineto_layer.json.gz"


@pytest.fixture
def both(tmp_path: Path) -> Iterator[list[Product]]:
    """Neither says a port or a server; both have an owner."""
    started = []
    for name in ("first", "second"):
        home = tmp_path / name
        seed_database(home)
        subprocess.run([sys.executable, PROJECT / "manage.py", "createowner", "olga"], check=True, capture_output=True, timeout=300,
                       env=clean_env(home) | {"RIDGEPOINT_PASSWORD": PASSWORD})
        started.append(Product(home, env={"RIDGEPOINT_SIGN_IN": "1"}))
        started[-1].wait_until_up()
    yield started
    for product in started:
        product.stop()


def sign_in(session: requests.Session, product: Product) -> None:
    page = session.get(product.url + "/accounts/login/", timeout=60)
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
    assert token
    answer = session.post(page.url, headers={"Referer": page.url}, timeout=60,
                          data={"username": "olga", "password": PASSWORD, "csrfmiddlewaretoken": token[1]})
    assert answer.status_code == 200 and "/accounts/login/" not in answer.url


def test_two_installations_of_one_machine_leave_each_other_alone(both: list[Product]) -> None:
    first, second = both
    assert first.url != second.url
    browser = requests.Session()                    # cookies of one host name, whatever the port
    for product in both:
        sign_in(browser, product)
    assert len({each.name for each in browser.cookies if "session" in each.name}) == 2

    def names(product: Product) -> set[str]:
        answer = browser.get(product.url + "/api/profiles/", timeout=60)
        assert answer.status_code == 200, "still signed in"
        return {row["name"] for row in answer.json()["results"]}

    before = names(second)
    made = browser.post(first.url + "/api/profiles/", files={"file": ("only-here.json.gz", TRACE.read_bytes())}, timeout=60,
                        data={"name": "only-here"},
                        headers={"X-CSRFToken": str(browser.cookies["csrftoken"]), "Referer": first.url})
    assert made.status_code == 201, made.text[:300]
    assert "only-here" in names(first) and names(second) == before
    first.stop()
    assert names(second) == before
