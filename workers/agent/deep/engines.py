"""Serving engines of this host: asked for captures, and their traces fetched.

Traces are fetched out of folders that this host's own configuration allows: the server names a capture and one
of these folders, never any other path.

An order is watched first (what lies in the folder by then is old), then collected: once nothing grew for SETTLE_S, its files are
uploaded with the agent's token, bounded in bytes and number. What was under way when the agent ended is not taken up again: the
server is told by the agent's new run.

vLLM and SGLang are asked for a capture of a few steps over their own HTTP routes.

vLLM has the routes only when it was started with `--profiler-config`; SGLang always, with an admin key where one is set. The engine
writes the trace itself, where it was told to at its start (vLLM) or by `output_dir` (SGLang).
"""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, BinaryIO

import msgspec

from workers.agent.deep.folders import FolderProblem, Listed, allowing, fresh, is_below, list_files, open_file

ENGINES = ("vllm", "sglang")
TIMEOUT_S = 60.0
LOCAL = ("localhost", "127.0.0.1", "::1")


class EngineRefused(Exception):
    """The engine does not capture: why."""


def start_request(engine: str, steps: int, folder: str = "") -> tuple[str, dict[str, Any]]:
    """Return (path, body) that asks an engine for a capture of so many steps."""
    if engine == "vllm":
        return "/start_profile", {"max_iterations": steps, "profile_prefix": "ridgepoint"}
    if engine == "sglang":
        return "/start_profile", {"num_steps": steps, "activities": ["CPU", "GPU"], "record_shapes": True, "with_stack": False,
                                  "profile_prefix": "ridgepoint", **({"output_dir": folder} if folder else {})}
    raise EngineRefused(f"{engine!r}: one of {', '.join(ENGINES)}")


def ask_engine(engine: str, address: str, steps: int, folder: str = "", key: str = "") -> str:
    """Start a capture on an engine of this host, return what it answered.

    Raises:
        EngineRefused: it is not on this host, has no such route, or refuses.
    """
    path, body = start_request(engine, steps, folder)
    return _post(address, path, body, key)


