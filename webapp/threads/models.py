"""Rows of threads, of who follows what, and of what somebody is told."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from workers.scope import BelowProject, OfProject


class Thread(OfProject):
    """What people say about one subject; `kind` and `key` name it as long as it is found again (`webapp.threads.subjects`)."""

    class Status(models.TextChoices):
        OPEN = "open", "open"
        PROGRESS = "progress", "in progress"
        RESOLVED = "resolved", "resolved"
        WONTFIX = "wontfix", "won't fix"

    kind = models.CharField(max_length=12)
    key = models.CharField(max_length=200)
    title = models.CharField(max_length=300)             # of the subject, as it was when somebody last wrote
    path = models.CharField(max_length=500)              # its page, within the project
    kernel = models.CharField(max_length=200, blank=True)            # family or operator: who follows it hears
    suite = models.CharField(max_length=60, blank=True)              # name of its suite
    status = models.CharField(max_length=16, default=Status.OPEN)    # of a regression: its state, copied when it changes
    is_open = models.BooleanField(default=True)
    assignee = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="threads_assigned")
    due = models.DateField(null=True)                    # when it is to be ended
    created = models.DateTimeField(auto_now_add=True)
    changed = models.DateTimeField(auto_now_add=True)    # the last comment or change, not an edit

    class Meta:
        ordering = ["-changed", "-id"]
        constraints = [models.UniqueConstraint(fields=["project", "kind", "key"], name="thread_once")]

    def __str__(self) -> str:
        return self.title


class Comment(BelowProject):
    """One thing said, or one change of status, assignee or issue (`event`, without a text of a person)."""

    project_path: ClassVar[str] = "thread__project"

    thread = models.ForeignKey(Thread, on_delete=models.CASCADE, related_name="comments")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    author_name = models.CharField(max_length=150, blank=True)       # stays when the person is deleted; "": Ridgepoint
    text = models.TextField(blank=True)                  # Markdown; "" once deleted
    event = models.CharField(max_length=300, blank=True)
    edits = models.JSONField(default=list)               # moments of edits, oldest first
    created = models.DateTimeField(auto_now_add=True)
    deleted = models.DateTimeField(null=True)

    class Meta:
        ordering = ["created", "id"]

    def __str__(self) -> str:
        return f"{self.author_name}: {(self.event or self.text)[:60]}"


class Follow(OfProject):
    """What a person follows; `on` false: left, and not followed again by itself."""

    class Kind(models.TextChoices):
        THREAD = "thread"
        KERNEL = "kernel"
        SUITE = "suite"
        PROJECT = "project"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="follows")
    kind = models.CharField(max_length=8, choices=Kind)
    key = models.CharField(max_length=200, blank=True)   # id of the thread, name of kernel or suite, "" for the project
    on = models.BooleanField(default=True)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "user", "kind", "key"], name="follow_once")]
        indexes = [models.Index(fields=["kind", "key"], name="follow_of")]

    def __str__(self) -> str:
        return f"{self.user_id}: {self.kind} {self.key}"


class Notice(BelowProject):
    """A line of a person's inbox: something new in a thread."""

    project_path: ClassVar[str] = "thread__project"

    class Why(models.TextChoices):
        MENTION = "mention", "mentioned you"
        ASSIGNED = "assigned", "assigned to you"
        COMMENT = "comment", "comment"
        CHANGE = "change", "change"
        FOUND = "found", "new"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="notices")
    thread = models.ForeignKey(Thread, on_delete=models.CASCADE, related_name="notices")
    comment = models.ForeignKey(Comment, null=True, on_delete=models.CASCADE, related_name="notices")
    why = models.CharField(max_length=8, choices=Why)
    created = models.DateTimeField(auto_now_add=True)
    read = models.DateTimeField(null=True)
    mail = models.CharField(max_length=8, blank=True)    # "" | waiting | sent | kept (a file: no mail server) | failed
    tries = models.IntegerField(default=0)
    due = models.DateTimeField(null=True)                # next try of the mail
    error = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["-created", "-id"]
        constraints = [models.UniqueConstraint(fields=["user", "comment"], name="notice_once")]
        indexes = [models.Index(fields=["user"], condition=Q(read=None), name="notice_unread"),
                   models.Index(fields=["due"], condition=Q(mail="waiting"), name="notice_due")]

    def __str__(self) -> str:
        return f"{self.user_id}: {self.why} in {self.thread_id}"


class TalkPreference(models.Model):
    """What a person wants by mail, in every project."""

    class Mail(models.TextChoices):
        NONE = "none", "nothing"
        MINE = "mine", "mentions and what is assigned to me"
        ALL = "all", "everything in my inbox"

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="talk_preference")
    mail = models.CharField(max_length=4, choices=Mail, default=Mail.MINE)

    def __str__(self) -> str:
        return f"{self.user_id}: {self.mail}"
