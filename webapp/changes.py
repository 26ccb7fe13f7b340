"""What follows when a person's rights or password change: open pages ask again who they are, tokens end with the password."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete, pre_save

from webapp.live_topics import connections_renew
from webapp.models import ApiToken, Membership

ONLY_HASHED_ANEW = {"password"}         # Django saves this column alone when it raises the hash's cost: the password is the same
ONLY_SEEN = {"last_login"}


def connect() -> None:
    """Listen to these changes."""
    person = get_user_model()
    pre_save.connect(end_tokens, sender=person, dispatch_uid="ridgepoint tokens")
    for signal in (post_save, pre_delete):
        signal.connect(renew, sender=person, dispatch_uid="ridgepoint person")
    m2m_changed.connect(renew_by_groups, sender=person.groups.through, dispatch_uid="ridgepoint groups")
    for signal in (post_save, post_delete):
        signal.connect(renew_by_membership, sender=Membership, dispatch_uid="ridgepoint membership")


def end_tokens(instance: Any, update_fields: Any = None, **signal: Any) -> None:
    """Revoke a person's tokens when their password is another one, unless `keep_tokens` is set on them."""
    if instance.pk is None or getattr(instance, "keep_tokens", False) or set(update_fields or ()) == ONLY_HASHED_ANEW:
        return
    before = type(instance)._base_manager.filter(pk=instance.pk).values_list("password", flat=True).first()
    if before is not None and before != instance.password:
        ApiToken.objects.filter(user=instance.pk).delete()


def renew(instance: Any, update_fields: Any = None, created: bool = False, **signal: Any) -> None:
    """Renew a person's connections when they were changed, deactivated or deleted."""
    if not created and set(update_fields or ()) not in (ONLY_SEEN, ONLY_HASHED_ANEW):
        connections_renew(instance.pk)


def renew_by_groups(instance: Any, action: str, reverse: bool, pk_set: Any = None, **signal: Any) -> None:
    """Renew connections of whose role in the installation changes."""
    if action.startswith("post_"):
        for user in (pk_set or ()) if reverse else (instance.pk,):
            connections_renew(user)


def renew_by_membership(instance: Membership, **signal: Any) -> None:
    """Renew connections of whose role in a project changes."""
    connections_renew(instance.user_id)
