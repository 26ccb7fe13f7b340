"""`manage.py projects`: list them, make one, say who works in it."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from profiles.base.refused import Refused
from webapp.models import Project
from webapp.projects import selectors, services
from webapp.roles import ROLES


class Command(BaseCommand):
    help = "List projects and their members; make a project; give a person a role in it, or take it."
    requires_system_checks: list[str] = []      # `manage.py check` runs them

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="what")
        commands.add_parser("list", help="projects and their members (the default)")
        commands.add_parser("add", help="make a project").add_argument("name")
        member = commands.add_parser("member", help="give a person a role in a project")
        leave = commands.add_parser("remove", help="take a person out of a project; the tokens there end")
        for command in (member, leave):
            command.add_argument("project", help="its slug")
            command.add_argument("person", help="user name")
        member.add_argument("role", choices=list(ROLES))

    def handle(self, *, what: str | None, **options: Any) -> None:
        try:
            if what == "add":
                self.stdout.write(f"/p/{services.project_create(options['name']).slug}/")
            elif what in ("member", "remove"):
                self.change(what, **options)
            else:
                self.list_them()
        except Refused as refused:
            raise CommandError(refused.what) from refused

    def change(self, what: str, project: str, person: str, role: str = "", **options: Any) -> None:
        row = Project.objects.filter(slug=project).first()
        if row is None:
            raise CommandError(f"there is no project {project}: manage.py projects lists them")
        if what == "member":
            self.stdout.write(str(services.member_set(row, person, role)))
            return
        member = selectors.members(row).filter(user__username=person).first()
        if member is None:
            raise CommandError(f"{person} is no member of {project}")
        services.member_remove(row, member.user_id)
        self.stdout.write(f"{person} left {project}")

    def list_them(self) -> None:
        for project in Project.objects.all():
            people = ", ".join(f"{member.user.get_username()} ({member.role})" for member in selectors.members(project))
            self.stdout.write(f"{project.slug}\t{project.name}\t{people}".rstrip())