def _post(address: str, path: str, body: Mapping[str, Any], key: str) -> str:
    parts = urllib.parse.urlsplit(address)
    if parts.scheme not in ("http", "https") or parts.hostname not in LOCAL:
        raise EngineRefused(f"{address[:100]!r}: an engine of this host, as http://localhost:8000")
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(address.rstrip("/") + path, json.dumps(body).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return str(answer.read(4096).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise EngineRefused("the engine has no such route: vLLM needs --profiler-config at its start") from error
        raise EngineRefused(f"the engine answers {error.code}: {error.read(300).decode(errors='replace')}") from error
    except OSError as error:
        raise EngineRefused(f"the engine does not answer: {error}") from error


log = logging.getLogger(__name__)
UPLOADS = "/api/fleet/fetches/"
SETTLE_S = 2.0                      # nothing grew for so long
MOST_FETCHES, MOST_KEPT = 8, 32
MOST_BYTES = 2 << 30                # of one capture; the server has a bound of its own
MOST_FOLDERS = 16
TRIES, AGAIN_S = 3, 2.0
WATCHING, UPLOADING, FETCHED, FAILED = "watching", "uploading", "fetched", "failed"
Post = Callable[[str, "Body", dict[str, str]], bytes]


class FetchOrder(msgspec.Struct):
    """`begin`: watch from now on. `collect`: upload what came. `stop`: forget it."""

    fetch: Annotated[int, msgspec.Meta(ge=1, lt=2**62)]
    folder: Annotated[str, msgspec.Meta(max_length=400)] = ""
    prefix: Annotated[str, msgspec.Meta(max_length=200)] = ""
    begin: bool = False
    collect: bool = False
    stop: bool = False


@dataclass
class Fetch:
    """One order and what became of it. `whole`: files came, and none grew lately."""

    order: FetchOrder
    root: str = ""
    state: str = WATCHING
    why: str = ""
    whole: bool = False
    known: frozenset[str] = frozenset()
    grew: tuple[tuple[tuple[str, int], ...], float] = ((), 0.0)
    files: list[Listed] = field(default_factory=list)
    is_dropped: bool = False

    @property
    def below(self) -> str:
        return self.order.folder.rstrip("/")[len(self.root.rstrip("/")):].strip("/")


class Body:
    """The body of a form with one file of `size` bytes, read as it is sent. A file that ends early is an OSError."""

    def __init__(self, name: str, file: BinaryIO, size: int) -> None:
        edge = uuid.uuid4().hex
        plain = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)[-200:]
        self._head = (f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{plain}"\r\n'
                      "Content-Type: application/octet-stream\r\n\r\n").encode()
        self._tail = f"\r\n--{edge}--\r\n".encode()
        self._file, self._left = file, size
        self.headers = {"Content-Type": f"multipart/form-data; boundary={edge}",
                        "Content-Length": str(len(self._head) + size + len(self._tail))}

    def read(self, most: int = 1 << 16) -> bytes:
        if self._head:
            data, self._head = self._head, b""
            return data
        if self._left:
            data = self._file.read(min(most, self._left))
            if not data:
                raise OSError("the file became shorter while it was sent")
            self._left -= len(data)
            return data
        data, self._tail = self._tail, b""
        return data


class Fetches:
    """`roots`: folders that may be fetched from. `post(path, body, headers)` → answer, as `Sender.post`."""

    def __init__(self, roots: Sequence[str], post: Post, most_bytes: int = MOST_BYTES) -> None:
        if wrong := [root for root in roots if not is_below(root, root)]:
            raise ValueError(f"--trace-folders: absolute paths without '..', not {wrong[0]!r}")
        if len(roots) > MOST_FOLDERS:
            raise ValueError(f"--trace-folders: at most {MOST_FOLDERS}")
        self.roots, self.post, self.most_bytes = tuple(roots), post, most_bytes
        self.every: dict[int, Fetch] = {}

    def take(self, given: object) -> None:
        """Begin, collect or stop what was ordered; what is known already is not begun again."""
        try:
            order = msgspec.convert(given, FetchOrder)
        except msgspec.ValidationError:
            return
        own = self.every.get(order.fetch)
        if order.stop:
            if own is not None:
                own.is_dropped = True
                del self.every[order.fetch]
        elif own is not None:
            if order.collect and not own.order.collect and own.state == WATCHING:
                own.order.collect, own.grew, own.whole = True, ((), time.monotonic()), False
        elif order.begin:
            self._keep(self._begun(order))
        elif order.collect:
            self._keep(Fetch(order, state=FAILED, why="its agent was started anew meanwhile"))

    def tend(self) -> None:
        """Look for what came; upload it where it is collected and whole."""
        for own in list(self.every.values()):
            if own.state == WATCHING:
                try:
                    self._look(own)
                except FolderProblem as problem:
                    own.state, own.why = FAILED, str(problem)[:300]

    def state(self) -> dict[str, Any]:
        """Return {"folders", "fetches": what became of orders}."""
        return {"folders": list(self.roots), "fetches": [
            {"fetch": number, "state": own.state, "why": own.why, "whole": own.whole} for number, own in self.every.items()]}

    def _keep(self, own: Fetch) -> None:
        ended = [number for number, fetch in self.every.items() if fetch.state in (FETCHED, FAILED)]
        for number in ended[:max(0, len(self.every) + 1 - MOST_KEPT)]:
            del self.every[number]
        self.every[own.order.fetch] = own

    def _begun(self, order: FetchOrder) -> Fetch:
        root = allowing(order.folder, self.roots)
        own = Fetch(order, root)
        if not root:
            own.state, own.why = FAILED, f"this agent fetches from {', '.join(self.roots) or 'no folder'}, not from {order.folder}"
        elif sum(fetch.state in (WATCHING, UPLOADING) for fetch in self.every.values()) >= MOST_FETCHES:
            own.state, own.why = FAILED, f"{MOST_FETCHES} captures are fetched from this host already"
        else:
            try:
                own.known = frozenset(file.name for file in list_files(root, own.below))
            except FolderProblem as problem:
                own.state, own.why = FAILED, str(problem)[:300]
        return own

    def _look(self, own: Fetch) -> None:
        own.files = fresh(list_files(own.root, own.below), own.known, own.order.prefix)
        now = tuple((file.name, file.size) for file in own.files)
        if now != own.grew[0]:
            own.grew = (now, time.monotonic())
        own.whole = bool(now) and time.monotonic() - own.grew[1] >= SETTLE_S
        total = sum(file.size for file in own.files)
        if total > self.most_bytes:
            raise FolderProblem(f"its traces are above {self.most_bytes:,} bytes: record fewer steps")
        if own.order.collect and own.whole:
            own.state = UPLOADING
            threading.Thread(target=self._upload, args=(own,), name="ridgepoint-fetch", daemon=True).start()

    def _upload(self, own: Fetch) -> None:
        try:
            for number, listed in enumerate(own.files):
                if own.is_dropped:
                    return
                self._send(own, number, listed)
            own.state = FETCHED
        except Exception as error:          # of the network, the disk, the server: it is told, and the files stay
            own.why, own.state = f"not uploaded: {_said(error)}"[:300], FAILED
            log.info("fetch %s: %s", own.order.fetch, own.why)

    def _send(self, own: Fetch, number: int, listed: Listed) -> None:
        for tried in range(TRIES):
            with open_file(own.root, own.below, listed) as file:
                body = Body(listed.name.rsplit("/", 1)[-1], file, listed.size)
                try:
                    self.post(f"{UPLOADS}{own.order.fetch}/{number}/", body, body.headers)
                    return
                except urllib.error.HTTPError as error:
                    if error.code < 500 or tried == TRIES - 1:
                        raise
                except OSError:
                    if tried == TRIES - 1:
                        raise
            time.sleep(AGAIN_S * (tried + 1))


def is_fetch(order: object) -> bool:
    """Return whether an order of the server is one of these."""
    return isinstance(order, Mapping) and "fetch" in order


def folders_of(text: str) -> list[str]:
    """Return the folders of an option as PATH has them: /a:/b."""
    return list(dict.fromkeys(folder.rstrip("/") or "/" for folder in text.split(":") if folder))


def _said(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        with error:
            return f"{error.code}: {_plain(error.read(2000))}"
    return str(error)


def _plain(answer: bytes) -> str:
    try:
        content = json.loads(answer)
    except ValueError:
        return answer.decode(errors="replace")[:200]
    return "; ".join(_texts(content))[:200]


def _texts(found: Any) -> Iterable[str]:
    if isinstance(found, Mapping):
        return [text for element in list(found.values())[:10] for text in _texts(element)]
    return [text for element in found[:10] for text in _texts(element)] if isinstance(found, list) else [str(found)]
