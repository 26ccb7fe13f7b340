"""What monitoring systems are told: numbers of the fleet, workers, cache, gates and the server itself, each of one bounded query.

No label takes more values than a constant here allows: jobs, kernels and agents beyond it are left out, the most important first.

Beside them what waits in the queues, and for how long.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import redis
from django.db import DatabaseError, connection
from django.db.models import Count, Min, Q, Sum
from django.db.models.functions import Length
from django.utils import timezone
from rq import Queue
from rq.job import Job

from profiles.fleet.capture_services import GPU_WORKERS
from profiles.fleet.models import FleetAgent, FleetBatch, FleetContext, FleetKernel
from profiles.fleet.store import Question, Window
from profiles.fleet.stores import fleet_store
from profiles.models import Profile
from tuner.models import Gate, ProductionRegression, Regression, ServedCount
from workers import clock, disk, jobs

MOST_LOOKED_AT = 100        # from the front: `jobs.FIRST` are put there before older ones


@dataclass(frozen=True)
class QueueState:
    """`oldest_s`: since the entry that waits longest was put in; None where nothing waits."""

    name: str
    waiting: int
    oldest_s: float | None


def queue_states() -> list[QueueState]:
    """Return every queue."""
    return [_state(name) for name in jobs.QUEUES]


def _state(name: str) -> QueueState:
    queue = Queue(name, connection=jobs.connection())
    waiting, first = queue.count, queue.get_job_ids(0, MOST_LOOKED_AT)
    entries = Job.fetch_many(first, connection=jobs.connection()) if first else []
    # RQ's own time is that of the host that put it; an entry may have been taken meanwhile
    put_s = [float(entry.meta.get("put_s") or entry.enqueued_at.timestamp()) for entry in entries if entry and entry.enqueued_at]
    return QueueState(name, waiting, max(0.0, clock.now_s() - min(put_s)) if put_s else None)


log = logging.getLogger(__name__)
LABEL_CHARS = 80
Labels = tuple[str, ...]
Reading = tuple[str, Labels, float]


@dataclass(frozen=True)
class Family:
    """One metric. `name` as Prometheus has it; `unit` as UCUM, for OpenTelemetry."""

    name: str
    help: str
    labels: Labels = ()
    unit: str = "1"


def label(text: str) -> str:
    """A label's value: bounded, never empty."""
    return text[:LABEL_CHARS] or "unknown"


KEPT_S = 15.0               # answers are kept that long: asking more often costs nothing
JOBS, KERNELS, AGENTS = 20, 10, 200
HOSTS = 200                 # whose disks and clocks are told
LATE_S, GONE_S = 180, 3600  # since an agent was seen
SERVED_DAYS = 7


@dataclass
class Readings:
    """Values by family and labels, and when they were read."""

    values: dict[str, dict[Labels, float]] = field(default_factory=dict)
    read_s: float = 0.0

    def of(self, name: str) -> Mapping[Labels, float]:
        return self.values.get(name, {})


FAMILIES: tuple[Family, ...] = (
    Family("ridgepoint_fleet_kernel_seconds",
           f"Estimated GPU seconds of the {KERNELS} kernels of a job with most time, in the last whole hour",
           ("job", "kernel", "simulated"), "s"),
    Family("ridgepoint_fleet_kernel_share", "Share of these kernels in their job's GPU time of the last whole hour, 0 to 1",
           ("job", "kernel", "simulated")),
    Family("ridgepoint_fleet_job_seconds", f"Estimated GPU seconds of the {JOBS} jobs with most time, in the last whole hour",
           ("job", "simulated"), "s"),
    Family("ridgepoint_fleet_agents", f"Node agents: live, late (not seen for {LATE_S} s), gone (for {GONE_S} s)", ("state",)),
    Family("ridgepoint_fleet_agent_last_seen_timestamp_seconds", f"When an agent was last heard, of the {AGENTS} longest silent",
           ("agent", "host"), "s"),
    Family("ridgepoint_fleet_agent_lag_seconds", "From the end of its newest minute to when that came", ("agent", "host"), "s"),
    Family("ridgepoint_fleet_agent_spool_bytes", "What it keeps on disk until the server takes it", ("agent", "host"), "By"),
    Family("ridgepoint_fleet_batches_waiting", "Batches that no worker merged yet"),
    Family("ridgepoint_fleet_batches_waiting_bytes", "Their bytes", (), "By"),
    Family("ridgepoint_fleet_batches_oldest_seconds", "How long the oldest of them waits", (), "s"),
    Family("ridgepoint_fleet_batches_refused", "Batches that no worker could merge"),
    Family("ridgepoint_cache_launches", f"Launches of the last {SERVED_DAYS} days by the rule that served them", ("rule",)),
    Family("ridgepoint_cache_asked", f"Questions of the last {SERVED_DAYS} days without a launch, by the rule that answers",
           ("rule",)),
    Family("ridgepoint_cache_hit_ratio",
           f"Launches of the last {SERVED_DAYS} days that were served a measured configuration, 0 to 1"),
    Family("ridgepoint_gates", "Gates by verdict; their status where none is decided", ("verdict",)),
    Family("ridgepoint_profiles", "Profiles by status", ("status",)),
    Family("ridgepoint_regressions", "Regressions by where they were found (ci, production) and state", ("found", "state")),
    Family("ridgepoint_workers", "Workers that live, by queue", ("queue",)),
    Family("ridgepoint_queue_entries", "Entries that wait in a queue", ("queue",)),
    Family("ridgepoint_queue_oldest_seconds", "How long the first entry of a queue waits, 0 where none does", ("queue",), "s"),
    Family("ridgepoint_disk_free_bytes", "Free on a disk, by host and what lies on it", ("host", "place"), "By"),
    Family("ridgepoint_disk_rest_bytes", "Below it new uploads and captures are refused", ("host", "place"), "By"),
    Family("ridgepoint_clock_skew_seconds", "A host's clock less Valkey's", ("host",), "s"),
    Family("ridgepoint_database_bytes", "Size of the database", (), "By"),
    Family("ridgepoint_database_connections", "Connections to PostgreSQL, of all its clients"),
    Family("ridgepoint_valkey_bytes", "Memory that Valkey uses", (), "By"),
    Family("ridgepoint_readable", "1 where this part of the readings was read, 0 where its server is away", ("part",)),
)
NAMES = frozenset(family.name for family in FAMILIES)
_kept = Readings()
_reading = threading.Lock()


