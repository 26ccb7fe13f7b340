"""The installation's secret key, made once, readable by its owner alone."""

import contextlib
import os
import secrets
from pathlib import Path

FILE_NAME = "secret_key"


def secret_key(home: Path) -> str:
    """Return the key, made where it is missing."""
    path = home / FILE_NAME
    if not path.exists():
        home.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{FILE_NAME}.{os.getpid()}")
        with open(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as out:
            out.write(secrets.token_urlsafe(48))
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)      # the first of two starters wins, both read the same key
        fresh.unlink()
    return path.read_text()
