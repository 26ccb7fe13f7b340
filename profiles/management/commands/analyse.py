"""What the analyses of a stored trace found, made again or read: on the command line."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from profiles.management.bounded import within_stage_memory
from profiles.models import Profile
from profiles.topics.services import ACCOUNT, document_of, topic_make
from profiles.topics.table import TOPICS, topic_of
from webapp.management.in_project import ProjectCommand

_OF_THIS_RUN = ("seconds", "written")       # of a document: not the same each time it is made


class Command(ProjectCommand):
    help = "Analyses of a stored trace: every topic's answer, or with --json their whole documents."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("profile", type=int, help="id of a ready trace")
        parser.add_argument("topics", nargs="*", metavar="TOPIC", help=f"of {', '.join(topic.name for topic in TOPICS)}; all")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output: without TOPIC "
                            "the account (wall_ns, lead, causes) and the topics")
        parser.add_argument("--again", action="store_true", help="make them again")

    def handle(self, *_: Any, **options: Any) -> None:
        profile = Profile.objects.filter(pk=options["profile"], status=Profile.Status.READY, kind=Profile.Kind.TRACE).first()
        if profile is None:
            raise CommandError(f"profile {options['profile']} is no ready trace", returncode=2)
        documents = {}
        for name in options["topics"] or [topic.name for topic in TOPICS]:
            topic = topic_of(name)
            if topic is None:
                raise CommandError(f"no analysis is called {name}; --help lists them", returncode=2)
            with within_stage_memory():
                record = None if options["again"] else document_of(profile, topic)
                documents[name] = record or topic_make(profile, topic)
            if not options["json"]:
                self.stdout.write(f"{topic.title}: {documents[name]['answer']}")
        if options["json"] and not options["topics"]:
            account = documents[ACCOUNT]["numbers"]
            topics = {name: {key: value for key, value in document.items() if key not in _OF_THIS_RUN}
                      for name, document in documents.items() if name != ACCOUNT}
            documents = {**{key: account[key] for key in ("wall_ns", "lead", "causes")}, "topics": topics}
        if options["json"]:
            self.stdout.write(json.dumps(documents, ensure_ascii=False, allow_nan=False))