def readings() -> Readings:
    """Return values that are at most KEPT_S old; one thread reads, others wait for it."""
    global _kept
    with _reading:
        if not _kept.read_s or time.monotonic() - _kept.read_s > KEPT_S:
            values: dict[str, dict[Labels, float]] = {}
            for name, part in PARTS.items():
                values.setdefault("ridgepoint_readable", {})[name,] = float(_read(part, values))
            _kept = Readings(values, time.monotonic())
        return _kept


def _fleet() -> Iterator[Reading]:
    hour = int(time.time() // 3600)
    window = Window(hour - 1, hour)
    store = fleet_store()
    rows, _ = store.top(Question(window, "job", {}, JOBS))
    names = [str(row.key) for row in rows]
    contexts: dict[tuple[str, bool], list[int]] = {}
    for pk, job, simulated in FleetContext.objects.filter(job__in=names).values_list("id", "job", "simulated"):
        contexts.setdefault((job, simulated), []).append(pk)
    for (job, simulated), keys in sorted(contexts.items())[:2 * JOBS]:
        kernels, whole = store.top(Question(window, "kernel", {"context": keys}, KERNELS))
        if not whole.estimate_ns:
            continue
        short = dict(FleetKernel.objects.filter(id__in=[row.key for row in kernels]).values_list("id", "short_name"))
        flag = "true" if simulated else "false"
        yield "ridgepoint_fleet_job_seconds", (label(job), flag), whole.estimate_ns / 1e9
        seconds: dict[str, float] = {}
        for row in kernels:            # two kernels may share a short name
            name = label(short.get(row.key, ""))
            seconds[name] = seconds.get(name, 0.0) + row.estimate_ns / 1e9
        for name, value in seconds.items():
            yield "ridgepoint_fleet_kernel_seconds", (label(job), name, flag), value
            yield "ridgepoint_fleet_kernel_share", (label(job), name, flag), value * 1e9 / whole.estimate_ns


def _agents() -> Iterator[Reading]:
    now = timezone.now()
    late, gone = now - timedelta(seconds=LATE_S), now - timedelta(seconds=GONE_S)
    agents = FleetAgent.objects.exclude(name__startswith=GPU_WORKERS)
    counts = agents.aggregate(live=Count("pk", filter=Q(last_seen__gte=late)),
                              gone=Count("pk", filter=Q(last_seen__lt=gone) | Q(last_seen=None)), every=Count("pk"))
    states = {"live": counts["live"], "late": counts["every"] - counts["live"] - counts["gone"], "gone": counts["gone"]}
    for state, number in states.items():
        yield "ridgepoint_fleet_agents", (state,), number
    for agent in agents.exclude(last_seen=None).order_by("last_seen", "pk")[:AGENTS]:
        labels = (label(agent.name), label(agent.host))
        if agent.last_seen is not None:
            yield "ridgepoint_fleet_agent_last_seen_timestamp_seconds", labels, agent.last_seen.timestamp()
        if agent.lag_s is not None:
            yield "ridgepoint_fleet_agent_lag_seconds", labels, agent.lag_s
        spool = agent.state.get("spool_bytes") if isinstance(agent.state, dict) else None
        if isinstance(spool, int | float):
            yield "ridgepoint_fleet_agent_spool_bytes", labels, float(spool)


def _batches() -> Iterator[Reading]:
    waiting = FleetBatch.objects.filter(payload__isnull=False, error="").aggregate(
        number=Count("pk"), bytes=Sum(Length("payload")), oldest=Min("received"))
    yield "ridgepoint_fleet_batches_waiting", (), waiting["number"]
    yield "ridgepoint_fleet_batches_waiting_bytes", (), waiting["bytes"] or 0
    age_s = (timezone.now() - waiting["oldest"]).total_seconds() if waiting["oldest"] else 0.0
    yield "ridgepoint_fleet_batches_oldest_seconds", (), max(0.0, age_s)
    yield "ridgepoint_fleet_batches_refused", (), FleetBatch.objects.exclude(error="").count()


def _cache() -> Iterator[Reading]:
    since = timezone.localdate() - timedelta(days=SERVED_DAYS - 1)
    rows = list(ServedCount.objects.filter(day__gte=since).order_by().values_list("rule").annotate(
        every=Sum("launches"), served=Sum("launches", filter=Q(entry__gt=0)), asked=Sum("asked")))
    for rule, every, _, count in rows:
        if every:
            yield "ridgepoint_cache_launches", (label(rule),), every
        if count:
            yield "ridgepoint_cache_asked", (label(rule),), count
    whole = sum(every for _, every, _, _ in rows)
    if whole:
        yield "ridgepoint_cache_hit_ratio", (), sum(served or 0 for _, _, served, _ in rows) / whole


def _counts() -> Iterator[Reading]:
    gates: dict[str, int] = {}
    for verdict, status, number in Gate.objects.order_by().values_list("verdict", "status").annotate(number=Count("pk")):
        gates[verdict or status] = gates.get(verdict or status, 0) + number
    for name, number in gates.items():
        yield "ridgepoint_gates", (label(name),), number
    counts = dict(Profile.objects.order_by().values_list("status").annotate(number=Count("pk")))
    for status in Profile.Status.values:
        yield "ridgepoint_profiles", (status,), counts.get(status, 0)
    for where, rows in (("ci", Regression.objects), ("production", ProductionRegression.objects.filter(simulated=False))):
        for state, number in rows.order_by().values_list("state").annotate(number=Count("pk")):
            yield "ridgepoint_regressions", (where, state), number


def _queues() -> Iterator[Reading]:
    alive = jobs.workers()
    for state in queue_states():
        yield "ridgepoint_workers", (state.name,), sum(state.name in worker.get("queues", ()) for worker in alive)
        yield "ridgepoint_queue_entries", (state.name,), state.waiting
        yield "ridgepoint_queue_oldest_seconds", (state.name,), state.oldest_s or 0.0


def _hosts() -> Iterator[Reading]:
    """Workers say of their hosts what this one says of itself; of several on a host the last one."""
    disks = {worker.get("host", ""): worker["disks"] for worker in jobs.workers() if "disks" in worker}
    clocks = {worker.get("host", ""): worker["clock_skew_s"] for worker in jobs.workers() if "clock_skew_s" in worker}
    disks[jobs.host()] = [place.as_json() for place in disk.places()]
    clocks[jobs.host()] = jobs.clock_skew_s()
    for host, places in list(disks.items())[-HOSTS:]:
        for place in places:
            labels = (label(host), label(", ".join(place["names"])))
            yield "ridgepoint_disk_free_bytes", labels, place["free_bytes"]
            yield "ridgepoint_disk_rest_bytes", labels, place["rest_bytes"]
    for host, skew_s in list(clocks.items())[-HOSTS:]:
        yield "ridgepoint_clock_skew_seconds", (label(host),), skew_s


def _servers() -> Iterator[Reading]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database()), "
                       "(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')")
        size_bytes, connections = cursor.fetchone()
    yield "ridgepoint_database_bytes", (), size_bytes
    yield "ridgepoint_database_connections", (), connections
    yield "ridgepoint_valkey_bytes", (), jobs.connection().info("memory")["used_memory"]


def _read(part: Callable[[], Iterator[Reading]], values: dict[str, dict[Labels, float]]) -> bool:
    """Add what a part reads; False where its server is away: then nothing of it is told."""
    try:
        found = list(part())
    except (DatabaseError, redis.RedisError) as error:
        log.warning("metrics were not read: %s", " ".join(str(error).split()))
        return False
    for name, labels, value in found:
        values.setdefault(name, {})[labels] = value
    return True


PARTS: Mapping[str, Callable[[], Iterator[Reading]]] = {
    "fleet": _fleet, "agents": _agents, "batches": _batches, "cache": _cache, "counts": _counts,
    "queues": _queues, "hosts": _hosts, "servers": _servers}
