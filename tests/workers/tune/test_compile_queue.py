"""Compiling on another host: requests and binaries through Redis, with real processes on both sides."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from tests.product import Product
from tests.waiting import until
from tuner.tuning.trial import Rejected
from workers import jobs
from workers.core.compilers import Compilers, NobodyAnswers
from workers.tune import compile_queue

pytestmark = pytest.mark.servers

WORKER = ("import sys, django; django.setup()\n"
          "from workers.tune import compile_queue\n"
          "print(compile_queue.serve({}, module=sys.argv[1], count=2, idle_s=float(sys.argv[2])), flush=True)")


def worker(module: str, idle_s: float = 3.0, **environ: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", WORKER, module, str(idle_s)], stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "DJANGO_SETTINGS_MODULE": "webapp.settings", **environ})


@pytest.fixture(autouse=True)
def clean():
    yield
    jobs.connection().delete(compile_queue.REQUESTS)


def pool(local: int, remote: int, limit_s: float = 1.5, **shape: int) -> Compilers:
    made = Compilers("tests.workers.tune.fake_compiler", {}, local, limit_s=limit_s, open_s=20,
                     helpers=[compile_queue.RemoteCompiler] * remote)
    made.aim({"operator": "fake", "shape": shape, "dtype": "fp16", "compute_capability": "9.0", "sms": 132})
    return made


def answers(made: Compilers, configs: list[dict], within_s: float = 40.0) -> dict[int, object]:
    made.put(configs)
    found, end = {}, time.monotonic() + within_s
    while len(found) < len(configs):
        assert time.monotonic() < end, found
        found |= {config["n"]: answer for config, answer in made.ready(0.2) or ()}
    return found


def test_another_host_compiles_and_its_faults_come_back_as_outcomes():
    process, made = worker("tests.workers.tune.fake_compiler"), pool(0, 2)
    builds = ["fine", "hang", "abort", "refuse", "fine", "slow"]
    try:
        found = answers(made, [{"build": build, "n": n} for n, build in enumerate(builds)])
    finally:
        made.close()
    assert process.communicate(timeout=30)[0].strip() == "6"
    reasons = [str(a.reason) if isinstance(a, Rejected) else "fine" for _, a in sorted(found.items())]
    assert reasons == ["fine", "timeout", "crash", "compile", "fine", "fine"]
    assert found[0]["registers"] == 128 and found[0]["compiler"] != os.getpid() and made.compiled == 6


def test_a_worker_that_is_away_costs_nothing_but_its_help(monkeypatch):
    monkeypatch.setattr(compile_queue, "TAKEN_S", 0.5)
    made = pool(1, 2)
    try:
        found = answers(made, [{"build": "fine", "n": n} for n in range(6)])
        assert all(answer["registers"] == 128 for answer in found.values())
        time.sleep(0.5)
        assert made.count == 1 and not made.useless
    finally:
        made.close()


def test_with_nobody_left_the_measuring_child_compiles(monkeypatch):
    monkeypatch.setattr(compile_queue, "TAKEN_S", 0.3)
    made = pool(0, 2)
    try:
        assert answers(made, [{"build": "fine", "n": n} for n in range(3)]) == {0: {}, 1: {}, 2: {}}
        assert made.useless
        assert answers(made, [{"build": "fine", "n": 9}], 2.0) == {9: {}}
    finally:
        made.close()


def test_a_host_that_cannot_compile_it_says_so_and_is_left_alone():
    process, made = worker("tests.workers.tune.fake_compiler"), pool(1, 1, no_meta=1)
    remote = compile_queue.RemoteCompiler()
    try:
        remote.ask({"do": "open", "shape": {"no_meta": 1}, "compute_capability": "9.0", "sms": 1}, 1.0, threading.Event())
        with pytest.raises(NobodyAnswers, match="reads its inputs"):
            remote.ask({"do": "compile", "config": {"n": 1}}, 1.0, threading.Event())
    finally:
        made.close()
        process.kill()
        process.communicate()


def test_places_are_what_workers_announce():
    jobs.announce("compile@far-1", {"queues": ["compile"], "cores": 14, "host": "far"})
    jobs.announce("gpu@near-1", {"queues": ["gpu"], "cores": 8, "host": "near"})
    try:
        assert compile_queue.place_count() == 14 and len(compile_queue.make_helpers(7)) == 14
        assert 7 in jobs.waiting("compile")
    finally:
        for name in ("compile@far-1", "gpu@near-1"):
            jobs.retire(name)


COMPILE = """
import json, sys, threading
from workers.core.child import Child
child = Child("tuner.tuning.measure.compiler", {environ})
opening = {"do": "open", "operator": "softmax", "shape": {"R": 64, "C": 512}, "dtype": "fp16", "seed": 0,
           "compute_capability": "9.0", "sms": 132}
