"""What a role in one project allows, while that project is worked in."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.models import Permission

from webapp.models import Membership
from webapp.roles import is_of_installation
from workers.scope import current


class MembershipRoles(BaseBackend):
    """Beside Django's own backend, which knows the role in the installation. Signs nobody in."""

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        if not user_obj.is_active or user_obj.is_anonymous or obj is not None:
            return set()
        permissions: dict[int, set[str]] = user_obj.__dict__.setdefault("_permissions_by_project", {})
        project = current().project
        if project not in permissions:
            permissions[project] = _permissions(user_obj.pk, project)
        return permissions[project]

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        return perm in self.get_all_permissions(user_obj, obj)

    def has_module_perms(self, user_obj: Any, app_label: str) -> bool:
        return any(name.partition(".")[0] == app_label for name in self.get_all_permissions(user_obj))


def _permissions(user: int, project: int) -> set[str]:
    role = Membership.objects.filter(user=user, project=project).values_list("role", flat=True).first()
    if role is None:
        return set()
    rows = Permission.objects.filter(group__name=role).values_list("content_type__app_label", "codename").order_by()
    return {name for app, codename in rows if not is_of_installation(name := f"{app}.{codename}")}
