"""A peer that answers as it is told: slow, large, redirecting, lying. Not an engine: what engines take is read of their own sources
(`test_wheels`)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Said = tuple[int, bytes, dict[str, str]]
METRICS = """# TYPE {k}:e2e_request_latency_seconds histogram
{k}:e2e_request_latency_seconds_bucket{{le="0.5",model_name="m"}} {fast}
{k}:e2e_request_latency_seconds_bucket{{le="2.5",model_name="m"}} {all}
{k}:e2e_request_latency_seconds_bucket{{le="+Inf",model_name="m"}} {all}
{k}:e2e_request_latency_seconds_sum{{model_name="m"}} 10.0
{k}:e2e_request_latency_seconds_count{{model_name="m"}} {all}
{k}:inter_token_latency_seconds_sum {token_s}
{k}:inter_token_latency_seconds_count {tokens}
vllm:request_success_total{{finished_reason="stop"}} {all}
"""


class Peer:
    def __init__(self, kind: str = "vllm") -> None:
        self.kind, self.address = kind, ""
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.on: dict[str, Callable[[Any], Said]] = {}          # path -> answer
        self.drip_s = 0.0                                       # between bytes
        self.began_s = time.monotonic()
        self.slow_after_s = 1e9
        self.token_ms = 10.0

    def paths(self) -> list[str]:
        return [path for _, path, _, _ in self.asked if path != "/metrics"]

    def metrics(self) -> bytes:
        passed = time.monotonic() - self.began_s
        ended = int(passed * 10)
        slow = max(0, int((passed - self.slow_after_s) * 2) + 1) if passed > self.slow_after_s else 0
        tokens = int(passed * 100)
        return METRICS.format(k=self.kind, fast=ended, all=ended + slow, tokens=tokens,
                              token_s=tokens * self.token_ms / 1e3).encode()

    def answer(self, path: str, body: Any) -> Said:
        if path in self.on:
            return self.on[path](body)
        if path == "/metrics":
            return 200, self.metrics(), {}
        if path == ("/version" if self.kind == "vllm" else "/server_info"):
            return 200, json.dumps({"version": "0.33.0", "more": {"secret": "x"}}).encode(), {}
        return (200, b"", {}) if path in ("/start_profile", "/stop_profile") else (404, b'{"detail":"Not Found"}', {})


@contextmanager
def peer(kind: str = "vllm") -> Iterator[Peer]:
    own = Peer(kind)

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(data) if data else None
            own.asked.append((self.command, self.path, dict(self.headers), body))
            status, answer, headers = own.answer(self.path, body)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                if own.drip_s:
                    for byte in answer:
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                        time.sleep(own.drip_s)
                else:
                    self.wfile.write(answer)
            except OSError:
                pass

        do_GET = do_POST = handle_any

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    own.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield own
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
