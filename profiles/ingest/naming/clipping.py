"""Names that are too long to keep whole: what is left still tells them apart."""

from __future__ import annotations

from hashlib import blake2b

_DIGEST_CHARS = 8


def clip_name(name: str, chars: int) -> str:
    """Return a name of at most `chars` characters (more than 9): a longer one ends in "…" and the digest of the whole.

    Two names that differ only behind the clipping stay two: 4,000 of them have one digest in common with a chance of 0.2 %.
    """
    if len(name) <= chars:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_CHARS // 2).hexdigest()
    return f"{name[:chars - _DIGEST_CHARS - 1]}…{digest}"


def clip_bytes(name: bytes, most: int) -> bytes:
    """Return the same of a name that is not decoded yet; the digest is of the bytes."""
    if len(name) <= most:
        return name
    return name[:most - _DIGEST_CHARS] + blake2b(name, digest_size=_DIGEST_CHARS // 2).hexdigest().encode()
