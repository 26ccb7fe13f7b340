"""Errors that no view saw: JSON for the API, a page for people, and never a fault for a hostile address."""

from typing import Any

import pytest
from django.test import Client

from webapp.models import ApiToken

pytestmark = pytest.mark.django_db
NUL = ["/profiles/?q=%00", "/search/?q=a%00b", "/compare/?build_a=%00", "/kernels/?gpu=%00", "/captures/?status=%00", "/%00/"]


@pytest.mark.parametrize("address", [*NUL, *(f"/api{url}" for url in NUL if "search" not in url and "kernels" not in url)])
def test_a_nul_in_an_address_is_a_bad_request(client: Client, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 400
    if address.startswith("/api/"):
        assert set(answer.json()) == {"error", "where", "hint"} and "NUL" in answer.json()["error"]
    else:
        assert "cannot understand" in answer.content.decode()


def test_an_unknown_address_of_the_api_answers_in_json(client: Client) -> None:
    answer = client.get("/api/nothing/")
    assert answer.status_code == 404 and set(answer.json()) == {"error", "where", "hint"}


@pytest.mark.parametrize("method", ["post", "patch"])
@pytest.mark.parametrize("body", ["[" * 200_000, "{", "[1, 2]", "7", "null", '"\\u0000"'])
def test_json_that_is_none_of_ours_is_refused(method: str, body: str, api: Any, alice: Any) -> None:
    client = api(alice)
    for address in ("/api/profiles/", "/api/tune/", "/api/captures/", "/api/captures/preview/", "/api/profiles/1/"):
        answer = getattr(client, method)(address, body, content_type="application/json")
        assert 400 <= answer.status_code < 500, (address, answer.content)
        assert {"error", "where", "hint"} <= set(answer.json()), (address, answer.json())


@pytest.mark.parametrize("address", ["/api/projects/main/members/", "/api/invitations/", "/api/follows/"])
def test_a_refusal_quotes_half_a_surrogate_pair(address: str, api: Any, olga: Any) -> None:
    given = r'{"role": "\ud800", "username": "olga", "kind": "\ud800"}'
    answer = api(olga).post(address, given, content_type="application/json")
    assert answer.status_code == 400 and rb"\ud800" in answer.content


@pytest.mark.parametrize("number", ["%C2%B2", "9" * 30, "-1", "1.5", "NaN", "%D9%A3", "abc", ""])
def test_numbers_in_addresses_may_be_anything(number: str, client: Client) -> None:
    for address in (f"/api/compare/?a={number}&b=1", f"/compare/?a={number}&b=1", f"/api/captures/?target={number}",
                    f"/api/captures/?offset={number}", f"/api/profiles/?limit={number}&offset={number}",
                    f"/captures/targets/?edit={number}", f"/captures/?target={number}", f"/api/configs/best/?M={number}"):
        assert client.get(address).status_code in (200, 400, 404), address


def test_a_token_of_nobody_is_refused_in_json(client: Client, sign_in_mode: None) -> None:
    assert not ApiToken.objects.exists()
    for header in ("Token x", "Token", "Token a b c", "Token rp_" + "9" * 5000, "Basic eA==", "Token \u00e9"):
        answer = client.get("/api/profiles/", HTTP_AUTHORIZATION=header)
        assert answer.status_code in (400, 401, 403) and answer.json()["hint"], header
