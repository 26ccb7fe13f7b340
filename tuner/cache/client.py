"""Tuned configurations at launch, for a training or serving job. One file, standard library only: install it or copy it.

    @tuned("matmul", names={"BM": "BLOCK_M"}, default={"BLOCK_M": 64, …})     above @triton.jit or @triton.autotune
    def kernel(a, b, c, M, N, K, …): …                     launched as before, without the tuned parameters

    best("matmul", "bf16", M=4096, N=4096, K=4096).config  or ask, and pass it on yourself
    with record("calls.json"): step()                      what a kernel is launched with, to make an operator of it

RIDGEPOINT_URL, RIDGEPOINT_TOKEN   the server, and a token (scope "read and write" when what was served shall be counted)
RIDGEPOINT_SNAPSHOT                the snapshot that all ranks of a job use; without it, the newest, looked up again now and then
RIDGEPOINT_SNAPSHOT_FILE           where the last snapshot is kept for the time that the server is down
RIDGEPOINT_OLD_DAYS                a kept snapshot that no server confirmed for so many days is warned of (30)
RIDGEPOINT_VERIFIED                1: serve only what a tune job proved on this installation, nothing from a file or a listener
RIDGEPOINT_RECORDED                1: serve recordings too, which were replayed there and not measured
RIDGEPOINT_STRICT                  1: a name that no operator has (its own, a type, a dimension) raises UnknownName
RIDGEPOINT_GPU                     the GPU's name, where it cannot be seen

A launch reads one dictionary: no lock, no network. A snapshot is fetched once, before the first launch.
"""

from __future__ import annotations

import atexit
import ctypes
import difflib
import glob
import hashlib
import importlib
import importlib.util
import json
import logging
import math
import os
import random
import re
import socket
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

log = logging.getLogger("ridgepoint")
MAX_BYTES = 64 * 2**20           # of a snapshot
START_S, ASK_S = 3.0, 15.0       # how long a job waits for the server before its first launch; how long the thread waits
REFRESH_S, SOON_S = 60.0, 5.0     # between two questions; after one that failed
OLD_DAYS, DAY_S = 30.0, 86400.0
UNREADABLE = (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError)     # file or answer
FORM = 2                         # of a report: "exact" is of a launch's own shape
MAX_TOLD = 2000                  # rows of one report, as the server takes them
MAX_CALLS = 200                  # launches that `record` keeps
MAX_SEEN = 4096                  # shapes remembered per kernel; a job with more begins anew
_BITS = {"fp8": ("e4m3fn", "e4nv"), "fp8e5": ("e5m2", "e5"), "fp8e4b15": ("e4m3b11fnuz", "e4b15"),
         # AMD's formats have another bias: numbers of them are no numbers of the ones above. Of float8_e4m3 (IEEE) neither
         "fp8e4b8": ("e4m3fnuz", "e4b8"), "fp8e5b16": ("e5m2fnuz", "e5b16")}
DTYPES = {                        # of torch, Triton (also with "*" before it), numpy and JAX, without "_" → as entries say it
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16", "f16": "fp16",
    "float32": "fp32", "float": "fp32", "single": "fp32", "fp32": "fp32", "f32": "fp32",
    "float64": "fp64", "double": "fp64", "fp64": "fp64", "f64": "fp64",
    **{f"{prefix}{bits}": name for name, all_bits in _BITS.items() for bits in all_bits for prefix in ("", "float8", "fp8", "f8")},
    "fp8": "fp8", "e4m3": "fp8", "fp8e4m3": "fp8", "f8_e4m3": "fp8",                   # the last of safetensors; f8e4m3 is IEEE's
    "char": "int8", "short": "int16", "int": "int32", "intc": "int32", "long": "int64", "byte": "uint8",
    "bool": "bool", "i1": "bool", "pred": "bool", "b1": "bool",
    **{f"{short}{bits}": f"{name}{bits}" for short, name in (("i", "int"), ("s", "int"), ("u", "uint"), ("int", "int"),
                                                             ("uint", "uint")) for bits in (8, 16, 32, 64)}}
OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg"}     # of a launch, beside the kernel's own parameters


class Served:
    """Answer for a shape; `config` is None when nothing fits and the caller gave no default.

    rule      "exact": measured at this very shape; "bucket": at `measured`, in one bucket with `shape`
    recorded  True: the entry is of a recording, not of a measurement there
    state     of the entry: "verified", "unverified" (of a file, a listener, an older toolkit), "stale"; "" where it is not known
    measured  the shape that the entry was measured at; empty where the snapshot does not say
    library   the vendor library was measured so many times as fast as `config` at this bucket: keep calling it. Else None
    launches  of @tuned kernels since the last report; who launches `config` himself may add to it
    asked     calls of best() since the last report
    """

    __slots__ = ("asked", "bucket", "config", "dtype", "entry", "launches", "library", "measured", "operator", "plain", "recorded",
                 "rule", "shape", "state", "why")

    def __init__(self, operator: str, dtype: str, bucket: str, rule: str, why: str, entry: int | None,
                 config: Mapping[str, Any] | None, plain: Mapping[str, Any] | None = None,
                 library: float | None = None, shape: Mapping[str, int] | None = None,
                 measured: Mapping[str, int] | None = None, state: str = "", recorded: bool = False) -> None:
        self.state, self.recorded = state, recorded
        self.library, self.shape, self.measured = library, dict(shape or {}), dict(measured or {})
        self.plain = plain                   # of the entry, for kernels that do not take its newer parameters
        self.operator, self.dtype, self.bucket, self.rule, self.why = operator, dtype, bucket, rule, why
        self.entry, self.config, self.launches, self.asked = entry, config, 0, 0

    def __repr__(self) -> str:
        shape = _shape_text(self.shape) if self.shape else self.bucket
        return f"<{self.operator} {self.dtype} {shape}: {self.rule}{', recorded' * self.recorded}, {self.config}>"


