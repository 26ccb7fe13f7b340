"""What may be done to a capture: ask for one, ask it for a memory snapshot, stop it, delete it; owners define what may run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from profiles.base.refused import Refused
from profiles.capture import command
from profiles.capture import command as capture_command
from profiles.capture import selectors as capture_selectors
from profiles.capture.selectors import Ability
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.tool import Paths
from profiles.models import Capture, CaptureTarget, Profile
from profiles.retention.services import require_quota
from profiles.store.objects import capture_objects_delete
from profiles.upload.services import tags_clean
from workers import disk, jobs
from workers.leases import is_alive

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EXAMPLES = (
    {"name": "Example: transformer layer", "argv": ["{python}", "-m", "workers.targets.layer"],
     "description": "Trains a small transformer layer for 8 steps and launches the tuner's Triton kernels."},
    {"name": "Example: Triton matmul", "argv": ["{python}", "-m", "workers.targets.matmul", "--size", "4096"],
     "description": "Three launches of the tuner's 4096³ bf16 matmul: one kernel for a counter replay."},
)


def capture_create(*, owner: Any, target: CaptureTarget | None, tool: str, options: Mapping[str, Any], build: str = "",
                   model: str = "", tags: Iterable[str] = (), baseline: Profile | None = None) -> Capture:
    """Queue a capture; a gpu worker is woken on commit. Raises Refused with every reason at once.

    `baseline`: an earlier profile; the result opens beside it. Raises NoRoom where the disk is too full for its results.
    """
    disk.require_room()
    require_quota()
    errors, able = capture_problems(target=target, tool=tool, options=options)
    if able is not None and not able.able:
        errors[""] = able.why
    if errors or target is None:        # whom `capture_problems` names
        raise Refused(errors)
    with transaction.atomic():
        capture = Capture.objects.create(
            owner=owner, target=target, tool=tool, options=CAPTURE_TOOLS[tool].options.parse(options).as_json(),
            build=build.strip()[:80], model=model.strip()[:120], tags=tags_clean(tags),
            baseline=baseline)
        jobs.enqueue_on_commit("gpu", "capture", capture.pk)
    publish_capture(capture)
    return capture


def capture_problems(*, target: CaptureTarget | None, tool: str,
                     options: Mapping[str, Any]) -> tuple[dict[str, str], Ability | None]:
    """Return what is wrong with a request, by field, and what would be valid; and who could run it, where it is known what."""
    errors: dict[str, str] = {}
    if target is None or not target.enabled:
        errors["target"] = "choose one of the enabled targets"
    if tool not in CAPTURE_TOOLS:
        return {**errors, "tool": f"one of {', '.join(CAPTURE_TOOLS)}"}, None
    try:
        parsed = CAPTURE_TOOLS[tool].options.parse(options)
    except Refused as error:
        return {**errors, **error.fields}, capture_selectors.ability()[tool]
    able = capture_selectors.ability_for(parsed)
    try:
        command.matches(parsed, able.gpu)
    except Refused as error:
        errors["metrics"] = str(error)
    if target is not None:
        try:
            capture_command.build_command(parsed, target.argv, Paths(installed=able.installed))
        except Refused as error:
            errors |= error.fields
    return errors, able


def capture_stop(capture: Capture) -> bool:
    """Stop a queued or running capture. False when it had ended already.

    Its worker ends the tool within a second. Where the tool can finish its report, the first stop asks for that: the capture
    goes on until the report is stored. A second one ends it at once.
    """
    tool = CAPTURE_TOOLS.get(capture.tool)
    can_finish = tool is not None and tool.stop is not None
    running = Capture.objects.filter(is_alive(), pk=capture.pk, status=Capture.Status.RUNNING, stop_asked=None)
    stopped = bool(can_finish and running.update(stop_asked=Now())) or Capture.leases.stop(capture.pk, Capture.Status.CANCELLED)
    if stopped:
        publish_capture(Capture.objects.get(pk=capture.pk))
    return stopped


def capture_dump(capture: Capture) -> int:
    """Ask a running capture for a snapshot of memory now; return which one of it that is. Raises Refused.

    Its program writes it within a second or so and goes on; it becomes a profile beside the capture's.
    """
    most = capture_selectors.most_dumps(capture)
    if not most:
        raise Refused({"": "this capture records no memory history: capture with torch.profiler and a memory snapshot"})
    rows = Capture.objects.filter(pk=capture.pk)
    running = rows.filter(is_alive(), status=Capture.Status.RUNNING, stop_asked=None)
    if not running.filter(dumps_asked__lt=most).update(dumps_asked=F("dumps_asked") + 1):
        full = running.exists()
        raise Refused({"": f"{most} snapshots were asked for already: stop it, and capture again" if full else
                              "it does not run (any more): a snapshot comes of a running program"})
    capture.refresh_from_db(fields=["dumps_asked"])
    publish_capture(Capture.objects.get(pk=capture.pk))
    return capture.dumps_asked


def capture_delete(capture: Capture) -> None:
    """Delete the row now, and the files that were kept of it when that is committed. Profiles that it made stay.

    Raises Refused for one that waits or runs, and for one that a benchmark suite rests on.
    """
    capture_id = capture.pk
    with transaction.atomic():
        row = Capture.objects.select_for_update().filter(pk=capture_id).first()
        if row is None:
            return
        if row.status in (Capture.Status.QUEUED, Capture.Status.RUNNING):
            raise Refused({"": f"it is {row.status}: stop it first"})
        if hasattr(row, "suite_capture"):
            raise Refused({"": "runs of a benchmark suite were made of it: it stays with them"})
        row.delete()
        transaction.on_commit(lambda: capture_objects_delete(capture_id), robust=True)
    jobs.publish("home", "capture", {"id": capture_id, "status": "deleted"})


def target_save(*, target: CaptureTarget | None = None, name: str, argv: Sequence[str], description: str = "",
                cwd: str = "", env: Mapping[str, str] | None = None, enabled: bool = True) -> CaptureTarget:
    """Define or change what engineers may capture. Raises Refused."""
    env = env or {}
    errors = target_problems(target, name, argv, cwd, env)
    if errors:
        raise Refused(errors)
    target = target or CaptureTarget()
    target.name, target.argv, target.description = name.strip(), list(argv), description.strip()
    target.cwd, target.env, target.enabled = cwd.strip(), dict(env), enabled
    target.save()
    return target


def target_problems(target: CaptureTarget | None, name: str, argv: Sequence[str], cwd: str,
                    env: Mapping[str, Any]) -> dict[str, str]:
    errors: dict[str, str] = {}
    if not name.strip() or len(name.strip()) > 120:
        errors["name"] = "a name of 1 to 120 characters"
    elif CaptureTarget.objects.filter(name=name.strip()).exclude(pk=target.pk if target else 0).exists():
        errors["name"] = "there is a target of this name already"
    if problem := capture_command.target_problems(argv):
        errors["argv"] = problem
    if (cwd.strip() and not cwd.strip().startswith("/")) or "\0" in cwd or len(cwd) > 1000:
        errors["cwd"] = "an absolute path on the worker, or nothing for Ridgepoint's own folder"
    bad = [name for name, value in env.items()
           if not _ENV_NAME.fullmatch(str(name)) or not isinstance(value, str) or "\0" in value]
    if bad or len(env) > 100:
        errors["env"] = "at most 100 lines NAME=value" + (f"; {bad[0][:60]!r} is none" if bad else "")
    return errors


def example_targets() -> list[CaptureTarget]:
    """The bundled demonstration programs as targets; those that exist already are left alone."""
    return [CaptureTarget.objects.get_or_create(name=example["name"], defaults=example)[0] for example in EXAMPLES]


def publish_capture(capture: Capture) -> None:
    """Tell the pages that watch it."""
    data = {"id": capture.pk, "status": capture.status, "error": capture.error, "worker": capture.worker,
            "profile": capture.profile_id, "stopping": capture.stop_asked is not None,
            "dumps": capture_selectors.dumps_json(capture)}
    jobs.publish(f"capture.{capture.pk}", "status", data)
    jobs.publish("home", "capture", {"id": capture.pk, "status": capture.status})
