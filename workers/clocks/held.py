"""Who holds a GPU's clocks, and what must be put back. Imports neither Django nor torch.

Holders of one GPU share a lock file in the host's temporary folder (flock): the kernel lets go of it however a holder dies, so
whoever can lock it alone is the last one. What was found and what is about to be changed stands in a file in the worker's home,
written to the disk before anything is changed and removed when everything was put back. Comings and goings take turns (a second
lock file), so that nobody joins while another puts back.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.clocks.wish import ClockWish
from workers.clocks import driver
from workers.clocks.driver import GRAPHICS, MEMORY, PERSISTENCE, DriverRefused

TURN_S, LOOK_S = 20.0, 0.05
LAST = ".last.json"                      # beside the state: how it went the last time, for the page of workers
_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,79}\Z")


class Busy(Exception):
    """Another process comes or goes for longer than anybody should."""


def lock_file(uuid: str, kind: str = "") -> int:
    """Return an open descriptor of a lock file of the GPU. Raises ValueError for what is no GPU's UUID."""
    path = Path(tempfile.gettempdir()) / f"ridgepoint-{_checked(uuid)}-clocks{kind}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    with suppress(OSError):
        os.fchmod(descriptor, 0o666)           # whatever the umask of the first user was: other users' workers lock it too
    return descriptor


def take(lock: int, uuid: str, folder: Path, wish: ClockWish, by: str) -> dict[str, Any]:
    """Hold the clocks, or join those who do; return the conditions (`clock_lock`) for what is measured meanwhile.

    lock    descriptor of `lock_file(uuid)`, held from here on where there is something to put back
    by      who asks, for people
    Raises Busy.
    """
    fields = {"locked": False, "asked": wish.text, "by": by}
    with _turn(uuid):
        if not _lock_alone(lock):
            return {**fields, **_join(lock, uuid, folder, wish)}
        conditions = {**fields, "why": put_back(uuid, folder)}           # of one that was killed
        if not conditions["why"]:
            conditions |= _change(uuid, folder, wish, by)
        fcntl.flock(lock, fcntl.LOCK_SH if read_state(uuid, folder) else fcntl.LOCK_UN)
    return conditions


def leave(lock: int, uuid: str, folder: Path) -> str:
    """Stop holding; the last one puts everything back. Return why that failed; "" where it did not. Raises Busy."""
    with _turn(uuid):
        why = put_back(uuid, folder) if _lock_alone(lock) else ""      # in vain, it costs the shared lock: we leave anyway
        fcntl.flock(lock, fcntl.LOCK_UN)
    return why


def put_back_left(folder: Path) -> dict[str, str]:
    """Put back what nobody holds any more: after a kill or a power cut. Return uuid -> why it failed ("": it did not)."""
    tried = {}
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        uuid = path.name.removesuffix(".json")
        if not _UUID.match(uuid):        # also how it went the last time, which is no state
            continue
        lock = lock_file(uuid)
        try:
            with _turn(uuid, wait_s=0.0):
                if _lock_alone(lock) and path.exists():
                    tried[uuid] = put_back(uuid, folder)
        except Busy:                     # it is held, or being put back just now
            continue
        finally:
            os.close(lock)
    return tried


def _change(uuid: str, folder: Path, wish: ClockWish, by: str) -> dict[str, Any]:
    """Change what the wish asks for, step by step; what is refused is said and the rest stands."""
    try:
        gpu = driver.open_gpu(uuid)
    except DriverRefused as refused:
        return {"why": str(refused)}
    found = driver.find_state(gpu)
    told: dict[str, Any] = {"found": found, "persistence": None if found["persistence"] is None else bool(found["persistence"])}
    try:
        clocks = {GRAPHICS: driver.graphics_clock(gpu, wish, found), MEMORY: driver.memory_clock(gpu, wish)}
    except Refused as refused:
        return {**told, "why": "; ".join(f"{field.removesuffix('_mhz')} clock: {what}" for field, what in refused.fields.items())}
    steps = [PERSISTENCE] if wish.persistence and not found["persistence"] else []
    steps += [GRAPHICS, *([MEMORY] if clocks[MEMORY] else [])]
    state = {"uuid": uuid, "boot": boot_id(), "by": by, "since": _now(), "found": found}
    write_json(_state_path(uuid, folder), {**state, "changes": steps})
    changes = list(steps)
    refusals = []
    for step in steps:
        try:
            if step == PERSISTENCE:
                driver.set_persistence(gpu, True)
                told["persistence"] = True
            elif step == GRAPHICS:
                driver.lock_graphics(gpu, clocks[GRAPHICS])           # type: ignore[arg-type]    # never None
                told |= {"locked": True, "sm_mhz": clocks[GRAPHICS]}
            else:
                driver.lock_memory(gpu, clocks[MEMORY])               # type: ignore[arg-type]    # no step where it is None
                told["memory_mhz"] = clocks[MEMORY]
        except DriverRefused as refused:
            refusals.append(str(refused))
            changes.remove(step)
            if step == GRAPHICS:         # held in part would be neither locked nor not
                changes = [change for change in changes if change != MEMORY]
                break
    if changes:
        write_json(_state_path(uuid, folder), {**state, "changes": changes, "told": {**told, "asked": wish.text}})
    else:
        _state_path(uuid, folder).unlink()
    return {**told, "why": "; ".join(refusals)}


