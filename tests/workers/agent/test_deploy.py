"""What `workers/agent/deploy` holds is what systemd and Kubernetes take, and the agent runs as its unit says: out of a wheel, in an
environment of its own, to a running product."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import numpy as np
import pytest
import yaml

from tests.product import PROJECT, Product, clean_env, seed_database
from tests.profiles.fleet.test_robust_product import MAKE_TOKEN
from workers.agent.launches import Context, Gpu, Signature, Window, sum_durations
from workers.agent.link import Link, window_message

SOURCE = PROJECT / "workers" / "agent"
UNIT, MANIFEST = SOURCE / "deploy" / "ridgepoint-agent.service", SOURCE / "deploy" / "daemonset.yaml"
ANALYZE = shutil.which("systemd-analyze")


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`ridgepoint-agent` of the wheel in an environment of its own, which sees this one's numpy, msgspec and zstandard."""
    folder = tmp_path_factory.mktemp("agent")
    shutil.copytree(SOURCE, folder / "source", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "injection"))
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, folder], cwd=folder / "source", check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=120)
    (site,) = folder.glob("venv/lib/python*/site-packages")
    subprocess.run([sys.executable, "-m", "pip", "--python", folder / "venv", "install", "--quiet", "--no-deps", "--no-index",
                    "--disable-pip-version-check", wheel], check=True, timeout=300)
    (site / "needed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "venv" / "bin" / "ridgepoint-agent"


def settings() -> dict[str, list[str]]:
    """The unit's lines by name."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.M):
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed (Debian: systemd)")
def test_systemd_has_nothing_to_say_of_the_unit(command: Path, tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    (program, *_) = shlex.split(settings()["ExecStart"][0])
    unit.write_text(UNIT.read_text().replace(program, str(command)))
    said = subprocess.run([str(ANALYZE), "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)
    ours = [line for line in said.stderr.splitlines() if UNIT.name in line]     # units of the machine are not ours
    assert (said.returncode, ours) == (0, []), said.stderr
    unit.write_text(unit.read_text().replace("RestartSec=5", "RestartSec=soon"))
    wrong = subprocess.run([str(ANALYZE), "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)
    assert UNIT.name in wrong.stderr                                            # it does read what it is given


def test_kubernetes_takes_the_manifest() -> None:
    document = yaml.safe_load(MANIFEST.read_text())
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    document["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.process
@pytest.mark.slow
def test_the_manifest_starts_what_the_package_has_with_words_that_it_knows(command: Path) -> None:
    container = yaml.safe_load(MANIFEST.read_text())["spec"]["template"]["spec"]["containers"][0]
    helped = subprocess.run([command, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout
    program, *words = container["command"]
    assert program == command.name and all(word in helped for word in words if word.startswith("--"))
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert {"/run/ridgepoint", "/var/lib/ridgepoint-agent", str(Path(words[1]).parent)} == mounted


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    home = tmp_path / "home"
    home.mkdir()
    seed_database(home)
    own = Product(home)
    try:
        own.wait_until_up()
        yield own
    finally:
        own.stop()


@pytest.mark.process
@pytest.mark.slow
def test_the_agent_as_its_unit_starts_it_sends_what_a_job_says(command: Path, product: Product, tmp_path: Path) -> None:
    """ExecStart and the environment as systemd makes it, with the unit's folders under a test's own."""
    token = subprocess.run([sys.executable, "manage.py", "shell", "--no-imports", "-c", MAKE_TOKEN], cwd=PROJECT, text=True,
                           env=clean_env(product.home), capture_output=True, check=True, timeout=120).stdout.split()[-1]
    unit, etc, state, run = settings(), tmp_path / "etc", tmp_path / "state", tmp_path / "run"
    for folder in (etc, state, run):
        folder.mkdir()
    program, *words = shlex.split(unit["ExecStart"][0])
    assert program == f"/usr/local/bin/{command.name}" and unit["StateDirectory"] == ["ridgepoint-agent"]
    (etc / "token").write_text(token + "\n")
    (etc / "agent.env").write_text(f"RIDGEPOINT_SERVER={product.url}\nRIDGEPOINT_HOST=unit-host\n"
                                   f"RIDGEPOINT_AGENT_SOCKET={run}/agent.sock\n")
    environment = dict(line.split("=", 1) for line in (etc / Path(unit["EnvironmentFile"][0]).name).read_text().splitlines())
    environment |= {"PATH": "/usr/bin:/bin", "STATE_DIRECTORY": str(state), "RUNTIME_DIRECTORY": str(run)}
    asked = [str(command), *(word.replace("/etc/ridgepoint", str(etc)) for word in words)]
    agent = subprocess.Popen(asked, cwd="/", env=environment)
    try:
        end = time.monotonic() + 60
        while not (run / "agent.sock").exists() and time.monotonic() < end and agent.poll() is None:
            time.sleep(0.1)
        link = Link(str(run / "agent.sock"), lambda: {"kind": "state", "job": "train", "state": "collecting", "loss_pct": 0.3})
        link.start()
        sums = sum_durations(np.zeros(500, np.int64), np.full(500, 7_000), [Signature("unit_kernel", (1, 1, 1), (32, 1, 1), 0)])
        link.put(window_message(Window(Context("train", "b1", "NVIDIA H200"), Gpu("GPU-unit", "NVIDIA H200", "unit-host"),
                                       time.time_ns() - 10**9, 10**9, 10**9, sums, 0)))
        link.end()
        link.join(30)
        time.sleep(1)
        agent.terminate()                               # what is open goes to disk; the next start sends it
        assert agent.wait(30) == 0 and list(state.glob("*.batch"))
        agent = subprocess.Popen(asked, cwd="/", env=environment)
        rows: list[dict[str, object]] = []
        end = time.monotonic() + 90
        while not rows and time.monotonic() < end:
            time.sleep(1)
            rows = product.get_json("/api/fleet/top/")["rows"]
        assert [(row["kernel"], row["launches"], row["total_ns"]) for row in rows] == [("unit_kernel", 500, 3_500_000)]
        assert b"unit-host" in product.get("/fleet/agents/")[1]
    finally:
        agent.kill()
        agent.wait()
