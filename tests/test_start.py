"""What a process of Ridgepoint imports: what is heavy loads where it is used, so that commands, workers and children start at once.

No time is taken here; `make bench` holds the budgets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parent.parent
OURS = ("profiles", "tuner", "webapp")
HEAVY = ("scipy", "sklearn", "bokeh", "duckdb", "torch", "webapp.urls")
COMMANDS = sorted(name for name, app in get_commands().items() if app in OURS)


def heavy_after(code: str, *heavy: str, env: dict[str, str] | None = None) -> list[str]:
    """Which of the `heavy` modules a fresh interpreter holds after `code`; its other output is passed over."""
    told = f"\nimport json, sys\nprint('\\n' + json.dumps([each for each in {heavy!r} if each in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code + told], cwd=ROOT, capture_output=True, text=True, timeout=240,
                          env={**os.environ, "DJANGO_SETTINGS_MODULE": "webapp.settings", **(env or {})})
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_all_commands_are_known() -> None:
    assert {"ingest", "tune", "gate", "serve", "web", "worker"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_starts_without_the_checks_of_every_page(name: str) -> None:
    assert load_command_class(get_commands()[name], name).requires_system_checks == []


def test_commands_and_a_worker_before_it_is_ready_import_nothing_heavy() -> None:
    """But for the search, of a GPU's worker alone: a job's first second is not spent on imports."""
    modules = ", ".join(f"{get_commands()[name]}.management.commands.{name}" for name in COMMANDS)
    code = (f"import sys, django; django.setup(); import {modules}; from workers.process import _sweep_functions\n"
            "_sweep_functions(['ingest', 'replay'])\n"
            f"assert not set({HEAVY}) & set(sys.modules), set({HEAVY}) & set(sys.modules)\n"
            "_sweep_functions(['gpu'])\n")
    assert heavy_after(code, *HEAVY) == ["scipy"]


def test_a_file_is_ingested_with_its_families_and_topics_and_no_page_is_loaded(transactional_db: None) -> None:
    """In the process of the task itself: DuckDB joins launches with their work, and nothing else of the heavy is needed."""
    from django.db import connection

    settings = connection.settings_dict
    host, port = settings["HOST"], settings["PORT"]
    code = ("import django; django.setup()\n"
            "from django.core.files.base import File\n"
            "from profiles.upload.services import profile_create\n"
            "from workers.tasks import ingest_profile\n"
            "with open('tests/data/captured/layer_trace.json.gz', 'rb') as file:\n"
            "    profile = profile_create(owner=None, file=File(file, name='trace.json.gz'), worker='start')\n"
            "ingest_profile(profile.pk)\n"
            "profile.refresh_from_db()\n"
            "assert profile.status == 'ready', profile.error\n")
    env = {"DATABASE_URL": f"postgres://{settings['USER']}@/{settings['NAME']}?host={host}&port={port}", "RQ_WORKER_ID": "start"}
    assert heavy_after(code, *(each for each in HEAVY if each != "duckdb"), env=env) == []


def test_apps_are_ready_without_operators_and_the_api() -> None:
    """Which every command, worker and child of a task would import: 300 modules, a fifth of the time."""
    assert heavy_after("import django; django.setup()", "numpy", "tuner.tuning.operators", "drf_spectacular.plumbing",
                       "rest_framework.views", "webapp.accounts", *HEAVY) == []


def test_the_web_is_ready_without_the_sdk_of_mcp() -> None:
    """It takes a second, and many servers are never asked by an agent."""
    code = "import webapp.asgi\nfrom django.urls import get_resolver\nget_resolver().url_patterns"
    assert heavy_after(code, "mcp", "schemathesis", "torch", "scipy", "sklearn", "duckdb") == []


@pytest.mark.parametrize("module", ["profiles.ingest.chrome.parallel", "profiles.ingest"])
def test_a_process_that_decodes_imports_only_the_core(module: str) -> None:
    assert heavy_after(f"import {module}", "django", "redis", "rq", "profiles.models", "workers", *HEAVY) == []


@pytest.mark.parametrize(("given", "home"), [("", ROOT / "var"), ("data", ROOT / "data"), ("/data", Path("/data"))])
def test_the_data_folder_is_absolute_and_an_empty_name_is_none(given: str, home: Path) -> None:
    """Queries run in folders of their own: a relative one was not found there."""
    told = subprocess.run([sys.executable, "-c", "from webapp import settings; print(settings.HOME)"], cwd=ROOT, text=True,
                          capture_output=True, env={**os.environ, "RIDGEPOINT_HOME": given, "RIDGEPOINT_SECRET_KEY": "none"})
    assert told.stdout.strip() == str(home), told.stderr
