"""What docs/deploy holds is what Compose, Helm, Kubernetes and systemd take; its commands, queues and variables are there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml
from click.testing import CliRunner, Result

from tests.product import PROJECT
from workers import jobs

FOLDER = PROJECT / "docs" / "deploy"
CHART, COMPOSE, UNITS = FOLDER / "chart", FOLDER / "compose.yaml", sorted((FOLDER / "systemd").iterdir())
ANALYZE = shutil.which("systemd-analyze")
VARIABLES = set(re.findall(r"\bRIDGEPOINT_[A-Z0-9_]+", (PROJECT / "webapp/settings.py").read_text()))
COMMANDS = {path.stem for path in (PROJECT / "webapp/management/commands").glob("*.py")}


def check_command(words: list[str]) -> None:
    """Fail where manage.py has no such command, or a worker no such queue."""
    assert words[:2] == ["python", "manage.py"] and words[2] in COMMANDS, words
    if words[2] == "worker":
        assert words[3:] and set(words[3:]) <= set(jobs.QUEUES), words


def render(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of the chart."""
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render(values, name="guard", namespace="perf", is_install=True)
    return [each for text in files.values() for each in yaml.safe_load_all(text) if each]


def containers(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in documents:
        if each["kind"] in ("Deployment", "Job"):
            yield from each["spec"]["template"]["spec"]["containers"]


def test_compose_follows_the_schema_of_its_specification(tmp_path: Path) -> None:
    import check_jsonschema  # takes longest of all that tests import: only where it is asked

    def check(path: Path) -> Result:
        return CliRunner().invoke(check_jsonschema.main, ["--builtin-schema", "vendor.compose-spec", str(path)])

    found = check(COMPOSE)
    assert found.exit_code == 0, found.output
    (tmp_path / "wrong.yaml").write_text(COMPOSE.read_text().replace("restart: unless-stopped", "restarts: unless-stopped"))
    found = check(tmp_path / "wrong.yaml")
    assert found.exit_code == 1 and "restarts" in found.output


def test_compose_starts_what_there_is() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    ours = {name: each for name, each in services.items() if "ridgepoint" in each["image"]}
    assert set(ours) == {"migrate", "web", "ingest", "replay", "messages", "gpu"}
    for each in ours.values():
        check_command(each["command"])
        assert {name for name in each["environment"] if name.startswith("RIDGEPOINT_")} <= VARIABLES
    queues = [queue for each in ours.values() if each["command"][2] == "worker" for queue in each["command"][3:]]
    assert sorted(jobs.served_by(queues)) == sorted(set(jobs.QUEUES) - {"compile"}) and len(set(queues)) == len(queues)
    chart = yaml.safe_load((CHART / "values.yaml").read_text())["workers"]
    for commands in ([each["command"][3:] for each in ours.values()], [each["queues"] for each in chart.values()]):
        assert sum(jobs.SMALL in jobs.served_by(each) for each in commands) >= 2        # no large file holds up the small ones
    said = set(re.findall(r"^(\w+)=", (FOLDER / "environment").read_text(), re.M))
    assert set(re.findall(r"\$\{(\w+)", COMPOSE.read_text())) - {"RIDGEPOINT_VERSION"} <= said
    assert {name for name in said if name.startswith("RIDGEPOINT_")} - {"RIDGEPOINT_HOST"} <= VARIABLES


def test_helm_finds_nothing_in_the_chart() -> None:
    told = helm_python.lint(CHART, strict=True)
    assert not told["errors"] and [each["error"] for each in told["messages"] if each["severity"] > 1] == []
    version = re.search(r'^version = "(.+)"', (PROJECT / "pyproject.toml").read_text(), re.M)
    assert version and yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version[1]


@pytest.mark.parametrize("values", [
    {}, {"ingress": {"enabled": False}}, {"prefix": "/perf", "host": "guard.example"},
    {"workers": {"gpu": {"queues": ["gpu"], "replicas": 2, "image": "ridgepoint-gpu:1", "scratch": "50Gi",
                         "resources": {"limits": {"nvidia.com/gpu": 1}}}}}], ids=["as it is", "no ingress", "below a path", "gpu"])
def test_kubernetes_takes_what_the_chart_renders(values: dict[str, Any]) -> None:
    import kubernetes_validate  # half a second, of which no other test is to know

    documents = render(values)
    for each in documents:
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
    kinds = [each["kind"] for each in documents]
    assert {"Deployment", "Service", "Job", "PodDisruptionBudget"} <= set(kinds)
    assert ("Ingress" in kinds) == values.get("ingress", {}).get("enabled", True)
    for container in containers(documents):
        check_command(container["command"])
        names = {each["name"] for each in container["env"]}
        assert {name for name in names if name.startswith("RIDGEPOINT_")} <= VARIABLES
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
    services = [each for each in documents if each["kind"] == "Service"]
    (web,) = [each for each in documents if each["kind"] == "Deployment" and each["metadata"]["name"] == "guard-web"]
    assert services[0]["spec"]["selector"].items() <= web["spec"]["template"]["metadata"]["labels"].items()


def test_kubernetes_refuses_a_wrong_chart() -> None:
    import kubernetes_validate

    (web, *_) = [each for each in render({}) if each["kind"] == "Deployment"]
    web["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(web, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.process
@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed (Debian: systemd)")
def test_systemd_has_nothing_to_say_of_the_units(tmp_path: Path) -> None:
    def verify(change: str = "") -> tuple[int, list[str]]:
        made = []
        for unit in UNITS:
            text = unit.read_text().replace("/opt/ridgepoint/.venv/bin/python", sys.executable)
            path = tmp_path / unit.name.replace("@", "@ingest")
            path.write_text(text.replace("RestartSec=2", change or "RestartSec=2").replace("file:///opt/ridgepoint", f"file://{PROJECT}"))
            made.append(str(path))
        said = subprocess.run([str(ANALYZE), "verify", *made], capture_output=True, text=True, timeout=60)
        return said.returncode, [line for line in said.stderr.splitlines() if "ridgepoint" in line]

    assert verify() == (0, [])
    assert any("soon" in line for line in verify("RestartSec=soon")[1])       # it does read what it is given


def test_units_start_what_there_is() -> None:
    for unit in UNITS:
        (line,) = re.findall(r"^ExecStart=(.+)$", unit.read_text(), re.M)
        command = re.search(r"manage\.py (\w+)", line)
        assert command and command[1] in COMMANDS
    worker = (FOLDER / "systemd/ridgepoint-worker@.service").read_text()
    for instance in re.findall(r"@([a-z-]+)", worker.splitlines()[0]):
        assert set(instance.split("-")) <= set(jobs.QUEUES)


FAKE = """#!/bin/sh
echo "${0##*/} $*" >> "$SAID"
case "${0##*/} $*" in
    "python -c"*) echo "$INCLUDE" ;;
    *gcc*"-x c"*) cat > "$SAID.c" ;;
esac
"""


@pytest.mark.parametrize(("extras", "headers", "installs"), [
    ("", True, []), ("cuda", True, []), ("gpu", True, ["gcc libc6-dev"]), ("cuda gpu", True, ["gcc libc6-dev"]),
    ("gpu", False, ["gcc libc6-dev", "python3-dev"])])
def test_the_gpu_image_brings_a_compiler_and_tries_it(tmp_path: Path, extras: str, headers: bool, installs: list[str]) -> None:
    """Without one the first launch of a Triton kernel fails. The programs of the step are stand-ins that write down their calls."""
    (step,) = re.findall(r'^RUN (case " \$EXTRAS.+?esac)$', (PROJECT / "Dockerfile").read_text(), re.M | re.S)
    programs, said = tmp_path / "programs", tmp_path / "said"
    programs.mkdir()
    (tmp_path / "include").mkdir()
    for name in ("apt-get", "gcc", "rm", "python"):
        (programs / name).write_text(FAKE)
        (programs / name).chmod(0o755)
    if headers:
        (tmp_path / "include" / "Python.h").touch()
    cat = shutil.which("cat")
    assert cat
    (programs / "cat").symlink_to(cat)
    done = subprocess.run(["/bin/sh", "-c", step], capture_output=True, text=True, env={
        "PATH": str(programs), "EXTRAS": extras, "SAID": str(said), "INCLUDE": str(tmp_path / "include")})
    assert done.returncode == 0, done.stderr
    calls = said.read_text().splitlines() if said.exists() else []
    assert [call.removeprefix("apt-get install -y --no-install-recommends ") for call in calls
            if call.startswith("apt-get install")] == installs
    assert [f"-I{tmp_path / 'include'}" in call for call in calls if call.startswith("gcc")] == [True] * bool(installs)
    assert not installs or said.with_name("said.c").read_text() == "#include <Python.h>\n"
