"""Rows of forges: where they are, which issues belong to threads, what is to be sent, what came."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models

from workers.scope import BelowProject, OfProject


class Forge(OfProject):
    """One repository or issue project at GitHub, GitLab or Jira, and how it is spoken to."""

    kind = models.CharField(max_length=8)                # a line of `webapp.forges.table.FORGES`
    name = models.CharField(max_length=80)
    api = models.CharField(max_length=300)               # https://api.github.com, https://gitlab.example.com/api/v4 …
    place = models.CharField(max_length=200)             # owner/name, group/project, or the key of a Jira project
    account = models.CharField(max_length=200, blank=True)           # GitHub: App id / installation id; Jira: mail address
    key = models.TextField(blank=True)                   # private key or token, sealed (workers.secret)
    hook_secret = models.CharField(max_length=500, blank=True)       # of what it sends here, sealed
    checks = models.BooleanField(default=True)           # verdicts of gates as checks
    comments = models.BooleanField(default=True)         # … and as a comment of the change
    resolves = models.BooleanField(default=True)         # closing an issue resolves its thread
    enabled = models.BooleanField(default=True)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="forge_once")]

    def __str__(self) -> str:
        return self.name


class IssueLink(BelowProject):
    """An issue that a thread is also talked about in."""

    project_path: ClassVar[str] = "thread__project"

    thread = models.ForeignKey("webapp.Thread", on_delete=models.CASCADE, related_name="issues")
    forge = models.ForeignKey(Forge, null=True, on_delete=models.SET_NULL, related_name="issues")
    address = models.CharField(max_length=500)           # "" until a forge has made it
    number = models.CharField(max_length=60, blank=True)             # 12, or PERF-12
    state = models.CharField(max_length=12, blank=True)              # open | closed | making | failed | "" unknown
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["created", "id"]
        indexes = [models.Index(fields=["forge", "number"], name="issue_of_forge")]

    def __str__(self) -> str:
        return self.address or self.number


class ForgePost(BelowProject):
    """One thing to say at a forge. `key` names what is said again and again: a later one updates what an earlier one made."""

    project_path: ClassVar[str] = "forge__project"

    forge = models.ForeignKey(Forge, on_delete=models.CASCADE, related_name="posts")
    what = models.CharField(max_length=12)               # check | comment | issue | note
    key = models.CharField(max_length=200)
    link = models.ForeignKey(IssueLink, null=True, on_delete=models.CASCADE, related_name="posts")
    body = models.JSONField(default=dict)
    remote_id = models.CharField(max_length=80, blank=True)          # what the forge called it, "" before
    status = models.CharField(max_length=8, default="waiting")       # waiting | sent | failed
    tries = models.IntegerField(default=0)
    due = models.DateTimeField(null=True)
    error = models.CharField(max_length=300, blank=True)
    created = models.DateTimeField(auto_now_add=True)
    sent = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created", "-id"]
        constraints = [models.UniqueConstraint(fields=["forge", "what", "key"], name="forgepost_once")]
        indexes = [models.Index(fields=["status", "due"], name="forgepost_due")]

    def __str__(self) -> str:
        return f"{self.what} {self.key}: {self.status}"


class ForgeArrival(BelowProject):
    """A message of a forge that was taken: the same one is not taken twice."""

    project_path: ClassVar[str] = "forge__project"

    forge = models.ForeignKey(Forge, on_delete=models.CASCADE, related_name="arrivals")
    key = models.CharField(max_length=80)                # its delivery id, or the digest of its bytes
    event = models.CharField(max_length=60, blank=True)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["forge", "key"], name="forgearrival_once")]

    def __str__(self) -> str:
        return f"{self.event} {self.key}"
