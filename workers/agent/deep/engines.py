"""Ask a serving engine on this host for a capture of a few steps: vLLM and SGLang, over their own HTTP routes.

vLLM has the routes only when it was started with `--profiler-config`; SGLang always, with an admin key where one is set. The engine
writes the trace itself, where it was told to at its start (vLLM) or by `output_dir` (SGLang).
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

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
