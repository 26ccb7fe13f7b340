"""Addresses of git repositories that a worker may fetch from: https, ssh, and file below a folder that the worker names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from profiles.base.refused import Refused
from workers.outgoing import parse_address

MAX_ADDRESS = 300
_PATH = re.compile(r"(?:/[A-Za-z0-9_~+][A-Za-z0-9._~+-]*)+/?\Z")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?\Z")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}\Z")
BUILD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,79}\Z")
FOLDER = re.compile(r"(?:[A-Za-z0-9_{][A-Za-z0-9._{}-]*/)*[A-Za-z0-9_{][A-Za-z0-9._{}-]*\Z")


@dataclass(frozen=True)
class GitAddress:
    """`host` and `port` are where a connection goes; empty of a file."""

    text: str
    scheme: str
    host: str
    port: int
    user: str
    path: str


def parse_git_address(text: str) -> GitAddress:
    """Return the parts of an address. Raises Refused; looks nothing up."""
    if not 0 < len(text) <= MAX_ADDRESS or not text.isascii() or not text.isprintable() or " " in text:
        raise Refused(f"write an address like https://host/team/kernels.git, at most {MAX_ADDRESS} characters")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise Refused("this is no address: write https://host/path") from error
    if parts.query or parts.fragment or not _PATH.match(parts.path):
        raise Refused("the path of a repository is letters, digits and . _ ~ + - between slashes; no part begins with . or -")
    if parts.scheme == "https":
        found = parse_address(text)
        return GitAddress(text, "https", found.hostname or "", port or 443, "", parts.path)
    if parts.scheme == "ssh":
        user, host = parts.username or "", parts.hostname or ""
        if parts.password is not None or not _USER.match(user) or not _HOST.match(host) or port == 0:
            raise Refused("write ssh://git@host/team/kernels.git: a user, a host, no password")
        return GitAddress(text, "ssh", host, port or 22, user, parts.path)
    if parts.scheme == "file":
        if parts.netloc:
            raise Refused("a file has no host: write file:///srv/git/kernels.git")
        return GitAddress(text, "file", "", 0, "", parts.path)
    raise Refused("https://, ssh:// and file:// are fetched from, nothing else; git@host:path is written ssh://git@host/path")


def folder_problem(folder: str) -> str:
    """Return why this is no folder inside of a build's code; "" where it is."""
    if not folder or (len(folder) <= 200 and FOLDER.match(folder) and folder.replace("{build}", "").count("{") == 0):
        return ""
    return 'a path inside, like src or "kernels-{build}/python": no part begins with . or -'
