"""A pasted kernel file on a worker: imported and compiled behind walls, its answer read like an upload."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings

from tuner.bring.checks import services, sources
from tuner.bring.cuda import build, headers
from tuner.bring.cuda.check import SUFFIXES
from tuner.bring.cuda.host_edits import USES_TORCH
from tuner.models import KernelCheck
from workers.core import sandboxed
from workers.core.child import SandboxError
from workers.core.periodic import watch_for_stop

log = logging.getLogger(__name__)
BOUNDS = sandboxed.Bounds()
MAX_ATTEMPTS = 3        # a file that took its worker down this often is not tried again


Fetch = Callable[..., dict[str, Any]]          # workers.code.kernel.fetch


def run(check_id: int, worker: str, *, fetch: Fetch | None = None, bounds: sandboxed.Bounds = BOUNDS) -> None:
    """Claim the row and end it as done, failed or stopped; a row that another holds is left.

    fetch  brings a file that was named by repository or package
    """
    check = services.check_claim(check_id, worker)
    if check is None:
        return
    why_not = sandboxed.why_not()
    walls = not why_not
    if check.attempts > MAX_ATTEMPTS:
        services.check_fail(check, worker, f"{MAX_ATTEMPTS} workers died over this file", "see the workers' logs")
    elif why_not and not sandboxed.may_go_without():
        services.check_fail(check, worker, f"not compiled: {why_not}",
                            "allow user namespaces on the worker's host, or read docs/bring.md: The sandbox")
    elif (row := _fetched(check, worker, fetch, walls)) is not None:
        _compile(row, worker, bounds, walls)


def _fetched(check: KernelCheck, worker: str, fetch: Fetch | None, walls: bool) -> KernelCheck | None:
    """Return the row with its text; None where the check has ended before it had one."""
    if check.text or not check.source or fetch is None:
        return check
    with watch_for_stop(lambda: not KernelCheck.leases.is_held(check.pk, worker)) as stop:
        try:
            content = fetch(check.source, check.project_id, walls=walls, should_stop=stop)
        except SandboxError as error:
            if not stop():
                services.check_fail(check, worker, error.what, error.hint)
            return None
    return sources.check_fetched(check, worker, content)


def _kept_headers(check: KernelCheck, worker: str) -> dict[str, Path]:
    """Return the variable and folder of PyTorch's compiled headers where a call of CUDA C++ needs them; made here, before walls."""
    texts = [check.text, *(check.siblings or {}).values()]
    if not check.file.endswith(SUFFIXES) or not check.result.get("call") or not any(map(USES_TORCH.search, texts)):
        return {}
    folder = Path(settings.HOME) / "host-headers"
    services.check_step(check, worker, headers.SAYS, headers.MAKE_S)
    return {headers.FOLDER: folder} if build.keep_headers(folder) else {}


def _compile(check: KernelCheck, worker: str, bounds: sandboxed.Bounds, walls: bool) -> None:
    answer: dict[str, Any] = {}
    progress: list[Any] = []

    def hear(line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        if "step" in message:
            services.check_step(check, worker, message["step"], message.get("most_s"))
        elif "progress" in message:
            if progress[-1:] != [message["progress"]]:
                services.check_progress(check, worker, message["progress"])
            progress[:] = [message["progress"]]
        elif "operators" in message or "refused" in message:
            answer.update(message)

    request = {"file": check.file, "text": check.text, "folder": check.folder, "siblings": check.siblings, "shape": check.shape,
               "dtype": check.dtype, "compiles": True,
               "call": check.result.get("call", "")}
    with watch_for_stop(lambda: not KernelCheck.leases.is_held(check.pk, worker)) as stop:
        kept = _kept_headers(check, worker)
        ending = sandboxed.run(
            [sys.executable, "-m", "tuner.bring.pasted"], json.dumps(request).encode(), read=(*sandboxed.OURS, *kept.values()),
            environ={"PYTHONPATH": str(sandboxed.PROJECT), "CUDA_VISIBLE_DEVICES": "",
                     **{name: str(path) for name, path in kept.items()}},
            bounds=bounds, on_line=hear, is_over=stop, walls=walls, may_be_fork=True)
    if stop():
        log.info("check %s: stopped", check.pk)
    elif ending.why:
        services.check_fail(check, worker, ending.why, "the file is run to be compiled: mend what it does when it is imported")
    elif "refused" in answer:
        services.check_fail(check, worker, str(answer["refused"]))
    elif "operators" not in answer:
        log.warning("check %s: ended with %s: %s", check.pk, ending.status, ending.said)
        services.check_fail(check, worker, f"the process that imports it ended with {ending.status} and no answer",
                            "the file may have ended it, or taken more memory than it may")
    else:
        services.check_done(check, worker, answer)
