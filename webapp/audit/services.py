"""Writing the audit log: from signals of rows, and by name for what has no row."""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_delete, post_init, post_save

from webapp.audit.kinds import KINDS, Kind
from webapp.models import AuditEntry
from workers.redact import redact
from workers.scope import current, project_of

MOST_CHARACTERS = 1000          # of one value


@dataclass(frozen=True)
class Actor:
    """Who changes something: a person at an address, with a token or without; nobody: a command or a worker."""

    person: Any = None
    address: str | None = None
    token: str = ""


NOBODY = Actor()
_actor: ContextVar[Actor] = ContextVar("actor", default=NOBODY)


def acting() -> Actor:
    """Return who acts."""
    return _actor.get()


def enter(actor: Actor) -> None:
    """Say who acts for the rest of this context: a request's."""
    _actor.set(actor)


def record(action: str, kind: str, target: str, target_id: object = "", changes: Any = None, project: int | None = None) -> None:
    """Add a line to the log."""
    actor = acting()
    person = actor.person if getattr(actor.person, "pk", None) else None
    AuditEntry.objects.create(
        actor=person, actor_name=person.get_username() if person else "", token=actor.token[:80], address=actor.address,
        action=action, kind=kind, target=redact(target)[:200], target_id=str(target_id)[:80], changes=changes or {},
        project_id=current().project if project is None else project)


def connect() -> None:
    """Listen to the rows of `KINDS`."""
    for kind in KINDS:
        model = apps.get_model(kind.model)
        if kind.columns:
            post_init.connect(_remember, sender=model, dispatch_uid=f"audit init {kind.model}")
            post_save.connect(_saved, sender=model, dispatch_uid=f"audit save {kind.model}")
            _save_with_its_line(model)
        post_delete.connect(_deleted, sender=model, dispatch_uid=f"audit delete {kind.model}")
    m2m_changed.connect(_groups, sender=get_user_model().groups.through, dispatch_uid="audit groups")


def _save_with_its_line(model: type[Model]) -> None:
    """Let a row and its line stand together or not at all: Django tells of a saved row after the row's own transaction."""
    save_base = model.save_base
    if hasattr(save_base, "__wrapped__"):       # connected already
        return

    @wraps(save_base)
    def save(self: Model, *given: Any, **more: Any) -> None:
        with transaction.atomic(using=more.get("using"), savepoint=False):
            save_base(self, *given, **more)

    model.save_base = save          # type: ignore[method-assign]


_BY_MODEL = {kind.model.lower(): kind for kind in KINDS}


def _kind(row: Model) -> Kind:
    return _BY_MODEL[row._meta.label_lower]


def _values(row: Model) -> dict[str, Any]:
    """Return what is told of a row's columns; those that were not loaded are left out."""
    kind = _kind(row)
    names = {column: row._meta.get_field(column).attname for column in kind.columns}         # type: ignore[union-attr]
    return {column: row.__dict__[name] for column, name in names.items() if name in row.__dict__}


def _told(row: Model, column: str, value: Any) -> Any:
    plain = _kind(row).told.get(column, lambda each: each)(value) if value is not None else None
    if isinstance(plain, str | int | float | bool | None):
        return plain[:MOST_CHARACTERS] if isinstance(plain, str) else plain
    return json.dumps(plain, default=str)[:MOST_CHARACTERS]


def _remember(instance: Model, **signal: Any) -> None:
    instance.__dict__["_audited"] = {name: json.dumps(value, default=str) for name, value in _values(instance).items()} \
        if instance.pk is not None else {}       # a row that is loaded says that it is new until its columns are set


def _saved(instance: Model, created: bool, **signal: Any) -> None:
    before, now = instance.__dict__.get("_audited", {}), _values(instance)
    changed = {name: value for name, value in now.items() if created or before.get(name) != json.dumps(value, default=str)}
    if changed:
        changes = {name: [None if created or name not in before else _told(instance, name, json.loads(before[name])),
                          _told(instance, name, value)] for name, value in changed.items()}
        record("made" if created else "changed", _name(instance), str(instance), instance.pk, changes, _project(instance))
    _remember(instance)


def _deleted(instance: Model, **signal: Any) -> None:
    record("deleted", _name(instance), str(instance), instance.pk, project=_project(instance))


def _groups(instance: Any, action: str, reverse: bool, pk_set: Any = None, **signal: Any) -> None:
    if action in ("post_add", "post_remove") and pk_set and not reverse:
        groups = apps.get_model("auth.Group").objects.filter(pk__in=pk_set).values_list("name", flat=True)
        record("role given" if action == "post_add" else "role taken", "person", str(instance), instance.pk,
               {"role": [None, ", ".join(groups)] if action == "post_add" else [", ".join(groups), None]})


def _name(row: Model) -> str:
    return {"auth.user": "person"}.get(row._meta.label_lower, str(row._meta.verbose_name))


def _project(row: Model) -> int | None:
    try:
        return row.pk if row._meta.label_lower == "webapp.project" else project_of(row)
    except ObjectDoesNotExist:         # what it hangs from went before it
        return None
