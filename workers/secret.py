"""Secrets as the database holds them: those of webhooks and serving engines encrypted under a key that is made from SECRET_KEY,
which is not in the database; of links' no more than a digest.

A copy of the database opens nothing. After SECRET_KEY has changed, SECRET_KEY_FALLBACKS still open what was sealed before.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.utils.crypto import salted_hmac


def digest_of(secret: str) -> str:
    """Return what the database keeps of a link's secret: enough to know it again, 64 hexadecimal digits."""
    return sha256(secret.encode("utf-8", "replace")).hexdigest()


class Unreadable(ValueError):
    """It was sealed under another SECRET_KEY."""


def seal(secret: str) -> str:
    """Return a secret encrypted under SECRET_KEY, "" of an empty one."""
    return _keys().encrypt(secret.encode()).decode() if secret else ""


def unseal(stored: str) -> str:
    """Return a stored secret in the clear. Raises Unreadable where it was sealed under another SECRET_KEY."""
    try:
        return _keys().decrypt(stored).decode() if stored else ""
    except InvalidToken as error:
        raise Unreadable("its secret was stored under another SECRET_KEY: give web and workers the same RIDGEPOINT_SECRET_KEY, "
                         "or remove this place and add it again") from error


# part of the key of every stored secret: it stays as it was first written, wherever this module lies
SALT = "tuner.notify.secret"


def _keys() -> MultiFernet:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet([Fernet(urlsafe_b64encode(salted_hmac(SALT, b"", key, algorithm="sha256").digest()))
                        for key in keys])
