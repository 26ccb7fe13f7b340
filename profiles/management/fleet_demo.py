"""`manage.py fleet demo` and `forget-simulated`: simulated agents that post to a running server, and their end."""

from __future__ import annotations

import signal
import threading
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import transaction
from django.utils import timezone

from profiles.fleet.demo import Demo
from profiles.fleet.merge import key_of
from profiles.fleet.models import FleetAgent, FleetContext, FleetGpu, FleetHour, FleetKernel, FleetSignature
from profiles.fleet.services import merge_waiting
from profiles.fleet.stores import fleet_store
from tuner.gate.production.services import forget_simulated_production
from webapp.accounts import local_user
from webapp.management.served import served_address
from webapp.models import ApiToken
from workers.agent.wire import Batch, pack

PORTS = range(8000, 8050)               # those that `make run` tries: of a server that did not note where it answers
CONTENT_TYPE = "application/vnd.ridgepoint.fleet"
TRIES, PAUSE_S, TIMEOUT_S = 30, 2.0, 30.0
TOKEN_NAME = "fleet demo (simulated)"
Say = Callable[[str], object]


def add_demo_arguments(commands: Any) -> tuple[ArgumentParser, ArgumentParser]:
    """Add both commands; return their parsers."""
    demo: ArgumentParser = commands.add_parser("demo", help="a simulated fleet beside a running server, labelled as simulated")
    for name, default, text in (("hosts", 8, "simulated hosts"), ("gpus", 8, "GPUs of a host"),
                                ("days", 12, "days of history, sent first"),
                                ("minutes", 60, "minutes that it goes on (0: until Ctrl-C)"),
                                ("seed", 1, "of what is random")):
        demo.add_argument(f"--{name}", type=int, default=default, help=f"{text} (default {default})")
    demo.add_argument("--server", default="", help="https://… of a server (default: the one of `make run` with this data folder)")
    demo.add_argument("--token", default="", help="an API token that may write, for --server")
    forget: ArgumentParser = commands.add_parser("forget-simulated", help="remove everything that simulated jobs and agents sent")
    return demo, forget


class Sender:
    """Posts batches; waits where the server says later or is away, until it is stopped."""

    def __init__(self, server: str, token: str, stop: threading.Event) -> None:
        self.url, self.token, self.stop = server.rstrip("/") + "/api/fleet/batches/", token, stop
        self.sent = self.bytes = 0

    def send(self, batch: Batch) -> None:
        """Raises CommandError where the server refuses, or stays away."""
        data = pack(batch)
        for _ in range(TRIES):
            if self.stop.is_set():
                return
            request = urllib.request.Request(self.url, data, {"Content-Type": CONTENT_TYPE, "Authorization": f"Token {self.token}"})
            wait_s, why = PAUSE_S, ""
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S):
                    self.sent, self.bytes = self.sent + 1, self.bytes + len(data)
                    return
            except urllib.error.HTTPError as error:
                why = f"{error.code} {error.read(300).decode(errors='replace')}"
                if error.code == 429:
                    wait_s = float(error.headers.get("Retry-After") or PAUSE_S)
                elif error.code < 500:
                    raise CommandError(f"{self.url}: {why}") from error
            except OSError as error:
                why = str(error)
            self.stop.wait(wait_s)
        raise CommandError(f"{self.url} did not take a batch in {TRIES} tries: {why}")


