"""`manage.py serve` (= `make run`): web and workers of one machine under one supervisor."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from webapp.accounts import LOOPBACK
from webapp.embedded import ensure
from webapp.management.served import forget_address, note_address
from webapp.roles import owner_exists
from webapp.supervisor import Child, Supervisor, Watch
from workers.core.gpu import ALL, OF_HOST

DEFAULT_PORT, PORTS_TO_TRY = 8000, 50
LOOK_EVERY_S, ANNOUNCE_EVERY_S = 0.5, 0.25
ANSWERS_WITHIN_S = 2.0          # on a busy machine: what is given up sooner is asked for again and again, and never said to be up


class Command(BaseCommand):
    help = "Run web, ingest, replay, messages and (where there are GPUs) gpu workers. Ctrl-C stops everything."
    requires_system_checks: list[str] = []      # `manage.py check` runs them; starting is quicker without

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default=os.environ.get("HOST") or "127.0.0.1")
        parser.add_argument("--port", type=int, default=os.environ.get("PORT") or None, help="default: 8000 or the next free one")
        parser.add_argument("--ingest", type=int, default=1, metavar="N", help="ingest workers (default 1)")
        parser.add_argument("--gpus", type=int, metavar="N", help="gpu workers (default: one per GPU that nvidia-smi lists)")

    def handle(self, *, host: str, port: int | None, ingest: int, gpus: int | None, **options: Any) -> None:
        listener = _listen(host, port)
        bound = listener.getsockname()[1]
        env = _web_env(host, bound)
        children = [Child("web", _manage_command("web", "--fd", str(listener.fileno())), env, (listener.fileno(),))]
        children += [Child(_child_name("ingest", i, ingest), _manage_command("worker", "ingest"), env) for i in range(ingest)]
        children += [Child(name, _manage_command("worker", name), env) for name in ("replay", "messages")]
        count = _gpu_count() if gpus is None else gpus
        on_gpus = {**env, OF_HOST: os.environ.get("CUDA_VISIBLE_DEVICES", ALL)}
        children += [Child(_child_name("gpu", i, count), _manage_command("worker", "gpu"),
                           {**on_gpus, "CUDA_VISIBLE_DEVICES": str(i)}) for i in range(count)]
        supervisor = Supervisor(children, as_json=settings.LOG_JSON)
        supervisor.say(f"starting {', '.join(child.name for child in children)}; data in {settings.HOME}")
        announcer = _Announcer(supervisor, host, bound, port, signed_in=env["RIDGEPOINT_SIGN_IN"] == "1")
        watches = [Watch(keeper.server.name, keeper.look, LOOK_EVERY_S) for keeper in ensure.make_keepers(supervisor.say)]
        supervisor.run([Watch("address", announcer, ANNOUNCE_EVERY_S), *watches])
        listener.close()
        if announcer.address:
            forget_address(announcer.address)
        supervisor.say("stopped")


class _Announcer:
    """Says where the pages are, once they answer."""

    def __init__(self, supervisor: Supervisor, host: str, bound: int, wished: int | None, *, signed_in: bool) -> None:
        self.supervisor, self.host, self.bound, self.wished, self.signed_in = supervisor, host, bound, wished, signed_in
        self.done, self.address = False, ""

    def __call__(self) -> None:
        if self.done:
            return
        reachable = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host
        shown = f"[{reachable}]" if ":" in reachable else reachable
        if not _is_healthy(f"http://{shown}:{self.bound}/health/ready"):
            return
        no_owner = self.signed_in and _lacks_owner()       # the database may just have gone: then this look fails, not the next
        self.done = True
        if self.wished is None and self.bound != DEFAULT_PORT:
            self.supervisor.say(f"port {DEFAULT_PORT} is taken, using {self.bound} (PORT=… chooses one)")
        if not self.signed_in:
            self.supervisor.say("single-user local mode: no sign-in, this machine only (HOST=0.0.0.0 opens it, with sign-in)")
        elif no_owner:
            self.supervisor.say("nobody can sign in yet. In another terminal: .venv/bin/python manage.py createowner NAME")
        self.address = f"http://{shown}:{self.bound}"
        note_address(self.address)
        sys.stdout.write(f"Ridgepoint is at {self.address}/\n")
        sys.stdout.flush()


def _lacks_owner() -> bool:
    try:
        return not owner_exists()
    finally:
        connection.close()          # a broken one would be broken the next time too


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=ANSWERS_WITHIN_S) as answer:
            status: int = answer.status
            return status == 200
    except (OSError, urllib.error.URLError):
        return False


def _listen(host: str, port: int | None) -> socket.socket:
    """The listening socket stays with the supervisor: while the web process restarts, browsers wait instead of failing."""
    for candidate in ([port] if port is not None else range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TO_TRY)):
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.socket(family)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, candidate))
            listener.listen(2048)
            return listener
        except OverflowError as error:
            listener.close()
            raise CommandError(f"PORT={candidate} is no port: 1 to 65535") from error
        except socket.gaierror as error:
            listener.close()
            raise CommandError(f"HOST={host} is no address and no name that is known here: {error.strerror}") from error
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRNOTAVAIL:
                raise CommandError(f"HOST={host} is no address of this machine: 127.0.0.1, 0.0.0.0 or one of its own") from error
            failed = error
    if port is None:
        raise CommandError(f"no port from {DEFAULT_PORT} to {DEFAULT_PORT + PORTS_TO_TRY - 1} is free on {host}: {failed.strerror}")
    raise CommandError(f"cannot listen on {host}:{port}: {failed.strerror}. Another one: make run PORT={port + 1}")


def _web_env(host: str, port: int) -> dict[str, str]:
    """On loopback a single user without sign-in; reachable from elsewhere only with sign-in.

    Cookies know no ports: two installations of one machine name theirs apart.
    """
    local = host in (*LOOPBACK, "localhost")
    names = os.environ.get("RIDGEPOINT_HOSTS") or ",".join(_host_names(host, local))
    tag = os.environ.get("RIDGEPOINT_COOKIE_TAG") or (str(port) if port != DEFAULT_PORT else "")
    return {"RIDGEPOINT_SIGN_IN": "0" if local and settings.LOCAL_MODE else "1", "RIDGEPOINT_HOSTS": names,
            "RIDGEPOINT_COOKIE_TAG": tag}


def _host_names(host: str, local: bool) -> list[str]:
    names = ["localhost", "127.0.0.1", "[::1]"]
    if not local:
        import psutil  # only here: what this machine is called on its networks

        found = [a for interface in psutil.net_if_addrs().values() for a in interface]
        addresses = [a.address for a in found if a.family == socket.AF_INET]
        addresses += [f"[{a.address}]" for a in found if a.family == socket.AF_INET6 and "%" not in a.address]      # no link's own
        own_names = [] if host in ("0.0.0.0", "::") else [f"[{host}]" if ":" in host else host]
        names += [socket.gethostname(), socket.getfqdn(), *addresses, *own_names]
    return list(dict.fromkeys(name.lower() for name in names))


def _gpu_count() -> int:
    if not shutil.which("nvidia-smi"):
        return 0
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines()) if listed.returncode == 0 else 0


def _manage_command(*arguments: str) -> list[str]:
    return [sys.executable, str(settings.BASE_DIR / "manage.py"), *arguments]


def _child_name(name: str, index: int, count: int) -> str:
    return f"{name}-{index}" if count > 1 else name
