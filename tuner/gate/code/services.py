"""What may be done to the source of a suite's code: allow one, take an archive of a build, try to fetch, stop that; what a worker
writes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.devices import is_gpu
from tuner.gate.suites.job_services import known_commit
from tuner.models import CodeFetch, Suite, SuiteArchive, SuiteCode
from tuner.tuning.trial import cleaned
from workers import jobs
from workers.outgoing import parse_address

# Addresses of git repositories that a worker may fetch from: https, ssh, and file below a folder that the worker names.

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
        address = parse_address(text)
        return GitAddress(text, "https", address.hostname or "", port or 443, "", parts.path)
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


MAY_ALLOW = "profiles.add_capturetarget"        # owners: who may say what programs workers run
MOST_ARCHIVE_BYTES = 16 * 2**20
KEPT_ARCHIVES, KEPT_FETCHES = 20, 20
Kind, Status = SuiteCode.Kind, CodeFetch.Status
LIVE = (Status.WAITING, Status.RUNNING)


def code_allow(suite: Suite, *, kind: str, address: str = "", folder: str = "", by: Any) -> SuiteCode:
    """Allow a source, in place of another. Owners only. Refused names the field."""
    problems = {}
    if by is not None and not by.has_perm(MAY_ALLOW):
        problems[""] = "only owners may say where workers load a build's code from"
    if suite.kind == Suite.Kind.UPLOADED:
        problems[""] = "runs of this suite are measured elsewhere: no worker loads its code"
    if suite.build_path:
        problems[""] = "the suite names a folder of builds on its workers (build_path): take that out first"
    if kind not in Kind.values:
        problems["kind"] = f"one of {', '.join(Kind.values)}"
    if kind == Kind.GIT:
        try:
            parse_git_address(address)
        except Refused as refused:
            problems["address"] = str(refused)
    elif address:
        problems["address"] = "archives are uploaded: leave the address empty"
    if problem := folder_problem(folder):
        problems["folder"] = problem
    if problems:
        raise Refused(problems, whole="suite")
    return SuiteCode.objects.update_or_create(
        suite=suite, defaults={"kind": kind, "address": address, "folder": folder, "allowed_by": by})[0]


def code_forbid(suite: Suite, *, by: Any) -> None:
    """Take the source away: builds are those of the worker's environment again."""
    if by is not None and not by.has_perm(MAY_ALLOW):
        raise Refused("only owners may say where workers load a build's code from", whole="suite")
    SuiteCode.objects.filter(suite=suite).delete()


def archive_put(suite: Suite, build: str, data: bytes, *, by: Any) -> SuiteArchive:
    """Keep the archive of a build, in place of another. Owners only: workers run what is in it."""
    code = SuiteCode.objects.filter(suite=suite, kind=Kind.ARCHIVE).first()
    problems = {}
    if by is not None and not by.has_perm(MAY_ALLOW):
        problems[""] = "only owners may say where workers load a build's code from"
    if code is None:
        problems[""] = "no archives are allowed for this suite: choose them as its source first"
    if not BUILD.match(build) or ".." in build:
        problems["build"] = "a commit or a name: letters, digits and . _ / + -"
    if len(data) > MOST_ARCHIVE_BYTES:
        problems["file"] = f"more than {MOST_ARCHIVE_BYTES >> 20} MiB"
    elif data[:2] != b"\x1f\x8b" and data[:4] != b"PK\x03\x04":
        problems["file"] = "a .tar.gz or .zip file"
    elif "build" not in problems and known_commit(suite, build) not in ("", f"sha256:{hashlib.sha256(data).hexdigest()}"):
        problems["build"] = "it was measured with other code: give this archive another name"
    if problems or code is None:
        raise Refused(problems, whole="suite")
    with transaction.atomic():
        archive = SuiteArchive.objects.update_or_create(code=code, build=build, defaults={
            "data": data, "sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data), "owner": by})[0]
        old = SuiteArchive.objects.filter(code=code).order_by("-pk").values_list("pk", flat=True)[KEPT_ARCHIVES:]
        SuiteArchive.objects.filter(pk__in=list(old)).exclude(pk=archive.pk).delete()
    return archive


def fetch_try(suite: Suite, build: str, *, by: Any) -> CodeFetch:
    """Queue a try to fetch the code of a build; nothing is measured."""
    code = SuiteCode.objects.filter(suite=suite).first()
    problems = {}
    if by is not None and not by.has_perm(MAY_ALLOW):
        problems[""] = "only owners may try it"
    if code is None:
        problems[""] = "no source is allowed for this suite"
    if not BUILD.match(build) or ".." in build:
        problems["build"] = "a whole commit (40 hexadecimal digits), a branch or a tag"
    if problems or code is None:
        raise Refused(problems, whole="suite")
    with transaction.atomic():
        fetch = CodeFetch.objects.create(code=code, build=build, owner=by)
        old = CodeFetch.objects.filter(code=code).order_by("-pk").values_list("pk", flat=True)[KEPT_FETCHES:]
        CodeFetch.objects.filter(pk__in=list(old)).delete()
        jobs.enqueue_on_commit(queue_of(fetch), "code", fetch.pk)
    return fetch


def fetch_stop(fetch: CodeFetch, *, by: Any) -> bool:
    """Stop a try; the worker ends its processes within a second. False where it had ended already."""
    if by is not None and not by.has_perm(MAY_ALLOW):
        raise Refused("only owners may stop it", whole="suite")
    who = by.get_username() if by is not None else "a command on the server"
    stopped = CodeFetch.leases.stop(fetch.pk, Status.STOPPED, said=f"stopped by {who}"[:200])
    if stopped:
        jobs.publish(f"suite.{fetch.code.suite_id}", "status", {"fetch": fetch.pk, "status": str(Status.STOPPED)})
    return stopped


def queue_of(fetch: CodeFetch) -> str:
    """Return the queue whose workers measure the suite."""
    return "gpu" if is_gpu(fetch.code.suite.device) else "replay"


# ---- the worker that tries ----

def fetch_claim(fetch_id: int, worker: str) -> CodeFetch | None:
    """Return the row for `worker`; None where it is not free."""
    if not CodeFetch.leases.claim(fetch_id, worker, started=timezone.now(), error=None):
        return None
    return CodeFetch.objects.select_related("code__suite").get(pk=fetch_id)


def fetch_say(fetch: CodeFetch, worker: str, said: str) -> None:
    """Store and tell how far it is."""
    if CodeFetch.leases.write(fetch.pk, worker, said=said[:200]):
        jobs.publish(f"suite.{fetch.code.suite_id}", "status", {"fetch": fetch.pk, "said": said[:200]})


def fetch_done(fetch: CodeFetch, worker: str, *, commit: str, files: int, size_bytes: int) -> None:
    """End a try that found the code."""
    _end(fetch, worker, Status.DONE, commit=commit[:80], files=files, size_bytes=size_bytes)


def fetch_fail(fetch: CodeFetch, worker: str, what: str, hint: str = "") -> None:
    """End a try with what went wrong."""
    _end(fetch, worker, Status.FAILED, error={"where": fetch.build, "what": cleaned(what)[:500], "hint": cleaned(hint)[:300]})


def _end(fetch: CodeFetch, worker: str, status: str, **fields: Any) -> None:
    if CodeFetch.leases.end(fetch.pk, worker, status, **fields):
        jobs.publish(f"suite.{fetch.code.suite_id}", "status", {"fetch": fetch.pk, "status": str(status)})
