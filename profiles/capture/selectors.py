"""Reads of captures: what there is, what may be captured, and whether anybody could run it now."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NotRequired, TypedDict

from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db.models import Q, QuerySet
from django.urls import reverse

from profiles.base.answers import ErrorJson, Facts, make_answer
from profiles.base.refused import Refused
from profiles.capture import command as capture_command
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.options import Options
from profiles.capture.tools.tool import OWNERS, CaptureTool, Paths
from profiles.models import Capture, CaptureTarget, Profile
from workers import jobs

OWNER = "profiles.change_capturetarget"          # the permission of those who decide what runs: they may see the worker's secrets
START_ONE = "start one (manage.py worker gpu) on a machine with an NVIDIA GPU"


@dataclass(frozen=True)
class Ability:
    """Whether a tool can be used at this moment: by whom, or why not."""

    able: bool
    own: str                    # a sentence of this tool: what would run it, or what is missing; "" where that is said for all
    common: str = ""            # what is missing for every tool alike: no worker, or none with a GPU
    workers: tuple[str, ...] = ()
    gpu: str = ""               # "": on a worker without one
    installed: Mapping[str, str] = field(default_factory=dict)      # what the tool says of itself on the first of the workers

    @property
    def why(self) -> str:
        return f"{self.common} {self.own}".strip()

    def as_json(self) -> AbilityJson:
        return make_answer(AbilityJson, self)


class AbilityJson(TypedDict):
    """Whether a tool can be used now, by which workers, or why not."""

    able: bool
    why: str
    workers: list[str]
    gpu: str


def ability() -> dict[str, Ability]:
    """Return who can use each tool now, by tool, from what the living workers announce."""
    serving = _serving()
    return {name: _ability(tool, serving, 0 if tool.without_gpu else 1) for name, tool in CAPTURE_TOOLS.items()}


def ability_for(options: Options) -> Ability:
    """Return who can capture with these options now: their tool, and the GPUs that they ask for."""
    tool = CAPTURE_TOOLS[options.TOOL]
    return _ability(tool, _serving(), tool.gpus(options))


def ability_sentence(able: Mapping[str, Ability]) -> str:
    """Return a sentence: what can be captured now, or why nothing can."""
    ready = [tool for tool in able if able[tool].able]
    if not ready:
        first = next(iter(able.values()))
        return f"Nobody can capture at the moment. {first.common or first.own}"
    lacking = next((f" {entry.common or entry.own}" for entry in able.values() if not entry.able), "")
    what = next((able[tool].gpu for tool in ready if able[tool].gpu), "What needs no GPU")
    return f"{what} can be captured now with {' and '.join(CAPTURE_TOOLS[tool].title for tool in ready)}.{lacking}"


def _serving() -> list[dict[str, Any]]:
    return [worker for worker in jobs.workers() if "gpu" in worker.get("queues", ())]


def _ability(tool: CaptureTool, serving: list[dict[str, Any]], gpus: int) -> Ability:
    """`gpus`: how many are needed; 0 where any worker will do."""
    if not serving:
        return Ability(False, "", f"No gpu worker is running: {START_ONE}.")
    fitting = [worker for worker in serving if _reach(worker) >= gpus]
    if not fitting:
        most = max(serving, key=_reach)
        if most.get("gpus"):
            return Ability(False, f"{gpus} GPUs are asked for; the worker with most has {_reach(most)} ({most.get('host')}).")
        hosts = ", ".join(sorted({str(worker.get("host")) for worker in serving}))
        return Ability(False, f"Without a GPU {tool.title} records {tool.without_gpu}." if tool.without_gpu else "",
                       f"The gpu worker on {hosts} sees no NVIDIA GPU: {START_ONE}, and check nvidia-smi there.")
    having = sorted((worker for worker in fitting if "missing" not in _tool(worker, tool.name)),
                    key=lambda worker: not worker.get("gpus"))       # with a GPU first
    if not having:
        why = _tool(fitting[0], tool.name)["missing"]
        return Ability(False, f"The gpu worker on {fitting[0].get('host')} has no {tool.title}: {why}.")
    first, said = having[0], _tool(having[0], tool.name)
    card = first["gpus"][0]["name"] if first.get("gpus") else ""
    where = f"on {card} ({first.get('host')})" if card else f"on {first.get('host')}, without a GPU: {tool.without_gpu}"
    return Ability(True, f"{tool.title} {said.get('version', '')} {where}", "", tuple(str(worker["name"]) for worker in having),
                   card, said)


def _reach(worker: Mapping[str, Any]) -> int:
    """Return how many GPUs a job of several processes may lease there: those of its host, where each has a worker of its own."""
    own = len(worker.get("gpus") or ())
    return max(own, int(worker.get("host_gpus") or 0)) if own else 0


def _tool(worker: Mapping[str, Any], tool: str) -> Mapping[str, str]:
    return worker.get("tools", {}).get(tool) or {"missing": "it did not say"}


def queue_text(able: Ability) -> str:
    """Return what a capture would meet that is asked for now: why nobody can run it, who is idle, or what stands before it."""
    if not able.able:
        return f"No living worker can run it. {able.why}"
    idle = [worker for worker in jobs.workers() if worker["name"] in able.workers and worker.get("busy") is None]
    ahead = Capture.objects.filter(status=Capture.Status.QUEUED).count()
    if idle and not ahead:
        return "Starts at once: a worker is idle."
    before = f"{ahead} capture{'s' * (ahead != 1)}" if ahead else "no capture"
    return f"Queue: {before} before it; {'a worker is idle' if idle else 'every worker that could run it is busy'}."


def captures(filters: Mapping[str, str] | None = None) -> QuerySet[Capture]:
    """Newest first; `status`, `tool`, `target` (id) narrow it. The log stays behind."""
    rows = Capture.objects.select_related("target", "owner", "profile").defer("log")
    for name in ("status", "tool"):
        if value := (filters or {}).get(name, "").strip():
            rows = rows.filter(**{name: value})
    if (target := (filters or {}).get("target", "")).isdecimal() and len(target) < 19:
        rows = rows.filter(target_id=int(target))
    return rows


def targets(enabled_only: bool = True) -> QuerySet[CaptureTarget]:
    rows = CaptureTarget.objects.order_by("name")
    return rows.filter(enabled=True) if enabled_only else rows


def target_of(profile_id: str) -> str:
    """Return the id of the program that was captured to make a profile.

    "" where it was uploaded or the program may not run any more.
    """
    if not profile_id.isdecimal() or len(profile_id) > 18:
        return ""
    capture = Capture.objects.filter(profile_id=int(profile_id), target__enabled=True).order_by("-created").first()
    return str(capture.target_id) if capture else ""


def preview(options: Options, target: Sequence[str], installed: Mapping[str, str] | None = None) -> str:
    """Return the command with its variables as a page shows it. `installed`: what the tool says where it would run.

    Raises Refused.
    """
    paths = Paths(installed=installed or {})
    return capture_command.shell_text(capture_command.build_command(options, target, paths),
                                      CAPTURE_TOOLS[options.TOOL].environ(options, paths))


def result_url(capture: Capture) -> str:
    """Return the page that answers what the capture was for, beside its baseline; "" until its profile is read.

    Counters: the page of the kernel that took longest. Allocations alone: memory. A trace: its overview, or what changed.
    """
    profile, other = capture.profile, capture.baseline
    if profile is None or profile.status != Profile.Status.READY:
        return ""
    other = other if other is not None and other.status == Profile.Status.READY and other.pk != profile.pk else None
    if profile.kind == Profile.Kind.COUNTERS:
        kernel = profile.kernels.first()
        if kernel is None:
            return reverse("profile", args=[profile.pk])
        url = reverse("kernel", args=[profile.pk, kernel.pk])
        same = Q(short_name=kernel.short_name) | (Q(family=kernel.family_id) if kernel.family_id else Q(pk__in=[]))
        beside = other.kernels.filter(same).first() if other is not None else None
        return f"{url}?baseline={beside.pk}" if beside is not None else url
    if profile.kind == Profile.Kind.TRACE and other is not None:
        return f"{reverse('compare')}?a={other.pk}&b={profile.pk}"
    if profile.kind == Profile.Kind.TRACE and not profile.launches:
        snapshot = profile.format == "torch-snapshot"
        return reverse("topic", args=[profile.pk, "memory"]) if snapshot else reverse("profile", args=[profile.pk])
    return reverse("profile", args=[profile.pk])


def command_text(capture: Capture) -> str:
    """The command as it was asked for; the worker puts its own paths in place of the names."""
    try:
        options = CAPTURE_TOOLS[capture.tool].options.parse(capture.options)
        return preview(options, capture.target.argv)
    except Refused as error:
        return f"({error.renamed({'target': ''})})"


def option_rows(capture: Capture) -> list[tuple[str, str]]:
    """Options in the order of the form, as text."""
    def text(value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        return ", ".join(value) if isinstance(value, list) else str(value)
    return [(name, text(capture.options[name])) for name in CAPTURE_TOOLS[capture.tool].options.READ if name in capture.options]


class CaptureFileJson(TypedDict):
    """A file that a capture left; `kept`: it can be downloaded; `holds`: what is in one that is not read."""

    holds: str
    id: int
    name: str
    what: str
    role: str
    bytes: int
    sha256: str
    profile: int | None
    profile_name: str | None
    kept: bool


def file_rows(capture: Capture, owner: bool = False) -> list[CaptureFileJson]:
    """Return the files that the capture left, with what became of each; none of captures before files were rows.

    `kept`: it can be downloaded, by an `owner` or by everybody. `holds`: what is in a file that is not read.
    """
    raw_holds: Any = capture.facts.get("holds") if isinstance(capture.facts, dict) else None
    holds = {name: text for name, text in raw_holds.items() if isinstance(text, str)} if isinstance(raw_holds, dict) else {}
    return [{"holds": holds.get(row.name, "")[:400],
             "id": row.pk, "name": row.name, "what": row.what, "role": row.role, "bytes": row.bytes, "sha256": row.sha256,
             "profile": row.profile_id, "profile_name": row.profile.name if row.profile else None,
             "kept": bool(row.key) and (owner or row.role != OWNERS)}
            for row in capture.files.select_related("profile")]


def most_dumps(capture: Capture) -> int:
    """Return how many snapshots of memory may be asked for while it runs; 0 where none can be made."""
    try:
        tool = CAPTURE_TOOLS[capture.tool]
        return tool.dumps(tool.options.parse(capture.options))
    except (KeyError, Refused):
        return 0


class DumpsJson(TypedDict):
    """Snapshots of memory asked for while it runs, and how many may be."""

    asked: int
    most: int


def dumps_json(capture: Capture) -> DumpsJson:
    return {"asked": capture.dumps_asked, "most": most_dumps(capture)}


def held_by(capture: Capture) -> dict[str, int]:
    """Return what deleting a capture takes away and leaves: {"kept": files, "bytes": of them, "profiles": made of it}."""
    rows = list(capture.files.all())
    sizes = [row.bytes for row in rows if row.key]
    profile_ids = {capture.profile_id, *(row.profile_id for row in rows)} - {None}
    return {"kept": len(sizes), "bytes": sum(sizes), "profiles": len(profile_ids)}


def kept_file(capture: Capture, file_id: int, owner: bool) -> tuple[str, File[bytes]]:
    """Return name and bytes of a kept file. Raises FileNotFoundError."""
    row = capture.files.filter(pk=file_id).exclude(key="").first()
    if row is None or (row.role == OWNERS and not owner):
        raise FileNotFoundError(f"capture {capture.pk} has no kept file {file_id}")
    return row.name, default_storage.open(row.key, "rb")


class CaptureJson(TypedDict):
    """A capture; of one alone also the tail of its log, its files, and what it led to."""

    id: int
    target: int
    target_name: str
    tool: str
    options: Facts
    command: str
    build: str
    model: str
    tags: list[str]
    status: str
    error: ErrorJson | None
    profile: int | None
    owner: str | None
    worker: str
    created: datetime
    started: datetime | None
    finished: datetime | None
    stopping: bool
    dumps: DumpsJson
    baseline: int | None
    facts: Facts
    log: NotRequired[str]
    files: NotRequired[list[CaptureFileJson]]
    result: NotRequired[str]
    profile_status: NotRequired[str]


def capture_json(capture: Capture, log: bool = False, owner: bool = False) -> CaptureJson:
    """The row as the API and the page's script read it."""
    data: CaptureJson = {
        "id": capture.pk, "target": capture.target_id, "target_name": capture.target.name, "tool": capture.tool,
        "options": capture.options, "command": command_text(capture), "build": capture.build, "model": capture.model,
        "tags": capture.tags, "status": capture.status, "error": capture.error, "profile": capture.profile_id,
        "owner": capture.owner.get_username() if capture.owner else None, "worker": capture.worker,
        "created": capture.created, "started": capture.started, "finished": capture.finished,
        "stopping": capture.stop_asked is not None, "dumps": dumps_json(capture),
        "baseline": capture.baseline_id, "facts": capture.facts,
    }
    return {**data, "log": capture.log, "files": file_rows(capture, owner), "result": result_url(capture),
            "profile_status": capture.profile.status if capture.profile else ""} if log else data


class CaptureTargetJson(TypedDict):
    """What may be captured; `env` for those who may change it."""

    id: int
    name: str
    description: str
    argv: list[str]
    cwd: str
    enabled: bool
    env: NotRequired[dict[str, str]]


def target_json(target: CaptureTarget, env: bool = False) -> CaptureTargetJson:
    """Its environment may hold secrets: `env` for those who may change the target."""
    return make_answer(CaptureTargetJson, target, **({"env": target.env} if env else {}))


def bare_name(name: str) -> str:
    """The function's name alone, which is what ncu compares an expression with."""
    named = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    return re.split(r"[<(]", named, maxsplit=1)[0].strip().split(" ")[-1].split("::")[-1]


def kernel_regex(name: str) -> str:
    """Return an expression that finds a kernel by its name as it stands in a profile."""
    if re.search(r"[*+?|^$\\]", name):
        return name                                    # an expression already
    return re.escape(bare_name(name))
