"""Who may import whom, and nothing else. The tables are the architecture; ARCHITECTURE.md explains them.

A module belongs to the feature with the longest name that it lies in, or that names it in `MEMBERS`. It may import its own feature
and those that its row in `ARROWS` names, each of which stands above it: no two features can need each other. `webapp`, the apps'
set-up may import everything, and nobody imports them. Third-party packages are for those that `PACKAGES` names.
A row that nothing uses any more fails as well.
"""

from __future__ import annotations

import ast
import fnmatch
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MIGRATIONS = ("django", "cryptography")         # all that a migration imports, but for migrations: it runs against later code
OURS = ("profiles", "tuner", "webapp", "workers")
OUTSIDE_OURS = ("tests", "bench", "var", "build", "static", "templates", "docs")
MOST_MODULES = 25            # in one folder

# feature -> modules of it that do not lie in a folder of its name
MEMBERS = {
    "profiles.ingest.trace": ("profiles.ingest.trace", "profiles.ingest.arrays", "profiles.ingest.windows",
                              "profiles.ingest.scratch"),
    "profiles.models": ("profiles.models", "profiles.*.models"),
    "profiles.rows": ("profiles.rows", "profiles.progress"),
    "profiles.theme": ("profiles.theme", "profiles.band"),
    "tuner.tuning.trial": ("tuner.tuning.trial", "tuner.tuning.space", "tuner.tuning.offer", "tuner.tuning.offered",
                           "tuner.tuning.sources"),
    "tuner.tuning.wire": ("tuner.tuning.wire",),
    "tuner.models": ("tuner.models", "tuner.*.models"),
    "tuner.cache.rules": ("tuner.cache.rules", "tuner.cache.buckets", "tuner.cache.default_check", "tuner.cache.portability"),
    "tuner.cache.client": ("tuner.cache.client", "tuner.cache.listener", "tuner.cache.shared"),
    "workers.jobs": ("workers.jobs", "workers.away", "workers.clock", "workers.disk", "workers.fair", "workers.leases",
                     "workers.list_api", "workers.outgoing", "workers.redact", "workers.scope",
                     "workers.secret", "workers.spans", "workers.trail"),
    "workers.process": ("workers.process", "workers.tasks", "workers.sweep", "workers.messages", "workers.row_kinds",
                        "workers.stages", "workers.bounded_process"),
}
# what everybody may import but those that are used alone: plain, and it imports nothing of ours
BASE = "profiles.base"
ALONE = ("profiles.ingest*", "tuner.gate.stats*", "workers.agent*", "tuner.cache.client", "tuner.cache.listener",
         "tuner.cache.shared", "tuner.gate.client", "tuner.gate.pytest_plugin", "tuner.bring.own.client")
# nobody imports these but Django, manage.py and tests; they may import everything
TOP = ("webapp", "webapp.*", "*.apps", "*.urls", "*.management", "*.management.*")

