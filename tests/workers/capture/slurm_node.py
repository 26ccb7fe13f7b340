"""A Slurm of one node in a temporary folder: slurmctld and slurmd as this user, without munge, cgroups or systemd."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "srun", "sinfo", "squeue")
UP_WITHIN_S = 30
CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class NoSlurm(Exception):
    """Why there is none here."""


def find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


@contextmanager
def running(folder: Path):
    """Give SLURM_CONF of a node that takes jobs. Raises NoSlurm."""
    if missing := [name for name in PROGRAMS if find(name) is None]:
        raise NoSlurm(f"Slurm is not installed here: no {', '.join(missing)} (Debian: apt-get install slurm-wlm)")
    if os.geteuid():
        raise NoSlurm("slurmd starts jobs as root alone")
    conf = folder / "slurm.conf"
    for name in ("state", "spool"):
        (folder / name).mkdir()
    conf.write_text(CONF.format(host=socket.gethostname().partition(".")[0], folder=folder, ports=_free_ports()))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")       # loaded, and used by nothing above
    environ = {**os.environ, "SLURM_CONF": str(conf)}
    with (folder / "log").open("wb") as log:
        daemons = [subprocess.Popen([find(name), "-D", *words], env=environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
                   for name, words in (("slurmctld", ("-c",)), ("slurmd", ()))]
    try:
        _wait(environ, folder / "log")
        yield environ
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _wait(environ: dict[str, str], log: Path) -> None:
    end = time.monotonic() + UP_WITHIN_S
    while time.monotonic() < end:
        if ask(environ, "sinfo", "--noheader", "--format=%T") == "idle":
            return
        time.sleep(0.2)
    raise NoSlurm(f"Slurm did not start within {UP_WITHIN_S} s: {log.read_text(errors='replace')[-600:]}")


def ask(environ: dict[str, str], name: str, *words: str) -> str:
    """Return what a command of Slurm prints."""
    return subprocess.run([find(name), *words], env=environ, capture_output=True, text=True, timeout=20).stdout.strip()


def _free_ports() -> list[int]:
    sockets = [socket.socket() for _ in range(2)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
