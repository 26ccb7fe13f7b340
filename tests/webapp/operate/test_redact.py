"""Secrets of addresses stand in no log, trace, metric, audit row or agent's log; their routes do."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import URLPattern, get_resolver

from tests.webapp.operate.test_logs import ask
from webapp import logs
from webapp.agents.models import AgentCall
from webapp.agents.services import call_end
from webapp.audit import services as audit
from webapp.models import ApiToken, AuditEntry
from webapp.operate import observed
from webapp.people.services import PREFIX as INVITATION
from webapp.sharing.services import PREFIX as SHARE
from workers.redact import redact
from workers.scope import FIRST_PROJECT

SECRET = "hGcYPCsPAr_uf0qiqWcgfKUI8ZoYWhix"        # as `secrets.token_urlsafe(24)` makes them; the same in every process
TOKEN = "d2v6xk-0123456789abcdef0123456789abcdef"
ADDRESSES = {f"/accounts/invitation/{INVITATION}{SECRET}/": "/accounts/invitation/<str:secret>/",
             f"/share/{SHARE}{SECRET}/": "/share/<str:secret>/",
             f"/accounts/reset/MQ/{TOKEN}/": "/accounts/reset/<uidb64>/<token>/",
             f"/accounts/reset/MQ/{TOKEN}": "/accounts/reset/<uidb64>/<token>",
             f"/p/main/share/{SHARE}{SECRET}/more/": "/p/main/share/<str:secret>/more/",
             f"/api/profiles/?token=rp_{'0f' * 32}&limit=1": "/api/profiles/?token=rp_<secret>&limit=1",
             f"https://ci:{TOKEN}@git.example.org/team/kernels.git": "https://<user>:<password>@git.example.org/team/kernels.git",
             "redis://:s3cret:more@cache:6379/0": "redis://<user>:<password>@cache:6379/0",
             f"/nowhere%2Fshare%2F{SHARE}{SECRET}": "/nowhere%2Fshare%2Fshare_<secret>"}


def secret_routes(patterns: Any = None, before: str = "/") -> Iterator[str]:
    for each in (patterns or get_resolver()).url_patterns:
        route = before + str(each.pattern)
        if not isinstance(each, URLPattern):
            yield from secret_routes(each, route)
        elif {"secret", "token", "uidb64"} & set(each.pattern.converters):
            yield route


def test_every_route_with_a_secret_is_known() -> None:
    routes = list(secret_routes())
    assert len(routes) >= 3
    for route in routes:
        path = route.replace("<str:secret>", "xx-SECRET").replace("<uidb64>", "MQ").replace("<token>", "xx-SECRET")
        assert "<" not in path and redact(path) == route


@pytest.mark.parametrize(("address", "shown"), ADDRESSES.items())
def test_an_address_is_shown_by_its_route(address: str, shown: str) -> None:
    assert redact(address) == shown
    assert redact(f'Not Found: {address} "{address}"') == f'Not Found: {shown} "{shown}"'


@pytest.mark.parametrize("text", ["share_memory_kernel", "/profiles/7/share/", "inv_sqrt_kernel<128>", "a share/of it", "/share/",
                                  "https://[::1]:8000/@olga", "rp_036f1dcaee7553a", "postgresql://ridgepoint@/postgres?host=/tmp"])
def test_other_texts_stay(text: str) -> None:
    assert redact(text) == text


@pytest.fixture(params=[logs.JsonLine, logs.TextLine])
def written(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What the product's handler writes, in each form."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(request.param())
    for each in (logs.ExpectedInOneLine(), logs.OutageInOneLine(), logs.AddTrail()):
        handler.addFilter(each)
    logging.root.addHandler(handler)
    yield out
    logging.root.removeHandler(handler)


@pytest.mark.django_db(transaction=True)
@pytest.mark.servers
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
async def test_no_line_of_a_request_holds_it(written: io.StringIO, method: str, sign_in_mode: None, settings: Any) -> None:
    settings.LOG_REQUESTS = True
    for address in ADDRESSES:
        await ask(address, method)
    lines = written.getvalue()
    assert len(lines.splitlines()) >= len(ADDRESSES) and "/share/<str:secret>/" in lines and "<token>" in lines
    assert SECRET not in lines and TOKEN not in lines
    counted = [sample.labels for metric in observed.REGISTRY.collect() for sample in metric.samples]
    assert SECRET not in str(counted) and TOKEN not in str(counted)


def test_no_trace_holds_it(written: io.StringIO) -> None:
    record = logging.getLogger("django.request")
    try:
        raise RuntimeError(f"nothing at /share/{SHARE}{SECRET}/")
    except RuntimeError as error:
        record.error("Internal Server Error: %s", f"/share/{SHARE}{SECRET}/", exc_info=error)
    lines = written.getvalue()
    assert "RuntimeError: nothing at /share/<str:secret>/" in lines and SECRET not in lines
    assert not lines.startswith("{") or json.loads(lines)["trace"]


@pytest.mark.django_db
def test_no_row_that_tells_of_it_holds_it(alice: Any) -> None:
    audit.record("exported", "x", f"/share/{SHARE}{SECRET}/?a=1")
    assert AuditEntry.objects.get(action="exported").target == "/share/<str:secret>/?a=1"
    row, _ = ApiToken.objects.create(alice, name="agent", scope="write")
    who = {"project": {"id": FIRST_PROJECT}, "token": {"id": row.pk, "name": "agent"}, "person": {"id": alice.pk, "name": "alice"}}
    call_end(who, "read", {"address": f"https://x/share/{SHARE}{SECRET}/"}, ms=1.0, outcome="refused", answer=f"no {SHARE}{SECRET}")
    call = AgentCall.objects.get()
    assert SECRET not in call.arguments + call.answer and "/share/<str:secret>/" in call.arguments
