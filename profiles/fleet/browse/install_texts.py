"""Commands that bring data into the fleet, with the address of the server that shows them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workers import agent

DEMO = "python manage.py fleet demo"
FEED = "python manage.py fleet feed records.jsonl.gz"


DEPLOY = Path(agent.__file__).parent / "deploy"


@dataclass(frozen=True)
class Install:
    """One way to run an agent. `name` is a word for the page's ids."""

    name: str
    title: str
    note: str
    text: str


def installs(server: str) -> list[Install]:
    """Return what is to be typed or stored on a host, for this server."""
    return [
        Install("pip", "Host", "The agent of a host, once each. It opens connections to the server and accepts none.", f"""\
pip install ./workers/agent        # of a copy of this project
ridgepoint-agent --server {server} --token-file /etc/ridgepoint/token"""),
        Install("job", "Job", "In the environment of a job, whose image has the package too. Nothing else of the job changes.", """\
export RIDGEPOINT_AGENT=1 RIDGEPOINT_JOB=pretrain RIDGEPOINT_BUILD=$(git rev-parse --short HEAD)
python train.py"""),
        Install("systemd", "systemd unit", "/etc/systemd/system/ridgepoint-agent.service",
                _deployed("ridgepoint-agent.service", server)),
        Install("daemonset", "DaemonSet", "The token is a secret named ridgepoint-agent; pods of jobs mount /run/ridgepoint.",
                _deployed("daemonset.yaml", server)),
    ]


def _deployed(name: str, server: str) -> str:
    """A file as the package has it, for this server."""
    return (DEPLOY / name).read_text().replace("https://ridgepoint.example", server).strip()