def _join(lock: int, uuid: str, folder: Path, wish: ClockWish) -> dict[str, Any]:
    """Hold what another job of this home holds already, as it does: a clock is not changed under who measures."""
    state = read_state(uuid, folder)
    if state is None or "told" not in state:
        return {"why": "another installation on this host holds the clocks of this GPU"}
    fcntl.flock(lock, fcntl.LOCK_SH)
    conditions = state["told"]
    why = "" if conditions["asked"].partition(", required")[0] == wish.text.partition(", required")[0] else (
        f"{state['by']} holds them already as it asked: {conditions['asked']}")
    return {**conditions, "asked": wish.text, "by": state["by"], "why": why}


def put_back(uuid: str, folder: Path) -> str:
    """Undo what the state says, and remove it. Return why that failed, "" where it did not; what failed stays in it."""
    state = read_state(uuid, folder)
    if state is None:
        return ""
    if state["boot"] != boot_id():       # clocks and persistence mode do not outlive a start of the host
        _state_path(uuid, folder).unlink()
        return ""
    refusals: list[str] = []
    left: list[str] = []
    try:
        gpu = driver.open_gpu(uuid)
    except DriverRefused as refused:
        return f"not put back, {refused}"
    for change in reversed(state["changes"]):
        try:
            driver.put_back(gpu, change, state["found"])
        except DriverRefused as refused:
            refusals.append(str(refused))
            left.insert(0, change)
    if left:
        write_json(_state_path(uuid, folder), {**state, "changes": left})
        return f"not put back, {'; '.join(refusals)}"
    _state_path(uuid, folder).unlink()
    return ""


def read_state(uuid: str, folder: Path) -> dict[str, Any] | None:
    """Return what stands to be put back; None where nothing does."""
    state = read_json(_state_path(uuid, folder))
    return state if state and isinstance(state.get("changes"), list) and isinstance(state.get("found"), dict) else None


def present(uuid: str, folder: Path) -> dict[str, Any]:
    """Return what pages show of a GPU: {"held": since when and by whom | None, "last": how it went the last time | None}."""
    if not _UUID.match(uuid):
        return {"held": None, "last": None}
    state = read_state(uuid, folder)
    holder = {"by": state["by"], "since": state["since"], "changes": state["changes"]} if state else None
    return {"held": holder, "last": read_json(folder / f"{uuid}{LAST}")}


def note_last(uuid: str, folder: Path, told: dict[str, Any], left: str = "") -> None:
    """Keep how it went; `left`: why it could not be put back."""
    write_json(folder / f"{_checked(uuid)}{LAST}", {**told, "at": _now(), **({"left": left} if left else {})})


def boot_id() -> str:
    """Return what names this start of the host; "" where the kernel does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def write_json(path: Path, value: Any) -> None:
    """Write a file that is whole or not there, and on the disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file; None where there is none, or no object."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _state_path(uuid: str, folder: Path) -> Path:
    return folder / f"{_checked(uuid)}.json"


def _checked(uuid: str) -> str:
    if not _UUID.match(uuid):
        raise ValueError(f"{uuid[:80]!r} is no GPU's UUID")
    return uuid


def _lock_alone(lock: int) -> bool:
    """Return whether nobody else holds the lock, which this one then does alone."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _turn(uuid: str, wait_s: float = TURN_S) -> Iterator[None]:
    """Come or go alone. Raises Busy."""
    lock, end = lock_file(uuid, "-turn"), time.monotonic() + wait_s
    try:
        while not _lock_alone(lock):
            if time.monotonic() >= end:
                raise Busy(f"another process has held its turn at the clocks of {uuid} for {wait_s:g} s")
            time.sleep(LOOK_S)
        yield
    finally:
        os.close(lock)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
