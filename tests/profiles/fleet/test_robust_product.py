"""The running product and an agent beside it, each process killed while batches travel: totals stay exact."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.product import PROJECT, Product, clean_env, seed_database
from tests.profiles.fleet.records import START_NS
from webapp.embedded import postgres
from workers.agent.aggregate import Aggregator
from workers.agent.launches import Context, Gpu, Signature, Window, sum_durations
from workers.agent.send import Spool
from workers.agent.wire import make_batch, pack

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.deep]
AGENTS, BATCHES, KILLS = 4, 40, 24 if "RIDGEPOINT_DEEP" in os.environ else 4
MAKE_TOKEN = ("from webapp.accounts import local_user; from webapp.models import ApiToken; "
              "print(ApiToken.objects.create(local_user(), name='agent', scope='write')[1])")


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


def fill_spool(folder: Path, agent: int) -> tuple[int, int]:
    """Batches of one agent on its disk; return launches and their time in ns."""
    chance, spool, launches, total_ns = np.random.default_rng(agent), Spool(folder), 0, 0
    signatures = [Signature(f"kernel_{number}", (1, 1, 1), (128, 1, 1), 0) for number in range(5)]
    for minute in range(BATCHES):
        sums = Aggregator()
        durations = chance.integers(1000, 10**6, 300)
        sums.add(Window(Context("job", "b1", "NVIDIA H200"), Gpu(f"GPU-{agent}", "NVIDIA H200", f"host-{agent}"),
                        START_NS + minute * 60 * 10**9, 6 * 10**9, 60 * 10**9,
                        sum_durations(chance.integers(0, 5, 300), durations, signatures)))
        minutes = sums.take()
        spool.put(lambda sequence, minutes=minutes: pack(make_batch(spool.agent, sequence, 0, minutes)))      # type: ignore[misc]
        launches, total_ns = launches + 300, total_ns + int(durations.sum())
    return launches, total_ns


def children(product: Product, word: str) -> list[psutil.Process]:
    found = []
    for each in psutil.Process(product.process.pid).children(recursive=True):
        with suppress(psutil.Error):                # it ended meanwhile
            if word in " ".join(each.cmdline()):
                found.append(each)
    return found


@pytest.mark.deep_only
def test_whatever_is_killed_nothing_is_lost_and_nothing_counts_twice(product: Product, tmp_path: Path) -> None:
    made = [fill_spool(tmp_path / f"spool-{agent}", agent) for agent in range(AGENTS)]
    token = subprocess.run([sys.executable, "manage.py", "shell", "--no-imports", "-c", MAKE_TOKEN], cwd=PROJECT, text=True,
                           env=clean_env(product.home), capture_output=True, check=True, timeout=120).stdout.split()[-1]

    def start(agent: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.workers.agent.send_child", str(tmp_path / f"spool-{agent}"), product.url, token]
        return subprocess.Popen(command, cwd=PROJECT, text=True, stdout=subprocess.PIPE)

    senders, chance, killed = [start(agent) for agent in range(AGENTS)], random.Random(1), dict[str, int]()
    end = time.monotonic() + 200
    while time.monotonic() < end and any(each.poll() is None for each in senders):
        time.sleep(chance.uniform(0.3, 0.9))
        what = ("agent", "web", "worker", "database")[sum(killed.values()) % 4]
        if sum(killed.values()) >= KILLS:
            continue
        if what == "agent":
            number = chance.randrange(AGENTS)
            if senders[number].poll() is None:
                senders[number].kill()
                senders[number].wait()
            senders[number] = start(number)
        elif what == "database":
            postmaster = postgres.alive(product.home / "pg" / "data")
            if postmaster is None:
                continue
            os.kill(postmaster, signal.SIGKILL)
        else:
            found = children(product, f"manage.py {what}")
            if not found:
                continue
            chance.choice(found).kill()
        killed[what] = killed.get(what, 0) + 1
    said = [each.communicate(timeout=60)[0].split() for each in senders]
    assert all(words[-4:] == ["refused", "0", "dropped", "0"] for words in said), said
    assert set(killed) == {"agent", "web", "worker", "database"}, killed

    launches, total_ns = (sum(each[number] for each in made) for number in (0, 1))
    rows: list[dict[str, int]] = []
    while time.monotonic() < end + 60 and sum(row["launches"] for row in rows) < launches:
        time.sleep(1)
        status, _ = product.get("/api/fleet/top/")
        rows = product.get_json("/api/fleet/top/")["rows"] if status == 200 else []
    time.sleep(2)                                           # anything that counted twice would come now
    rows = product.get_json("/api/fleet/top/")["rows"]
    assert (sum(row["launches"] for row in rows), sum(row["total_ns"] for row in rows)) == (launches, total_ns), killed
