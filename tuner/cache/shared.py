"""What Triton compiled and Helion chose on one host serves the project's others, with no change to a job's code.

    TRITON_CACHE_MANAGER=triton.runtime.cache:RemoteCacheManager  TRITON_REMOTE_CACHE_BACKEND=ridgepoint_shared:TritonCache
    HELION_AUTOTUNE_CACHE=RemoteAutotuneCache                     HELION_REMOTE_CACHE_BACKEND=ridgepoint_shared.HelionCache

RIDGEPOINT_URL and RIDGEPOINT_TOKEN name the server, as for the client: a token that may only read shares nothing of this job's.
Whoever may write in a project chooses code that its other jobs run on their GPUs. Libraries of the host (.so) are not shared: each
host builds its own. What this host compiled is never asked for; without the server a job compiles as ever.
Standard library only, beside Triton or Helion, whose base classes these extend: imported when the class is asked for.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

try:
    from tuner.cache import client
except ImportError:      # copied beside a job's own code
    import ridgepoint_client as client  # type: ignore[import-not-found, no-redef]

log = logging.getLogger("ridgepoint")
ASK_S = 10.0                     # how long a compilation waits for the server
PAUSE_S = 60.0                   # after it did not answer nobody waits for it so long
MOST_NAMES = 64
OF_THE_HOST = (".so", ".pyd", ".dll", ".dylib")
HELION_NAME = "config.json"


class Store:
    """Files by tool, key and name on the server; whatever is wrong there is a miss."""

    def __init__(self, server: client.Server) -> None:
        self.server, self.reads_only = server, False
        self._quiet_until = 0.0
        self._lock = threading.Lock()

    def get(self, tool: str, key: str, names: Sequence[str]) -> dict[str, bytes]:
        """Return the files of these that the server has, each as it was sent."""
        contents: dict[str, bytes] = {}
        for offset in range(0, len(names), MOST_NAMES):
            query = urllib.parse.urlencode([("name", name) for name in names[offset:offset + MOST_NAMES]])
            answer = self._ask(f"{_path(tool, key)}?{query}")
            files = answer.get("files") if isinstance(answer, dict) else None
            for name, packed in (files.items() if isinstance(files, dict) else ()):
                data = _unpacked(packed)
                if data is not None and name in names:
                    contents[name] = data
        return contents

    def put(self, tool: str, key: str, name: str, data: bytes) -> None:
        if not self.reads_only:
            self._ask(_path(tool, key), {"name": name, "content": base64.b64encode(data).decode(),
                                         "sha256": hashlib.sha256(data).hexdigest()})

    def newest(self, tool: str, most: int) -> list[bytes]:
        """Return the newest files of a tool, newest first."""
        answer = self._ask(f"/api/compiled/{tool}/?most={most}")
        files = answer.get("files") if isinstance(answer, dict) else None
        return [data for packed in files or () if (data := _unpacked(packed)) is not None]

    def _ask(self, path: str, send: Any = None) -> Any:
        if not self.server.url or time.monotonic() < self._quiet_until:
            return None
        try:
            _, body = self.server.ask(path, ASK_S, send=send)
            return json.loads(body)
        except client.Refused as error:
            if error.code in (401, 403) and send is not None:
                self.reads_only = True
                log.warning("Ridgepoint: the token may not write, so what is compiled here is not shared")
            elif error.code != 404:
                log.warning("Ridgepoint: %s", error)
            if error.code in (429, 500, 502, 503, 504, 507):
                self._rest()
        except client.UNREADABLE as error:
            log.warning("Ridgepoint: compiled files are neither asked for nor shared for %.0f s: %s", PAUSE_S, error)
            self._rest()
        return None

    def _rest(self) -> None:
        with self._lock:
            self._quiet_until = time.monotonic() + PAUSE_S


def _path(tool: str, key: str) -> str:
    return f"/api/compiled/{tool}/{urllib.parse.quote(key, safe='')}/"


def _unpacked(packed: Any) -> bytes | None:
    """Return the bytes of an answer where they are those that were sent."""
    with suppress(*client.UNREADABLE):
        data = base64.b64decode(packed["content"], validate=True)
        return data if hashlib.sha256(data).hexdigest() == packed["sha256"] else None
    return None


@lru_cache(maxsize=1)
def store() -> Store:
    """Return the process's store, of the server that the environment names."""
    return Store(client.Server(os.environ.get("RIDGEPOINT_URL", ""), os.environ.get("RIDGEPOINT_TOKEN", "")))


def _make_triton_cache() -> type:
    from triton.runtime.cache import FileCacheManager, RemoteCacheBackend

    class TritonCache(RemoteCacheBackend):  # type: ignore[misc]  # Triton has no types
        """One key of Triton's cache: this host's folder first, then the server."""

        def __init__(self, key: str) -> None:
            self._key, self._local = key, FileCacheManager(key)

        def get(self, filenames: Iterable[str]) -> dict[str, bytes]:
            contents: dict[str, bytes] = {}
            for name in filenames:
                path = self._local.get_file(name)
                if path is not None:
                    contents[name] = Path(path).read_bytes()
            missing = [name for name in filenames if name not in contents and not name.endswith(OF_THE_HOST)]
            return {**contents, **store().get("triton", self._key, missing)} if missing else contents

        def put(self, filename: str, data: bytes) -> None:
            if not filename.endswith(OF_THE_HOST):
                store().put("triton", self._key, filename, data)

    return TritonCache


def _make_helion_cache() -> type:
    from helion.autotuner.remote_cache import RemoteCacheBackend

    class HelionCache(RemoteCacheBackend):  # type: ignore[misc]  # Helion is installed where it is used
        """Helion's choices by the hash of kernel, shapes, hardware and versions."""

        def get(self, key: str) -> str | None:
            data = store().get("helion", key, [HELION_NAME]).get(HELION_NAME)
            return None if data is None else data.decode("utf-8", "replace")

        def put(self, key: str, data: str) -> None:
            store().put("helion", key, HELION_NAME, data.encode())

        def list(self, max_results: int | None = None) -> Iterable[str]:
            return [data.decode("utf-8", "replace") for data in store().newest("helion", max_results or 20)]

    return HelionCache


_CLASSES: dict[str, Callable[[], type]] = {"TritonCache": _make_triton_cache, "HelionCache": _make_helion_cache}


def __getattr__(name: str) -> type:
    """Make the class that Triton or Helion asks for; the other one need not be installed."""
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    cls = globals()[name] = _CLASSES[name]()
    return cls