class Snapshot:
    """Every configuration that this GPU and toolkit may be served, the rules already applied by the server; recordings among them.

    home  [place, rule] of an entry at its own bucket; None where it may not serve there
    same  [place, rule] of it at the very shape that it was measured at; a server before that was told apart sends none
    away  [place, rule, powers of two] at another one, at most so far; None where it may not
    """

    def __init__(self, document: Any) -> None:
        if not isinstance(document, dict) or document.get("version") != 1:
            raise ValueError("not a snapshot of version 1")
        self.id, self.gpu, self.toolkit = str(document["id"]), str(document["gpu"]), str(document["toolkit"])
        self.operators, self.whys = document["operators"], document["why"]
        self.verified = document.get("verified") is True          # it holds nothing else
        self.tells_recordings = all("recorded" in entry for entry in document["entries"])     # a server from before does not
        self._home: dict[tuple[str, str, str], list[Listed]] = {}
        self._away: dict[tuple[str, str], list[tuple[Listed, dict[str, int]]]] = {}
        # operator, dtype, bucket → why what was measured there does not serve
        self.held = {(row["operator"], row["dtype"], row["bucket"]): f"entry {row['id']}: {row['why']}"
                     for row in document.get("held", ())}
        for number, entry in enumerate(document["entries"]):
            operator, dtype, listed = entry["operator"], entry["dtype"], (number, entry)
            if entry["home"]:
                self._home.setdefault((operator, dtype, entry["bucket"]), []).append(listed)
            if entry["away"]:
                self._away.setdefault((operator, dtype), []).append((listed, parse(entry["bucket"])))

    def revoke(self, ids: Collection[int]) -> list[int]:
        """Take entries out, so that what is next serves; return those that were there."""
        there = {entry["id"] for group in self._home.values() for _, entry in group}
        there |= {entry["id"] for group in self._away.values() for (_, entry), _ in group}
        gone = there.intersection(ids)
        if gone:
            self.held.update({key: f"entry {row['id']} was quarantined since" for key, group in self._home.items()
                              for _, row in group if row["id"] in gone})
            self._home = {key: [pair for pair in group if pair[1]["id"] not in gone] for key, group in self._home.items()}
            self._away = {key: [pair for pair in group if pair[0][1]["id"] not in gone] for key, group in self._away.items()}
        return sorted(gone)

    def bucket(self, operator: str, shape: Mapping[str, int]) -> str:
        """Return the bucket of a shape."""
        facts = self.operators.get(operator)
        return bucket(shape, facts["exact"], facts["policy"]) if facts else _shape_text(shape)

    def find(self, operator: str, dtype: str, shape: Mapping[str, int], recorded: bool = False) -> Served | None:
        """Return what serves the shape: first by place, then distance, then list order; else None. `recorded`: recordings too."""
        if operator not in self.operators:
            return None
        exact, policy = self.operators[operator]["exact"], self.operators[operator]["policy"]
        own_bucket, best = bucket(shape, exact, policy), _NO_CANDIDATE
        home = [pair for pair in self._home.get((operator, dtype, own_bucket), ()) if recorded or not pair[1].get("recorded")]
        for number, entry in home:
            place, rule = entry["same"] if entry.get("same") and entry["shape"] == shape else entry["home"]
            best = min(best, (place, 0.0, number, rule, entry), key=_rank)
        away = [pair for pair in self._away.get((operator, dtype), ()) if recorded or not pair[0][1].get("recorded")]
        if away and best[0] > min(entry["away"][0] for (_, entry), _ in away):
            dims = parse(own_bucket)
            for (number, entry), there in away:
                place, rule, reach = entry["away"]
                apart = distance(there, dims, exact, policy) if entry["bucket"] != own_bucket else None
                if apart is not None and apart <= reach:
                    best = min(best, (place, apart, number, rule, entry), key=_rank)
        _, _, _, rule, entry = best
        if not entry:
            return None
        measured = entry.get("shape") or {}
        if rule == "exact" and measured != shape:          # so an older server calls every hit of a bucket
            rule = "bucket"
        why = "recorded, not measured here: " * bool(entry.get("recorded")) + self.whys.get(rule, rule)
        if measured and measured != shape:
            why = f"{why}; measured at {_shape_text(measured)}, asked for {_shape_text(shape)}"
        return Served(operator, dtype, own_bucket, rule, why, entry["id"], entry["config"], entry.get("plain"),
                      entry.get("library") if rule in ("exact", "bucket") else None, shape, measured,
                      str(entry.get("state") or ""), bool(entry.get("recorded")))


Listed = tuple[int, dict[str, Any]]                          # where an entry stands in the list, and the entry
_NO_CANDIDATE: tuple[float, float, int, str, dict[str, Any]] = (math.inf, 0.0, 0, "", {})


def _rank(candidate: tuple[float, float, int, str, dict[str, Any]]) -> tuple[float, float, int]:
    return candidate[:3]


def parse(text: str) -> dict[str, int]:
    return {name: int(value) for name, _, value in (part.partition("=") for part in text.split())}


def _shape_text(shape: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(shape.items()))


def bucket(shape: Mapping[str, int], exact: Collection[str], policy: Mapping[str, Any]) -> str:
    """Return a bucket as tuner.cache.buckets.bucket does."""
    return " ".join(f"{name}={value if name in exact else _step(value, policy)}" for name, value in sorted(shape.items()))


def _step(value: int, policy: Mapping[str, Any]) -> int:
    steps = policy["steps_per_doubling"]
    if value <= policy["exact_up_to"] or not steps:
        return value
    point: int = round(2 ** (round(math.log2(value) * steps) / steps))
    return point


