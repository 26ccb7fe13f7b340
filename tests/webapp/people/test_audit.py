"""The audit log: what people do on pages and over the API is in it, and nobody takes it out."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import Error, connection, transaction
from django.test import Client
from django.urls import URLPattern, get_resolver

from profiles.models import CaptureTarget, Profile
from tuner.models import Notified, OperatorPackage
from webapp.audit.kinds import EXPORTS
from webapp.models import ApiToken, AuditEntry, Membership, Project
from webapp.roles import ENGINEER, role_set

pytestmark = [pytest.mark.servers, pytest.mark.django_db]


def lines() -> list[tuple[str, str, str, str]]:
    return [(each.actor_name, each.action, each.kind, each.target) for each in AuditEntry.objects.order_by("id")]


def test_what_an_owner_does_is_told(client: Client, sign_in_mode: None, olga: Any, bob: Any) -> None:
    client.force_login(olga)
    seen = AuditEntry.objects.count()
    assert client.post("/projects/create/", {"name": "Kernels"}).status_code == 302
    assert client.post("/p/kernels/projects/kernels/members/", {"username": bob.username, "role": "viewer"}).status_code == 302
    assert client.post("/p/kernels/accounts/tokens/create/", {"name": "CI", "scope": "read", "days": 9}).status_code == 200
    token = ApiToken.objects.get()
    assert client.post(f"/p/kernels/accounts/tokens/{token.pk}/revoke/").status_code == 302
    told = lines()[seen:]
    assert told == [(olga.username, "made", "project", "Kernels"),
                    (olga.username, "made", "membership", f"{bob.username}: viewer of Kernels"),
                    (olga.username, "made", "api token", f"CI of {olga.username}"),
                    (olga.username, "deleted", "api token", f"CI of {olga.username}")]
    assert {each.address for each in AuditEntry.objects.all()[:4]} == {"127.0.0.1"}
    assert AuditEntry.objects.filter(kind="membership").get().project.slug == "kernels"


def test_a_program_is_told_with_its_token(api: Any, sign_in_mode: None, olga: Any) -> None:
    program = api(olga)
    given = {"name": "bench", "argv": ["python", "bench.py"], "env": {"HF_TOKEN": "very-secret"}}
    assert program.post("/api/captures/targets/", given, format="json").status_code == 201
    entry = AuditEntry.objects.filter(kind="capture target").get()
    assert (entry.actor_name, entry.token, entry.action) == (olga.username, "test", "made")
    assert entry.changes["argv"] == [None, '["python", "bench.py"]'] and "very-secret" not in str(entry.changes)


def test_a_role_a_password_and_a_deactivation_are_told_without_the_password(bob: Any) -> None:
    seen = AuditEntry.objects.count()
    role_set(bob, ENGINEER)
    bob.set_password("a long phrase 55")
    bob.is_active = False
    bob.save()
    told = AuditEntry.objects.order_by("id")[seen:]
    assert [each.action for each in told] == ["role taken", "role given", "changed"][-len(told):]
    changes = told[len(told) - 1].changes
    assert changes["is_active"] == [True, False] and changes["password"][1] == "•" and "pbkdf2" not in str(changes)


def test_secrets_in_addresses_are_not_told(olga: Any) -> None:
    Notified.objects.create(kind="webhook", address="https://hooks.example.com/services/T0/B0/secret", author=olga)
    assert AuditEntry.objects.get(kind="notified").changes["address"] == [None, "hooks.example.com"]


def test_what_is_enabled_and_deleted_is_told() -> None:
    package = OperatorPackage.objects.create(name="team-ops")
    package.enabled = False
    package.save()
    profile = Profile.objects.create(name="trace", file_name="t.json", upload_key="k")
    profile.delete()
    CaptureTarget.objects.create(name="bench", argv=["python"]).delete()
    assert [each[1:3] for each in lines()][-5:] == [
        ("made", "operator package"), ("changed", "operator package"), ("deleted", "profile"), ("made", "capture target"),
        ("deleted", "capture target")]


def test_an_export_is_told(client: Client, sign_in_mode: None, olga: Any) -> None:
    client.force_login(olga)
    assert client.get("/api/configs/export/?as=nothing").status_code == 400
    assert not AuditEntry.objects.filter(action="exported").exists()
    profile = Profile.objects.create(name="trace", file_name="t.json", upload_key="k", status="failed", error={"what": "none"})
    assert client.get(f"/api/profiles/{profile.pk}/launches/").status_code == 200
    entry = AuditEntry.objects.get(action="exported")
    assert (entry.actor_name, entry.kind, entry.target) == (olga.username, "api-launches", f"/api/profiles/{profile.pk}/launches/")


def test_every_export_of_the_table_is_a_route() -> None:
    found = [each for resolver in get_resolver().url_patterns for each in getattr(resolver, "url_patterns", [resolver])]
    assert {each.name for each in found if isinstance(each, URLPattern)} >= EXPORTS


@pytest.mark.parametrize("change", ["UPDATE webapp_auditentry SET action = 'nothing'", "DELETE FROM webapp_auditentry"])
def test_the_database_refuses_to_change_it(change: str, bob: Any) -> None:
    Membership.objects.create(user=bob, project=Project.objects.get(pk=1), role="viewer")
    with pytest.raises(Error, match="only added"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(change)
    name = bob.username
    bob.delete()                    # a person may go; what was done stays, with the name
    assert AuditEntry.objects.filter(action="deleted", kind="person", target=name).exists()


def test_owners_of_a_project_read_their_lines_and_viewers_none(client: Client, api: Any, sign_in_mode: None, bob: Any) -> None:
    project = Project.objects.create(slug="own", name="Own")
    Membership.objects.create(user=bob, project=project, role="viewer")
    bob.groups.clear()
    client.force_login(bob)
    assert client.get("/audit/").status_code == 403
    Membership.objects.filter(user=bob).update(role="owner")
    CaptureTarget.objects.create(name="of-main", argv=["python"])
    page = client.get("/audit/?q=own")
    assert page.status_code == 200 and "of-main" not in page.content.decode() and "Own" in page.content.decode()
    answer = client.get("/api/audit/?kind=membership").json()
    assert [each["target"] for each in answer["results"]] == [f"{bob.username}: viewer of Own"]
