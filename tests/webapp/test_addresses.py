"""Where an installation is reached: names that it answers to, whose proxy is believed, and cookies beside others on one host."""

from __future__ import annotations

import runpy
import socket
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from django.http import parse_cookie
from uvicorn.middleware.proxy_headers import _TrustedHosts

from webapp import settings
from webapp.management.commands import serve, web

ADDRESSES = {"eth0": [(socket.AF_INET, "10.0.0.5"), (socket.AF_INET6, "fd00::5"), (socket.AF_INET6, "fe80::1%eth0")],
             "lo": [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]}


@pytest.mark.parametrize(("host", "more"), [("::", []), ("0.0.0.0", []), ("fd00::7", ["[fd00::7]"]), ("Guard", ["guard"])])
def test_a_host_answers_to_its_addresses_of_both_kinds(monkeypatch: pytest.MonkeyPatch, host: str, more: list[str]) -> None:
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {
        name: [SimpleNamespace(family=family, address=address) for family, address in each] for name, each in ADDRESSES.items()})
    names = serve._host_names(host, local=False)
    assert {"10.0.0.5", "[fd00::5]", "[::1]", "localhost", *more} <= set(names)
    assert not [name for name in names if "%" in name or (":" in name and not name.startswith("["))]


def test_a_proxy_of_ipv4_is_believed_at_a_socket_of_both_kinds() -> None:
    trusted = _TrustedHosts(web.as_any_socket_says("10.0.0.5, 10.1.0.0/16,fd00::9"))
    believed = ("10.0.0.5", "::ffff:10.0.0.5", "::ffff:10.1.200.3", "fd00::9")
    assert all(each in trusted for each in believed)
    assert not any(each in trusted for each in ("10.0.0.6", "::ffff:10.0.0.6", "::ffff:10.2.0.1", "fd00::a", "::ffff:0:0"))
    assert web.as_any_socket_says("") == [] and web.as_any_socket_says("*") == ["*"]


@pytest.mark.parametrize(("env", "name"), [
    ({}, "ridgepoint_session"),
    ({"RIDGEPOINT_COOKIE_TAG": "8001"}, "ridgepoint_session_8001"),
    ({"RIDGEPOINT_PREFIX": "/team/perf"}, "ridgepoint_session_team_perf"),
    ({"RIDGEPOINT_PREFIX": "/perf; Domain=x", "RIDGEPOINT_HTTPS": "1"}, "__Secure-ridgepoint_session_perf_Domain_x"),
    ({"RIDGEPOINT_HTTPS": "1"}, "__Host-ridgepoint_session")])
def test_a_session_has_a_cookie_of_its_own_beside_other_installations(monkeypatch: pytest.MonkeyPatch, env: dict[str, str],
                                                                       name: str) -> None:
    for each in ("RIDGEPOINT_COOKIE_TAG", "RIDGEPOINT_PREFIX", "RIDGEPOINT_HTTPS"):
        monkeypatch.delenv(each, raising=False)
    for each, value in env.items():
        monkeypatch.setenv(each, value)
    told = runpy.run_path(settings.__file__)
    assert told["SESSION_COOKIE_NAME"] == name
    assert not name.startswith("__Host-") or (told["SESSION_COOKIE_PATH"], told["SESSION_COOKIE_SECURE"]) == ("/", True)


def test_a_port_of_its_own_names_the_cookie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RIDGEPOINT_COOKIE_TAG", raising=False)
    tags: list[Any] = [serve._web_env("127.0.0.1", port)["RIDGEPOINT_COOKIE_TAG"] for port in (serve.DEFAULT_PORT, 8001)]
    assert tags == ["", "8001"]


def test_of_two_cookies_of_one_name_the_last_is_taken() -> None:
    """As scripts of pages do (static/js/lib/http.js): browsers send those of the longer path first."""
    assert parse_cookie("csrftoken=below; csrftoken=root") == {"csrftoken": "root"}
