"""The archive (make archive) is all that a machine without a network needs: unpacked there, it installs, starts and answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.network import lacking
from tests.product import PROJECT
from tests.scale import deep_only
from webapp.supply import archive

REASON = lacking()
pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.deep, deep_only, pytest.mark.timeout(900)]
ASK = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8765/health/ready').status)"
SEES_ONLY_ITSELF = """
ip link set lo up
test -z "$(ip route)" || exit 90
make install PYTHON="$0" || exit 91
.venv/bin/python manage.py serve --port 8765 > serve.log 2>&1 &
for _ in $(seq 240); do
    code=$(.venv/bin/python -c "$ASK" 2>/dev/null)
    test "$code" = 200 && break
    sleep 0.5
done
kill $!
wait
test "$code" = 200 || { cat serve.log; exit 92; }
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the archive holds, unpacked in a folder of its own."""
    folder = tmp_path_factory.mktemp("archive")
    made = archive.make((), folder / "made")
    with tarfile.open(made) as tar:
        tar.extractall(folder / "there", filter="data")
    yield folder / "there" / made.stem
    shutil.rmtree(folder)


def test_every_file_of_the_source_is_in_it(unpacked: Path) -> None:
    for name in ("manage.py", "Makefile", "requirements.lock", "static/vendor/codemirror/codemirror.min.js", "docs/operate.md"):
        assert (unpacked / name).read_bytes() == (PROJECT / name).read_bytes()
    assert not any((unpacked / name).exists() for name in (".git", ".venv", "var"))


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_it_installs_and_answers_where_there_is_no_network(unpacked: Path) -> None:
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", SEES_ONLY_ITSELF, sys.executable], cwd=unpacked, capture_output=True, text=True,
        timeout=600, env={"PATH": os.environ["PATH"], "HOME": str(unpacked.parent), "PIP_CONFIG_FILE": os.devnull,
                          "PIP_NO_CACHE_DIR": "1", "ASK": ASK})
    assert done.returncode == 0, done.stdout + done.stderr
    found = subprocess.run([unpacked / ".venv/bin/python", "-c", "import django; print(django.__file__)"],
                           capture_output=True, text=True)
    assert found.stdout.startswith(str(unpacked)), "it is its own environment that answered"


@pytest.mark.skipif(REASON is not None, reason=REASON or "")
def test_a_wheel_that_somebody_changed_is_refused(unpacked: Path, tmp_path: Path) -> None:
    wheels = shutil.copytree(unpacked / "wheels", tmp_path / "wheels", copy_function=os.link)
    changed = next(wheels.glob("django-5*.whl"))
    content = changed.read_bytes()
    changed.unlink()
    changed.write_bytes(content + b" ")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    done = subprocess.run([tmp_path / "venv/bin/python", "-m", "pip", "install", "--no-index", "--no-deps", "--require-hashes",
                           "--find-links", wheels, "-r", wheels / "requirements.txt"], capture_output=True, text=True)
    assert done.returncode and "DO NOT MATCH THE HASHES" in done.stderr
