"""What monitoring is told: who may ask, that it is true and bounded, the same by OpenTelemetry, and the dashboard over it."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from profiles.fleet import services
from profiles.fleet.demo import Demo
from profiles.fleet.models import FleetAgent
from tuner.models import Build, Gate, ServedCount, Suite
from workers import jobs
from workers.agent.wire import pack
from workers.metrics import facts, otlp, prometheus
from workers.metrics.facts import AGENTS, FAMILIES, JOBS, KERNELS, NAMES

pytestmark = pytest.mark.django_db
DASHBOARDS = [Path(django_settings.BASE_DIR) / "docs" / f"grafana-{name}.json" for name in ("fleet", "server")]
COUNTED = {"ridgepoint_http_requests", "ridgepoint_http_request_seconds", "ridgepoint_job_seconds"}      # with labels of their own


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings are kept for seconds; a test reads its own."""
    monkeypatch.setattr(facts, "_kept", facts.Readings())


def scrape(client: Any, **headers: str) -> dict[str, dict[tuple[str, ...], float]]:
    answer = client.get("/metrics", **headers)
    assert answer.status_code == 200 and answer["Content-Type"].startswith("text/plain")
    return {family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
            for family in text_string_to_metric_families(answer.content.decode())}


def send_an_hour(hosts: int = 3) -> None:
    demo = Demo(hosts, 2, int(timezone.now().timestamp() // 60))
    first = demo.now_minute // 60 * 60 - 60
    for host in range(hosts):
        services.batch_accept(pack(demo.batch(host, 1, [first], 60)))
    services.merge_waiting()


@pytest.mark.parametrize(("remote", "headers", "status"), [
    ("127.0.0.1", {}, 200), ("::1", {}, 200), ("10.0.0.9", {}, 401), ("127.0.0.1", {"HTTP_X_FORWARDED_FOR": "10.0.0.9"}, 401),
    ("10.0.0.9", {"HTTP_AUTHORIZATION": "Bearer s3cret"}, 200), ("10.0.0.9", {"HTTP_AUTHORIZATION": "Bearer s3cre"}, 401),
    ("10.0.0.9", {"HTTP_AUTHORIZATION": "Basic s3cret"}, 401), ("10.0.0.9", {"HTTP_AUTHORIZATION": "Bearer "}, 401)])
def test_loopback_or_the_token_is_answered(client: Any, settings: Any, remote: str, headers: dict[str, str], status: int) -> None:
    settings.METRICS_TOKEN, settings.LOCAL_MODE = "s3cret", False
    assert client.get("/metrics", REMOTE_ADDR=remote, **headers).status_code == status


def test_without_a_token_nobody_outside_is_answered(client: Any, settings: Any) -> None:
    settings.METRICS_TOKEN = ""
    assert client.get("/metrics", REMOTE_ADDR="10.0.0.9", HTTP_AUTHORIZATION="Bearer ").status_code == 401


def test_an_empty_server_names_every_metric(client: Any) -> None:
    found = scrape(client)
    own = {name for name in found if not name.startswith("process_") and not name.endswith("_created")}    # of tests before it
    assert own == NAMES | COUNTED
    assert found["ridgepoint_readable"] == {(part,): 1 for part in facts.PARTS}
    assert found["ridgepoint_fleet_batches_waiting"] == {(): 0} and found["ridgepoint_cache_hit_ratio"] == {}
    assert set(found["ridgepoint_workers"]) == {(queue,) for queue in jobs.QUEUES}


def test_numbers_are_those_of_the_rows(client: Any) -> None:
    send_an_hour()
    minute = int(timezone.now().timestamp() // 60)
    waiting = pack(Demo(1, 1, minute).batch(0, 99, [minute - 1], 1))
    services.batch_accept(waiting)
    day = timezone.localdate()
    where = {"day": day, "operator": "matmul", "dtype": "bf16", "shape_bucket": "M=64", "gpu": "NVIDIA H200",
             "toolkit": "cuda 13.0", "updated": timezone.now()}
    ServedCount.objects.create(rule="exact", entry=3, launches=300, **where)
    ServedCount.objects.create(rule="default", entry=0, launches=100, asked=900, **where)
    ServedCount.objects.create(rule="bucket", entry=4, launches=0, asked=50, **where)
    suite = Suite.objects.create(name="nightly", kind="uploaded")
    build = Build.objects.create(name="b1", at=timezone.now())
    for verdict, status in (("PASS", "done"), ("PASS", "done"), ("SLOWER", "done"), ("", "measuring")):
        Gate.objects.create(suite=suite, build=build, verdict=verdict, status=status)
    found = scrape(client)
    assert found["ridgepoint_cache_hit_ratio"][()] == 0.75                                          # of launches, not of questions
    assert found["ridgepoint_cache_launches"] == {("exact",): 300, ("default",): 100}
    assert found["ridgepoint_cache_asked"] == {("default",): 900, ("bucket",): 50}
    assert found["ridgepoint_gates"] == {("PASS",): 2, ("SLOWER",): 1, ("measuring",): 1}
    assert found["ridgepoint_fleet_batches_waiting"][()] == 1
    assert found["ridgepoint_fleet_batches_waiting_bytes"][()] == len(waiting)
    assert found["ridgepoint_fleet_agents"] == {("live",): 3, ("late",): 0, ("gone",): 0}
    assert {labels[-1] for labels in found["ridgepoint_fleet_kernel_seconds"]} == {"true"}          # simulated, and says so
    jobs_s = {labels[0]: value for labels, value in found["ridgepoint_fleet_job_seconds"].items()}
    assert set(jobs_s) == {"simulated-train", "simulated-decode", "simulated-prepare"}
    assert jobs_s["simulated-train"] == pytest.approx(2 * 3600 * 0.88, rel=0.06)                 # two GPUs of one host, 88 % busy
    shares = [value for labels, value in found["ridgepoint_fleet_kernel_share"].items() if labels[0] == "simulated-train"]
    assert len(shares) <= KERNELS and 0.5 < sum(shares) <= 1.0001
    assert client.get("/metrics", HTTP_ACCEPT="application/openmetrics-text; version=1.0.0").content.endswith(b"# EOF\n")


def test_labels_are_bounded_and_answers_are_kept(client: Any, django_assert_max_num_queries: Any) -> None:
    now = timezone.now()
    FleetAgent.objects.bulk_create([FleetAgent(name=f"agent-{number}", host="h" * 200, last_seen=now, lag_s=1.0,
                                               state={"spool_bytes": number}) for number in range(AGENTS + 50)])
    with django_assert_max_num_queries(25 + 4 * JOBS):
        found = scrape(client)
    assert all(len(found[family.name]) <= max(AGENTS, 2 * JOBS * KERNELS) for family in FAMILIES)
    assert len(found["ridgepoint_fleet_agent_lag_seconds"]) == AGENTS
    assert all(len(value) <= facts.LABEL_CHARS for family in found.values() for labels in family for value in labels)
    with django_assert_max_num_queries(3):
        scrape(client)


# ---- OpenTelemetry ----

@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A real receiver of OTLP over HTTP."""
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            got.append((self.path, ExportMetricsServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(otlp, "_provider", None)
    jobs.connection().delete(otlp._TURN_KEY)
    yield got
    server.shutdown()


def test_a_collector_gets_the_same_numbers(collector: list[Any]) -> None:
    send_an_hour()
    assert otlp.send()
    ((path, request),) = collector
    resource = request.resource_metrics[0]
    assert path == "/v1/metrics" and "ridgepoint" in str(resource.resource)
    sent = {metric.name: {tuple(each.value.string_value for each in point.attributes): point.as_double or float(point.as_int)
                          for point in metric.gauge.data_points} for metric in resource.scope_metrics[0].metrics}
    read = facts.readings()
    assert set(sent) == {name for name in NAMES if read.of(name)}
    for name, points in sent.items():
        assert sorted(points.values()) == pytest.approx(sorted(read.of(name).values()))


def test_it_is_sent_once_an_interval_and_off_without_a_collector(collector: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert otlp.send_when_due() and not otlp.send_when_due()
    for thread in threading.enumerate():
        if thread.name == "otlp":
            thread.join(10)
    assert len(collector) == 1
    for name in otlp.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    jobs.connection().delete(otlp._TURN_KEY)
    assert not otlp.is_on() and not otlp.send_when_due()


def test_jobs_of_all_workers_are_one_histogram(client: Any) -> None:
    jobs.connection().delete(prometheus.KEY)
    for seconds in (0.05, 0.1, 2.0, 20_000.0):
        prometheus.count_job("ingest", "ready", seconds)
    prometheus.count_job("fleet", "failed", 1.5)
    text = client.get("/metrics").content.decode()
    jobs.connection().delete(prometheus.KEY)
    read = {(sample.name, sample.labels.get("task"), sample.labels.get("le")): sample.value
            for family in text_string_to_metric_families(text) if family.name == "ridgepoint_job_seconds"
            for sample in family.samples}
    edges = ("0.1", "1.0", "3.0", "10000.0", "+Inf")
    assert [read["ridgepoint_job_seconds_bucket", "ingest", edge] for edge in edges] == [2, 2, 3, 3, 4]
    assert read["ridgepoint_job_seconds_count", "ingest", None] == 4
    assert read["ridgepoint_job_seconds_sum", "ingest", None] == pytest.approx(20_002.15)
    assert read["ridgepoint_job_seconds_count", "fleet", None] == 1


def test_tasks_of_rows_count_themselves() -> None:
    from workers.process import COUNTED_BY_ROW
    from workers.row_kinds import ROW_KINDS

    assert set(COUNTED_BY_ROW) == set(ROW_KINDS)


def test_what_is_away_is_said_and_the_rest_is_told(client: Any, settings: Any, tmp_path: Path) -> None:
    own, settings.REDIS_URL = settings.REDIS_URL, f"unix://{tmp_path}/nobody.sock"
    jobs.connection.cache_clear()
    try:
        found = scrape(client)
    finally:
        settings.REDIS_URL = own
        jobs.connection.cache_clear()
    assert found["ridgepoint_readable"][("queues",)] == 0 and found["ridgepoint_readable"][("counts",)] == 1
    assert found["ridgepoint_queue_entries"] == {} and found["ridgepoint_profiles"]


# ---- the dashboard ----

def test_every_metric_and_label_of_the_dashboards_is_exported() -> None:
    documents = [json.loads(path.read_text()) for path in DASHBOARDS]
    targets = [target for document in documents for panel in document["panels"] for target in panel["targets"]]
    expressions = [target["expr"] for target in targets]
    expressions += [variable["query"] for document in documents for variable in document["templating"]["list"]
                    if variable["type"] == "query"]
    named = {re.sub("_(total|bucket)$", "", name) for each in expressions for name in re.findall(r"\bridgepoint_[a-z_]+", each)}
    assert named == NAMES | COUNTED                         # and all that is exported is shown
    labels = {label for family in FAMILIES for label in family.labels} | {"route", "status", "task"}
    used = {label for each in expressions for label in re.findall(r'(\w+)=~?"', each)}
    legends = {label for target in targets for label in re.findall(r"{{(\w+)}}", target["legendFormat"])}
    assert used | legends <= labels


def test_the_dashboard_links_to_pages_that_are_there() -> None:
    from django.urls import Resolver404, resolve

    text = "".join(path.read_text() for path in DASHBOARDS)
    paths = set(re.findall(r'\$\{ridgepoint\}(/[a-z/]*)', text))
    assert {"/fleet/regressions/", "/status/"} <= paths
    for path in paths - {"/fleet/", "/fleet/agents/"}:      # pages of the fleet itself
        try:
            resolve(path)
        except Resolver404:
            pytest.fail(f"{path} is no page")
