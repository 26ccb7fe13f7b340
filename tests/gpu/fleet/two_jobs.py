"""Server, node agent and two jobs with different kernels, end to end: `python -m tests.gpu.fleet.two_jobs [--seconds 75]`.

The jobs share a GPU, or have one each where there are two. A server is started in a folder of its own (Django is needed; see
tests/gpu/README.md), or `--server URL --token-file FILE` names one. One JSON document: what the jobs counted and sent, what the
server says, and `checks`; exit status 1 where one fails. The limit of loss is 50 % here: the way is tested, not the loss."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KERNELS = ("product", "softmax")
ARRIVES_S = 200.0                   # a minute, its grace, the server's worker
MOST_OFF = 0.1                      # of estimated launches against the loop's own
MAKE_TOKEN = ("from webapp.accounts import local_user; from webapp.models import ApiToken; "
              "print(ApiToken.objects.create(local_user(), name='two jobs', scope='write')[1])")
Command = Callable[[str, int, float], Sequence[str]]


def job_command(kernel: str, device: int, seconds: float) -> Sequence[str]:
    return [sys.executable, "-m", "tests.gpu.fleet.counted_job", kernel, str(device), str(seconds)]


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, str]]:
    """Start the product in a folder; yield its address and a token that may write."""
    from tests.product import PROJECT, Product, clean_env

    folder.mkdir(parents=True, exist_ok=True)
    product = Product(folder)
    try:
        product.wait_until_up()
        made = subprocess.run([sys.executable, "manage.py", "shell", "--no-imports", "-c", MAKE_TOKEN], cwd=PROJECT, text=True,
                              env=clean_env(folder), capture_output=True, check=True, timeout=120)
        yield product.url, made.stdout.split()[-1]
    finally:
        product.stop()


def measure(url: str, token: str, folder: Path, seconds: float, gpus: int, command: Command = job_command) -> dict[str, Any]:
    """Run the node agent and both jobs against a server; return what each of them says."""
    run = f"two-jobs-{time.time_ns() // 1_000_000}"
    (folder / "token").write_text(token)
    socket, environment = str(folder / "agent.sock"), {**os.environ, "PYTHONPATH": os.getcwd()}
    node = subprocess.Popen([sys.executable, "-m", "workers.agent.node", "--server", url, "--token-file", str(folder / "token"),
                             "--spool", str(folder / "spool"), "--socket", socket, "--host", run, "--no-captures"], env=environment)
    try:
        wait_for(lambda: os.path.exists(socket), 30)
        jobs = []
        for number, kernel in enumerate(KERNELS):
            own = {**environment, "RIDGEPOINT_AGENT_SOCKET": socket, "RIDGEPOINT_JOB": f"{run}-{kernel}", "RANK": str(number),
                   "RIDGEPOINT_HOST": run, "RIDGEPOINT_AGENT_LOSS_PCT": "50"}
            jobs.append(subprocess.Popen(command(kernel, number % max(gpus, 1), seconds), env=own, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True))
        told = [finish(each, seconds + 90) for each in jobs]
        sent = {each["job"]: each["sent"]["launches"] for each in told if "job" in each}

        def arrived() -> bool:
            return {row["name"]: row["launches"] for row in ask(url, token, "job", host=run)} == sent

        all_there = wait_for(arrived, ARRIVES_S if any(sent.values()) else 0)
        found = {kernel: ask(url, token, "kernel", job=f"{run}-{kernel}") for kernel in KERNELS}
        document = {"gpus": gpus, "seconds": seconds, "jobs": told, "server": {
            "jobs": ask(url, token, "job", host=run), "gpus": ask(url, token, "gpu", host=run), "kernels": found}}
        return {"checks": check(document, all_there), **document}
    finally:
        node.terminate()
        node.wait(60)


def finish(child: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
    try:
        out, errors = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        out, errors = child.communicate()
    lines = [line for line in out.splitlines() if line.startswith("{")]
    said: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return {**said, "status": child.returncode, "errors": errors[-1000:]}


def check(document: dict[str, Any], all_there: bool) -> dict[str, bool]:
    """Return what must hold of a run, by name."""
    jobs, server_says = document["jobs"], document["server"]
    ended = all(each["status"] == 0 and "sent" in each for each in jobs)
    checks = {"both jobs ended well": ended, "every launch that was sent arrived, none twice": all_there}
    if not ended:
        return checks
    checks["both jobs were collected from"] = all(each["sent"]["windows"] > 1 for each in jobs)
    checks["no window was dropped"] = all(each["state"]["dropped_windows"] == 0 for each in jobs)
    for each in jobs:
        kernel, ratios = each["kernel"], each["sent"]["seen_by_looped"]
        rows = server_says["kernels"][kernel]
        checks[f"{kernel}: every kernel as sent"] = {row["kernel"]: row["launches"] for row in rows} == each["sent"]["by_kernel"]
        checks[f"{kernel}: windows hold what the loop launched"] = bool(ratios) and abs(ratios[len(ratios) // 2] - 1) < MOST_OFF
        checks[f"{kernel}: the estimate is the loop's count"] = abs(each["sent"]["estimated"] / each["launches"] - 1) < 2 * MOST_OFF
    gpus = {uuid for each in jobs for uuid in each["sent"]["gpus"]}
    checks["one GPU each, or both on one"] = len(gpus) == min(len(jobs), max(document["gpus"], 1)) == len(server_says["gpus"])
    return checks


def ask(url: str, token: str, group: str, **more: str) -> list[dict[str, Any]]:
    words = "&".join(f"{name}={value}" for name, value in {"group": group, "limit": "200", **more}.items())
    request = urllib.request.Request(f"{url}/api/fleet/top/?{words}", headers={"Authorization": f"Token {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        rows: list[dict[str, Any]] = json.load(answer)["rows"]
    return rows


def wait_for(true: Callable[[], bool], seconds: float) -> bool:
    end_s = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end_s:
        time.sleep(1.0)
    return found


def count_gpus() -> int:
    """Return how many GPUs the driver lists, without a CUDA context in this process."""
    if shutil.which("nvidia-smi") is None:
        return 0
    said = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in said.stdout.splitlines())


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seconds", type=float, default=75, help="of the jobs")
    asked.add_argument("--server", default="", help="a server that runs already")
    asked.add_argument("--token-file", type=Path)
    options = asked.parse_args()
    if bool(options.server) != bool(options.token_file):
        asked.error("--server and --token-file go together")
    with tempfile.TemporaryDirectory(prefix="rp") as name:
        folder = Path(name)
        if options.server:
            token = options.token_file.read_text().strip()
            found = measure(options.server.rstrip("/"), token, folder, options.seconds, count_gpus())
        else:
            with server(folder / "home") as (url, token):
                found = measure(url, token, folder, options.seconds, count_gpus())
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0 if all(found["checks"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
