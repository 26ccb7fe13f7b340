"""The documents as pages: every one is shown, every link in them leads somewhere, and nothing else of the disk is served."""

from __future__ import annotations

import re
from urllib.parse import urljoin

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from webapp.frame import documents
from webapp.frame.navigation import SECTIONS, SETTINGS

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice(client: Client) -> Client:
    client.force_login(get_user_model().objects.create_superuser("alice", password="x"))
    return client


def test_every_link_and_picture_of_every_document_leads_somewhere(alice: Client) -> None:
    asked: dict[str, str] = {}
    assert len(documents.titles()) > 20
    for name in documents.titles():
        page = alice.get(f"/docs/{name}/")
        assert page.status_code == 200
        found = documents.document(name)
        assert found is not None
        for address in re.findall(r'(?:href|src)="([^"#]+)"', found.html):
            if not address.startswith("http"):
                asked[urljoin(f"/docs/{name}/", address)] = name
    assert len(asked) > 20
    assert {path: name for path, name in asked.items() if alice.get(path).status_code != 200} == {}


def test_a_table_scrolls_and_a_heading_can_be_linked_to() -> None:
    found = documents.document("gate")
    assert found is not None and '<div class="table-scroll"><table>' in found.html
    assert found.headings and all(f'id="{slug}"' in found.html for slug, _ in found.headings)


@pytest.mark.parametrize(("address", "leads"), [("gate.md", "../gate/"), ("gate.md#rule", "../gate/#rule"), ("#rule", "#rule"),
                                                ("https://x.example/a.md", "https://x.example/a.md"), ("a.png", "a.png")])
def test_links_between_documents_become_links_between_pages(address: str, leads: str) -> None:
    assert documents.page_link(address) == leads


@pytest.mark.parametrize("path", [
    "/docs/nothing/", "/docs/gate/../../manage.py", "/docs/gate/%2e%2e/manage.py", "/docs/gate/gate.md", "/docs/gate/nothing.png"])
def test_nothing_else_of_the_disk_is_served(alice: Client, path: str) -> None:
    assert alice.get(path).status_code == 404


def test_a_page_names_the_documents_that_explain_it(alice: Client) -> None:
    page = alice.get("/gates/").content.decode()
    help_text = page.partition('<template id="page-help">')[2].partition("</template>")[0]
    assert "/docs/gate/" in help_text and "/docs/gate-ci/" in help_text


def test_every_document_that_a_page_names_exists() -> None:
    named = {name for section in (*SECTIONS, SETTINGS) for page in section.pages for name in page.docs}
    assert len(named) > 15 and named <= set(documents.titles())