# feature -> the features that it may import, beside BASE; each stands above it
ARROWS = {
    BASE: "",
    "profiles.ingest.trace": "",
    "profiles.ingest.naming": "",
    "profiles.ingest.core": "profiles.ingest.trace profiles.ingest.naming",
    "profiles.ingest.chrome": "profiles.ingest.trace profiles.ingest.naming profiles.ingest.core",
    "profiles.ingest.logs": "profiles.ingest.trace profiles.ingest.naming profiles.ingest.core",
    "profiles.ingest.nccl": "profiles.ingest.trace profiles.ingest.core",
    "profiles.ingest.ncu": "profiles.ingest.trace profiles.ingest.core",
    "profiles.ingest.nsys": "profiles.ingest.trace profiles.ingest.naming profiles.ingest.core profiles.ingest.ncu",
    "profiles.ingest.samplers": "profiles.ingest.trace profiles.ingest.core profiles.ingest.chrome",
    "profiles.ingest.other": "profiles.ingest.trace profiles.ingest.naming profiles.ingest.core profiles.ingest.samplers",
    "profiles.ingest.perfetto": "profiles.ingest.trace profiles.ingest.naming profiles.ingest.core profiles.ingest.chrome",
    "profiles.ingest.xplane": "profiles.ingest.trace profiles.ingest.core profiles.ingest.chrome",
    "profiles.ingest.rocm": "profiles.ingest.trace profiles.ingest.naming profiles.ingest.core profiles.ingest.chrome "
                            "profiles.ingest.ncu profiles.ingest.nsys profiles.ingest.samplers",
    "profiles.ingest":
        "profiles.ingest.trace profiles.ingest.core profiles.ingest.chrome profiles.ingest.logs profiles.ingest.nccl "
        "profiles.ingest.ncu profiles.ingest.nsys profiles.ingest.other profiles.ingest.perfetto profiles.ingest.samplers "
        "profiles.ingest.rocm profiles.ingest.xplane",
    "profiles.analysis.core": "profiles.ingest.trace profiles.ingest.naming",
    "profiles.analysis.kernel": "profiles.ingest.trace profiles.ingest.naming profiles.ingest.ncu profiles.analysis.core",
    "profiles.analysis.trace": "profiles.ingest.trace profiles.ingest.naming profiles.analysis.core profiles.analysis.kernel",
    "profiles.analysis.compare":
        "profiles.ingest.trace profiles.ingest.naming profiles.analysis.core profiles.analysis.kernel profiles.analysis.trace",
    "tuner.tuning.trial": "",
    "tuner.tuning.vendor": "tuner.tuning.trial",
    "tuner.tuning.operators": "profiles.analysis.core tuner.tuning.trial tuner.tuning.vendor",
    "tuner.tuning.wire": "tuner.tuning.trial",
    "tuner.tuning.cuda": "",
    "workers.agent": "",
    "tuner.gate.stats": "",
    "profiles.theme": "",
    "profiles.charts":
        "profiles.ingest.naming profiles.analysis.core profiles.analysis.kernel profiles.analysis.trace profiles.theme",
    "workers.jobs": "",
    "profiles.models": "workers.jobs",
    "profiles.retention": "workers.jobs profiles.models",
    "profiles.library": "profiles.ingest profiles.models",
    "profiles.rows": "profiles.analysis.core workers.jobs profiles.models",
    "profiles.store":
        "profiles.ingest.trace profiles.ingest.naming profiles.analysis.core profiles.analysis.kernel profiles.analysis.compare "
        "profiles.models profiles.rows",
    "profiles.compare":
        "profiles.ingest.trace profiles.ingest.naming profiles.analysis.core profiles.analysis.compare profiles.analysis.trace "
        "profiles.theme profiles.charts profiles.models profiles.library profiles.store",
    "profiles.exports": "profiles.ingest.trace workers.jobs",
    "profiles.advice":
        "profiles.ingest.trace profiles.analysis.kernel profiles.analysis.compare workers.jobs profiles.models profiles.rows "
        "profiles.compare profiles.exports",
    "profiles.profile":
        "profiles.analysis.core profiles.analysis.kernel profiles.analysis.trace profiles.models profiles.store profiles.advice",
    "profiles.families":
        "profiles.ingest.trace profiles.ingest.naming profiles.analysis.core profiles.analysis.kernel profiles.analysis.compare "
        "profiles.analysis.trace profiles.charts workers.jobs profiles.models profiles.library profiles.rows profiles.store "
        "profiles.compare profiles.exports profiles.advice profiles.profile",
    "profiles.upload":
        "profiles.ingest.trace profiles.ingest.naming profiles.ingest.core profiles.ingest.nccl profiles.ingest "
        "profiles.analysis.core profiles.analysis.kernel profiles.analysis.compare profiles.analysis.trace workers.jobs "
        "profiles.models profiles.retention profiles.rows profiles.store profiles.families",
    "profiles.capture.tools": "profiles.ingest.nsys",
    "tuner.tuning.kernels": "tuner.tuning.trial tuner.tuning.vendor profiles.capture.tools",
    "tuner.tuning.team": "tuner.tuning.trial tuner.tuning.operators tuner.tuning.wire tuner.tuning.cuda tuner.tuning.kernels",
    "tuner.tuning.measure":
        "profiles.analysis.core profiles.analysis.kernel tuner.tuning.trial tuner.tuning.operators tuner.tuning.wire "
        "tuner.tuning.kernels tuner.tuning.team",
    "tuner.tuning.search": "tuner.tuning.trial tuner.tuning.operators tuner.tuning.measure",
    "profiles.capture":
        "profiles.ingest.naming profiles.analysis.core profiles.analysis.compare workers.jobs profiles.models profiles.retention "
        "profiles.store profiles.compare profiles.advice profiles.upload profiles.capture.tools",
    "profiles.actions": "profiles.analysis.core profiles.models profiles.store profiles.capture",
    "profiles.ceilings": "profiles.analysis.core profiles.analysis.kernel workers.jobs profiles.models",
    "profiles.occupancy": "profiles.analysis.core profiles.analysis.kernel profiles.models",
    "profiles.timeline":
        "profiles.ingest.trace profiles.ingest.naming profiles.analysis.core profiles.analysis.kernel profiles.analysis.trace "
        "profiles.models profiles.library profiles.store profiles.exports profiles.profile profiles.capture workers.jobs",
    "profiles.downloads":
        "profiles.ingest.trace profiles.analysis.compare profiles.models profiles.library profiles.store profiles.exports "
        "profiles.timeline",
    "profiles.topics":
        "profiles.ingest.trace profiles.ingest.naming profiles.analysis.core profiles.analysis.kernel profiles.analysis.trace "
        "profiles.theme profiles.charts workers.jobs profiles.models profiles.rows profiles.store profiles.exports "
        "profiles.profile profiles.ceilings",
    "profiles.rooflines":
        "profiles.analysis.core profiles.analysis.kernel profiles.analysis.trace profiles.theme profiles.charts profiles.models "
        "profiles.store profiles.exports profiles.ceilings profiles.topics workers.jobs",
    "profiles.counters":
        "profiles.ingest.trace profiles.analysis.core profiles.analysis.kernel profiles.models profiles.rows profiles.store "
        "profiles.exports profiles.ceilings profiles.occupancy profiles.rooflines",
    "profiles.report":
        "profiles.ingest.trace profiles.analysis.core profiles.analysis.kernel profiles.models profiles.profile profiles.topics",
    "profiles.source":
        "profiles.ingest.trace profiles.analysis.core profiles.analysis.kernel profiles.charts profiles.models profiles.store "
        "profiles.exports",
    "profiles.sql":
        "profiles.ingest.trace profiles.analysis.core profiles.theme workers.jobs profiles.models profiles.library "
        "profiles.rows profiles.store profiles.exports profiles.timeline profiles.topics",
    "profiles.fleet":
        "profiles.ingest.naming profiles.analysis.core workers.agent profiles.theme workers.jobs "
        "profiles.models profiles.retention profiles.rows profiles.families",
    "profiles.running":
        "profiles.ingest.trace profiles.analysis.core workers.jobs profiles.models profiles.retention profiles.upload "
        "profiles.fleet",
    "profiles.notes": "workers.jobs profiles.models profiles.rows profiles.timeline",
    "profiles.overview":
        "profiles.ingest.trace profiles.analysis.core profiles.analysis.trace profiles.theme profiles.charts workers.jobs "
        "profiles.models profiles.retention profiles.library profiles.rows profiles.compare profiles.exports profiles.profile "
        "profiles.upload profiles.topics profiles.counters",
    "profiles.kernel":
        "profiles.analysis.core profiles.charts profiles.models profiles.advice profiles.counters profiles.source "
        "profiles.overview",
    "tuner.models": "workers.jobs",
    "tuner.query_api": "tuner.tuning.trial",
    "tuner.clocks": "tuner.tuning.trial workers.jobs tuner.models",
    "tuner.cache.formats": "tuner.tuning.trial",
    "tuner.cache.rules": "tuner.tuning.trial",
    "tuner.team": "tuner.tuning.operators workers.jobs tuner.tuning.team tuner.models",
    "tuner.candidates.judge":
        "tuner.tuning.trial tuner.tuning.operators tuner.tuning.kernels tuner.tuning.team tuner.tuning.measure",
    "tuner.bring":
        "profiles.analysis.core profiles.analysis.kernel tuner.tuning.trial tuner.tuning.operators tuner.tuning.wire "
        "tuner.tuning.cuda tuner.tuning.kernels tuner.tuning.team tuner.tuning.measure",
    "tuner.texts": "tuner.tuning.operators tuner.tuning.measure tuner.models tuner.clocks",
    "tuner.cache.entries":
        "tuner.tuning.trial tuner.tuning.operators tuner.tuning.measure tuner.tuning.search tuner.models tuner.clocks "
        "tuner.cache.formats tuner.cache.rules tuner.texts",
    "tuner.devices": "tuner.tuning.operators workers.jobs tuner.tuning.measure",
    "tuner.spaces":
        "tuner.tuning.trial tuner.tuning.operators workers.jobs tuner.tuning.team tuner.tuning.measure tuner.models "
        "tuner.query_api tuner.team tuner.bring tuner.devices",
    "tuner.bring.checks": "tuner.tuning.trial workers.jobs tuner.models tuner.query_api tuner.bring",
    "tuner.gate.benchmarks": "",
    "tuner.ceilings":
        "profiles.analysis.core profiles.analysis.kernel profiles.models profiles.ceilings tuner.tuning.trial "
        "tuner.tuning.operators tuner.models",
    "tuner.candidates":
        "tuner.tuning.trial tuner.tuning.operators tuner.gate.stats workers.jobs tuner.tuning.team tuner.tuning.measure "
        "tuner.models tuner.query_api tuner.team tuner.texts tuner.ceilings",
    "tuner.gate.builds": "tuner.tuning.trial workers.jobs profiles.models tuner.models",
    "tuner.gate.suites":
        "profiles.analysis.compare tuner.tuning.trial tuner.tuning.operators tuner.gate.stats workers.jobs profiles.models "
        "tuner.tuning.measure profiles.capture tuner.models tuner.cache.rules tuner.texts tuner.cache.entries "
        "tuner.devices tuner.gate.builds",
    "tuner.gate.baselines":
        "profiles.theme tuner.tuning.trial tuner.gate.stats tuner.models tuner.gate.builds tuner.gate.suites",
    "tuner.gate.client": "",
    "tuner.gate.environments": "tuner.gate.stats tuner.models tuner.devices tuner.gate.builds tuner.gate.suites",
    "tuner.gate.reports": "tuner.gate.stats",
    "tuner.gate.channels": "tuner.tuning.trial workers.jobs tuner.models tuner.gate.reports",
    "tuner.gate.pytest_plugin": "",
    "tuner.gate.code": "tuner.tuning.trial workers.jobs tuner.models tuner.devices tuner.gate.suites",
    "tuner.gate.options": "tuner.gate.client tuner.gate.reports",
    "tuner.gate.production":
        "tuner.gate.stats profiles.theme workers.jobs profiles.models profiles.fleet profiles.running "
        "tuner.models tuner.gate.builds tuner.gate.suites tuner.gate.channels",
    "tuner.gate.regressions":
        "tuner.tuning.trial tuner.gate.stats workers.jobs tuner.models tuner.gate.builds tuner.gate.baselines "
        "tuner.gate.channels",
    "tuner.gate.verdicts":
        "profiles.ingest.naming tuner.tuning.trial tuner.tuning.operators tuner.gate.stats profiles.theme workers.jobs "
        "profiles.models tuner.models tuner.clocks tuner.cache.rules tuner.texts tuner.devices tuner.gate.builds "
        "tuner.gate.suites tuner.gate.baselines tuner.gate.client tuner.gate.environments tuner.gate.reports "
        "tuner.gate.channels tuner.gate.options tuner.gate.regressions",
    "tuner.gate.suite_pages":
        "tuner.tuning.trial tuner.tuning.operators tuner.gate.stats profiles.theme profiles.models tuner.models tuner.query_api "
        "tuner.clocks tuner.texts tuner.gate.builds tuner.gate.suites tuner.gate.verdicts workers.jobs",
    "tuner.jobs":
        "tuner.tuning.trial tuner.tuning.operators profiles.theme workers.jobs profiles.models tuner.tuning.measure "
        "tuner.tuning.search tuner.models tuner.query_api tuner.cache.rules tuner.texts tuner.cache.entries tuner.devices "
        "tuner.spaces tuner.ceilings",
    "tuner.bring.own":
        "tuner.tuning.operators workers.jobs tuner.tuning.team tuner.tuning.search tuner.models tuner.query_api tuner.bring "
        "tuner.devices tuner.bring.checks tuner.jobs",
    "tuner.revalidation":
        "tuner.tuning.trial tuner.tuning.operators tuner.gate.stats tuner.tuning.measure tuner.tuning.search tuner.models "
        "tuner.clocks tuner.cache.formats tuner.cache.rules tuner.texts tuner.cache.entries tuner.devices "
        "tuner.gate.suites tuner.gate.verdicts tuner.jobs workers.jobs profiles.theme",
    "tuner.cache.exchange":
        "tuner.tuning.trial tuner.tuning.operators tuner.tuning.measure tuner.tuning.search tuner.models tuner.cache.formats "
        "tuner.cache.rules tuner.texts tuner.cache.entries tuner.devices tuner.jobs workers.jobs",
    "tuner.cache.serve":
        "tuner.tuning.trial tuner.tuning.operators workers.jobs tuner.models tuner.cache.rules tuner.texts tuner.cache.entries",
    "tuner.cache.browse":
        "tuner.tuning.operators tuner.models tuner.cache.rules tuner.texts tuner.cache.entries tuner.revalidation "
        "tuner.cache.exchange tuner.cache.serve tuner.gate.suites workers.jobs",
    "tuner.cache.compiled": "workers.jobs tuner.models tuner.query_api",
    "tuner.cache.client": "",
    "tuner.gate.environment_pages":
        "profiles.theme tuner.gate.stats tuner.models tuner.gate.environments tuner.revalidation workers.jobs",
    "tuner.gate.history":
        "tuner.tuning.trial tuner.tuning.operators tuner.gate.stats profiles.theme workers.jobs profiles.models "
        "profiles.library profiles.compare tuner.models tuner.clocks tuner.texts tuner.gate.builds tuner.gate.suites "
        "tuner.gate.baselines tuner.gate.environments tuner.gate.channels tuner.gate.regressions tuner.gate.verdicts",
    "workers.core":
        "profiles.ingest.nsys tuner.tuning.trial tuner.tuning.wire workers.jobs profiles.capture.tools tuner.tuning.team "
        "tuner.tuning.measure",
    "workers.clocks": "tuner.clocks workers.core",
    "workers.tune":
        "tuner.tuning.trial tuner.tuning.operators tuner.tuning.wire tuner.gate.stats workers.jobs profiles.capture.tools "
        "tuner.tuning.team tuner.tuning.measure tuner.tuning.search tuner.models tuner.clocks tuner.cache.rules tuner.team "
        "tuner.cache.entries tuner.devices tuner.spaces tuner.bring tuner.bring.checks tuner.bring.own tuner.candidates tuner.jobs "
        "workers.core workers.clocks tuner.ceilings",
    "workers.code": "workers.jobs tuner.models tuner.gate.suites tuner.gate.code workers.core",
    "workers.fresh":
        "tuner.tuning.trial tuner.tuning.operators profiles.models profiles.capture.tools tuner.tuning.measure tuner.models "
        "tuner.cache.rules tuner.cache.entries tuner.gate.suites tuner.bring.own workers.core workers.clocks workers.tune "
        "workers.code",
    "workers.capture":
        "profiles.ingest.trace workers.agent workers.jobs profiles.models profiles.rows profiles.upload profiles.capture.tools "
        "profiles.capture profiles.ceilings profiles.fleet profiles.running tuner.models tuner.clocks workers.core workers.code "
        "workers.fresh",
    "workers.gate":
        "workers.jobs profiles.models profiles.capture.tools tuner.tuning.measure profiles.capture tuner.models tuner.clocks "
        "tuner.cache.rules tuner.devices tuner.gate.suites tuner.gate.verdicts tuner.revalidation "
        "workers.core workers.clocks workers.fresh workers.capture",
    "workers.metrics": "workers.jobs profiles.models profiles.fleet tuner.models",
    "workers.retention":
        "workers.jobs profiles.models profiles.retention profiles.upload profiles.capture tuner.models tuner.cache.compiled",
    "workers.process":
        "profiles.ingest tuner.tuning.trial workers.jobs profiles.models profiles.advice profiles.families profiles.upload "
        "profiles.capture profiles.topics profiles.fleet profiles.running tuner.models tuner.team tuner.devices "
        "tuner.bring.checks tuner.candidates tuner.gate.builds tuner.gate.suites tuner.gate.channels tuner.gate.code "
        "tuner.gate.production tuner.gate.verdicts tuner.jobs tuner.revalidation tuner.gate.history workers.core workers.clocks "
        "workers.tune workers.code workers.capture workers.gate workers.metrics workers.retention",
    "workers.targets": "tuner.tuning.kernels",
}

