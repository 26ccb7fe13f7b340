"""What pages, API and files of a profile answer, in this process and without a browser; each is asked once."""

from __future__ import annotations

import html
import io
import json
import re
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from django.core.handlers.base import BaseHandler
from django.http import HttpRequest
from django.test import RequestFactory

from profiles.models import Profile
from profiles.topics.services import document_of
from profiles.topics.table import topic_of

REQUESTS = RequestFactory()     # of the local user, who needs no session
_ROW = re.compile(r"<tr[^>]*>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<td[^>]*? data-value=\"([^\"]*)\"")


class Asking:
    """Who asks about a profile."""

    def __init__(self, profile: Profile) -> None:
        self.profile, self.page = profile, f"/profiles/{profile.pk}/"
        self._answers: dict[str, tuple[int, bytes]] = {}
        self._topics: dict[str, dict[str, Any]] = {}

    def answer(self, address: str) -> tuple[int, bytes]:
        """Return status and content of an address: from the root, else below the profile's page, with `api/` below its API."""
        if address not in self._answers:
            self._answers[address] = answer_of(REQUESTS.get(self._url(address)))
        return self._answers[address]

    def _url(self, address: str) -> str:
        if address.startswith("/"):
            return address
        return f"/api{self.page}{address[4:]}" if address.startswith("api/") else self.page + address

    def content(self, address: str) -> bytes:
        """Return what an address that has to answer holds."""
        status, content = self.answer(address)
        assert status == 200, (address, status, content[:300])
        return content

    def text(self, address: str) -> str:
        return self.content(address).decode()

    def json(self, address: str) -> Any:
        return json.loads(self.content(address))

    def table(self, address: str, kind: str) -> list[dict[str, Any]]:
        """Return the rows of a table that is handed out as a file of this kind."""
        return rows_of(self.content(f"{address}?format={kind}"), kind)

    def topic(self, name: str) -> dict[str, Any]:
        """Return the document of an analysis of the trace: what its page shows and its API answers."""
        if name not in self._topics:
            topic = topic_of(name)
            assert topic is not None, name
            document = document_of(self.profile, topic)
            assert document is not None, name
            self._topics[name] = document
        return self._topics[name]

    def grid(self, address: str) -> list[list[str]]:
        """Return the exact values of every cell that has one, a list for each row of a page's tables."""
        rows = (_CELL.findall(row) for row in _ROW.findall(self.text(address)))
        return [[html.unescape(value) for value in row] for row in rows if row]


@cache
def handler() -> BaseHandler:
    """Return what answers requests. Django's test client keeps the context of every template beside: a third of a page's time."""
    made = BaseHandler()
    made.load_middleware()
    return made


def answer_of(request: HttpRequest) -> tuple[int, bytes]:
    """Return status and content of the answer to a request. What the product raises is a 500, and in the log."""
    request._dont_enforce_csrf_checks = True        # type: ignore[attr-defined]
    response = handler().get_response(request)
    return response.status_code, b"".join(response.streaming_content) if response.streaming else response.content


def rows_of(content: bytes, kind: str) -> list[dict[str, Any]]:
    """Return the rows of a table as csv, json, parquet or arrow."""
    if kind == "json":
        return list(json.loads(content))
    if kind == "csv":
        options = pyarrow.csv.ParseOptions(newlines_in_values=True)
        return list(pyarrow.csv.read_csv(io.BytesIO(content), parse_options=options).to_pylist())
    table = pq.read_table(io.BytesIO(content)) if kind == "parquet" else pa.ipc.open_file(content).read_all()
    return list(table.to_pylist())
