"""Who may import whom, and nothing else. The table is the architecture; ARCHITECTURE.md explains it.

A module belongs to the first layer whose pattern matches it. It may import its own layer's modules, the layers and
modules its row names, the standard library, and of third-party packages only what the row names. "*" is everything.
"""

from __future__ import annotations

import ast
import fnmatch
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("profiles", "tuner", "webapp", "workers")
OUTSIDE_OURS = ("tests", "bench", "var", ".venv", "build", "static", "templates", "docs")

NUMERIC = ("numpy", "pyarrow")
PARSING = (*NUMERIC, "msgspec", "isal", "zstandard", "ncu_report", "google", "perfetto")
ROWS = ("django", "psycopg")
WEB = ("django", "rest_framework", "drf_spectacular")


@dataclass(frozen=True)
class Layer:
    name: str
    modules: tuple[str, ...]            # patterns of dotted names
    ours: tuple[str, ...] = ()          # patterns of our modules that it may import
    packages: tuple[str, ...] = ()      # third-party packages that it may import


LAYERS = [
    # profiles: core
    Layer("trace", ("profiles.trace", "profiles.windows", "profiles.spool", "profiles.scratch"), packages=NUMERIC),
    Layer("ingest", ("profiles.ingest", "profiles.ingest.*"),
          ours=("profiles.trace", "profiles.windows", "profiles.spool", "profiles.scratch",
                "profiles.analysis.names", "profiles.analysis.sections"),      # what a collective, what a label is called
          packages=PARSING),
    Layer("gate statistics", ("profiles.analysis.gate", "profiles.analysis.gate.*"), packages=("numpy", "scipy", "ruptures")),
    Layer("analysis", ("profiles.analysis", "profiles.analysis.*"),
          ours=("profiles.trace", "profiles.windows", "profiles.spool"), packages=NUMERIC),
    # tuner: core
    Layer("trial and space", ("tuner.trial", "tuner.space"), packages=NUMERIC),
    Layer("GPU child", ("tuner.kernels", "tuner.kernels.*", "tuner.bench.timing", "tuner.bench.timers",
                        "tuner.bench.accuracy", "tuner.bench.child", "tuner.bench.counted",
                        "tuner.bench.nvml", "tuner.bench.device", "tuner.bench.session", "tuner.bench.ceilings",
                        "tuner.bench.ceilings_child", "tuner.team.problem", "tuner.team.child",
                        "tuner.bench.offline", "tuner.bench.compiler", "tuner.bench.remote_cache"),
          ours=("tuner.team.adapter", "tuner.team.packages", "tuner.trial", "tuner.space", "tuner.operators*", "tuner.cache",
                "tuner.bench.*", "profiles.analysis.gpus", "profiles.analysis.occupancy"),
          packages=(*NUMERIC, "torch", "triton", "pynvml", "redis")),
    Layer("search", ("tuner.loop", "tuner.line", "tuner.prune", "tuner.finalists", "tuner.cache", "tuner.buckets", "tuner.guard",
                     "tuner.portability",
                     "tuner.strategies", "tuner.strategies.*", "tuner.operators", "tuner.operators.*",
                     "tuner.bench", "tuner.bench.*"),
          ours=("tuner.trial", "tuner.space", "profiles.analysis.gpus"),
          packages=(*NUMERIC, "scipy", "sklearn", "threadpoolctl", "msgspec", "isal")),
    Layer("formats", ("tuner.formats", "tuner.formats.*"), ours=("tuner.trial", "tuner.space", "tuner.cache", "tuner.buckets")),
    Layer("scores", ("tuner.scores", "tuner.scores.methodology", "tuner.scores.arena"),
          ours=("tuner.trial", "tuner.space", "tuner.loop", "tuner.strategies*", "tuner.bench.*"),
          packages=(*NUMERIC, "scipy", "sklearn")),
    Layer("client", ("tuner.client",)),                               # one file that jobs copy
    Layer("gate client", ("tuner.gate_client",)),                     # one file that pipelines copy
    Layer("listener", ("tuner.listener",), ours=("tuner.client",), packages=("triton", "ridgepoint_client")),
    Layer("snapshots", ("tuner.served.resolve",), ours=("tuner.cache", "tuner.buckets", "tuner.trial")),
    Layer("team kernels", ("tuner.team.adapter", "tuner.team.expressions", "tuner.team.description", "tuner.team.packages"),
          ours=("tuner.operators*", "tuner.space", "tuner.trial")),
    # rows and the store
    Layer("theme", ("profiles.theme",), packages=("bokeh",)),
    Layer("queues", ("workers.jobs",), packages=("django", "redis", "rq", "channels", "asgiref")),
    Layer("profiles rows", ("profiles.models", "profiles.*_models",
                               "profiles.rows", "profiles.store", "profiles.store.*",
                            "profiles.progress"),
          ours=("profiles.trace", "profiles.windows", "profiles.spool", "profiles.scratch", "profiles.analysis*", "workers.jobs"),
          packages=(*ROWS, *PARSING, "duckdb")),
    Layer("tuner rows", ("tuner.models", "tuner.rows", "tuner.*.models"),
          ours=("tuner.trial", "tuner.space", "profiles.models"), packages=ROWS),
    # the process of a query and what stands between it and the web: no Django
    Layer("queries", ("profiles.sql.child", "profiles.sql.check", "profiles.sql.walls", "profiles.sql.process",
                      "profiles.sql.cells", "profiles.sql.tables", "profiles.sql.examples"),
          ours=("profiles.trace",), packages=("duckdb", "pyarrow")),
    # what people and programs see of profiles (first: its names are more special)
    Layer("profiles pages", ("profiles.pages", "profiles.api", "profiles.*.pages", "profiles.*.api", "profiles.*_pages",
                             "profiles.*_api", "profiles.*.forms", "profiles.admin"),
          ours=("profiles.services*", "profiles.*.services", "profiles.*_services", "profiles.selectors*", "profiles.*.selectors",
                "profiles.*_selectors", "profiles.charts*", "profiles.*.charts", "profiles.models", "profiles.trace",
                "profiles.exports.*", "profiles.capture.*", "profiles.report.markdown", "profiles.store.area",
                "profiles.store.area_columns",
                "profiles.analysis.*", "profiles.store.timeline", "profiles.sql.*", "profiles.topics*",
                "workers.jobs"),      # types of its selectors
          packages=(*WEB, "numpy", "asgiref")),
    Layer("profiles charts", ("profiles.charts*", "profiles.*.charts"),
          ours=("profiles.analysis*", "profiles.trace", "profiles.theme"),
          packages=("bokeh", "numpy")),
    Layer("topics", ("profiles.topics", "profiles.topics.*"),
          ours=("profiles.analysis*", "profiles.trace", "profiles.models", "profiles.rows", "profiles.store*",
                "profiles.selectors*", "profiles.charts*", "workers.jobs"),
          packages=(*ROWS, *NUMERIC)),
    # services and selectors
    Layer("profiles services", ("profiles.services", "profiles.services_*", "profiles.*.services", "profiles.*_services",
                                "profiles.selectors*", "profiles.*.selectors", "profiles.*_selectors", "profiles.ingested",
                                "profiles.capture*", "profiles.exports*", "profiles.report.markdown", "profiles.management.*",
                                "profiles.sql.views", "profiles.sql.inside", "profiles.sql.tracks"),
          ours=("profiles.trace", "profiles.ingest*", "profiles.analysis*", "profiles.models", "profiles.rows",
                "profiles.store*", "profiles.progress", "profiles.sql.*", "profiles.topics*", "workers.jobs"),
          packages=(*ROWS, *PARSING, "psutil")),
    Layer("what trials tell", ("tuner.jobs.insight", "tuner.jobs.comparison"), ours=("tuner.trial",), packages=NUMERIC),
    Layer("tuner services", ("tuner.*.services", "tuner.*.selectors", "tuner.*_services", "tuner.*_selectors", "tuner.jobs.*_rows",
                             "tuner.jobs.devices", "tuner.jobs.efforts", "tuner.texts", "tuner.management.*"),
          ours=("tuner.*", "profiles.analysis.gpus", "profiles.analysis.gate*", "profiles.models", "profiles.families.*_selectors",
                "profiles.selectors.lists", "profiles.selectors.builds", "profiles.capture.services", "profiles.capture.selectors",
                "profiles.capture.*_selectors", "workers.jobs"),
          packages=(*ROWS, *NUMERIC)),
    Layer("suites as files", ("tuner.suites.definition", "tuner.suites.checks", "tuner.suites.toml", "tuner.suites.lines",
                              "tuner.suites.records", "tuner.suites.orders", "tuner.suites.errors"),
          ours=("tuner.operators*", "tuner.trial", "tuner.bench.policy", "profiles.analysis.gate*")),
    Layer("messages to the outside", ("tuner.notify.webhook",)),
    Layer("secrets at rest", ("tuner.notify.secret",), packages=("django", "cryptography")),
    Layer("gate reports", ("tuner.gates.reports", "tuner.gates.reports.*"), ours=("profiles.analysis.gate*",)),
    # what people and programs see
    Layer("tuner charts", ("tuner.*.charts", "tuner.*_charts"),
          ours=("tuner.trial", "tuner.space", "tuner.loop", "tuner.operators*", "tuner.jobs.comparison", "profiles.theme",
                "profiles.analysis.gate*"),
          packages=("bokeh", "numpy")),
    Layer("tuner pages", ("tuner.*.pages", "tuner.*.api", "tuner.*_pages", "tuner.*_api",
                          "tuner.*.forms", "tuner.*_forms", "tuner.admin"),
          ours=("tuner.*.services", "tuner.*_services", "tuner.*.selectors", "tuner.*_selectors", "tuner.*.charts",
                "tuner.*_charts", "tuner.models", "tuner.jobs.devices", "tuner.jobs.efforts", "tuner.texts", "tuner.operators*",
                "tuner.strategies*", "tuner.trial", "tuner.cache", "tuner.bench.policy", "tuner.buckets",
                "tuner.formats", "tuner.gates.reports*", "tuner.suites.definition", "tuner.suites.checks", "tuner.suites.toml",
                "tuner.suites.lines", "tuner.suites.errors", "profiles.analysis.gate*", "workers.jobs"),
          packages=WEB),
    # what workers run
    Layer("GPU side of workers", ("workers.sandbox", "workers.child", "workers.gpu_child", "workers.compilers", "workers.gpu",
                                   "workers.facts", "workers.ceilings_bench", "workers.fresh",
                                   "workers.clocks", "workers.counted"),
          ours=("tuner.bench.*", "tuner.trial", "tuner.space", "tuner.operators*", "tuner.team.packages",
                "profiles.ingest.nsys_tool", "profiles.capture.command", "profiles.capture.options"),
          packages=("pynvml",)),
    Layer("programs that captures run", ("workers.targets", "workers.targets.*", "workers.torch_capture"), ours=("tuner.kernels*",),
          packages=("torch", "triton", "numpy")),
    Layer("workers", ("workers.*",),
          ours=("workers.*", "profiles.models", "profiles.services", "profiles.*_services", "profiles.capture.*", "profiles.trace",
                "profiles.scratch", "profiles.ceilings.services", "profiles.*.services", "profiles.analysis*", "tuner.*"),
          packages=("django", "redis", "rq", "psutil", "numpy")),
    Layer("Django's own", ("profiles.apps", "tuner.apps", "workers.apps", "*.migrations", "*.migrations.*",
                           "profiles", "profiles.actions", "profiles.advice", "profiles.ceilings", "profiles.families",
                           "profiles.rooflines", "profiles.notes",
                           "profiles.occupancy", "profiles.report", "profiles.source", "profiles.sql", "profiles.timeline",
                           "tuner", "tuner.suites", "tuner.gates", "tuner.baselines", "tuner.notify", "tuner.builds",
                           "tuner.environments", "tuner.jobs",
                           "tuner.configs", "tuner.served", "tuner.team", "workers", "*.management",
                           "*.management.commands"),
          ours=("tuner.operators", "tuner.team.selectors",       # an app registers teams' operators when Django is ready
                "tuner.notify.secret"),                          # a migration seals what stood in the clear
          packages=("django",)),
    # nobody imports it but Django, manage.py and tests
    Layer("embedded servers", ("webapp.embedded", "webapp.embedded.*"), ours=("webapp.embedded*",)),
    Layer("webapp", ("webapp", "webapp.*"), ours=("*",), packages=("*",)),
]
NEVER = {       # stated apart, because they are the rules that matter most
    "profiles.analysis": ("profiles.ingest",),
    "profiles": ("tuner", "webapp"),
    "tuner": ("webapp",),
    "workers": ("webapp",),
}


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
    """Every import of a file, those inside functions too; `from a import b` counts as a.b where that is a module."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            origin = ".".join(filter(None, (base, node.module)))
            inner = [f"{origin}.{alias.name}" for alias in node.names]
            names = [name if name in known else origin for name in inner]
        for name in dict.fromkeys(names):
            yield Import(path, node.lineno, module, name)


def layer_of(module: str) -> Layer | None:
    return next((layer for layer in LAYERS if matches(module, layer.modules)), None)


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def allowed(found: Import, layer: Layer) -> bool:
    top = found.imported.split(".")[0]
    if top in sys.stdlib_module_names:
        return True
    if top in OURS:
        return layer_of(found.imported) is layer or matches(found.imported, layer.ours)
    return matches(top, layer.packages)


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@cache
def all_imports() -> list[Import]:
    known = dict(modules())
    return [found for module, path in known.items() for found in imports(module, path, set(known))]


def test_every_module_has_a_layer() -> None:
    homeless = [module for module, _ in modules() if layer_of(module) is None]
    assert not homeless, f"say in LAYERS where these belong: {homeless}"


def test_imports_follow_the_table() -> None:
    wrong = [found for found in all_imports() if (layer := layer_of(found.importer)) and not allowed(found, layer)]
    assert not wrong, "\n" + "\n".join(f"{each}   (its layer: {layer_of(each.importer).name})" for each in wrong)


def test_the_arrows_that_never_turn() -> None:
    wrong = [found for found in all_imports() for package, never in NEVER.items()
             if inside(found.importer, package) and any(inside(found.imported, name) for name in never)]
    assert not wrong, "\n" + "\n".join(map(str, wrong))


def test_nobody_outside_imports_what_is_not_a_package() -> None:
    """Product code never reaches into tests or benchmarks."""
    wrong = [found for found in all_imports() if found.imported.split(".")[0] in OUTSIDE_OURS]
    assert not wrong, "\n" + "\n".join(map(str, wrong))


@pytest.mark.parametrize(("source", "expected"), [
    ("import torch", ["torch"]),
    ("from profiles import trace", ["profiles.trace"]),
    ("from profiles.trace import Trace", ["profiles.trace"]),
    ("def f():\n    from profiles.ingest import read", ["profiles.ingest"]),
    ("from . import gpus", ["profiles.analysis.gpus"]),
])
def test_the_parser_sees_every_form_of_import(tmp_path: Path, source: str, expected: list[str]) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(source)
    known = {"profiles.trace", "profiles.ingest", "profiles.analysis.gpus"}
    assert [found.imported for found in imports("profiles.analysis.kernels", path, known)] == expected


def test_a_wrong_import_is_refused() -> None:
    def may(importer: str, imported: str) -> bool:
        layer = layer_of(importer)
        assert layer is not None
        return allowed(Import(ROOT, 1, importer, imported), layer)

    assert not may("profiles.analysis.kernels", "profiles.ingest.kineto")
    assert not may("profiles.ingest.kineto", "django.db")
    assert not may("tuner.loop", "torch")
    assert not may("profiles.services", "tuner.models")
    assert may("tuner.bench.timing", "torch")
    assert may("profiles.analysis.kernels", "profiles.trace")