# package -> modules that may import it ("*": every module of ours); the standard library is for everybody
ROWS = ("profiles.*", "tuner.*", "workers.*", "webapp.*")
API = ("*api", "webapp.*")
PACKAGES = {
    "allauth": ("webapp.people.*", "webapp.apps"),
    "anyio": ("webapp.agents.stdio",),
    "asgiref": ("profiles.library.streaming_api", "webapp.*"),
    "bokeh": ("profiles.theme", "*charts*"),
    "channels": ("webapp.*", "workers.jobs"),
    "clickhouse_connect": ("profiles.fleet.clickhouse_store",),
    "cuda": ("tuner.tuning.cuda.nvrtc", "tuner.tuning.team.problem"),
    "cryptography": ("webapp.backup.seal", "workers.secret"),
    "django": ROWS,
    "drf_spectacular": API,
    "duckdb": ("profiles.sql.*", "profiles.store.*"),
    "google": ("profiles.ingest.*",),
    "helion": ("tuner.cache.shared",),
    "httpx2": ("webapp.agents.stdio",),
    "isal": ("profiles.ingest.*", "profiles.downloads.*", "profiles.timeline.*"),
    "jwt": ("webapp.forges.github",),
    "knox": ("webapp.*",),
    "markdown_it": ("webapp.frame.documents", "webapp.threads.texts"),
    "mcp": ("webapp.agents.*",),
    "msgspec": ("profiles.ingest.*", "profiles.exports.*", "profiles.store.*", "profiles.fleet.feed",
                "profiles.capture.result_services", "workers.agent.*", "webapp.answer_schema"),
    "ncu_report": ("profiles.ingest.ncu.ncu_child",),
    "numpy": ("profiles.*", "tuner.*", "workers.*", "webapp.examples.*"),
    "opentelemetry": ("workers.metrics.otlp", "workers.spans"),
    "packaging": ("webapp.supply.archive",),
    "prometheus_client": ("workers.metrics.prometheus", "webapp.operate.observed"),
    "pip": ("workers.code.sdist",),
    "psutil": ("webapp.*", "workers.*"),
    "psycopg": ("webapp.*", "workers.away"),
    "pyarrow": ("profiles.*",),
    "pythonjsonlogger": ("webapp.logs",),
    "pydantic": ("webapp.agents.tools.*",),
    "pynvml": ("tuner.tuning.measure.nvml", "workers.clocks.driver"),
    "pytest": ("tuner.gate.pytest_plugin",),
    "redis": ("tuner.tuning.measure.remote_cache", "webapp.*", "workers.*"),
    "requests": ("webapp.people.*",),
    "rest_framework": API,
    "ridgepoint_client": ("tuner.cache.listener", "tuner.cache.shared"),
    "rq": ("webapp.*", "workers.*"),
    "scipy": ("tuner.gate.stats.*", "tuner.tuning.search.*"),
    "threadpoolctl": ("tuner.tuning.search.*",),
    "torch": ("tuner.bring.child", "tuner.bring.calls.*", "tuner.bring.cuda.child", "tuner.bring.cuda.recorder",
              "tuner.bring.cuda.session", "tuner.bring.travel.measuring", "tuner.candidates.judge.*",
              "tuner.tuning.kernels.*",
              "tuner.tuning.measure.*", "tuner.tuning.team.*",
              "workers.capture.torch_capture",
              "workers.capture.proton_capture", "workers.targets.*"),
    "triton": ("tuner.bring.child", "tuner.bring.calls.*", "tuner.candidates.judge.*", "tuner.tuning.kernels.*",
               "tuner.tuning.measure.*", "tuner.cache.listener", "tuner.cache.shared", "workers.capture.proton_capture"),
    "uvicorn": ("webapp.*",),
    "whitenoise": ("webapp.*",),
    "storages": ("webapp.backup.stores",),
    "setuptools": ("workers.agent.setup", "workers.agent.injection.setup"),
    "zstandard": ("profiles.ingest.*", "workers.agent.*"),
}
CORE = (          # plain Python without Django, servers or GPUs: it runs anywhere, and its tests need nothing
    "profiles.ingest*",
    "profiles.analysis*",
    "profiles.capture.tools*", "profiles.capture.command",
    "tuner.candidates.answer", "tuner.candidates.diffs", "tuner.candidates.judge*",
    "tuner.candidates.verdicts",
    "tuner.clocks.wish", "workers.clocks.driver", "workers.clocks.guardian", "workers.clocks.held",
    "tuner.tuning*",
    "tuner.cache.rules", "tuner.cache.buckets", "tuner.cache.default_check", "tuner.cache.portability", "tuner.cache.formats*",
    "tuner.cache.client", "tuner.cache.listener", "tuner.cache.shared", "tuner.cache.serve.resolve", "tuner.gate.stats*",
    "tuner.gate.reports*",
    "tuner.gate.production.series",
    "tuner.gate.client", "tuner.gate.options", "profiles.base*", "workers.fresh.processes", "workers.agent*",
    "profiles.fleet.demo", "profiles.fleet.feed", "profiles.fleet.merge", "profiles.fleet.slow.compared",
    "profiles.fleet.slow.compared", "profiles.fleet.slow.slow_gpus",
    "profiles.fleet.store", "profiles.fleet.tables")
