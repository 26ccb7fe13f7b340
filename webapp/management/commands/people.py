"""`manage.py people`: list, invite, give a role, deactivate, sign out, help somebody who is locked out."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse

from profiles.base.refused import Refused
from webapp.models import Project
from webapp.people import selectors, services
from webapp.roles import ROLES


class Command(BaseCommand):
    help = "List people; invite; give a role; deactivate; sign out; make a link for a new password; take a second factor away."
    requires_system_checks: list[str] = []      # `manage.py check` runs them

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="what")
        commands.add_parser("list", help="everybody (the default)")
        invite_parser = commands.add_parser("invite", help="print a link that makes one account")
        invite_parser.add_argument("role", choices=list(ROLES))
        invite_parser.add_argument("--project", default="",
                                   help="its slug, “*” for every project, later ones too; may be left out where there is one")
        invite_parser.add_argument("--email", default="")
        invite_parser.add_argument("--days", type=int, default=7)
        role = commands.add_parser("role", help="give a role in the whole installation")
        role.add_argument("name")
        role.add_argument("role", choices=[*ROLES, "none"])
        for what, words in (("deactivate", "nobody of this name signs in, tokens do not work"), ("activate", "let in again"),
                            ("sign-out", "end every session"), ("password", "print a link for a new password"),
                            ("second-factor-off", "the phone is lost")):
            commands.add_parser(what, help=words).add_argument("name")

    def handle(self, *, what: str | None, **options: Any) -> None:
        try:
            if what == "invite":
                self.invite(**options)
            elif what in (None, "list"):
                self.list_them()
            else:
                self.change(what, self.person(options["name"]), options)
        except Refused as refused:
            raise CommandError(refused.what) from refused

    def person(self, name: str) -> Any:
        user = get_user_model().objects.filter(username=name).first()
        if user is None:
            raise CommandError(f"nobody is called {name}: manage.py people lists everybody")
        return user

    def invite(self, *, role: str, project: str, email: str, days: int, **options: Any) -> None:
        only = Project.objects.values_list("pk", flat=True)
        row = services.invited_to(project, only[0] if len(only) == 1 else None)
        _, secret = services.invite(None, role=role, project=row, email=email, days=days)
        self.stdout.write(settings.PUBLIC_URL + reverse("invitation", args=[secret]))

    def change(self, what: str, person: Any, options: dict[str, Any]) -> None:
        if what == "role":
            services.person_role(person, "" if options["role"] == "none" else options["role"])
        elif what in ("activate", "deactivate"):
            services.person_active(person, what == "activate")
        elif what == "sign-out":
            self.stdout.write(f"{services.sessions_end(person)} sessions ended")
        elif what == "second-factor-off":
            services.second_factor_off(person)
        else:
            uid, token = services.reset_path(person)
            self.stdout.write(settings.PUBLIC_URL + reverse("password_reset_confirm", args=[uid, token]))

    def list_them(self) -> None:
        for person in selectors.people():
            projects = " ".join(f"{slug}:{role}" for slug, role in person.projects)
            self.stdout.write("\t".join((person.name, person.role or "-", projects or "-", ", ".join(person.ways) or "-",
                                         "active" if person.active else "deactivated")))
