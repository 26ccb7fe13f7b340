"""What vLLM and SGLang are asked, against the routes and fields of their own sources (tests/data/engines/routes.json)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from workers.agent import node
from workers.agent.deep.engines import ENGINES, EngineRefused, ask_engine, start_request

ROUTES: dict[str, Any] = json.loads(Path("tests/data/engines/routes.json").read_text())
KINDS = {"string": lambda value: isinstance(value, str), "boolean": lambda value: isinstance(value, bool),
         "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
         "object": lambda value: isinstance(value, dict),
         "strings": lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value)}


@contextmanager
def engine(name: str, key: str = "", profiler: bool = True) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """A server with an engine's routes: refuses fields that it does not have, and kinds that they are not."""
    taken: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            route = ROUTES[name]["routes"].get(self.path) if profiler else None
            if route is None or "POST" not in route["methods"]:
                return self.say(404, '{"detail":"Not Found"}')
            if key and self.headers.get("Authorization") != f"Bearer {key}":
                return self.say(401, '{"error":"Unauthorized"}')
            for field, value in body.items():
                kind = route["fields"].get(field)
                if kind is None or not KINDS[kind](value) or not set(value if kind == "strings" else ()) <= set(
                        route.get("choices", {}).get(field, value if kind == "strings" else ())):
                    return self.say(422, field)
            taken.append((self.path, body))
            return self.say(200, route["answer"])

        def say(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("name", ENGINES)
def test_captures_are_asked_for_as_the_engine_expects(name: str) -> None:
    route = ROUTES[name]["routes"]["/start_profile"]
    with engine(name) as (address, taken):
        assert ask_engine(name, address, 3, "/captures") == route["answer"]
    (path, body), = taken
    assert path == "/start_profile"
    steps = {"vllm": "max_iterations", "sglang": "num_steps"}[name]
    assert body[steps] == 3 and body["profile_prefix"] == "ridgepoint"
    assert body.get("output_dir") == ("/captures" if "output_dir" in route["fields"] else None)


@pytest.mark.parametrize("name", ENGINES)
def test_what_an_engine_refuses_is_said(name: str) -> None:
    with engine(name, profiler=False) as (address, _), pytest.raises(EngineRefused, match="--profiler-config"):
        ask_engine(name, address, 3)
    with engine(name, key="secret") as (address, taken):
        with pytest.raises(EngineRefused, match="401"):
            ask_engine(name, address, 3)
        ask_engine(name, address, 3, key="secret")
        assert len(taken) == 1
    with pytest.raises(EngineRefused, match="does not answer"):
        ask_engine(name, address, 3)


@pytest.mark.parametrize("address", ["http://example.org:8000", "file:///etc/passwd", "localhost:8000", "http://127.0.0.1.example.org/"])
def test_only_engines_of_this_host_are_asked(address: str) -> None:
    with pytest.raises(EngineRefused, match="an engine of this host"):
        ask_engine("vllm", address, 3)
    with pytest.raises(EngineRefused, match="one of vllm, sglang"):
        start_request("tgi", 3)


def test_the_command_takes_its_key_from_the_environment(monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    with engine("sglang", key="secret") as (address, taken):
        command = ["engine", "--engine", "sglang", "--address", address, "--steps", "2"]
        assert node.main(command) == 1 and "401" in json.loads(capsys.readouterr().out)["why"]
        monkeypatch.setenv("RIDGEPOINT_ENGINE_KEY", "secret")
        assert node.main(command) == 0 and json.loads(capsys.readouterr().out)["answer"] == "Start profiling.\n"
        assert taken[0][1]["num_steps"] == 2
