"""Secrets of addresses, taken out of what is logged, traced or stored: the route's pattern or a word stands in their place."""

from __future__ import annotations

import re

# what an address ends at in a sentence, in JSON and in a query
_PART = r"[^/\s?#&\"'<>\\]+"
_ROUTES = (
    (re.compile(rf"(/share/){_PART}"), r"\1<str:secret>"),
    (re.compile(rf"(/accounts/invitation/){_PART}"), r"\1<str:secret>"),
    (re.compile(rf"(/accounts/reset/){_PART}/{_PART}"), r"\1<uidb64>/<token>"),
    # a link that was pasted somewhere else, or whose slashes are encoded; digests and names of columns are no secrets
    (re.compile(r"((?:inv|share)_)[A-Za-z0-9_-]{32}"), r"\1<secret>"),
    (re.compile(r"(rp_)[0-9a-f]{40,}"), r"\1<secret>"),                       # an API token that was put into an address
    (re.compile(r"(://)[^\s/:@]*:[^\s/@]+@"), r"\1<user>:<password>@"),      # of a repository, a server, a database
)


def redact(text: str) -> str:
    """Return the text with the secrets of its addresses replaced: "/share/share_x…/" -> "/share/<str:secret>/"."""
    for pattern, shown in _ROUTES:
        text = pattern.sub(shown, text)
    return text