assert "ok" in child.ask(opening, 120, threading.Event())
print(json.dumps(child.ask({"do": "compile", "config": {config}}, 120, threading.Event())))
child.close()
"""


@pytest.mark.deep_only
@pytest.mark.torch
def test_binaries_of_one_host_are_used_on_another(tmp_path):
    """The second host's ptxas tells its version and refuses to work: what comes out was compiled by the first."""
    import triton

    from tuner.tuning.operators import OPERATORS, limits

    config = dict(OPERATORS["softmax"].default_config({"R": 64, "C": 512}, "fp16", limits("NVIDIA H200", "9.0", 132)))

    def compiled(name: str, **more: str) -> dict:
        environ = {**compile_queue.cache_environment(), "TRITON_CACHE_DIR": str(tmp_path / name), **more}
        program = COMPILE.replace("{environ}", repr(environ)).replace("{config}", repr(config))
        return json.loads(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True,
                                         timeout=120).stdout)

    one = compiled("one")
    assert one["ok"]["registers"] > 16
    key = next((tmp_path / "one").rglob("*.cubin"))
    lame = tmp_path / "ptxas"
    lame.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exec {triton.knobs.nvidia.ptxas.path} --version;; *) exit 7;; esac\n')
    lame.chmod(0o755)
    two = compiled("two", TRITON_PTXAS_PATH=str(lame))
    assert two["ok"]["registers"] == one["ok"]["registers"], two
    jobs.connection().delete(*jobs.connection().scan_iter("ridgepoint:triton:*"))
    assert compiled("three", TRITON_PTXAS_PATH=str(lame))["rejected"]["reason"] == "compile"     # so it is lame indeed
    assert next((tmp_path / "two").rglob("*.cubin")).read_bytes() == key.read_bytes()


@pytest.fixture
def start_worker(db: None) -> Iterator[Callable[[str], None]]:
    """`start_worker("compile")`: a worker of this test's database and queue; it has announced itself on return."""
    started: list[Product] = []
    jobs.connection().flushdb()
    at = connection.settings_dict
    environ = {"DATABASE_URL": f"postgresql://{at['USER']}@/{at['NAME']}?host={at['HOST']}&port={at['PORT']}",
               "REDIS_URL": settings.REDIS_URL, "RIDGEPOINT_HOME": str(settings.HOME)}

    def start(queue: str) -> None:
        worker = Product(Path(settings.HOME), queue, env=environ, command="worker")
        started.append(worker)
        worker.wait_for(lambda line: "ready for" in line)
        until(lambda: any(said["pid"] == worker.process.pid for said in jobs.workers()), 60)

    yield start
    for worker in started:
        worker.stop(signal.SIGTERM)


@pytest.mark.deep_only          # test_another_host_compiles…; of the real compiler: test_compile_offline.py
@pytest.mark.torch
@pytest.mark.django_db(transaction=True)
def test_a_worker_of_the_queue_compile_helps_as_soon_as_it_is_there(start_worker: Callable[[str], None]) -> None:
    """`manage.py worker compile` on a host without a GPU: woken by the entry, asked through Redis, with the real compiler."""
    from tuner.tuning.operators import OPERATORS, limits

    assert compile_queue.make_helpers(5) == []
    start_worker("compile")
    made, shape = compile_queue.make_helpers(5), {"R": 64, "C": 256}
    assert len(made) == compile_queue.place_count() >= 1
    remote = made[0]()
    remote.ask({"do": "open", "operator": "softmax", "shape": shape, "dtype": "fp16", "seed": 0, "compute_capability": "9.0",
                "sms": 132}, 60.0, threading.Event())
    config = dict(OPERATORS["softmax"].default_config(shape, "fp16", limits("NVIDIA H200", "9.0", 132)))
    answer = remote.ask({"do": "compile", "config": config}, 60.0, threading.Event())
    assert answer["ok"]["registers"] > 16 and answer["ok"]["spills"] == 0
    assert list(jobs.connection().scan_iter("ridgepoint:triton:*cubin"))          # where the GPU's host will find it
