"""A server of batches in a thread: answers as it is told, keeps what it acknowledged."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from workers.agent.wire import Batch, BatchRefused, unpack


class Server:
    """`answers`: (status, headers) that come first; then every batch is taken once."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.seen: dict[tuple[str, int], Batch] = {}
        self.documents: list[dict[str, object]] = []    # that go with `answers`
        self.clock_ahead_s = 0.0                        # of the Date that answers hold
        self.posts: list[tuple[str, str]] = []          # path, token
        self.uploads: list[bytes] = []
        self.asked: list[dict[str, object]] = []        # questions for orders
        self.loses_answers = 0                          # takes it, and the connection ends before the receipt
        self.orders: list[dict[str, object]] = []       # that every receipt holds
        self.port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take(self, body: bytes) -> tuple[int, dict[str, object]]:
        try:
            batch = unpack(body)
        except BatchRefused as refused:
            return 400, {"batch": [str(refused)]}
        key = (batch.agent, batch.sequence)
        duplicate = key in self.seen
        self.seen.setdefault(key, batch)
        return 200, {"sequence": batch.sequence, "rows": batch.rows, "duplicate": duplicate, "orders": self.orders}


@contextmanager
def serve() -> Iterator[Server]:
    own = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            own.posts.append((self.path, self.headers.get("Authorization", "")))
            headers: dict[str, str] = {}
            if own.answers:
                status, headers = own.answers.pop(0)
                document: dict[str, object] = own.documents.pop(0) if own.documents else {"detail": "as told"}
            elif self.path == "/api/profiles/" or self.path.startswith("/api/fleet/captures/"):
                own.uploads.append(body)
                status, document = 201, {"id": len(own.uploads)}
            elif self.path == "/api/fleet/orders/":
                own.asked.append(json.loads(body))
                status, document = 200, {"orders": own.orders, "again_s": 1}
            else:
                status, document = own.take(body)
            if own.loses_answers and status == 200:
                own.loses_answers -= 1
                self.close_connection = True
                return
            data = json.dumps(document).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(int(time.time() + own.clock_ahead_s) if timestamp is None else int(timestamp))

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    own.port = http.server_address[1]
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield own
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