def run_demo(options: dict[str, Any], say: Say) -> dict[str, Any]:
    """Send history, then minute by minute; Ctrl-C ends it between two batches."""
    for name in ("hosts", "gpus"):
        if not 1 <= options[name] <= 1000:
            raise CommandError(f"--{name}: 1 to 1000")
    if not 0 <= options["days"] <= 60:
        raise CommandError("--days: 0 to 60")
    stop = threading.Event()
    with _stopped_by_signals(stop), _place(options["server"], options["token"]) as (server, token):
        demo = Demo(options["hosts"], options["gpus"], int(time.time() // 60), options["seed"])
        sender = Sender(server, token, stop)
        say(f"{demo.hosts} simulated hosts × {demo.gpus} GPUs, to {server}: {options['days']} days of history first")
        _send_all(demo.history(options["days"]), sender, stop)
        if not stop.is_set():
            say(f"{sender.sent} batches, {sender.bytes / 1e6:.1f} MB sent; days are summed about 10 minutes after they came")
        minute, end = demo.now_minute // 60 * 60, demo.now_minute + options["minutes"] if options["minutes"] else None
        while not stop.is_set() and (end is None or minute < end):
            if minute >= int(time.time() // 60):            # a minute is sent once it is over
                stop.wait(60 - time.time() % 60 + 0.5)
                continue
            _send_all(demo.minute(minute), sender, stop)
            minute += 1
    say(f"stopped after {sender.sent} batches; `manage.py fleet forget-simulated` removes them")
    return {"simulated": True, "server": server, "batches": sender.sent, "bytes": sender.bytes, "hosts": demo.hosts,
            "gpus": demo.gpus}


def _send_all(batches: Iterable[Batch], sender: Sender, stop: threading.Event) -> None:
    for batch in batches:
        if stop.is_set():
            return
        sender.send(batch)


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)} \
        if threading.current_thread() is threading.main_thread() else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _place(server: str, token: str) -> Iterator[tuple[str, str]]:
    """The server and a token for it: those given, else the one of `make run`, with a token that lives as long as this."""
    if server:
        if not token:
            raise CommandError("--server needs --token: make one on its page “API tokens”, of scope “read and write”")
        yield server.rstrip("/"), token
        return
    row, secret = ApiToken.objects.create(      # type: ignore[no-untyped-call]    # knox has no types
        local_user(), expiry=timedelta(days=2), name=TOKEN_NAME, scope=ApiToken.Scope.WRITE)
    try:
        yield _find_server(secret), secret
    finally:
        ApiToken.objects.filter(name=TOKEN_NAME, expiry__lt=timezone.now() + timedelta(days=2), digest=row.digest).delete()


def _find_server(token: str) -> str:
    """Return the address of the server that knows this token: it uses the same database."""
    for address in filter(None, (served_address(), settings.PUBLIC_URL, *(f"http://127.0.0.1:{port}" for port in PORTS))):
        # OSError: nobody there, or another's server: 401. ValueError: what is noted is no address
        with suppress(OSError, ValueError):
            request = urllib.request.Request(f"{address}/api/fleet/top/?limit=1", headers={"Authorization": f"Token {token}"})
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                if answer.status == 200:
                    return address
    raise CommandError(f"no server of this data folder ({settings.HOME}) answers: `make run` starts one; or name one with --server "
                       "and --token")


def run_forget(say: Say) -> dict[str, Any]:
    """Remove what simulated jobs left."""
    removed = {**forget_simulated_production(), **forget_simulated()}
    say("removed: " + ", ".join(f"{number:,} {name}" for name, number in removed.items()))
    return {"removed": removed}


# Everything that simulated jobs sent goes: agents with what waits of them, sums, names. What real jobs sent stays.


def forget_simulated() -> dict[str, int]:
    """Remove it; return what went and how many of each."""
    merge_waiting()                     # batches of files (`feed --simulated`) and of agents: all of it is sums then
    with transaction.atomic():
        agents = FleetAgent.objects.filter(simulated=True)
        counts = {"simulated agents": agents.count()}
        agents.delete()
        contexts = dict(FleetContext.objects.filter(simulated=True).values_list("id", "gpu_model"))
        gone = fleet_store().forget(list(contexts), [key_of("gpu_model", model, True) for model in set(contexts.values())])
        FleetHour.objects.update(compared=None)         # other GPUs are compared with those that are left
        counts["rows of sums"] = gone.rows
        counts["GPUs"] = FleetGpu.objects.filter(id__in=gone.gpus).delete()[0]
        signatures = FleetSignature.objects.filter(id__in=gone.signatures)
        kernels = set(signatures.values_list("kernel_id", flat=True))
        counts["signatures"] = signatures.count()
        signatures.delete()
        counts["kernels"] = FleetKernel.objects.filter(id__in=kernels, signatures=None).delete()[0]
        counts["contexts"] = FleetContext.objects.filter(id__in=list(contexts)).delete()[0]
    return counts
