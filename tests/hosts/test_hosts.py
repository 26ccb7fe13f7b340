"""One installation over several hosts: cut off, clocks minutes apart, two versions, killed. Nothing is lost, nothing done twice."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from tests.hosts.cluster import Cluster, earlier_code, is_ready, settle
from tests.hosts.network import Host, Network, lacking
from tests.product import PROJECT
from tests.scale import deep_only
from tests.waiting import until

EARLIER = "bade0d63"            # of the schema before: its gates lack the columns of 0019_gate_hard_to_fool
REASON = lacking()
pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.servers, pytest.mark.deep, deep_only, pytest.mark.timeout(900),
              pytest.mark.skipif(REASON is not None, reason=REASON or "")]
needs_clocks = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler, which makes clocks that are off")


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    own = Network(tmp_path)
    try:
        yield own
    finally:
        own.close()


@pytest.fixture
def begin(network: Network) -> Iterator[Callable[..., Cluster]]:
    """`begin(web=2, workers=4, offs_s=…)`: an installation that is up; where a test fails, all hosts' logs are printed."""
    made: list[Cluster] = []

    def start(web: int = 2, workers: int = 4, offs_s: tuple[int, ...] = (), code: Path = PROJECT) -> Cluster:
        cluster = Cluster(network, code)
        made.append(cluster)
        cluster.manage("migrate", "-v0")
        cluster.make_people()
        clocks = [*offs_s, *[0] * (web + workers)]
        for number in range(web):
            cluster.add_web(f"web{number}", clocks.pop(0))
        for number in range(workers):
            cluster.add_worker(f"worker{number}", "replay", "ingest", "messages", off_s=clocks.pop(0))
        cluster.wait_until_up()
        return cluster

    yield start
    for cluster in made:
        print(cluster.logs())


def holder(cluster: Cluster, job: int) -> Host:
    """The host whose worker holds the job."""
    name = until(lambda: cluster.job(job)["worker"], 60).partition("@")[2]
    return next(host for host in cluster.workers if name.startswith(host.name + "-"))


def whole(cluster: Cluster, job: int, trials: int) -> None:
    """Every trial is there, once."""
    assert cluster.trials(job) == list(range(trials)), cluster.job(job)


@needs_clocks
def test_a_host_that_is_cut_off_in_a_job_loses_it_to_another_whatever_their_clocks_say(begin: Callable[..., Cluster]) -> None:
    cluster = begin(web=1, workers=2, offs_s=(-540, 420, -240))
    job = cluster.tune(60)
    until(lambda: len(cluster.trials(job)) >= 5)
    first = holder(cluster, job)
    first.cut()
    until(lambda: cluster.job(job)["attempts"] == 2, 40)
    assert holder(cluster, job) is not first
    before = cluster.trials(job)
    first.heal()
    settle(cluster, [job])
    whole(cluster, job, 60)
    assert cluster.job(job)["attempts"] == 2 and len(before) < 60
    assert cluster.rows("SELECT created BETWEEN now() - interval '5 min' AND now() FROM tuner_tunejob") == [[True]]


def test_a_partition_heals_and_every_host_works_again(begin: Callable[..., Cluster]) -> None:
    """Half of the hosts, a web server among them, see no server for longer than a lease."""
    cluster = begin()
    jobs = [cluster.tune(60, at=cluster.web[number % 2]) for number in range(4)]
    until(lambda: all(cluster.trials(job) for job in jobs[:2]))
    away = [cluster.web[1], *cluster.workers[2:]]
    for host in away:
        host.cut()
    profiles = [cluster.upload(number) for number in range(3)]
    settle(cluster, jobs)
    time.sleep(30)                                          # both ends have given their connections up
    for host in away:
        host.heal()
    until(lambda: is_ready(cluster.web[1]), 60, 0.5)
    wanted = {host.name for host in cluster.workers}
    until(lambda: wanted <= {worker["host"] for worker in cluster.said_workers()}, 90, 0.5)
    later = [cluster.tune(40, at=cluster.web[1]) for _ in range(4)]
    held = {holder(cluster, job).name for job in later}
    settle(cluster, later)
    for job in jobs:
        whole(cluster, job, 60)
    for job in later:
        whole(cluster, job, 40)
    assert held & {host.name for host in away}, "a host that came back takes jobs again"
    until(lambda: {cluster.ask(f"/api/profiles/{each}/")["status"] for each in profiles} == {"ready"}, 90, 0.5)


@needs_clocks
def test_hosts_whose_clocks_lie_minutes_apart_work_as_one(begin: Callable[..., Cluster]) -> None:
    cluster = begin(offs_s=(360, -480, 540, -300, 180, -600))
    jobs = [cluster.tune(30, at=cluster.web[number % 2]) for number in range(6)]
    profiles = [cluster.upload(number, at=cluster.web[number % 2]) for number in range(6)]
    settle(cluster, jobs)
    for job in jobs:
        whole(cluster, job, 30)
        assert cluster.job(job)["attempts"] == 1, "nobody took what another host held"
    until(lambda: {cluster.ask(f"/api/profiles/{each}/")["status"] for each in profiles} == {"ready"}, 90, 0.5)
    [[right]] = cluster.rows("SELECT bool_and(created <= now() AND created > now() - interval '5 min') FROM profiles_profile")
    assert right
    clocks = next(check for check in cluster.ask("/api/status/")["checks"] if check["name"] == "Clocks")
    assert clocks["state"] == "warn" and clocks["facts"]["apart_s"] > 900, "the status page names it all the same"
    assert [row["id"] for row in cluster.ask("/api/profiles/", at=cluster.web[1])["results"]] == sorted(profiles, reverse=True)