PAGES = ("*.pages", "*_pages", "*.api", "*_api", "*.forms")         # what people and programs see: only its like imports it


@dataclass(frozen=True)
class Import:
    path: Path
    line: int
    importer: str
    imported: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.importer} imports {self.imported}"


def modules() -> Iterator[tuple[str, Path]]:
    for package in OURS:
        for path in sorted((ROOT / package).rglob("*.py")):
            dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield dotted.removesuffix(".__init__"), path


def imports(module: str, path: Path, known: set[str]) -> Iterator[Import]:
    """Every import of a file, those inside functions too; `from a import b` counts as a.b where that is a module.

    So does a module that a table names for later: `Reader("…", "profiles.ingest.ncu.report")`.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in importing(path.read_text()):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            origin = ".".join(filter(None, (base, node.module)))
            inner = [f"{origin}.{alias.name}" for alias in node.names]
            names = [name if name in known else origin for name in inner]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reader":
            names = [word.value for word in node.args if isinstance(word, ast.Constant) and word.value in known]
        for name in dict.fromkeys(names):
            yield Import(path, node.lineno, module, name)


def importing(text: str) -> Iterator[ast.AST]:
    """Yield the imports of a file, and the calls in one that names Reader; elsewhere no expression is looked at: twice as fast."""
    tree = ast.parse(text)
    if "Reader(" in text:
        yield from ast.walk(tree)
        return
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.expr):
            waiting.extend(ast.iter_child_nodes(node))


@cache
def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@cache
def feature_of(module: str) -> str | None:
    """Return the feature that a module belongs to; None where no row says."""
    for feature, patterns in MEMBERS.items():
        if matches(module, patterns):
            return feature
    inside = [feature for feature in ARROWS if feature not in MEMBERS and (module == feature or module.startswith(feature + "."))]
    return max(inside, key=len, default=None)


def is_top(module: str) -> bool:
    return matches(module, TOP)


def is_migration(module: str) -> bool:
    return ".migrations" in module


def is_bare_package(module: str, path: Path) -> bool:
    """Return whether this is a folder's `__init__.py` that imports nothing: it only holds features."""
    body = ast.parse(path.read_text()).body if path.name == "__init__.py" else []
    return path.name == "__init__.py" and not any(isinstance(node, ast.Import | ast.ImportFrom) for node in body)


