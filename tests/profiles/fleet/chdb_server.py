"""ClickHouse's own engine (chdb) behind as much of its HTTP interface as clickhouse-connect speaks; a process of its own.

`python -m tests.profiles.fleet.chdb_server FOLDER` prints its port. Each request is one statement; the engine is the real one,
so is the client. Uncompressed (`?compress=0`). It ends with the process that started it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

ROOT = Path(__file__).resolve().parents[3]
ENGINE_SETTINGS = ("insert_deduplication_token", "insert_deduplicate", "async_insert", "max_query_size",
                   "max_partitions_per_insert_block")


@contextmanager
def chdb_server(folder: Path) -> Iterator[str]:
    """Yield the address of a ClickHouse whose data lie in a folder."""
    process = subprocess.Popen([sys.executable, "-m", "tests.profiles.fleet.chdb_server", str(folder)], cwd=ROOT, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield f"http://127.0.0.1:{port}/default?compress=0"
    finally:
        process.kill()
        process.communicate()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    connection_of_engine: Any = None
    turn = threading.Lock()

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        given = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        body = self._body()
        sql, data = given.get("query", ""), body
        if not sql:                             # a statement alone, or an insert before its block
            block = body.startswith(b"INSERT INTO") and b"FORMAT Native" in body
            head, _, data = body.partition(b"\n") if block else (body, b"", b"")
            sql = head.decode()
        settings = {name: given[name] for name in ENGINE_SETTINGS if name in given}
        try:
            with self.turn:
                answer = self._run(sql, data, settings)
        except RuntimeError as error:
            code = re.findall(r"Code: (\d+)", str(error)) or ["0"]
            self._send(500, str(error).encode(), {"X-ClickHouse-Exception-Code": code[0]})
            return
        self._send(200, answer, {"X-ClickHouse-Summary": "{}"})

    def _run(self, sql: str, data: bytes, settings: dict[str, str]) -> bytes:
        clause = ", ".join(f"{name} = '{value}'" for name, value in settings.items())
        if data:
            head, _, kind = sql.strip().rpartition("FORMAT")
            with tempfile.NamedTemporaryFile(suffix=".native") as file:
                file.write(data)
                file.flush()
                return self._query(f"{head} FROM INFILE '{file.name}' SETTINGS {clause or 'async_insert = 0'} FORMAT {kind}",
                                   "TabSeparated")
        found = re.search(r"\s+FORMAT\s+(\w+)\s*;?\s*$", sql)
        return self._query(sql[:found.start()] if found else sql, found.group(1) if found else "TabSeparated")

    def _query(self, sql: str, kind: str) -> bytes:
        return bytes(self.connection_of_engine.query(sql, kind).bytes() or b"")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def main(folder: str) -> None:
    import chdb

    Handler.connection_of_engine = chdb.connect(folder)
    Handler.connection_of_engine.query(f"SET max_query_size = {64 << 20}, max_threads = 2")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()       # who started it has ended
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
