"""Agents as they last told of themselves. What they tell is their own JSON: anything may stand in it, or be missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.db.models import Count, Max, Q, QuerySet, Sum
from django.utils import timezone

from profiles.fleet.capture_services import GPU_WORKERS
from profiles.models import FleetAgent, FleetBatch
from workers import agent

# Commands that bring data into the fleet, with the address of the server that shows them.

DEMO = "python manage.py fleet demo"
FEED = "python manage.py fleet feed records.jsonl.gz"


DEPLOY = Path(agent.__file__).parent / "deploy"


@dataclass(frozen=True)
class Install:
    """One way to run an agent. `name` is a word for the page's ids."""

    name: str
    title: str
    note: str
    text: str


def installs(server: str) -> list[Install]:
    """Return what is to be typed or stored on a host, for this server."""
    return [
        Install("pip", "Host", "The agent of a host, once each. It opens connections to the server and accepts none.", f"""\
pip install ./workers/agent        # of a copy of this project
ridgepoint-agent --server {server} --token-file /etc/ridgepoint/token"""),
        Install("job", "Job", "In the environment of a job, whose image has the package too. Nothing else of the job changes.", """\
export RIDGEPOINT_AGENT=1 RIDGEPOINT_JOB=pretrain RIDGEPOINT_BUILD=$(git rev-parse --short HEAD)
python train.py"""),
        Install("systemd", "systemd unit", "/etc/systemd/system/ridgepoint-agent.service",
                _deployed("ridgepoint-agent.service", server)),
        Install("daemonset", "DaemonSet", "The token is a secret named ridgepoint-agent; pods of jobs mount /run/ridgepoint.",
                _deployed("daemonset.yaml", server)),
    ]


def _deployed(name: str, server: str) -> str:
    """A file as the package has it, for this server."""
    return (DEPLOY / name).read_text().replace("https://ridgepoint.example", server).strip()


LATE = timedelta(minutes=3)         # agents send once a minute
LAG_S = 300.0                       # behind its newest minute: its spool drains, or the server was away
FILES = "file-"                     # names of files that were fed
MOST_JOBS = 64                      # of one agent
MOST_TEXT = 200
STATE_WORDS = {"reporting": "reporting", "behind": "behind", "silent": "silent", "file": "fed files"}


@dataclass(frozen=True)
class AgentJob:
    """One process that an agent collects from, or does not. Unknown is None or ""."""

    job: str
    pid: int | None
    rank: int | None
    state: str
    why: str
    loss_pct: float | None
    loss_low_pct: float | None
    loss_high_pct: float | None
    coverage_pct: float | None
    records: int | None

    @property
    def is_collecting(self) -> bool:
        return self.state == "collecting"

    @property
    def is_refused(self) -> bool:
        """Return whether nothing comes from it, and not only as yet."""
        return self.state in ("not collected", "off")


@dataclass(frozen=True)
class AgentLine:
    agent: FleetAgent
    state: str                      # "reporting" | "behind" | "silent" | "file"
    version: str
    pid: int | None
    rss_bytes: float | None
    cpu_pct: float | None
    spool_bytes: float | None
    spool_batches: int | None
    dropped_batches: int | None
    jobs: list[AgentJob] = field(default_factory=list)
    more_jobs: int = 0

    @property
    def worst_loss(self) -> AgentJob | None:
        jobs = [job for job in self.jobs if job.loss_pct is not None]
        return max(jobs, key=lambda job: job.loss_pct or 0.0) if jobs else None


@dataclass(frozen=True)
class Totals:
    agents: int
    reporting: int
    silent: int
    files: int
    batches: int
    received_bytes: int
    waiting: int                    # batches that no worker merged yet
    refused: int                    # that none could merge
    last_seen: datetime | None
    hosts: int


def agents(query: Mapping[str, str]) -> QuerySet[FleetAgent]:
    """Return agents by words (`q`: name or host) and state (`state`), those that were seen last first."""
    rows = FleetAgent.objects.exclude(name__startswith=GPU_WORKERS).order_by("-last_seen", "name")
    if text := query.get("q", "").strip()[:MOST_TEXT]:
        rows = rows.filter(Q(name__icontains=text) | Q(host__icontains=text))
    state = query.get("state", "")
    since = timezone.now() - LATE
    live = rows.exclude(name__startswith=FILES)
    if state == "file":
        return rows.filter(name__startswith=FILES)
    if state == "silent":
        return live.filter(Q(last_seen=None) | Q(last_seen__lt=since))
    if state == "behind":
        return live.filter(last_seen__gte=since, lag_s__gt=LAG_S)
    return live.filter(last_seen__gte=since).exclude(lag_s__gt=LAG_S) if state == "reporting" else rows


def totals() -> Totals:
    """Return what all agents sent, and how many of them report."""
    live = ~Q(name__startswith=FILES)
    since = timezone.now() - LATE
    sums = FleetAgent.objects.exclude(name__startswith=GPU_WORKERS).order_by().aggregate(
        agents=Count("id", filter=live), files=Count("id", filter=~live), hosts=Count("host", distinct=True, filter=live),
        reporting=Count("id", filter=live & Q(last_seen__gte=since)), batches=Sum("batches"), received=Sum("received_bytes"),
        last=Max("last_seen"))
    waiting = FleetBatch.objects.filter(payload__isnull=False).aggregate(
        waiting=Count("id", filter=Q(error="")), refused=Count("id", filter=~Q(error="")))
    return Totals(sums["agents"], sums["reporting"], sums["agents"] - sums["reporting"], sums["files"], sums["batches"] or 0,
                  sums["received"] or 0, waiting["waiting"], waiting["refused"], sums["last"], sums["hosts"])


def line_of(agent: FleetAgent) -> AgentLine:
    """Return an agent with what its state says, as far as it can be read."""
    state: Mapping[str, Any] = agent.state if isinstance(agent.state, dict) else {}
    jobs = state.get("jobs")
    listed = [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []
    return AgentLine(agent, _state(agent), _text(state.get("version")), _whole(state.get("pid")), _number(state.get("rss_bytes")),
                     _number(state.get("cpu_pct")), _number(state.get("spool_bytes")), _whole(state.get("spool_batches")),
                     _whole(state.get("dropped_batches")), [_job(job) for job in listed[:MOST_JOBS]],
                     max(0, len(listed) - MOST_JOBS))


def _state(agent: FleetAgent) -> str:
    if agent.name.startswith(FILES):
        return "file"
    if agent.last_seen is None or agent.last_seen < timezone.now() - LATE:
        return "silent"
    return "behind" if (agent.lag_s or 0.0) > LAG_S else "reporting"


def _job(report: Mapping[str, Any]) -> AgentJob:
    return AgentJob(_text(report.get("job")), _whole(report.get("pid")), _whole(report.get("rank")), _text(report.get("state")),
                    _text(report.get("why")), _number(report.get("loss_pct")), _number(report.get("loss_low_pct")),
                    _number(report.get("loss_high_pct")), _number(report.get("coverage_pct")), _whole(report.get("records")))


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and abs(value) < 1e18 else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _text(value: Any) -> str:
    return value[:MOST_TEXT] if isinstance(value, str) else ""
