"""Traces of requests and of the jobs that they enqueue, at a real receiver of OTLP over HTTP."""

from __future__ import annotations

import gc
import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from rq import Queue
from rq.job import Job

from webapp.operate.observed import Observed
from workers import jobs, spans
from workers.process import Worker

pytestmark = pytest.mark.servers
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            told = ExportTraceServiceRequest.FromString(body)
            got.extend(span for resource in told.resource_spans for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    spans._provider.cache_clear()
    yield got
    spans._provider(os.getpid()).shutdown()
    spans._provider.cache_clear()
    gc.collect()            # while it lives it starts a thread in each fork, which may then enter no user namespace
    server.shutdown()


async def test_a_secret_of_an_address_is_not_sent(collector: list[Any]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 403, "headers": []})
        await send({"type": "http.response.body"})

    async def send(message: Any) -> None:
        pass

    await Observed(app)({"type": "http", "method": "GET", "path": "/share/share_secret_it_is/", "headers": []}, None, send)
    spans.flush()
    [request] = collector
    assert {each.key: each.value.string_value for each in request.attributes}["url.path"] == "/share/<str:secret>/"
    assert "share_secret" not in str(request)


async def test_a_job_is_a_child_of_the_request_that_enqueued_it(collector: list[Any]) -> None:
    queue = Queue("compile", connection=jobs.connection())
    queue.empty()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        jobs.enqueue("compile", "operators", 4_000_000)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def send(message: Any) -> None:
        pass

    scope = {"type": "http", "method": "POST", "path": "/static/x", "headers": [(b"traceparent", PARENT.encode())]}
    await Observed(app)(scope, None, send)
    [name] = queue.get_job_ids()
    job = Job.fetch(name, connection=jobs.connection())
    assert job.meta["trace"]["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c-")
    queue.empty()
    spans.flush()
    [request] = collector
    values = {each.key: each.value.string_value or each.value.int_value for each in request.attributes}
    assert request.name == "POST static" and values["http.route"] == "static" and values["http.response.status_code"] == 204
    assert request.trace_id.hex() == PARENT[3:35] and request.parent_span_id.hex() == PARENT[36:52]

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        await Observed(nothing)(scope, None, send)
    spans.flush()
    assert collector[1].status.code == 2 and collector[1].events[0].name == "exception"


@pytest.mark.django_db
def test_a_worker_records_the_job(collector: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rq.worker.Worker.perform_job", lambda self, job, queue: True)
    queue = Queue("compile", connection=jobs.connection())
    job = Job.create("workers.tasks.describe_operators", args=[1], connection=jobs.connection(), id="operators-1-ab",
                     meta={"request_id": "r1", "trace": {"traceparent": PARENT}})
    worker = Worker([queue], name="spans", connection=jobs.connection())
    assert worker.perform_job(job, queue)
    [done] = collector
    assert done.name == "operators" and done.parent_span_id.hex() == PARENT[36:52]
    assert {each.key: each.value.string_value for each in done.attributes}["ridgepoint.request_id"] == "r1"


def test_without_a_collector_nothing_is_imported() -> None:
    code = ("import sys; from workers import spans\n"
            "with spans.span('x', 'SERVER', {}, {}) as recorded: assert recorded is None and spans.carried() == {}\n"
            "spans.flush(); assert not any(name.startswith('opentelemetry') for name in sys.modules)")
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=env)