def test_old_and_new_code_work_side_by_side_while_hosts_are_replaced(begin: Callable[..., Cluster], tmp_path: Path) -> None:
    """Migrate first, then one host after the other: jobs of old web servers run on new workers, and the other way round."""
    old = earlier_code(EARLIER, tmp_path / "earlier")
    if old is None:
        pytest.skip(f"this checkout does not hold {EARLIER}")
    cluster = begin(code=old)
    began = cluster.tune(60)
    until(lambda: cluster.trials(began))
    assert "[ ]" in cluster.manage("showmigrations", code=PROJECT), "the new code has a schema of its own"
    cluster.manage("migrate", "-v0", code=PROJECT)
    by_old = [cluster.tune(30, at=cluster.web[number % 2]) for number in range(3)]
    of_old = cluster.upload(1)
    settle(cluster, [began, *by_old])
    for number in range(2):                                 # old ones go as a stop asks them to, with what they hold
        stop(cluster.workers[number])
        cluster.run(cluster.workers[number], "worker", "replay", "ingest", "messages", code=PROJECT)
    stop(cluster.web[1])
    cluster.run(cluster.web[1], "web", "--host", "0.0.0.0", "--port", "8000", code=PROJECT)
    cluster.wait_until_up()
    mixed = [cluster.tune(40, at=cluster.web[number % 2]) for number in range(6)]
    profiles = [of_old, *(cluster.upload(10 + number, at=cluster.web[number % 2]) for number in range(4))]
    until(lambda: all(cluster.job(job)["status"] != "queued" for job in mixed[:4]))
    for number in (2, 3):                                   # mid-job: the row goes back and is not counted as a try
        stop(cluster.workers[number])
        cluster.run(cluster.workers[number], "worker", "replay", "ingest", "messages", code=PROJECT)
    settle(cluster, mixed)
    for job, trials in ((began, 60), *((job, 30) for job in by_old), *((job, 40) for job in mixed)):
        whole(cluster, job, trials)
    for host in cluster.web:
        until(lambda host=host: {cluster.ask(f"/api/profiles/{each}/", at=host)["status"] for each in profiles} == {"ready"}, 90)
        for path in ("/api/tune/", "/api/gates/", "/api/profiles/"):
            cluster.ask(path, at=host)


def stop(host: Host) -> None:
    """As an init system does: SIGTERM to the program, then wait for all of it."""
    (process,) = host.processes
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    host.kill()


def test_a_web_host_that_dies_behind_the_proxy_costs_no_answer(begin: Callable[..., Cluster], tmp_path: Path) -> None:
    """nginx asks the other one; what was sent to the dead one and may be repeated is repeated."""
    nginx = shutil.which("nginx") or pytest.skip("nginx is not installed (Debian: nginx-light)")
    cluster = begin(web=2, workers=1)
    proxy = cluster.network.add("proxy")
    servers = " ".join(f"server {host.address}:8000 max_fails=1 fail_timeout=5s;" for host in cluster.web)
    (tmp_path / "nginx.conf").write_text(f"""
daemon off; pid {tmp_path}/nginx.pid; error_log {tmp_path}/error.log; worker_processes 1; user root;
events {{}}
http {{ access_log off; client_body_temp_path {tmp_path}/body; proxy_temp_path {tmp_path}/proxy; fastcgi_temp_path {tmp_path}/f;
uwsgi_temp_path {tmp_path}/u; scgi_temp_path {tmp_path}/s;
upstream ridgepoint {{ {servers} }}
server {{ listen 80; location / {{ proxy_pass http://ridgepoint; proxy_connect_timeout 2s; proxy_read_timeout 10s;
proxy_set_header Host $host;
proxy_next_upstream error timeout http_503; proxy_set_header X-Forwarded-For $remote_addr; }} }} }}
""")
    proxy.start([nginx, "-c", tmp_path / "nginx.conf"], {"PATH": "/usr/sbin:/usr/bin:/bin"}, tmp_path)
    url, headers = f"http://{proxy.address}", {"Authorization": f"Token {cluster.token}"}
    until(lambda: _status(f"{url}/health/ready") == 200, 60)
    told: list[int] = []
    done = threading.Event()

    def browse() -> None:
        while not done.is_set():
            told.append(requests.get(f"{url}/api/profiles/", headers=headers, timeout=60).status_code)

    threads = [threading.Thread(target=browse) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(told) > 30)
        cluster.web[0].kill()
        at = len(told)
        until(lambda: len(told) > at + 60)
        cluster.run(cluster.web[0], "web", "--host", "0.0.0.0", "--port", "8000")
        until(lambda: is_ready(cluster.web[0]), 120, 0.5)
        time.sleep(6)                       # until nginx asks it again: else both are away to it
        cluster.web[1].cut()                # silent, not closed: given up after 2 s, what it had begun after 10 s
        at = len(told)
        until(lambda: len(told) > at + 30)
        cluster.web[1].heal()
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
    assert set(told) == {200}, {code: told.count(code) for code in set(told)}


def _status(url: str) -> int:
    try:
        return requests.get(url, timeout=10).status_code
    except requests.RequestException:
        return 0
