"""`manage.py mcp`: the same tools over standard input and output, as a process of its own that starts nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.product import PROJECT, clean_env
from tests.webapp.agents.conftest import Site
from webapp.agents.models import AgentCall
from webapp.agents.tools import TOOLS

pytestmark = [pytest.mark.servers, pytest.mark.process, pytest.mark.django_db(transaction=True)]


def parameters(home: Path, site: Site, token: str) -> Any:
    """Return the SDK's `StdioServerParameters`."""
    from mcp.client.stdio import StdioServerParameters  # here: a second of every process that collects tests

    env = clean_env(home) | {"RIDGEPOINT_URL": site.url, "RIDGEPOINT_TOKEN": token}
    return StdioServerParameters(command=sys.executable, args=[str(PROJECT / "manage.py"), "mcp"], env=env, cwd=str(PROJECT))


@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.deep_only)])
def test_a_round_trip(site: Site, alice: Any, bob: Any, token_of: Callable[..., str], tmp_path: Path, mode: str) -> None:
    from mcp.client.client import Client

    home = tmp_path / "home"
    home.mkdir()

    async def visit(token: str) -> Any:
        async with Client(parameters(home, site, token), mode=mode) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            read = await client.call_tool("list_profiles", {"limit": 3})
            write = await client.call_tool("start_tune_job", {"operator": "softmax", "shape": {"R": 8192, "C": 4096},
                                                              "device": "replay:softmax", "budget_trials": 5})
            return names, read, write, client.instructions

    names, read, write, instructions = asyncio.run(visit(token_of(alice)))
    assert names == [tool.name for tool in TOOLS] and "list_worst_kernels" in (instructions or "")
    assert read.structured_content == {"total": 0, "profiles": []} and not read.is_error
    assert write.structured_content["status"] == "queued"
    _, _, refused, _ = asyncio.run(visit(token_of(bob)))
    assert refused.is_error and "permission" in refused.content[0].text
    assert [row.tool for row in AgentCall.objects.order_by("id")] == ["list_profiles", "start_tune_job"] * 2
    assert list(home.iterdir()) == []           # no database, no key, no lock


@pytest.mark.parametrize(("env", "says"), [
    pytest.param({"RIDGEPOINT_TOKEN": "rp_x"}, "RIDGEPOINT_URL names no server", marks=pytest.mark.deep_only),
    pytest.param({"RIDGEPOINT_URL": "http://127.0.0.1:1"}, "RIDGEPOINT_TOKEN holds no token", marks=pytest.mark.deep_only),
    ({"RIDGEPOINT_URL": "http://127.0.0.1:1", "RIDGEPOINT_TOKEN": "rp_x"}, "http://127.0.0.1:1/mcp does not answer")])
def test_what_is_missing_is_said(tmp_path: Path, env: dict[str, str], says: str) -> None:
    told = run(tmp_path, env)
    assert told.returncode == 1 and says in told.stderr and "Traceback" not in told.stderr and not told.stdout


def test_a_wrong_token_is_said(site: Site, tmp_path: Path) -> None:
    told = run(tmp_path, {"RIDGEPOINT_URL": site.url, "RIDGEPOINT_TOKEN": "rp_wrong"})
    assert told.returncode == 1 and "answered 401" in told.stderr and "API token" in told.stderr and not told.stdout


def run(home: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(PROJECT / "manage.py"), "mcp"], env=clean_env(home) | env, text=True,
                          input="", capture_output=True, timeout=120, cwd=os.fspath(PROJECT))