def distance(a: Mapping[str, int], b: Mapping[str, int], exact: Collection[str], policy: Mapping[str, Any]) -> float | None:
    """Return a distance as tuner.cache.buckets.bucket_distance does."""
    if a.keys() != b.keys():
        return None
    total = 0.0
    for name, value in a.items():
        other = b[name]
        if value == other:
            continue
        fixed = name in exact or min(value, other) < policy["exact_up_to"]
        if fixed or _step(value, policy) != value or _step(other, policy) != other:
            return None
        total += abs(math.log2(value / other))
    return total


class UnknownName(ValueError):
    """An operator, a data type or dimensions that the server's operators do not have, with the nearest that they have."""


def dtype_name(dtype: Any) -> str:
    """Return a type as entries say it: "bf16" of torch.bfloat16, numpy's and JAX's types, "*bf16" and "bfloat16"."""
    text = str(getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype)
    if inside := re.search(r"(?:pointer<|tensordesc<|<class '|dtype\('|dtype\[)\s*([^\s,\[\]>')]+)", text):
        text = inside[1]
    if code := re.fullmatch(r"[<>=|]([fiub])(\d)", text):                 # numpy's: its size in bytes
        text = {"f": "float", "i": "int", "u": "uint", "b": "bool"}[code[1]] + str(8 * int(code[2])) * (code[1] != "b")
    last = re.sub(r"^(?:\*k?)?", "", text.strip()).rpartition(".")[2]
    short = re.sub("^(?:__)?(?:nv_)?", "", last.lower())
    return DTYPES.get(short) or DTYPES.get(short.replace("_", ""), last)


def name_problem(operators: Mapping[str, Any], operator: str, dtype: str, shape: Collection[str]) -> str:
    """Return what of a question no operator has, and the nearest that there is; "" where all of it is known."""
    facts = operators.get(operator)
    if facts is None:
        return f"there is no operator {operator!r}{_nearest(operator, operators)}"
    types = list(facts.get("dtypes") or ())
    if dtype and types and dtype not in types:
        return f"{operator} has no type {dtype!r}{_nearest(dtype, types)}: it has {', '.join(types)}"
    if not dtype and len(types) > 1:
        return f"{operator} is asked for without a type, {types[0]} is taken: it has {', '.join(types)}"
    dims = facts.get("dims") or ()
    if dims and set(shape) != set(dims):
        wrong = [name for name in shape if name not in dims]
        missing = [name for name in dims if name not in shape]
        problems = [f"no dimension {name!r}{_nearest(name, missing)}" for name in wrong]
        problems += ["it needs " + ", ".join(missing)] if missing and len(missing) != len(wrong) else []
        return f"{operator} has {'; '.join(problems) or 'other dimensions'} (its dimensions: {', '.join(dims)})"
    return ""


def _nearest(name: str, names: Collection[str]) -> str:
    folded = {word.lower(): word for word in names}
    near = difflib.get_close_matches(name.lower(), folded, 1, 0.6)
    return f", did you mean {folded[near[0]]!r}?" if near else ""


class Refused(OSError):
    """The server's answer to what it does not take: `code` is HTTP's, the text holds its reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"the server answers {code}: {reason}")
        self.code = code


def _reason(error: urllib.error.HTTPError) -> str:
    """Return what the server says is wrong and what to do; HTTP's own words where it says nothing."""
    with suppress(*UNREADABLE):
        document = json.loads(error.read(1 << 16))
        if words := ": ".join(str(document[name]) for name in ("error", "hint") if document.get(name)):
            return words[:1000]
    return str(error.reason)


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in ("1", "true", "yes", "on")


