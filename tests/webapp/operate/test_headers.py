"""Headers of every answer, cookies, methods and media types: what ASVS chapters 3, 13 and 14 ask of them."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest
from django.conf import settings
from django.conf.global_settings import PASSWORD_HASHERS
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.test import Client

from webapp import settings as shipped
from webapp.operate import observed
from workers.trail import Trail

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["/accounts/login/", "/api/profiles/", "/no/such/page/", "/static/css/base/ridgepoint.css"])
def test_no_answer_is_guessed_at_framed_or_told_to_others(client: Client, sign_in_mode: None, path: str) -> None:
    answer = client.get(path, headers={"Origin": "https://elsewhere.example"})
    assert answer["X-Content-Type-Options"] == "nosniff" and answer["Referrer-Policy"] == "same-origin"
    assert answer["Content-Type"] and answer.get("X-Frame-Options", "DENY") == "DENY"
    assert "Access-Control-Allow-Origin" not in answer and "Server" not in answer


def test_the_session_is_out_of_reach_of_scripts_and_other_sites(client: Client, sign_in_mode: None, bob: Any) -> None:
    before = client.get("/accounts/login/").cookies["csrftoken"]
    assert before["samesite"] == "Lax"
    planted = client.session
    planted.save()
    client.cookies[settings.SESSION_COOKIE_NAME] = planted.session_key
    bob.set_password("correct horse battery staple")
    bob.save()
    client.post("/accounts/login/", {"username": "bob", "password": "correct horse battery staple"})
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    assert cookie.value != planted.session_key, "a sign-in takes no session that was there before"
    assert cookie["httponly"] and cookie["samesite"] == "Lax" and len(cookie.value) >= 32


def test_other_methods_and_media_types_are_refused(api: Any, sign_in_mode: None, alice: Any) -> None:
    assert api(alice).generic("TRACE", "/api/profiles/").status_code == 405
    assert api(alice).post("/api/tune/", "<xml/>", content_type="application/xml").status_code == 415


def test_a_path_forges_no_line_of_the_log() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    observed.log.addHandler(handler)
    try:
        observed._note(Trail("1"), {"method": "GET", "path": "/x\nE webapp: forged \x1b[31m", "client": ("10.0.0.9", 1)}, 404, 0.1)
    finally:
        observed.log.removeHandler(handler)
    assert out.getvalue().count("\n") == 1 and "\x1b" not in out.getvalue() and "\\x0a" in out.getvalue()


def test_debug_is_off_and_passwords_are_hashed_slowly(settings: Any) -> None:
    assert not settings.DEBUG
    # the tests have a quick one
    assert not hasattr(shipped, "PASSWORD_HASHERS") and PASSWORD_HASHERS[0].endswith(".PBKDF2PasswordHasher")
    hasher = PBKDF2PasswordHasher()
    algorithm, iterations, salt, _ = hasher.encode("correct horse battery staple", hasher.salt()).split("$")
    assert algorithm == "pbkdf2_sha256" and int(iterations) >= 100_000 and len(salt) >= 16
