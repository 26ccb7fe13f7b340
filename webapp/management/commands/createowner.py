"""`manage.py createowner NAME`: the first person who may sign in, and may make others."""

import getpass
import os
import sys
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.roles import OWNER, role_set


class Command(BaseCommand):
    help = "Make a person an owner. The password comes from RIDGEPOINT_PASSWORD, else it is asked for."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--email", default="")

    def handle(self, *, name: str, email: str, **options: Any) -> None:
        users = get_user_model().objects
        person = users.filter(username=name).first() or users.model(username=name, email=email)
        person.set_password(self._password(person))
        person.is_active = person.is_staff = person.is_superuser = True
        person.full_clean(exclude=["password"])
        person.save()
        role_set(person, OWNER)
        self.stderr.write(f"{name} is an owner and can sign in.")

    def _password(self, person: Any) -> str:
        password = os.environ.get("RIDGEPOINT_PASSWORD")
        if password is None:
            if not sys.stdin.isatty():
                raise CommandError("no terminal to ask for a password: set RIDGEPOINT_PASSWORD")
            password = getpass.getpass("Password: ")
            if getpass.getpass("Again: ") != password:
                raise CommandError("the two differ")
        try:
            validate_password(password, person)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        return password
