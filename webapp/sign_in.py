"""Guessing passwords is slow: after a few failures of one name from one address, and after more of one name from
anywhere, sign-in rests for a while. Counted in Redis for all web processes; where Redis is away, nobody is locked out."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from redis import RedisError

from workers import jobs

log = logging.getLogger(__name__)
REST_S = 15 * 60
FAILURES = 10                # of one name from one address
FAILURES_ANYWHERE = 100      # of one name: a proxy or a botnet; high, so that strangers hardly lock a person out
_KEY = "ridgepoint:sign-in:"


class RateLimitMixin:
    """Refuses sign-in after too many failures, without looking at the password."""

    request: Any
    cleaned_data: dict[str, Any]

    def clean(self) -> dict[str, Any]:
        keys = _keys(self.cleaned_data.get("username") or "", self.request)
        if _is_blocked(keys):
            raise ValidationError(f"Too many failed sign-ins: try again in {REST_S // 60} minutes.", code="throttled")
        try:
            cleaned: dict[str, Any] = super().clean()  # type: ignore[misc]  # of the form
        except ValidationError:
            _count(keys)
            raise
        _forget(list(keys)[:1])
        return cleaned


class SignInForm(RateLimitMixin, AuthenticationForm):
    pass


class AdminSignInForm(RateLimitMixin, AdminAuthenticationForm):
    pass


def _keys(name: str, request: Any) -> dict[str, int]:
    """Return Redis keys and the failures that each may count."""
    address = request.META.get("REMOTE_ADDR", "") if request else ""
    marks = {f"{name.lower()}\0{address}": FAILURES, name.lower(): FAILURES_ANYWHERE}
    return {_KEY + hashlib.sha256(mark.encode("utf-8", "replace")).hexdigest(): most for mark, most in marks.items()}


def _is_blocked(keys: dict[str, int]) -> bool:
    try:
        counts = jobs.connection().mget(list(keys))
    except RedisError as error:
        log.warning("sign-in is not limited: %s", error)
        return False
    return any(int(count or 0) >= most for count, most in zip(counts, keys.values(), strict=True))


def _count(keys: dict[str, int]) -> None:
    try:
        with jobs.connection().pipeline() as pipe:
            for key in keys:
                pipe.incr(key)
                pipe.expire(key, REST_S)
            pipe.execute()
    except RedisError as error:
        log.warning("a failed sign-in was not counted: %s", error)


def _forget(keys: list[str]) -> None:
    try:
        jobs.connection().delete(*keys)
    except RedisError as error:
        log.warning("failed sign-ins were not forgotten: %s", error)
