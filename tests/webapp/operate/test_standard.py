"""Small claims of docs/asvs.md: what a framework or a library does for us is asked of it as it is set up here."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from django.conf.global_settings import PASSWORD_HASHERS
from django.contrib.auth.hashers import check_password, get_hasher, make_password
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.mail import BadHeaderError, EmailMessage
from django.test import Client
from django.urls import reverse

from profiles.exports.files import disposition
from tests.product import PROJECT
from webapp import settings as shipped
from webapp.threads.texts import html_of
from workers.secret import Unreadable, seal, unseal

PASSWORD = "ŝtupo kun spaco 🔑 " + "x" * 200


@pytest.fixture
def shipped_hashers(settings: Any) -> None:
    """Those of a start, not the quick ones of tests."""
    settings.PASSWORD_HASHERS = getattr(shipped, "PASSWORD_HASHERS", PASSWORD_HASHERS)


def test_all_of_a_password_counts_of_any_characters(shipped_hashers: None) -> None:
    encoded = make_password(PASSWORD)
    assert check_password(PASSWORD, encoded) and not check_password(PASSWORD[:-1], encoded)
    validate_password(PASSWORD)
    validate_password("only lower letters and spaces")
    with pytest.raises(ValidationError):
        validate_password("8273645546372819")


def test_a_new_password_has_twelve_characters() -> None:
    validate_password("tarn-oxbow-9")
    with pytest.raises(ValidationError, match="12"):
        validate_password("tarn-oxbow9")


def test_two_hashes_of_one_password_differ_by_a_salt_of_128_bits(shipped_hashers: None) -> None:
    salts = [get_hasher("default").decode(make_password("a password"))["salt"] for _ in range(2)]
    assert salts[0] != salts[1] and all(62 ** len(salt) >= 2**128 and re.fullmatch(r"[A-Za-z0-9]+", salt) for salt in salts)


@pytest.mark.django_db
def test_a_password_is_changed_by_who_knows_the_one_before(client: Client, sign_in_mode: None, bob: Any) -> None:
    bob.set_password("the password of before")
    bob.save()
    client.force_login(bob)
    new = {"new_password1": "another long password", "new_password2": "another long password"}
    client.post(reverse("password"), {"old_password": "a guess of it", **new})
    bob.refresh_from_db()
    assert bob.check_password("the password of before")
    client.post(reverse("password"), {"old_password": "the password of before", **new})
    bob.refresh_from_db()
    assert bob.check_password("another long password")


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/static/", "/static/css/", "/static/../webapp/settings.py", "/static/%2e%2e/manage.py", "/var/",
                                  "/uploads/", "/media/"])
def test_no_folder_is_listed_and_nothing_but_static_files_is_served_by_its_path(client: Client, path: str) -> None:
    assert client.get(path).status_code in (400, 404)


def test_no_line_of_a_mail_s_header_is_added() -> None:
    with pytest.raises(BadHeaderError):
        EmailMessage("a subject\nBcc: everybody@example.com", "text", to=["one@example.com"]).message()


def test_a_comment_holds_no_markup_and_no_picture() -> None:
    shown = html_of('<svg onload="x()"></svg> <b>bold</b> ![a](https://elsewhere.example/a.svg) `{{ settings.SECRET_KEY }}`')
    assert not re.search(r"<(svg|b|img)\b", shown) and "{{ settings.SECRET_KEY }}" in shown


def test_the_name_of_a_file_is_no_header_and_no_type() -> None:
    said = disposition('a"; filename="run.bat\r\nX: y', "csv")
    assert said.startswith("attachment") and "\r" not in said and "\n" not in said and said.count("filename=") == 1


def test_what_is_sealed_is_new_each_time_and_whole() -> None:
    first, second = seal("a secret"), seal("a secret")
    assert first != second and "secret" not in first and unseal(first) == unseal(second) == "a secret"
    with pytest.raises(Unreadable):
        unseal(first[:-2] + ("A" if first[-2] != "A" else "B") + first[-1])


@pytest.mark.django_db
def test_of_a_parameter_given_twice_one_counts(client: Client) -> None:
    assert client.get("/api/profiles/?limit=1&limit=2").json() == client.get("/api/profiles/?limit=2").json()


def test_the_web_process_names_no_server_and_proxies_ask_for_encryption() -> None:
    assert "server_header=False" in (PROJECT / "webapp/management/commands/web.py").read_text()
    for name in ("nginx.conf", "Caddyfile"):
        assert "Strict-Transport-Security" in (PROJECT / "docs/deploy" / name).read_text(), name
    assert "server_tokens off" in (PROJECT / "docs/deploy/nginx.conf").read_text()


def test_no_page_compiles_what_somebody_wrote() -> None:
    """Templates are files, and no text becomes one."""
    wrong = [path.relative_to(PROJECT) for folder in ("webapp", "profiles", "tuner", "workers") for path in
             (PROJECT / folder).rglob("*.py") if re.search(r"\b(Template\(|from_string\()", path.read_text())]
    assert wrong == [], wrong


def test_the_linter_refuses_eval_exec_pickle_and_shells() -> None:
    lint = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert {"S102", "S301", "S307", "S602"} <= set(lint["select"])


def test_scripts_read_json_as_json() -> None:
    wrong = [path for path in (PROJECT / "static/js").rglob("*.js") if re.search(r"\beval\(|\bnew Function\(", path.read_text())]
    assert wrong == [], wrong