def may_import(importer: str, imported: str) -> bool:
    """Return whether one module of ours may import another."""
    if is_top(importer):
        return True
    if is_top(imported):
        return False
    mine, other = feature_of(importer), feature_of(imported)
    if mine is None or other is None:
        return False
    if other == BASE:
        return not matches(importer, ALONE)
    if matches(imported, PAGES) and not matches(imported, CORE) and not matches(importer, PAGES):
        return False
    return mine == other or other in ARROWS[mine].split()


@cache
def all_imports() -> list[Import]:
    known = dict(modules())
    return [each for module, path in known.items() if not is_migration(module) for each in imports(module, path, set(known))]


def lines(wrong: list[Import]) -> str:
    return "\n" + "\n".join(f"{each}   ({feature_of(each.importer)} → {feature_of(each.imported)})" for each in wrong)


def test_every_module_belongs_to_a_feature() -> None:
    homeless = [module for module, path in modules()
                if not (is_top(module) or is_migration(module) or feature_of(module) or is_bare_package(module, path))]
    assert not homeless, f"say in ARROWS or MEMBERS where these belong: {homeless}"


@pytest.mark.slow
def test_imports_follow_the_arrows() -> None:
    bare = {module for module, path in modules() if is_bare_package(module, path)}
    wrong = [each for each in all_imports() if each.imported.split(".")[0] in OURS and each.imported not in bare
             and not may_import(each.importer, each.imported)]
    assert not wrong, lines(wrong)


