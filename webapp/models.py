"""Projects, who works in them, and API tokens."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from knox.models import AbstractAuthToken

from webapp import roles
from webapp.agents.models import AgentBudget, AgentCall
from webapp.forges.models import Forge, ForgeArrival, ForgePost, IssueLink
from webapp.threads.models import Comment, Follow, Notice, TalkPreference, Thread
from workers.scope import FIRST_PROJECT, BelowProject, InProject

__all__ = ["AgentBudget", "AgentCall", "ApiToken", "AuditEntry", "Comment", "Follow", "Forge", "ForgeArrival",
           "ForgePost", "IssueLink", "Membership", "Notice", "Project", "TalkPreference", "Thread"]


class Project(models.Model):
    """A team's space: profiles, suites, configurations, targets, tokens and the fleet's agents each belong to one."""

    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=80, unique=True)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A person's role in one project. A role in the whole installation (their group) counts in every project."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=12, choices=[(role, role) for role in roles.ROLES])
    created = models.DateTimeField(auto_now_add=True)
    project_path: ClassVar[str] = "project"

    class Meta:
        ordering = ["user__username"]
        constraints = [models.UniqueConstraint(fields=["project", "user"], name="membership_once")]

    def __str__(self) -> str:
        return f"{self.user}: {self.role} of {self.project}"


class ApiToken(AbstractAuthToken):
    """One token of one person in one project. Only its SHA-512 digest and first characters are stored; it is shown once."""

    class Scope(models.TextChoices):
        READ = "read"       # reading only, whatever the person may do
        WRITE = "write"     # what the person may do

    name = models.CharField(max_length=80)
    scope = models.CharField(max_length=8, choices=Scope, default=Scope.WRITE)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, default=FIRST_PROJECT, db_default=FIRST_PROJECT,
                                related_name="tokens")
    project_path: ClassVar[str] = "project"

    class Meta:
        ordering = ["-created"]

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"


class Invitation(models.Model):
    """A link that makes one account, once. Its secret is stored only as a SHA-256 digest."""

    digest = models.CharField(max_length=64, unique=True)
    email = models.EmailField(blank=True)               # whom it was meant for; "" whoever has the link
    role = models.CharField(max_length=12, choices=[(role, role) for role in roles.ROLES])
    invited_to = models.ForeignKey(Project, null=True, on_delete=models.CASCADE, related_name="invitations")    # null: everywhere
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created = models.DateTimeField(auto_now_add=True)
    expires = models.DateTimeField()
    used_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    used = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created"]

    def __str__(self) -> str:
        where = f"of {self.invited_to}" if self.invited_to else "everywhere"
        return f"{self.email or 'anybody with the link'}: {self.role} {where}"


class ShareLink(BelowProject):
    """A link under which one profile can be read without an account. Its secret is stored only as a SHA-256 digest."""

    project_path = "profile__project"

    digest = models.CharField(max_length=64, unique=True)
    profile = models.ForeignKey("profiles.Profile", on_delete=models.CASCADE, related_name="share_links")
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created = models.DateTimeField(auto_now_add=True)
    expires = models.DateTimeField()
    opened = models.IntegerField(default=0)
    last_opened = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created"]

    def __str__(self) -> str:
        return f"link to {self.profile}"


class AuditEntry(models.Model):
    """One change of rights, tokens or what may be executed, one delete or export. A trigger refuses to change or delete it."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    # without a constraint: who deletes the own account is told with the lines of that deletion
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", db_constraint=False)
    actor_name = models.CharField(max_length=150, blank=True)        # stays when the person is deleted; "": a command or a worker
    token = models.CharField(max_length=80, blank=True)              # name of the token that acted
    address = models.GenericIPAddressField(null=True)
    action = models.CharField(max_length=20)
    kind = models.CharField(max_length=60)                           # of row, or the route of an export
    target = models.CharField(max_length=200)
    target_id = models.CharField(max_length=80, blank=True)
    changes = models.JSONField(default=dict)                         # column -> [before, after]
    project = models.ForeignKey(Project, on_delete=models.PROTECT, default=FIRST_PROJECT, db_default=FIRST_PROJECT,
                                related_name="+")
    project_path: ClassVar[str] = "project"
    objects = InProject()

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.target}"
