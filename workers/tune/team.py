"""Children that import a team's code: to describe a package, and to prune a space."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.models import OperatorPackage
from tuner.team import selectors, services
from tuner.tuning.space import Space
from tuner.tuning.team import description, packages
from tuner.tuning.trial import cleaned, config_key
from workers.core.child import SandboxError, safe_environment

PROJECT = Path(__file__).resolve().parents[2]
LIMIT_S = 120.0          # torch and Triton are imported, then the team's code


class TeamError(SandboxError):
    """The child did not answer, or the package failed in it."""


def child_environment() -> dict[str, str]:
    """Return the enabled packages for children; no other is ever imported."""
    return {packages.ENABLED: ",".join(selectors.enabled_packages())}


def describe_package(package_id: int, worker: str) -> None:
    """Let a child describe the package and store the answer; safe twice."""
    package = OperatorPackage.objects.filter(pk=package_id, enabled=True).first()
    if package is None:
        return
    version = next((entry["version"] for entry in packages.installed_packages() if entry["package"] == package.name), "")
    if not version:
        services.record_failure(package, worker, f"{package.name} is not installed where {worker} runs",
                                "install it into the environment of the gpu and compile workers, then describe it again")
        return
    try:
        operators = description.read_operators(json.dumps(_run_child("describe", package.name)).encode())
    except (TeamError, Refused) as error:
        services.record_failure(package, worker, str(error), "mend the package, install it, then describe it again")
    else:
        services.record_description(package, worker, operators=operators, version=version)


def prune_space(operator: str, shape: Mapping[str, int], dtype: str, space: Space) -> Space:
    """Return what the kernel's `prune_configs_by` leaves; the space itself where it has none."""
    told = selectors.operator_description(operator)
    if told is None or told["params"] or not (told["prunes"]["early"] or told["prunes"]["top_k"]):
        return space
    answer = _run_child("prune", operator, dtype, json.dumps(dict(shape)))
    try:
        keys = {config_key(config) for config in answer["kept"]}
        reasons = {str(reason)[:60]: int(count) for reason, count in answer["pruned"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TeamError(f"{operator}: its package answered what is no list of configurations ({error!r})"[:1000],
                        "its prune_configs_by must return some of the configurations it was given") from error
    left = [config for config in space.configs() if config_key(config) in keys]
    lost = len(space) - len(left)
    told_reasons = reasons if sum(reasons.values()) == lost else {"prune_configs_by": lost} if lost else {}
    return Space.listed(left, {**space.pruned, **told_reasons})


def _run_child(*arguments: str) -> Any:
    """Run the child in its own group, within a time limit, its answer bounded."""
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tuner.tuning.team.child", str(os.getpid()), *arguments], cwd=PROJECT, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, pass_fds=(answer.fileno(),), start_new_session=True,
            env={**safe_environment(), **child_environment(), "RIDGEPOINT_ANSWER_FD": str(answer.fileno())})
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise TeamError(f"{arguments[1]}: no answer within {LIMIT_S:.0f} s") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        answer.seek(0)
        text = answer.read(description.MAX_BYTES + 1)
        output.seek(0)
        tail = cleaned(output.read(20_000)[-600:].decode(errors="replace").strip())
    try:
        reply = cleaned(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise TeamError(f"{arguments[1]}: its child ended with {process.returncode} and no answer; it printed: {tail}") from error
    if not isinstance(reply, dict) or "ok" not in reply:
        raise TeamError(str(reply.get("failed") if isinstance(reply, dict) else reply)[:1000])
    return reply["ok"]
