"""The Dockerfile builds without an engine (buildah in a chroot, on a base by mmdebstrap), and its image serves as its user."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.network import lacking
from tests.product import PROJECT
from tests.scale import deep_only
from webapp.supply.archive import source_files

TOOLS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "unshare": "util-linux"}
MISSING = [package for tool, package in TOOLS.items() if not shutil.which(tool)]
pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.deep, deep_only, pytest.mark.timeout(1500),
              pytest.mark.skipif(bool(MISSING), reason=f"not installed (Debian: {' '.join(MISSING)})"),
              pytest.mark.skipif(lacking() is not None, reason=lacking() or "")]
AS_DOCKERS_BASE = "ln -sf python3 /usr/bin/python; rm -f /usr/lib/python3*/EXTERNALLY-MANAGED"
# in namespaces of its own: mounts and processes end with the shell
START = r"""
set -e
mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; ip link set lo up
run() { chroot --userspec=10001:10001 "$0" env -i PATH=/usr/local/bin:/usr/bin:/bin RIDGEPOINT_HOME=/data RIDGEPOINT_SIGN_IN=1 \
    PYTHONDONTWRITEBYTECODE=1 sh -c "cd /app && $1"; }
run "exec python manage.py serve --host 127.0.0.1 --port 8000" > "$1" 2>&1 &
ask="import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/health/ready').status)"
for _ in $(seq 240); do
    test "$(run "python -c \"$ask\"" 2>/dev/null)" = 200 && break
    sleep 0.5
done
run "id -u; touch /app/written 2>/dev/null && echo writable || echo read-only; python manage.py doctor --json" || true
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("image")
    yield made
    buildah(made, "rm", "--all")
    buildah(made, "rmi", "--all", "--force")


def buildah(folder: Path, *words: str | Path) -> str:
    done = subprocess.run(["buildah", "--root", folder / "store", "--runroot", folder / "run", *words], capture_output=True,
                          text=True, env={**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image(folder: Path) -> str:
    """The name of the built image. The base stands in for python:…-slim, which no registry is asked for."""
    options = [f"--aptopt={path}" for path in sorted(Path("/etc/apt/apt.conf.d").iterdir())]
    sources = [path for path in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.sources"),
                                 *Path("/etc/apt/sources.list.d").glob("*.list")) if path.exists()]
    release = re.search(r"^VERSION_CODENAME=(.+)$", Path("/etc/os-release").read_text(), re.M)
    assert release
    subprocess.run(["mmdebstrap", "--mode=root", "--variant=minbase", "--include=python3,python3-pip,python3-venv,ca-certificates",
                    *options, release[1], folder / "base.tar", *sources], check=True, capture_output=True, timeout=600)
    base = buildah(folder, "from", "scratch")
    buildah(folder, "add", base, folder / "base.tar", "/")
    buildah(folder, "run", base, "--", "sh", "-c", AS_DOCKERS_BASE)
    buildah(folder, "commit", "--rm", base, "base:local")
    for path in source_files():
        there = folder / "context" / path.relative_to(PROJECT)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, there)
    buildah(folder, "bud", "--network", "host", "--volume", "/etc/ssl/certs:/etc/ssl/certs:ro", "--build-arg",
            "BASE=localhost/base:local", "--tag", "ridgepoint:test", folder / "context")
    return "localhost/ridgepoint:test"


def test_it_says_how_it_starts_and_as_whom(folder: Path, image: str) -> None:
    config = json.loads(buildah(folder, "inspect", "--type", "image", image))["OCIv1"]["config"]
    assert config["User"] == "ridgepoint" and config["Cmd"][:3] == ["python", "manage.py", "serve"]
    assert "8000" in str(config["ExposedPorts"]) and config["WorkingDir"].rstrip("/") == "/app" and "/data" in config["Volumes"]


def test_it_serves_from_a_chroot_as_its_user(folder: Path, image: str) -> None:
    container = buildah(folder, "from", "--pull-never", image)
    root = buildah(folder, "mount", container)
    done = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", START, root,
                           folder / "log"], capture_output=True, text=True, timeout=400)
    buildah(folder, "umount", container)
    user, written, said = done.stdout.split("\n", 2)
    assert (user, written) == ("10001", "read-only"), done.stdout + done.stderr + (folder / "log").read_text()
    checks = {each["name"]: each for each in json.loads(said)["checks"]}
    assert {each["name"] for each in checks.values() if each["state"] == "bad"} == {"Owner"}, checks
    assert checks["Packages"]["state"] == checks["Database"]["state"] == checks["Valkey"]["state"] == "ok"