def test_arrows_point_up() -> None:
    """A feature needs only those above it in the table, so no two need each other."""
    order = list(ARROWS)
    wrong = [(feature, other) for feature in order for other in ARROWS[feature].split()
             if other not in order[: order.index(feature)]]
    assert not wrong


@pytest.mark.slow
def test_no_row_is_dead() -> None:
    used = {(feature_of(each.importer), feature_of(each.imported)) for each in all_imports() if not is_top(each.importer)}
    dead = [(feature, other) for feature, row in ARROWS.items() for other in row.split() if (feature, other) not in used]
    assert not dead, f"arrows that nothing uses: {dead}"
    every = [module for module, _ in modules()]
    empty = [feature for feature in ARROWS if not any(feature_of(module) == feature for module in every)]
    patterns = [pattern for row in (*MEMBERS.values(), CORE, TOP, PAGES) for pattern in row]
    unmatched = [pattern for pattern in patterns if not any(matches(module, (pattern,)) for module in every)]
    assert not empty and not unmatched, f"rows without a module: {empty} {unmatched}"
    thirds = {(each.imported.split(".")[0], each.importer) for each in all_imports()}
    idle = [(package, pattern) for package, row in PACKAGES.items() for pattern in row
            if not any(name == package and matches(module, (pattern,)) for name, module in thirds)]
    assert not idle, f"packages that nothing of these imports: {idle}"


