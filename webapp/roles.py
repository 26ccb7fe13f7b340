"""Roles: three groups with permissions, each with those of the one before.

A person's group is their role in the whole installation; without one they have the roles of their memberships, each in its
project alone and without what concerns everybody (`INSTALLATION`). Views ask for a permission, never for a role. The groups are
brought in line with this table after every migrate.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.contrib.auth.models import AbstractUser, Group, Permission
from django.db.models import Q

VIEWER, ENGINEER, OWNER = "viewer", "engineer", "owner"
ROLES: dict[str, list[str]] = {
    VIEWER: [],         # and the view permission of every row of profiles and tuner
    ENGINEER: [
        "profiles.add_profile", "profiles.change_profile", "profiles.delete_profile",
        "profiles.add_capture", "profiles.change_capture", "profiles.delete_capture",
        "profiles.add_fleetbatch", "profiles.add_fleetcapture",
        "profiles.add_enginecapture", "profiles.change_enginecapture", "profiles.add_captureschedule",
        "profiles.change_captureschedule", "profiles.delete_captureschedule",
        "profiles.add_timelinenote", "profiles.change_timelinenote", "profiles.delete_timelinenote",
        "profiles.add_savedquery", "profiles.change_savedquery", "profiles.delete_savedquery",
        "profiles.change_advicedecision", "profiles.change_kernelfamily", "profiles.add_familynote", "profiles.delete_familynote",
        "tuner.add_tunejob", "tuner.change_tunejob", "tuner.add_servedcount", "tuner.add_cachedconfig", "tuner.add_importedfile",
        "tuner.add_compiledfile", "tuner.add_candidate",
        "tuner.add_suite", "tuner.change_suite", "tuner.add_suitejob", "tuner.change_suitejob", "tuner.add_kernelrun",
        "tuner.add_gate", "tuner.change_gate", "tuner.add_baselinechange", "tuner.change_regression", "tuner.change_build",
        "webapp.add_comment", "webapp.change_comment", "webapp.delete_comment", "webapp.change_thread",
    ],
    OWNER: [
        "profiles.change_keeping",
        "profiles.moderate_savedquery",
        "profiles.moderate_timelinenote", "profiles.moderate_familynote",
        "profiles.add_capturetarget", "profiles.change_capturetarget", "profiles.delete_capturetarget",
        "profiles.add_engineserver", "profiles.change_engineserver", "profiles.delete_engineserver",
        "tuner.add_kernelcheck", "tuner.change_kernelcheck",
        "tuner.change_candidate", "tuner.add_candidatepermit", "tuner.delete_candidatepermit",
        "tuner.add_operatorpackage", "tuner.change_operatorpackage", "tuner.delete_operatorpackage",
        "tuner.add_gpuclockrule", "tuner.change_gpuclockrule", "tuner.delete_gpuclockrule",
        "tuner.delete_tunejob", "tuner.change_cachedconfig", "tuner.delete_cachedconfig", "tuner.change_bucketpolicy",
        "tuner.change_revalidationpolicy",
        "tuner.delete_suite", "tuner.add_notified", "tuner.change_notified", "tuner.delete_notified",
        "auth.view_user", "auth.add_user", "auth.change_user", "auth.delete_user",
        "webapp.view_apitoken", "webapp.delete_apitoken", "webapp.add_project", "webapp.change_project",
        "webapp.add_membership", "webapp.view_auditentry", "webapp.change_membership", "webapp.delete_membership",
        "webapp.view_agentcall", "webapp.change_agentbudget",
        "webapp.delete_thread", "webapp.add_forge", "webapp.change_forge", "webapp.delete_forge",
    ],
}

# what nobody may do or see by a role in one project: people, code that workers load, clocks of GPUs, the fleet's sums,
# rules for all entries
INSTALLATION = ("auth.", "webapp.add_project", "webapp.change_project", "webapp.delete_project", "webapp.view_apitoken",
                "webapp.delete_apitoken", "tuner.add_operatorpackage", "tuner.change_operatorpackage",
                "tuner.delete_operatorpackage", "tuner.change_bucketpolicy", "tuner.change_revalidationpolicy",
                "tuner.add_gpuclockrule", "tuner.change_gpuclockrule", "tuner.delete_gpuclockrule",
                "profiles.view_fleetcontext")


def is_of_installation(permission: str) -> bool:
    """Return whether a permission ("auth.add_user") takes a role in the whole installation."""
    return permission.startswith(INSTALLATION)


def groups_update(**signal: Any) -> None:
    """Give every group its role's permissions (post_migrate receiver)."""
    allowed = Q(content_type__app_label__in=["profiles", "tuner"], codename__startswith="view_")
    for role, names in ROLES.items():
        for name in names:
            app, codename = name.split(".")
            allowed |= Q(content_type__app_label=app, codename=codename)
        group, _ = Group.objects.get_or_create(name=role)
        group.permissions.set(Permission.objects.filter(allowed))


def role_of(user: AbstractUser) -> str:
    """Return the highest role; "" without one."""
    names = set(user.groups.values_list("name", flat=True))
    return next((role for role in (OWNER, ENGINEER, VIEWER) if role in names), "")


def role_set(user: AbstractUser, role: str) -> None:
    """Give exactly this role; owners may enter the admin."""
    user.groups.set([Group.objects.get(name=role)])
    user.is_staff = role == OWNER or user.is_superuser
    user.save(update_fields=["is_staff"])


def owner_exists() -> bool:
    """Return whether somebody can sign in and manage people."""
    people = get_user_model().objects.filter(Q(groups__name=OWNER) | Q(is_superuser=True), is_active=True)
    return people.exclude(password__startswith=UNUSABLE_PASSWORD_PREFIX).exists()
