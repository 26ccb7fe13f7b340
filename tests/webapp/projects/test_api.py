"""Projects over the API and by command."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from webapp.models import ApiToken, Membership, Project

pytestmark = [pytest.mark.django_db, pytest.mark.servers]


def test_an_owner_makes_a_project_and_says_who_works_in_it(api: Any, sign_in_mode: None, olga: Any, bob: Any) -> None:
    owner = api(olga)
    made = owner.post("/api/projects/", {"name": "Kernel team"}, format="json")
    assert (made.status_code, made.json()["slug"]) == (201, "kernel-team")
    assert owner.post("/api/projects/", {"name": "Kernel team"}, format="json").json()["fields"]["name"]
    _, token = ApiToken.objects.create(olga, name="there", project=Project.objects.get(slug="kernel-team"))
    owner.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    members = "/api/projects/kernel-team/members/"
    assert owner.post(members, {"person": bob.username, "role": "viewer"}, format="json").status_code == 200
    assert owner.get(members).json() == [{"person": bob.username, "role": "viewer"}]
    wrong = owner.post(members, {"person": "nobody", "role": "viewer"}, format="json")
    assert wrong.status_code == 400 and "nobody" in wrong.json()["fields"]["person"][0]
    assert owner.get("/api/projects/main/members/").status_code == 403           # the token is of another project
    assert owner.get("/api/projects/none/members/").status_code == 404
    bob.groups.clear()
    program = api()
    _, his = ApiToken.objects.create(bob, name="his", project=Project.objects.get(slug="kernel-team"))
    program.credentials(HTTP_AUTHORIZATION=f"Token {his}")
    assert [each["slug"] for each in program.get("/api/projects/").json()] == ["kernel-team"]
    assert program.post(members, {"person": bob.username, "role": "owner"}, format="json").status_code == 403
    assert program.post("/api/projects/", {"name": "mine"}, format="json").status_code == 403
    assert owner.delete(members, {"person": bob.username}, format="json").status_code == 204
    assert program.get("/api/projects/").status_code == 401


def test_the_command(bob: Any) -> None:
    def run(*words: str) -> str:
        said = StringIO()
        call_command("projects", *words, stdout=said)
        return said.getvalue()

    assert run("add", "Kernel team") == "/p/kernel-team/\n"
    run("member", "kernel-team", bob.username, "engineer")
    assert f"kernel-team\tKernel team\t{bob.username} (engineer)" in run()
    run("remove", "kernel-team", bob.username)
    assert not Membership.objects.exists()
    with pytest.raises(CommandError, match="no project nothing"):
        run("member", "nothing", bob.username, "viewer")
    with pytest.raises(CommandError, match="nobody here is called"):
        run("member", "kernel-team", "stranger", "viewer")
