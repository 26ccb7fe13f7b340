"""The argument vector of a capture: shown before it is queued, run by the worker. Never a shell string."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from profiles.base.refused import Refused
from profiles.capture.tools import CAPTURE_TOOLS, launchers, ncu_metrics
from profiles.capture.tools.ncu import NcuOptions
from profiles.capture.tools.options import Options
from profiles.capture.tools.tool import PYTHON, Paths
from workers import jobs

# Names of a GPU's counters as its worker's ncu lists them, kept in Valkey: a form tells what a wildcard names before it runs.
#
# Lost, they are said again when a worker starts; the worker that runs a capture asks ncu itself.

log = logging.getLogger(__name__)
SHOWN = 12
_KEY = "ridgepoint:metrics:"
_KEPT_S = 30 * 24 * 3600


@dataclass(frozen=True)
class Match:
    """What a wildcard names on a GPU."""

    wildcard: str
    count: int
    first: list[str]

    def as_json(self) -> dict[str, object]:
        return {"wildcard": self.wildcard, "count": self.count, "first": self.first}


def names_store(gpu: str, program: str) -> None:
    """Ask a host's ncu for its GPU's base names and keep them. A failure is logged: captures ask again."""
    try:
        jobs.connection().set(_KEY + gpu, json.dumps(ncu_metrics.query(program)), ex=_KEPT_S)
    except Refused as error:
        log.warning("names of metrics for the form: %s", error)


def names_known(gpu: str) -> list[str]:
    """Return the base names of a GPU's counters, [] where no worker has said them."""
    text = jobs.connection().get(_KEY + gpu) if gpu else None
    return list(json.loads(text)) if text else []


def matches(options: Options, gpu: str) -> list[Match]:
    """Return what each wildcard names on a GPU: [] where nothing is to be looked up or no name is known.

    Raises Refused as the worker would: for one that names nothing, and for too many.
    """
    wildcards = [name for name in options.metrics if ncu_metrics.is_wildcard(name)] if isinstance(options, NcuOptions) else []
    metric_names = names_known(gpu) if wildcards else []
    if not metric_names:
        return []

    def suffixed(bases: Sequence[str]) -> Sequence[str]:
        return [f"{base}.{suffix}" for base in bases for suffix in ncu_metrics.COMMON_SUFFIXES]

    names_by_wildcard = ncu_metrics.resolve(wildcards, metric_names, suffixed)
    return [Match(name, len(names), names[:SHOWN]) for name, names in names_by_wildcard.items()]


def target_problems(argv: Sequence[str]) -> str | None:
    """Return why this cannot be a target's argument vector, or None."""
    if not argv or not argv[0].strip():
        return "name a program, for example {python} -m workers.targets.layer"
    if any("\0" in part or len(part) > 1000 for part in argv) or len(argv) > 200:
        return "at most 200 arguments of 1,000 characters each, without NUL"
    if argv[0].startswith("-"):
        return "the first argument is the program and cannot begin with a dash"
    return None


def build_command(options: Options, target: Sequence[str], paths: Paths | None = None) -> list[str]:
    """Return what the worker runs; the tool's result is written into the folder of `paths`. Raises Refused.

    Without `paths`: as a preview shows it, with the tool's name in place of its path.
    """
    problem = target_problems(target)
    if problem:
        raise Refused({"target": problem})
    tool = CAPTURE_TOOLS[options.TOOL]
    paths = paths or Paths()
    paths = replace(paths, program=paths.program or tool.name)
    program = [paths.python if part == PYTHON else part for part in target]
    several = launchers.starts_several(target)
    if several and tool.one_process:
        raise Refused({"target": f"the target starts several processes ({several}): {tool.one_process}"})
    if hosts := launchers.asks_for_hosts(target):
        raise Refused({"target": f"the target runs on several hosts ({hosts}): {launchers.SEVERAL_HOSTS}"})
    if several and getattr(options, "launcher", launchers.PROGRAM) != launchers.PROGRAM and tool.gpus(options) > 1:
        raise Refused({"launcher": f"the target begins with {several} itself"})
    rank = launchers.rank_variable(options)
    report = tool.results[0].name.replace("*", f"-rank%q{{{rank}}}" if rank else "")
    return launchers.launch(options, tool.argv(options, program, f"{paths.folder}/{report}", paths), paths)


def plain_command(options: Options, target: Sequence[str], paths: Paths) -> list[str]:
    """Return what runs the program without the tool, as many processes of it."""
    return launchers.launch(options, [paths.python if part == PYTHON else part for part in target], paths)


def program_digest(options: Options, target: Sequence[str]) -> str:
    """Return what tells runs of one program from those of another or of another number of processes."""
    return sha256("\0".join(plain_command(options, target, Paths())).encode()).hexdigest()[:16]


def shell_text(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    """Return the command as one would type it, variables first: for reading, never for running."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in (environ or {}).items()), shlex.join(argv)])
