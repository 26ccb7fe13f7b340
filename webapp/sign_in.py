"""Guessing passwords is slow: after a few failures of one name from one address, and after more of one name from
anywhere, sign-in rests for a while. Counted in Redis for all web processes; where Redis is away, nobody is locked out."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from django.contrib.auth.forms import AuthenticationForm, PasswordResetForm
from django.core.exceptions import ValidationError
from redis import RedisError

from workers import jobs

log = logging.getLogger(__name__)
REST_S = 15 * 60
FAILURES = 10                # of one name from one address
RESETS = 3                   # mails to one address
FAILURES_ANYWHERE = 100      # of one name: a proxy or a botnet; high, so that strangers hardly lock a person out
_KEY = "ridgepoint:sign-in:"


class RateLimitMixin:
    """Refuses sign-in after too many failures, without looking at the password."""

    request: Any
    cleaned_data: dict[str, Any]

    def clean(self) -> dict[str, Any]:
        keys = _keys(self.cleaned_data.get("username") or "", self.request)
        if not _take(keys):
            raise ValidationError(f"Too many failed sign-ins: try again in {REST_S // 60} minutes.", code="throttled")
        cleaned: dict[str, Any] = super().clean()  # type: ignore[misc]  # of the form; where it raises, the try stays counted
        _give_back(keys)
        return cleaned


class SignInForm(RateLimitMixin, AuthenticationForm):
    pass


class ResetForm(PasswordResetForm):
    """Sends a link, to one address a few times only."""

    def clean_email(self) -> str:
        email: str = self.cleaned_data["email"]
        if not _take({_key(f"reset\0{email.lower()}"): RESETS}):
            raise ValidationError(f"Too many mails to this address: try again in {REST_S // 60} minutes.", code="throttled")
        return email


def tries_take(name: str, request: Any) -> bool:
    """Count a try of something else than a password at the door; False where it is one too many."""
    return _take(_keys(name, request))


def tries_forget(name: str, request: Any) -> None:
    """It was right: forget the failures before."""
    _give_back(_keys(name, request))


def code_take(person: int, code: str) -> bool:
    """Return whether a one-time code of a person is used for the first time; it counts for longer than it is valid."""
    try:
        return bool(jobs.connection().set(_key(f"code\0{person}\0{code}"), 1, nx=True, ex=REST_S))
    except RedisError as error:
        log.warning("a code may be used twice: %s", error)
        return True


def _keys(name: str, request: Any) -> dict[str, int]:
    """Return Redis keys and the failures that each may count."""
    address = request.META.get("REMOTE_ADDR", "") if request else ""
    marks = {f"{name.lower()}\0{address}": FAILURES, name.lower(): FAILURES_ANYWHERE}
    return {_key(mark): most for mark, most in marks.items()}


def _key(mark: str) -> str:
    return _KEY + hashlib.sha256(mark.encode("utf-8", "replace")).hexdigest()


def _take(keys: dict[str, int]) -> bool:
    """Count a try before the password is looked at; False where one of the counts is full.

    Every try of many at once gets a number of its own, so no more are looked at than may fail.
    """
    try:
        with jobs.connection().pipeline() as pipe:
            for key in keys:
                pipe.incr(key)
            counts = pipe.execute()
            if any(count > most for count, most in zip(counts, keys.values(), strict=True)):
                for key in keys:
                    pipe.decr(key)
                pipe.execute()
                return False
            for key in keys:
                pipe.expire(key, REST_S)
            pipe.execute()
    except RedisError as error:
        log.warning("sign-in is not limited: %s", error)
    return True


def _give_back(keys: dict[str, int]) -> None:
    """Forget the failures of this name from this address, and this one try of the name from anywhere."""
    own, anywhere = keys
    try:
        with jobs.connection().pipeline() as pipe:
            pipe.delete(own)
            pipe.decr(anywhere)
            pipe.execute()
    except RedisError as error:
        log.warning("failed sign-ins were not forgotten: %s", error)