def test_packages_are_imported_where_they_belong() -> None:
    def allowed(each: Import) -> bool:
        top = each.imported.split(".")[0]
        return top in sys.stdlib_module_names or top in OURS or matches(each.importer, PACKAGES.get(top, ()))

    wrong = [each for each in all_imports() if not allowed(each)]
    assert not wrong, lines(wrong)


def test_the_core_knows_no_framework() -> None:
    frameworks = {"django", "rest_framework", "drf_spectacular", "channels", "rq", "psycopg", "bokeh"}
    wrong = [each for each in all_imports() if matches(each.importer, CORE) and each.imported.split(".")[0] in frameworks]
    assert not wrong, lines(wrong)


def test_migrations_import_no_application_code() -> None:
    known = dict(modules())
    wrong = [each for module, path in known.items() if is_migration(module) for each in imports(module, path, set(known))
             if (top := each.imported.split(".")[0]) not in sys.stdlib_module_names and top not in MIGRATIONS
             and not is_migration(each.imported)]
    assert not wrong, lines(wrong)


def test_nobody_outside_imports_what_is_not_a_package() -> None:
    """Product code never reaches into tests or benchmarks."""
    wrong = [each for each in all_imports() if each.imported.split(".")[0] in OUTSIDE_OURS]
    assert not wrong, lines(wrong)