class Server:
    """HTTP to Ridgepoint; follows no redirect, so the token goes to the named server alone."""

    class _Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    def __init__(self, url: str, token: str = "") -> None:
        if url and urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"RIDGEPOINT_URL must begin with http:// or https://, not {url[:40]!r}")
        self.url, self.token = url.rstrip("/"), token
        self._open = urllib.request.build_opener(self._Stay).open

    def ask(self, path: str, timeout: float, *, send: Any = None, etag: str = "") -> tuple[int, bytes]:
        """Return status and body (304: none). Raises OSError when the server is away, Refused with its reason when it refuses."""
        headers = {"Accept": "application/json", **({"Authorization": f"Token {self.token}"} if self.token else {})}
        if etag:
            headers["If-None-Match"] = etag
        if send is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self.url + path, headers=headers,
                                         data=None if send is None else json.dumps(send).encode())
        try:
            with self._open(request, timeout=timeout) as answer:
                body = answer.read(MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            if error.code == 304:
                return 304, b""
            raise Refused(error.code, _reason(error)) from error
        if len(body) > MAX_BYTES:
            raise OSError(f"an answer of more than {MAX_BYTES:,} bytes")
        return answer.status, body


class Client:
    """The snapshot of one job, refreshed in the background, and counts of what it served."""

    def __init__(self, url: str | None = None, token: str | None = None, *, snapshot: str | None = None,
                 file: str | None = None, gpu: str | None = None, toolkit: str | None = None,
                 refresh_s: float = REFRESH_S, verified: bool | None = None, recorded: bool | None = None) -> None:
        env = os.environ.get
        self.server = Server(env("RIDGEPOINT_URL", "") if url is None else url,
                             env("RIDGEPOINT_TOKEN", "") if token is None else token)
        self.pinned = env("RIDGEPOINT_SNAPSHOT", "") if snapshot is None else snapshot
        self.verified = _is_set("RIDGEPOINT_VERIFIED") if verified is None else verified
        self.recorded = _is_set("RIDGEPOINT_RECORDED") if recorded is None else recorded
        self.device = Device(gpu) if gpu else device()
        self.gpu, self.toolkit = self.device.name, toolkit_name() if toolkit is None else toolkit
        whose = f"{self.server.url}|{self.server.token}"
        path = env("RIDGEPOINT_SNAPSHOT_FILE", "") or _snapshot_path(self.gpu, self.toolkit, self.verified, whose)
        self.file = path if file is None else file
        self.refresh_s, self.source, self.problem = refresh_s, "nowhere", ""
        self.snapshot: Snapshot | None = None
        self.revoked: list[int] = []     # entries of the snapshot that were quarantined since
        self._lock, self._end = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._mute = False               # the server does not want to know what was served
        self._served: list[Served] = []
        self._warned: set[str] = set()
        self._asked: dict[Any, Served] = {}
        self._counted: Counter[tuple[Any, ...]] = Counter()      # launches
        self._inquiries: Counter[tuple[Any, ...]] = Counter()    # calls of best()
        self.kernels: weakref.WeakSet[Tuned] = weakref.WeakSet()
        self._load()
        _LIVING.add(self)

    def best(self, operator: str, dtype: str = "", default: Mapping[str, Any] | None = None, **shape: int) -> Served:
        """Return the configuration of a shape, or `default`. Asking is no launch, and is counted apart."""
        key = (operator, dtype, *shape.items())
        served = self._asked.get(key)
        if served is None:
            if len(self._asked) >= MAX_SEEN:
                self._asked = {}
            served = self._asked[key] = self.look(operator, dtype, shape, default)
        served.asked += 1
        return served

    def look(self, operator: str, dtype: str, shape: Mapping[str, int], default: Mapping[str, Any] | None) -> Served:
        """Look a shape up: once per shape and snapshot."""
        snapshot = self.snapshot
        facts, dtype_text = snapshot.operators.get(operator, {}) if snapshot else {}, dtype_name(dtype) if dtype else ""
        dtype = dtype_text or next(iter(facts.get("dtypes", ())), "")
        problem = name_problem(snapshot.operators, operator, dtype_text, shape) if snapshot else ""
        if problem and _is_set("RIDGEPOINT_STRICT"):
            raise UnknownName(problem)
        served = snapshot.find(operator, dtype, shape, self.recorded) if snapshot else None
        aside = None if snapshot is None or self.recorded else snapshot.find(operator, dtype, shape, True)
        hint = (f"; recording {aside.entry} fits by the rule {aside.rule} and serves only jobs that ask for recordings: "
                "RIDGEPOINT_RECORDED=1") if aside and aside.recorded else ""
        self._warn_once(problem if served or not problem else f"{problem}; the default serves")
        if served is not None:
            served.why += f"; {problem}" * bool(problem) + hint
        else:
            place = snapshot.bucket(operator, shape) if snapshot else _shape_text(shape)
            reason = snapshot.held.get((operator, dtype, place), "") if snapshot else ""
            why = f"nothing measured fits{': ' * bool(problem or reason)}{problem or reason}{hint}" if snapshot else \
                f"no snapshot: {self.problem or 'RIDGEPOINT_URL names no server'}"
            served = Served(operator, dtype, place, "default", why, None, default, shape=shape)
        with self._lock:
            self._served.append(served)
            if len(self._served) > 2 * MAX_SEEN:
                self._sum_launches()
        self._start_thread()
        return served

    def _warn_once(self, problem: str) -> None:
        if problem and problem not in self._warned:
            self._warned.add(problem)
            log.warning("Ridgepoint: %s", problem)

    def status(self) -> dict[str, Any]:
        return {"snapshot": self.snapshot.id if self.snapshot else None, "from": self.source, "pinned": bool(self.pinned),
                "gpu": self.gpu, "compute_capability": self.device.compute_capability, "sms": self.device.sms,
                "toolkit": self.toolkit, "recorded": self.recorded, "file": self.file, "problem": self.problem,
                "revoked": list(self.revoked), "age_days": self.age_days()}

    def age_days(self) -> float | None:
        """Return since when no server confirmed the snapshot, by its file; None without either."""
        with suppress(OSError):
            return max(0.0, time.time() - os.stat(self.file).st_mtime) / DAY_S if self.snapshot and self.file else None
        return None

    def close(self) -> None:
        """Report what was served and end the thread."""
        self._end.set()
        self.report(START_S)
        _LIVING.discard(self)

    # ---- the snapshot ----

    def _load(self) -> None:
        """Load a pinned snapshot from the file, else from the server, else any snapshot of the file."""
        snapshot = self._read_file()
        if not (snapshot and self.pinned == snapshot.id and snapshot.tells_recordings):
            reached = self.refresh(START_S)
            snapshot = None if reached or (snapshot and self.pinned not in ("", snapshot.id)) else snapshot
        if snapshot:
            self._adopt(snapshot, "file")
            self._warn_of_age(snapshot)
            self.check_revoked(START_S, asks=self.pinned == snapshot.id)         # else the server was just asked, in vain
        if self.pinned and self.snapshot is None:
            log.warning("snapshot %s is neither on the server nor in %s: defaults serve. %s", self.pinned, self.file, self.problem)

    def _read_file(self) -> Snapshot | None:
        with suppress(*UNREADABLE):
            with open(self.file, "rb") as file:
                snapshot = Snapshot(json.loads(file.read(MAX_BYTES)))
            question = (self.gpu, self.toolkit, self.verified)
            return snapshot if (snapshot.gpu, snapshot.toolkit, snapshot.verified) == question else None
        return None

    def refresh(self, timeout: float = ASK_S) -> bool:
        """Fetch the snapshot where it changed; False without an answer, `problem` says why."""
        if not self.server.url:
            return False
        query = {"gpu": self.gpu, "toolkit": self.toolkit, "recorded": "1", **({"id": self.pinned} if self.pinned else {}),
                 **({"compute_capability": self.device.compute_capability} if self.device.compute_capability else {}),
                 **({"sms": str(self.device.sms)} if self.device.sms else {}),
                 **({"verified": "1"} if self.verified else {})}
        etag = f'"{self.snapshot.id}"' if self.snapshot else ""
        try:
            status, body = self.server.ask("/api/configs/snapshot/?" + urllib.parse.urlencode(query), timeout, etag=etag)
            if status == 200:
                self._adopt(Snapshot(json.loads(body)), "server")
                self._write_file(self.file, body)
                if self.pinned:
                    self.check_revoked(timeout)
            elif self.file:                      # confirmed: as old as now
                with suppress(OSError):
                    os.utime(self.file)
        except UNREADABLE as error:
            self._warn(f"{type(error).__name__}: {error}"[:300])
            return False
        self.problem = ""
        return True

    def check_revoked(self, timeout: float = ASK_S, asks: bool = True) -> None:
        """Take out of a pinned or kept snapshot what was quarantined since, by the server, else as it last said."""
        ids: Any = None
        with suppress(*UNREADABLE):
            if self.server.url and asks:
                query = urllib.parse.urlencode({"gpu": self.gpu, "toolkit": self.toolkit, "revoked": "1",
                                                "id": self.snapshot.id if self.snapshot else ""})
                ids = json.loads(self.server.ask(f"/api/configs/snapshot/?{query}", timeout)[1]).get("revoked")
        path = f"{self.file}.revoked"
        with suppress(*UNREADABLE):
            if ids is None:
                with open(path, "rb") as file:
                    ids = json.loads(file.read(MAX_BYTES))
            elif self.file and (ids or os.path.exists(path)):       # none any more is said too
                self._write_file(path, json.dumps(ids).encode())
        snapshot = self.snapshot
        gone = snapshot.revoke({pk for pk in ids if isinstance(pk, int)}) if snapshot and isinstance(ids, list) else []
        if snapshot and gone:
            self.revoked = sorted({*self.revoked, *gone})
            self._reset_kernels()
            log.warning("Ridgepoint: %d entries of snapshot %s were quarantined since and do not serve: %s", len(gone), snapshot.id,
                        ", ".join(map(str, gone[:10])))

    def _warn_of_age(self, kept: Snapshot) -> None:
        age, most = self.age_days(), OLD_DAYS
        with suppress(ValueError):
            most = float(os.environ.get("RIDGEPOINT_OLD_DAYS", "") or OLD_DAYS)
        if age is not None and age > most:
            log.warning("Ridgepoint: snapshot %s is of %.0f days ago, and no server confirmed it since", kept.id, age)

    def _adopt(self, snapshot: Snapshot, source: str) -> None:
        if self.pinned and snapshot.id != self.pinned:
            raise ValueError(f"the server sent snapshot {snapshot.id}, pinned is {self.pinned}")
        if self.verified and not snapshot.verified:
            raise ValueError("the server sent what is not verified too, and only verified entries may serve")
        self.snapshot, self.source, self.revoked = snapshot, source, []
        self._reset_kernels()

    def _reset_kernels(self) -> None:
        """Let kernels look again; what they counted stays until it is reported."""
        self._asked = {}
        for kernel in list(self.kernels):
            kernel.forget()

    def _write_file(self, path: str, body: bytes) -> None:
        """Write beside and rename: another rank may write the same."""
        if not path:
            return
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            beside = f"{path}.{socket.gethostname()}.{os.getpid()}"
            with open(beside, "wb") as file:
                file.write(body)
            os.replace(beside, path)
        except OSError as error:
            self._warn(f"the snapshot was not kept: {error}")

    def _warn(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("Ridgepoint: %s", problem)
        self.problem = problem

    # ---- in the background ----

    def _start_thread(self) -> None:
        if self._thread is None and self.server.url and not self._end.is_set():
            self._thread = threading.Thread(target=self._run_thread, name="ridgepoint", daemon=True)
            self._thread.start()

    def _run_thread(self) -> None:
        pause = self._pause_s(0.0)
        while not self._end.wait(pause * random.uniform(0.75, 1.25)):       # ranks do not ask all at once
            self.report()
            if not self.pinned or self.snapshot is None:
                self.refresh()
            else:
                self.check_revoked()
            pause = self._pause_s(pause)

    def _pause_s(self, last: float) -> float:
        """Return seconds until the next request: short at first while the server is away, then longer."""
        return min(self.refresh_s, max(SOON_S, 2 * last)) if self.problem else self.refresh_s

    def report(self, timeout: float = ASK_S) -> bool:
        """POST launches and questions per bucket and entry since the last time; what fails is kept for the next."""
        with self._lock:
            self._sum_launches()
            counted = {key: (self._counted[key], self._inquiries[key]) for key in {**self._counted, **self._inquiries}}
            self._counted, self._inquiries = Counter(), Counter()
        if not counted or not self.server.url or self._mute:
            return not counted
        try:
            while counted:
                part = dict(islice(counted.items(), MAX_TOLD))
                self._tell(part, timeout)
                counted = {key: counts for key, counts in counted.items() if key not in part}
        except (OSError, ValueError) as error:
            if getattr(error, "code", 0) in (401, 403):
                self._mute = True
                log.warning("Ridgepoint: the token may not write, so what is served is not counted; give one that may")
                return False
            self._warn(f"what was served was not reported: {error}"[:300])
            if getattr(error, "code", 0) == 400:         # never taken, so it must not stand before what comes later
                return False
            with self._lock:
                self._counted.update({key: launches for key, (launches, _) in counted.items() if launches})
                self._inquiries.update({key: inquiries for key, (_, inquiries) in counted.items() if inquiries})
            return False
        return True

    def _tell(self, counted: Mapping[tuple[Any, ...], tuple[int, int]], timeout: float) -> None:
        """POST counts; to a server that refuses them once more as one from before bucket was a rule takes them: launches alone."""
        names = ("operator", "dtype", "bucket", "rule", "entry", "launches", "asked")
        rows = [dict(zip(names, (*key, *counts), strict=True)) for key, counts in counted.items()]
        context = {"snapshot": self.snapshot.id if self.snapshot else "", "gpu": self.gpu, "toolkit": self.toolkit,
                   "host": socket.gethostname(), "source": self.source}
        try:
            self.server.ask("/api/configs/served/", timeout, send={**context, "form": FORM, "served": rows})
        except Refused as error:
            launched = [{**row, "rule": "exact" if row["rule"] == "bucket" else row["rule"]} for row in rows if row["launches"]]
            if error.code != 400 or not launched:
                raise
            self.server.ask("/api/configs/served/", timeout, send={**context, "served": launched})

    def _sum_launches(self) -> None:
        """Sum what was served and forget answers that no kernel uses; call under the lock."""
        used = {id(way[2]) for kernel in list(self.kernels) for way in list(kernel.seen.values())}
        used |= {id(served) for served in list(self._asked.values())}
        for served in self._served:
            launches, inquiries = served.launches, served.asked
            key = (served.operator, served.dtype, served.bucket, served.rule, served.entry)
            if launches:
                served.launches -= launches
                self._counted[key] += launches
            if inquiries:
                served.asked -= inquiries
                self._inquiries[key] += inquiries
        self._served = [served for served in self._served if id(served) in used]

    def after_fork(self) -> None:
        """Reset thread and counts in the child of a fork; the parent reports them."""
        self._lock, self._thread, self._served = threading.Lock(), None, []
        self._counted, self._inquiries = Counter(), Counter()
        self._reset_kernels()


Way = tuple[Callable[..., Any], Mapping[str, Any], Served]        # what runs, with which parameters, and where it is counted


class Tuned:
    """A Triton kernel with parameters from the snapshot: kernel[grid](…)."""

    def __init__(self, fn: Any, operator: str, *, dims: Mapping[str, str | tuple[str, int]] | None = None, dtype: str = "",
                 names: Mapping[str, str] | None = None, default: Mapping[str, Any] | None = None,
                 client: Client | None = None) -> None:
        self.fn, self.operator, self.names, self.default = fn, operator, dict(names or {}), default
        self.arg_names = list(fn.arg_names)
        autotuned = hasattr(fn, "configs")           # where nothing is served, it tunes for itself as before
        self._plain = fn.fn if autotuned else fn
        self._client, self._asked_dims, self._asked_dtype = client, dims, dtype
        self.forget()

    def forget(self) -> None:
        self.seen: dict[Any, Way] = {}
        self._typed = -1                                              # where the dtype stands
        self._key: Callable[[tuple[Any, ...]], Any] = _no_key         # what finds the dimensions

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["fn"], name)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            try:
                run, config, served = self.seen[args[self._typed].dtype, self._key(args)]
            except (KeyError, IndexError, TypeError, AttributeError):
                run, config, served = self._look(args, kwargs)
            served.launches += 1         # one bytecode run under the GIL: no lock; without a GIL a count may be lost
            return run(*args, grid=grid, warmup=False, **config, **kwargs)
        return launch

    def _look(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Way:
        """Bind arguments by name, ask the snapshot and remember the way."""
        arguments = dict(zip(self.arg_names, args, strict=False)) | dict(kwargs)
        dims = self._dims(self._find_client())
        shape = {dim: _read_dimension(arguments, where) for dim, where in dims.items()}
        typed = self._asked_dtype or next((name for name, value in arguments.items() if hasattr(value, "dtype")), "")
        dtype = arguments[typed].dtype if typed in arguments else typed
        key = (dtype, *shape.values())
        way = self.seen.get(key)
        if way is None:
            if len(self.seen) >= MAX_SEEN:
                self.forget()
            way = self.seen[key] = self._make_way(dtype_name(dtype), shape, kwargs)
            self._index_by_position(args, typed, list(dims.values()), dtype, way)
        return way

    def _find_client(self) -> Client:
        if self._client is None:
            self._client = connected()
        self._client.kernels.add(self)
        return self._client

    def _dims(self, client: Client) -> Mapping[str, str | tuple[str, int]]:
        """Return dimensions as the decorator says, else the operator's own by name."""
        if self._asked_dims is not None or client.snapshot is None:
            return self._asked_dims or {}
        names = client.snapshot.operators.get(self.operator, {}).get("dims", ())
        absent = [name for name in names if name not in self.arg_names]
        if absent:
            raise TypeError(f"@tuned({self.operator!r}): say with `dims` which argument is {', '.join(absent)}")
        return {name: name for name in names}

    def _make_way(self, dtype: str, shape: Mapping[str, int], kwargs: Mapping[str, Any]) -> Way:
        served = self._find_client().look(self.operator, dtype, shape, self.default)
        if served.entry is None or served.config is None:
            return self.fn.run, self.default or {}, served
        problem, config = self._kernel_config(served.config)
        if problem and served.plain:
            problem, config = self._kernel_config(served.plain)
            served.why = f"{served.why}; the fastest of that job's configurations that this kernel takes"
        if problem:
            served.rule, served.entry, served.config, served.why = "default", None, self.default, problem
            return self.fn.run, self.default or {}, served
        doubled = sorted(set(config) & set(kwargs))
        if doubled:
            raise TypeError(f"{', '.join(doubled)}: tuned, so the launch must not pass them; give them as `default` of @tuned")
        served.config = config
        return self._plain.run, config, served

    def _kernel_config(self, config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return why the configuration does not fit, and it in this kernel's names.

        A parameter that the kernel does not know may be left out where it says what the kernel does anyway.
        """
        snapshot = self._find_client().snapshot
        absent = snapshot.operators[self.operator].get("absent", {}) if snapshot else {}
        named = {self.names.get(name, name): value for name, value in config.items()
                 if self.names.get(name, name) in self.arg_names or name not in absent or absent[name] != value}
        strange = sorted(set(named) - set(self.arg_names) - OPTIONS)
        missing = sorted(set(self.default or ()) - set(named) - OPTIONS)
        if strange:
            return f"the entry sets {', '.join(strange)}, which this kernel does not take", named
        return f"the entry does not set {', '.join(missing)}" if missing else "", named

    def _index_by_position(self, args: tuple[Any, ...], typed: str, wanted: Sequence[str | tuple[str, int]],
                           dtype: Any, way: Way) -> None:
        """Let later launches of the shape find it by position, where all is passed by position."""
        names = [typed, *wanted]
        if not all(isinstance(name, str) and name in self.arg_names[:len(args)] for name in names):
            return
        places = [self.arg_names.index(str(name)) for name in names]
        by_place: Callable[[tuple[Any, ...]], Any] = itemgetter(*places[1:]) if wanted else _one_key
        self._typed, self._key = places[0], by_place
        self.seen[dtype, self._key(args)] = way


def _no_key(args: tuple[Any, ...]) -> Any:
    raise KeyError


def _one_key(args: tuple[Any, ...]) -> Any:
    return None


def _read_dimension(given: Mapping[str, Any], where: str | tuple[str, int]) -> int:
    """Return a dimension: an argument, or an axis of one."""
    return int(given[where]) if isinstance(where, str) else int(given[where[0]].shape[where[1]])


def tuned(operator: str, **options: Any) -> Callable[[Any], Tuned]:
    """Decorate a kernel. `dims`: dimension → argument or (tensor, axis); `dtype`: tensor; `names`: renames."""
    return lambda fn: Tuned(fn, operator, **options)


class Device(NamedTuple):
    """The GPU that this process computes on; "" and 0 where nobody says."""

    name: str                        # as the driver names it; of a MIG slice with its profile: "… MIG 1g.10gb"
    compute_capability: str = ""     # "9.0"
    sms: int = 0                     # of a slice those of the slice


def gpu_name() -> str:
    """Return the driver's name of the GPU that this process computes on; "" where nobody says."""
    return device().name


def device() -> Device:
    """Return the process's GPU: of torch where it has started CUDA, else of the driver's NVML, which starts nothing.

    A process in which CUDA was started cannot fork workers that use it; so only where the host has several models, and nobody says
    which one is meant, torch is asked in any case.
    """
    if os.environ.get("RIDGEPOINT_GPU"):
        return Device(os.environ["RIDGEPOINT_GPU"])
    torch: Any = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():
        return _torch_device(torch)
    visible, by_bus = os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    cards = _driver_cards()
    chosen = choose_device(cards, visible, by_bus)
    if chosen is not None:
        return chosen
    models = set() if cards else _proc_models()
    if len(models) == 1:            # a slice of it is another GPU: fewer SMs, less memory
        return Device(models.pop() + (" MIG" if visible.startswith("MIG-") else ""))
    return _torch_device(torch) if torch and torch.cuda.is_available() else Device("")


def _torch_device(torch: Any) -> Device:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Device(str(properties.name), f"{properties.major}.{properties.minor}", int(properties.multi_processor_count))


def _proc_models() -> set[str]:
    models: set[str] = set()
    for path in glob.glob("/proc/driver/nvidia/gpus/*/information"):
        with suppress(OSError), open(path) as file:
            models |= set(re.findall(r"^Model:\s*(.+?)\s*$", file.read(), re.MULTILINE))
    return models


class Card(NamedTuple):
    """A card as NVML shows it, in the order of the bus, with the slices that it is cut into."""

    uuid: str
    whole: Device
    slices: dict[str, Device]        # UUID → slice; of a card in MIG mode CUDA sees the first one alone


def choose_device(cards: Sequence[Card], visible: str, by_bus: bool) -> Device | None:
    """Return which of the cards CUDA takes for its first, by CUDA_VISIBLE_DEVICES; None where that cannot be told."""
    first = visible.split(",")[0].strip()
    if first.startswith("MIG-"):
        slices = {uuid: part for card in cards for uuid, part in card.slices.items()}
        named = [part for uuid, part in slices.items() if uuid.startswith(first)]
        parents = {card.whole.name for card in cards if card.slices} or {card.whole.name for card in cards}
        unknown = Device(f"{parents.pop()} MIG") if len(parents) == 1 else None          # a slice whose profile nobody tells
        return named[0] if named else unknown
    if first.startswith("GPU-"):
        cards = [card for card in cards if card.uuid.startswith(first)]
    elif first.isdigit() and by_bus:
        cards = cards[int(first):int(first) + 1]
    devices = {next(iter(card.slices.values()), card.whole) for card in cards}
    return devices.pop() if len(devices) == 1 else None


# Cores that CUDA counts in an SM (CUDA C++ Programming Guide, "Compute Capabilities"): NVML counts a card's cores.
CORES_PER_SM = {"7.0": 64, "7.5": 64, "8.0": 64}
_MIG_ATTRIBUTES = ctypes.c_uint * 10         # nvmlDeviceAttributes_t: 8 numbers, the first of SMs, and 8 bytes of memory


def _driver_cards() -> list[Card]:
    """Return the cards that NVML shows; [] without a driver."""
    with suppress(OSError, AttributeError):
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() == 0:
            return read_cards(nvml)
    return []


def read_cards(nvml: Any) -> list[Card]:
    """Return the cards of an NVML that was initialised; what an older one does not tell is left out."""
    count, cards = ctypes.c_uint(), []
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    for index in range(count.value):
        handle, most = ctypes.c_void_p(), ctypes.c_uint()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            continue
        card, slices = _read_device(nvml, handle), {}
        now, later = ctypes.c_uint(), ctypes.c_uint()
        with suppress(AttributeError):           # a driver from before MIG
            is_cut = not nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(now), ctypes.byref(later)) and now.value == 1
            if is_cut and not nvml.nvmlDeviceGetMaxMigDeviceCount(handle, ctypes.byref(most)):
                for place in range(most.value):
                    part = ctypes.c_void_p()
                    if not nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place, ctypes.byref(part)):
                        slices[_nvml_text(nvml.nvmlDeviceGetUUID, part)] = _read_slice(nvml, part, card)
        cards.append(Card(_nvml_text(nvml.nvmlDeviceGetUUID, handle), card, slices))
    return cards


def _read_device(nvml: Any, handle: Any) -> Device:
    major, minor, cores = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint()
    is_known = not nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
    capability = f"{major.value}.{minor.value}" if is_known else ""
    with suppress(AttributeError):               # a driver from before it counted cores
        nvml.nvmlDeviceGetNumGpuCores(handle, ctypes.byref(cores))
    sms, left = divmod(cores.value, CORES_PER_SM.get(capability, 128))
    return Device(_nvml_text(nvml.nvmlDeviceGetName, handle), capability, 0 if left else sms)


def _read_slice(nvml: Any, handle: Any, card: Device) -> Device:
    attributes, name = _MIG_ATTRIBUTES(), _nvml_text(nvml.nvmlDeviceGetName, handle)
    sms = 0 if nvml.nvmlDeviceGetAttributes_v2(handle, ctypes.byref(attributes)) else int(attributes[0])
    if "MIG" not in name:
        name = f"{card.name} MIG" + (f" {sms} SMs" if sms else "")
    return Device(name, card.compute_capability, sms)


def _nvml_text(call: Callable[..., int], handle: Any) -> str:
    text = ctypes.create_string_buffer(96)
    return text.value.decode(errors="replace") if call(handle, text, 96) == 0 else ""


def toolkit_name() -> str:
    """Return "cuda 13.0, triton 3.6.0", as tuner.cache.rules.toolkit_text."""
    versions: dict[str, str | None] = {"cuda": _cuda_of_torch()}
    with suppress(metadata.PackageNotFoundError):
        versions["triton"] = metadata.version("triton")
    return ", ".join(f"{name} {str(version).split('+')[0]}" for name, version in versions.items() if version)


def _cuda_of_torch() -> str | None:
    """Return the CUDA that torch was built for, None without one.

    From its version.py where it is not imported yet: a wheel of PyPI's names it nowhere else.
    """
    if "torch" in sys.modules:
        return getattr(getattr(sys.modules["torch"], "version", None), "cuda", None)
    with suppress(ImportError, ValueError, OSError):
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.origin:
            with open(os.path.join(os.path.dirname(spec.origin), "version.py"), encoding="utf-8") as file:
                built = re.search(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)['\"]", file.read(10_000), re.MULTILINE)
            return built[1] if built else None
    return None


def _snapshot_path(gpu: str, toolkit: str, verified: bool = False, whose: str = "") -> str:
    """Return the file of a GPU, toolkit, server and token (its project and rights): another server's snapshot is none of ours."""
    mark = hashlib.sha256(f"{gpu}|{toolkit}{'|verified' * verified}|{whose}".encode()).hexdigest()[:12]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(home, "ridgepoint", f"snapshot-{mark}.json")


_LIVING: weakref.WeakSet[Client] = weakref.WeakSet()
_one: Client | None = None
_one_lock = threading.Lock()


def connect(**options: Any) -> Client:
    """Make the job's client now, with settings other than the environment's."""
    global _one
    with _one_lock:
        _one = Client(**options)
    return _one


def connected() -> Client:
    """Return the job's client, made at first use."""
    return _one or connect()


def best(operator: str, dtype: str = "", default: Mapping[str, Any] | None = None, **shape: int) -> Served:
    """Return the configuration of a shape from the job's client."""
    return connected().best(operator, dtype, default, **shape)


def snapshot_id() -> str:
    """Return the id for other ranks to `connect(snapshot=…)`; "" without a snapshot."""
    snapshot = connected().snapshot
    return snapshot.id if snapshot else ""


@contextmanager
def record(path: str) -> Iterator[None]:
    """Write the Triton launches of the block to `path`: shapes, strides and types of tensors, numbers, constexprs, the grid.

    No value of a tensor is kept. `manage.py operators init FILE.py --call PATH` makes an operator of it. Of each kernel the last
    launch of each set of shapes is kept, MAX_CALLS in all.
    """
    jit: Any = importlib.import_module("triton.runtime.jit").JITFunction      # here: the file is used without Triton too
    calls: dict[str, dict[str, Any]] = {}
    launch = jit.run

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        if not warmup:
            with suppress(Exception):               # whatever a launch is given, it goes on
                call = _call(kernel, args, options, grid)
                key = json.dumps([call["kernel"], call["arguments"]], sort_keys=True)
                if key in calls or len(calls) < MAX_CALLS:
                    calls[key] = call
        return launch(kernel, *args, grid=grid, warmup=warmup, **options)

    jit.run = run
    try:
        yield
    finally:
        jit.run = launch
        with open(path, "w") as file:
            json.dump({"calls": list(calls.values())}, file, indent=1)


def _call(kernel: Any, args: Sequence[Any], options: Mapping[str, Any], grid: Any) -> dict[str, Any]:
    """Return one launch as JSON."""
    values = {**dict(zip(kernel.arg_names, args, strict=False)), **options}
    fixed = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    sizes = grid({**values}) if callable(grid) else grid
    return {"kernel": kernel.fn.__name__, "module": kernel.fn.__module__, "grid": [int(extent) for extent in sizes],
            "arguments": {name: _argument(values[name]) for name in kernel.arg_names if name in values and name not in fixed},
            "constexprs": {name: value if isinstance(value, bool | int | float | str | None) else str(value)
                           for name, value in values.items() if name in fixed},
            "options": {name: value for name, value in values.items() if name in OPTIONS and isinstance(value, int)}}


def _argument(value: Any) -> Any:
    if hasattr(value, "stride") and hasattr(value, "shape"):
        return {"shape": [int(extent) for extent in value.shape], "stride": [int(stride) for stride in value.stride()],
                "dtype": str(value.dtype).rpartition(".")[2]}
    return value if isinstance(value, bool | int | float | None) else str(value)[:100]


@atexit.register
def _at_exit() -> None:
    for client in list(_LIVING):
        client.close()


def _after_fork() -> None:
    for client in list(_LIVING):
        client.after_fork()


os.register_at_fork(after_in_child=_after_fork)
