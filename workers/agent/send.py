"""Spooled batches: on disk until the server acknowledges them, sent oldest first. Outward connections only.

They are files of their sequence number, bounded in bytes.

Whatever moment the process ends at: a batch is there whole or not at all (written aside, synced, renamed), and no sequence
number is given twice (the next one is on disk before it is used). So (agent, sequence) names one content for ever, and sending
again is safe.
"""

from __future__ import annotations

import contextlib
import dataclasses
import email.utils
import http.client
import json
import os
import queue
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workers.agent import VERSION
from workers.agent.wire import pack, unpack

MOST_BYTES = 1 << 30
MOST_ASIDE = 20
ENDING = ".batch"


class Spool:
    """`dropped`: batches that had to go for lack of room, oldest first; it counts over restarts. Any thread may call."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES, name: str = "") -> None:
        self.folder, self.most_bytes = folder, most_bytes
        self._lock = threading.RLock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for part in folder.glob("*.part"):
            part.unlink()
        self._sizes = {int(path.stem): path.stat().st_size for path in folder.glob(f"*{ENDING}") if path.stem.isdecimal()}
        state = self._read_state()
        self.agent = str(state.get("agent") or name or f"agent-{uuid.uuid4()}")
        self._next = max([_count(state, "next"), *(sequence + 1 for sequence in self._sizes)])
        self.dropped, self.refused = _count(state, "dropped"), _count(state, "refused")
        self._write_state()

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return sum(self._sizes.values())

    @property
    def batches(self) -> int:
        return len(self._sizes)

    def put(self, make: Callable[[int], bytes]) -> int:
        """Store the batch that `make` returns for a sequence number; return that number."""
        with self._lock:
            sequence, self._next = self._next, self._next + 1
            self._write_state()
            payload = make(sequence)
            self._write(self._path(sequence), payload)
            self._sizes[sequence] = len(payload)
            while self.size_bytes > self.most_bytes and len(self._sizes) > 1:
                self._remove(min(self._sizes))
                self.dropped += 1
                self._write_state()
            return sequence

    def oldest(self) -> tuple[int, bytes] | None:
        """Return (sequence, payload) of the batch that waits longest."""
        with self._lock:
            while self._sizes:
                sequence = min(self._sizes)
                try:
                    return sequence, self._path(sequence).read_bytes()
                except FileNotFoundError:
                    del self._sizes[sequence]           # somebody cleaned up
            return None

    def done(self, sequence: int) -> None:
        """The server has it."""
        with self._lock:
            self._remove(sequence)

    def set_aside(self, sequence: int, reason: str) -> None:
        """The server will never take it: keep the last MOST_ASIDE of these with the reason."""
        aside = self.folder / "refused"
        aside.mkdir(exist_ok=True)
        self._write(aside / f"{sequence:012}.reason", reason[:2000].encode(errors="replace"))
        with self._lock:
            if sequence in self._sizes:
                os.replace(self._path(sequence), aside / f"{sequence:012}{ENDING}")
                del self._sizes[sequence]
            self.refused += 1
            self._write_state()
        for ending in (ENDING, ".reason"):
            for old in sorted(aside.glob(f"*{ending}"))[:-MOST_ASIDE]:
                old.unlink()

    def _path(self, sequence: int) -> Path:
        return self.folder / f"{sequence:012}{ENDING}"

    def _remove(self, sequence: int) -> None:
        self._path(sequence).unlink(missing_ok=True)
        self._sizes.pop(sequence, None)

    def _read_state(self) -> dict[str, Any]:
        try:
            state = json.loads((self.folder / "state.json").read_text())
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def _write_state(self) -> None:
        state = {"agent": self.agent, "next": self._next, "dropped": self.dropped, "refused": self.refused}
        self._write(self.folder / "state.json", json.dumps(state).encode())

    def _write(self, path: Path, data: bytes) -> None:
        part = path.with_name(path.name + ".part")
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _count(known: dict[str, Any], name: str) -> int:
    count = known.get(name)
    return count if isinstance(count, int) and count > 0 else 0


CLOCK_PATH = "/health/live"
CLOSE_S = 5.0                       # of two clocks: what the network and whole seconds explain is no offset
CONTENT_TYPE = "application/vnd.ridgepoint.fleet"
PATH, ORDERS_PATH = "/api/fleet/batches/", "/api/fleet/orders/"
LEAST_ASK_S, MOST_ASK_S, NO_ORDERS_S = 1.0, 300.0, 600.0        # between questions for orders; of a server that has no such route
REFUSED = (400, 413, 415, 422)      # the batch itself: sending it again does not help
TIMEOUT_S = 30.0
FIRST_WAIT_S, MOST_WAIT_S, NO_LEAVE_S = 1.0, 300.0, 60.0
MOST_ANSWER = 64 << 10
MOST_ORDERS = 64


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token goes to the address that was given, to no other."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


class Sender:
    """`why`: what keeps batches from going, "" while they go; `offset_s`: the server's clock less this host's, by its answers."""

    def __init__(self, spool: Spool, server: str, token: Callable[[], str], chance: random.Random | None = None) -> None:
        parts = urllib.parse.urlsplit(server.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"--server: an address like https://ridgepoint.example, not {server[:100]!r}")
        self.spool, self.server, self.token = spool, server.strip().rstrip("/"), token
        self.why, self.sent, self.duplicates = "", 0, 0
        self.offset_s = 0.0
        self.orders: queue.SimpleQueue[object] = queue.SimpleQueue()        # what receipts asked of this agent
        self._wait_s = FIRST_WAIT_S
        self._chance = chance or random.Random()
        self._opener = urllib.request.build_opener(_NoRedirect)

    def step(self) -> float:
        """Send one batch; return how long to wait before the next, in s."""
        waiting = self.spool.oldest()
        if waiting is None:
            return FIRST_WAIT_S
        sequence, payload = waiting
        try:
            answer = self.post(PATH, payload, {"Content-Type": CONTENT_TYPE})
            receipt = json.loads(answer)
            if not isinstance(receipt, dict) or receipt.get("sequence") != sequence:
                raise ValueError(f"no receipt: {answer[:100]!r}")
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(sequence, payload, error)
        except (OSError, ValueError, http.client.HTTPException) as error:       # a URLError and a timeout are OSErrors
            return self._later(f"{self.server} does not answer: {getattr(error, 'reason', error)}")
        self.spool.done(sequence)
        self.sent += 1
        self._take_orders(receipt)
        self.duplicates += bool(receipt.get("duplicate"))
        self.why, self._wait_s = "", FIRST_WAIT_S
        return 0.0

    def ask_for_orders(self, body: bytes) -> float:
        """Tell of processes that ask for captures, take orders for them; return after how many seconds to ask again."""
        try:
            answer = json.loads(self.post(ORDERS_PATH, body, {"Content-Type": "application/json"}))
        except urllib.error.HTTPError as error:
            with error:
                return NO_ORDERS_S if error.code in (404, 405) else MOST_ASK_S
        except (OSError, ValueError, http.client.HTTPException):
            return self._chance.uniform(0.5, 1.0) * NO_LEAVE_S
        again_s = answer.get("again_s") if isinstance(answer, dict) else None
        self._take_orders(answer)
        return min(MOST_ASK_S, max(LEAST_ASK_S, float(again_s))) if isinstance(again_s, int | float) else NO_LEAVE_S

    def _take_orders(self, answer: object) -> None:
        orders = answer.get("orders") if isinstance(answer, dict) else None
        for order in orders[:MOST_ORDERS] if isinstance(orders, list) else ():
            self.orders.put(order)

    def post(self, path: str, body: Any, headers: dict[str, str]) -> bytes:
        """Return the answer to a POST with the token. `body`: bytes, or what is read as it is sent, with its Content-Length."""
        headers = {**headers, "Authorization": f"Token {self.token()}", "User-Agent": f"ridgepoint-agent/{VERSION}",
                   "Accept": "application/json"}
        return self._ask(urllib.request.Request(self.server + path, body, headers, method="POST"))

    def measure_clock(self) -> None:
        """Ask the server what time it is, before anything is sent."""
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            self._ask(urllib.request.Request(self.server + CLOCK_PATH, method="HEAD"))

    def _ask(self, request: urllib.request.Request) -> bytes:
        begun_s = time.time()
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                self._compare_clocks(answer.headers, begun_s)
                return bytes(answer.read(MOST_ANSWER))
        except urllib.error.HTTPError as error:
            self._compare_clocks(error.headers, begun_s)
            raise

    def _compare_clocks(self, headers: Any, begun_s: float) -> None:
        """Take the server's clock from its answer (RFC 9110, Date: whole seconds, so it is half a second later at the mean)."""
        try:
            server_s = email.utils.parsedate_to_datetime(headers.get("Date", "")).timestamp() + 0.5
        except (TypeError, ValueError):
            return
        measured_s = server_s - (begun_s + time.time()) / 2
        self.offset_s = measured_s if abs(measured_s) > CLOSE_S else 0.0

    def _send_anew(self, sequence: int, payload: bytes, shift_minutes: int = 0) -> None:
        """Put a batch under a number of its own, its minutes moved; it goes on disk before the old one leaves it."""
        batch = unpack(payload)
        state = {**batch.state, "clock_offset_s": self.offset_s} if shift_minutes else batch.state
        tables = {name: {**table, "minute": table["minute"] + shift_minutes} for name, table in batch.tables.items()}
        self.spool.put(lambda own: pack(dataclasses.replace(batch, sequence=own, tables=tables, state=state)))
        self.spool.done(sequence)

    def _late_minutes(self, payload: bytes, where: object) -> int:
        """Return by how many minutes a batch is to be moved that the server refused for its minutes; 0: no clock explains it.

        It was packed before the server's clock was known, or before this host's was set."""
        if where != "minutes":
            return 0
        state = unpack(payload).state
        applied_s = state.get("clock_offset_s", 0.0)
        return round((self.offset_s - applied_s) / 60) if isinstance(applied_s, int | float) else 0

    def _refused(self, sequence: int, payload: bytes, error: urllib.error.HTTPError) -> float:
        text = error.read(2000).decode(errors="replace")
        where = _where(text)
        if error.code == 409 and where == "sequence":
            self._send_anew(sequence, payload)
            return self._later(f"the server has another batch {sequence} of this agent: is its spool a copy?")
        if error.code == 409:
            self.why = f"the server takes no batches of this name with this token: {text[:200]}"
            return NO_LEAVE_S
        if error.code == 400 and (shift_minutes := self._late_minutes(payload, where)):
            self._send_anew(sequence, payload, shift_minutes)
            return self._later(f"batch {sequence} was packed by a clock {-shift_minutes:+,} min off the server's: it is sent anew")
        if error.code in REFUSED:
            self.spool.set_aside(sequence, f"{error.code}: {text}")
            self.why = f"the server refused batch {sequence}: {text[:200]}"
            return 0.0
        if error.code in (401, 403):
            self.why = f"the server takes no batches with this token ({error.code})"
            return NO_LEAVE_S
        stated = error.headers.get("Retry-After", "")
        if stated.isdecimal():                      # hosts that were told the same do not come back at once
            self.why = f"the server asks to come again in {stated} s ({error.code})"
            return min(int(stated), 3600) * self._chance.uniform(1.0, 1.5) + self._chance.uniform(0, 1)
        return self._later(f"the server answers {error.code}")

    def _later(self, why: str) -> float:
        self.why = why[:300]
        wait_s = self._wait_s * self._chance.uniform(0.5, 1.0)
        self._wait_s = min(MOST_WAIT_S, self._wait_s * 2)
        return wait_s


def _where(said: str) -> object:
    """Return what an error of the server is about: a field, "agent" or "sequence"; None where it does not say."""
    try:
        answer = json.loads(said)
    except (ValueError, RecursionError):
        return None
    return answer.get("where") if isinstance(answer, dict) else None
