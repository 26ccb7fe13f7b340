"""Routes, parameters and metrics of vLLM and SGLang, read out of the sources in their own wheels.

The wheels (376 MB) are downloaded without dependencies and only read. RIDGEPOINT_ENGINE_WHEELS names a folder that keeps them, and
is what asks for this test."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest

from profiles.running.engines import (
    BOOLEAN,
    INTEGER,
    LATENCIES,
    OBJECT,
    PARAMETERS,
    REQUESTS,
    START,
    STOP,
    TEXT,
    TEXTS,
    TOKENS,
    VERSIONS,
)
from workers.agent.deep.engines import start_request

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not os.environ.get("RIDGEPOINT_ENGINE_WHEELS"),
                                                   reason="set RIDGEPOINT_ENGINE_WHEELS to a folder for 376 MB of wheels")]
VERSION = {"vllm": "0.33.0", "sglang": "0.5.23"}
ROUTES = {"vllm": ["vllm/entrypoints/serve/profile/api_router.py", "vllm/entrypoints/serve/instrumentator/basic.py",
                   "vllm/entrypoints/serve/instrumentator/metrics.py"], "sglang": ["sglang/srt/entrypoints/http_server.py"]}
FIELDS = {"vllm": (ROUTES["vllm"][0], "StartProfileRequest"), "sglang": ("sglang/srt/managers/io_struct.py", "ProfileReq")}
NAMES = {"vllm": "vllm/v1/metrics/loggers.py", "sglang": "sglang/srt/observability/metrics_collector.py"}
KINDS = {"str": TEXT, "int": INTEGER, "bool": BOOLEAN, "dict[str, Any]": OBJECT, "List[str]": TEXTS}
NOT_SENT = {"sglang": {"req_type"}}         # set by SGLang itself


@cache
def wheel(name: str) -> zipfile.ZipFile:
    folder = Path(os.environ["RIDGEPOINT_ENGINE_WHEELS"])
    folder.mkdir(parents=True, exist_ok=True)
    found = list(folder.glob(f"{name}-{VERSION[name]}-*.whl"))
    if not found:
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "-q", "-d",
                               str(folder), f"{name}=={VERSION[name]}"], capture_output=True, text=True, timeout=1800)
        if done.returncode:
            pytest.skip(f"no network, or {name} is not on the registry: {done.stderr.strip()[-200:]}")
        found = list(folder.glob(f"{name}-*.whl"))
    return zipfile.ZipFile(found[0])


def source(name: str, path: str) -> str:
    return wheel(name).read(path).decode()


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_of_the_route_can_be_given_and_no_other(name: str) -> None:
    path, title = FIELDS[name]
    found = {}
    for each in ast.walk(ast.parse(source(name, path))):
        if isinstance(each, ast.ClassDef) and each.name == title:
            for field in each.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    said = ast.unparse(field.annotation).removesuffix(" | None")
                    found[field.target.id] = re.sub(r"Optional\[(.*)\]", r"\1", said)
    found = {field: said for field, said in found.items() if field not in NOT_SENT.get(name, set())}
    assert {each.name: each.kind for each in PARAMETERS[name]} == {field: KINDS[said] for field, said in found.items()}
    assert start_request(name, 3, "/traces")[1].keys() <= found.keys()


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_routes_are_there(name: str) -> None:
    text = "\n".join(source(name, path) for path in ROUTES[name])
    for route in (START, STOP, VERSIONS[name][0]):
        decorated = re.search(rf'@\w+\.(?P<method>\w+)\(\s*"{route}"(?P<more>[^)]*)\)', text)
        assert decorated, route
        methods = {"post": {"POST"}, "get": {"GET"}}.get(decorated["method"]) or set(re.findall(r'"(\w+)"', decorated["more"]))
        assert ("POST" if route in (START, STOP) else "GET") in methods
    assert '"/metrics"' in text or "metrics" in source(name, ROUTES[name][-1])


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_metrics_have_these_names(name: str) -> None:
    text = source(name, NAMES[name])
    names = set(re.findall(r'name="([\w:]+)"', text))
    assert {*LATENCIES[name].values(), TOKENS[name]} <= names
    assert {REQUESTS[name], REQUESTS[name].removesuffix("_total")} & names        # prometheus_client adds _total to a counter


def test_choices_are_those_of_the_sources() -> None:
    text = source("sglang", "sglang/srt/managers/io_struct.py")
    said = re.search(r"activities to record\. The choices are (\[.*?\])", text)
    activities = next(each for each in PARAMETERS["sglang"] if each.name == "activities")
    assert said and list(activities.choices) == ast.literal_eval(said[1])
    stages = next(each for each in PARAMETERS["sglang"] if each.name == "profile_stages")
    assert str(list(stages.choices)).replace("'", '"') in source("sglang", "sglang/srt/utils/profile_utils.py")
    assert '"torch_profiler_dir must be set' in source("vllm", "vllm/config/profiler.py")
