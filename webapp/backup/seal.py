"""The installation's keys under a passphrase: scrypt makes the key, Fernet encrypts and signs."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from webapp.backup.errors import BackupError, Damaged

VARIABLE = "RIDGEPOINT_BACKUP_PASSPHRASE"
SHORTEST = 12               # characters of a passphrase
_COST, _BLOCK, _PARALLEL = 1 << 16, 8, 1          # 64 MiB and a fifth of a second for each guess
_MOST_COST = 1 << 18        # a document that asks for more memory is none of ours


def read_passphrase(env: Mapping[str, str]) -> str | None:
    """Return the passphrase of the environment, or of the file that it names; None where it names none.

    Raises BackupError for one that is too short or a file that cannot be read.
    """
    passphrase, path = env.get(VARIABLE), env.get(f"{VARIABLE}_FILE")
    if not passphrase and path:
        try:
            passphrase = Path(path).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise BackupError(f"{VARIABLE}_FILE names {path}, which cannot be read: {error}") from None
    if not passphrase and not path:
        return None
    if not passphrase or len(passphrase) < SHORTEST:
        raise BackupError(f"the passphrase has fewer than {SHORTEST} characters: choose a longer one")
    return passphrase


def seal(keys: Mapping[str, str], passphrase: str) -> bytes:
    """Return the keys as a JSON document that only the passphrase opens."""
    salt = os.urandom(16)
    token = Fernet(_derive(passphrase, salt, _COST)).encrypt(json.dumps(dict(keys)).encode())
    return json.dumps({"kdf": "scrypt", "cost": _COST, "salt": b64encode(salt).decode(), "sealed": token.decode()}).encode()


def unseal(document: bytes, passphrase: str) -> dict[str, str]:
    """Return the sealed keys. Raises BackupError for another passphrase, Damaged where it is no such document."""
    try:
        parts = json.loads(document)
        cost, salt, token = int(parts["cost"]), b64decode(parts["salt"]), str(parts["sealed"]).encode()
    except (ValueError, KeyError, TypeError):
        raise Damaged("the sealed keys are damaged: this is not what a backup writes") from None
    if not 2 <= cost <= _MOST_COST or cost & (cost - 1):
        raise Damaged(f"the sealed keys are damaged: cost {cost}")
    try:
        keys = json.loads(Fernet(_derive(passphrase, salt, cost)).decrypt(token))
    except InvalidToken:
        raise BackupError(f"the passphrase is not the one that this backup's keys were sealed under ({VARIABLE})") from None
    return {str(name): str(value) for name, value in keys.items()}


def _derive(passphrase: str, salt: bytes, cost: int) -> bytes:
    return urlsafe_b64encode(Scrypt(salt=salt, length=32, n=cost, r=_BLOCK, p=_PARALLEL).derive(passphrase.encode()))