def test_no_folder_holds_more_than_a_person_takes_in() -> None:
    held = Counter(path.parent for package in (*OURS, "bench", "tests") for path in (ROOT / package).rglob("*.py")
                   if path.name != "__init__.py" and "migrations" not in path.parts)
    crowded = {str(folder.relative_to(ROOT)): number for folder, number in held.items() if number > MOST_MODULES}
    assert not crowded


@pytest.mark.parametrize(("source", "expected"), [
    ("import torch", ["torch"]),
    ("from profiles.ingest import trace", ["profiles.ingest.trace"]),
    ("from profiles.ingest.trace import Trace", ["profiles.ingest.trace"]),
    ("def f():\n    from profiles.ingest import read", ["profiles.ingest"]),
    ("from . import gpus", ["profiles.analysis.core.gpus"]),
])
def test_the_parser_sees_every_form_of_import(tmp_path: Path, source: str, expected: list[str]) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(source)
    known = {"profiles.ingest.trace", "profiles.ingest", "profiles.analysis.core.gpus"}
    assert [each.imported for each in imports("profiles.analysis.core.kernels", path, known)] == expected


def test_a_wrong_import_is_refused() -> None:
    assert not may_import("profiles.analysis.core.kernels", "profiles.ingest.chrome.kineto")
    assert not may_import("profiles.upload.services", "tuner.models")
    assert not may_import("tuner.tuning.search.loop", "webapp.settings")
    assert not may_import("tuner.gate.verdicts.selectors", "tuner.gate.verdicts.pages")
    assert may_import("profiles.analysis.core.kernels", "profiles.ingest.trace")
    assert not matches("tuner.tuning.search.loop", PACKAGES["torch"]) and matches("tuner.tuning.measure.timing", PACKAGES["torch"])
