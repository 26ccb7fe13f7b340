"""What follows when a person's rights or password change: open pages ask again who they are, tokens end with the password.

Open pages are told of a session and of a person: `webapp.live` listens, this says, and each process imports it.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete, pre_save

from webapp.models import ApiToken, Membership
from workers import jobs


def session_topic(session_key: str) -> str:
    """Return the topic on which connections of a session are told that it ended."""
    return f"session.{hashlib.sha256(session_key.encode()).hexdigest()[:32]}"


def person_topic(user: int) -> str:
    """Return the topic on which connections of a person are told that what they may do has changed."""
    return f"person.{user}"


def connections_renew(user: int) -> None:
    """Close a person's connections once the change is committed: their pages connect again, as who they are then."""
    transaction.on_commit(lambda: jobs.publish(person_topic(user), "changed", {}), robust=True)


def connections_close(request: Any = None, **signal: Any) -> None:
    """Tell a session's connections that it was signed out (user_logged_out receiver)."""
    if request is not None and request.session.session_key:
        jobs.publish(session_topic(request.session.session_key), "signed-out", {})


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
