"""Requests to a serving engine that an owner named: fixed routes, bounded answers, an address that is checked each time.

And what vLLM and SGLang take at the start of a capture, parameter by parameter, as their own sources state it.

vLLM 0.33.0: vllm/entrypoints/serve/profile/api_router.py, vllm/config/profiler.py. SGLang 0.5.23: sglang/srt/managers/io_struct.py
(`ProfileReq`), managers/scheduler_components/profiler_manager.py. tests/profiles/running/test_wheels.py reads them again.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from profiles.base.refused import Refused
from workers.outgoing import Answer, NotSent, exchange, is_metadata, is_public, parse_address, resolve_host

MOST_TEXT, MOST_OBJECT = 200, 2000
TEXT, INTEGER, BOOLEAN, OBJECT, TEXTS = "text", "integer", "boolean", "object", "texts"
START, STOP = "/start_profile", "/stop_profile"
VERSIONS = {"vllm": ("/version",), "sglang": ("/server_info", "/get_server_info")}      # the second of older ones
STEPS = {"vllm": "max_iterations", "sglang": "num_steps"}
PREFIX = "profile_prefix"
NEEDS = {
    "vllm": "vLLM has these routes only when it was started with --profiler-config (0.11 and before: VLLM_TORCH_PROFILER_DIR set)",
    "sglang": "SGLang writes where it is told to (before output_dir: where SGLANG_TORCH_PROFILER_DIR says)"}
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")       # vLLM's own rule


@dataclass(frozen=True)
class Parameter:
    name: str
    kind: str
    says: str
    least: int = 0
    choices: tuple[str, ...] = ()


PARAMETERS: dict[str, tuple[Parameter, ...]] = {
    "vllm": (
        Parameter(PREFIX, TEXT, "before the traces' names"),
        Parameter("delay_iterations", INTEGER, "engine iterations that pass first"),
        Parameter("max_iterations", INTEGER, "engine iterations that are recorded; 0: until it is stopped"),
        Parameter("profiler_kwargs", OBJECT, "arguments of torch.profiler for this capture, as JSON"),
    ),
    "sglang": (
        Parameter("output_dir", TEXT, "below the server's folder"),
        Parameter("start_step", INTEGER, "forward step at which it begins"),
        Parameter("num_steps", INTEGER, "forward steps that are recorded"),
        Parameter("activities", TEXTS, "what is recorded", choices=("CPU", "GPU", "MEM", "RPD")),
        Parameter("profile_by_stage", BOOLEAN, "prefill and decode apart"),
        Parameter("profile_stages", TEXTS, "only these stages", choices=("prefill", "decode")),
        Parameter("with_stack", BOOLEAN, "Python stacks"),
        Parameter("record_shapes", BOOLEAN, "input shapes"),
        Parameter("profile_id", TEXT, "in the traces' names"),
        Parameter(PREFIX, TEXT, "before the traces' names"),
        Parameter("merge_profiles", BOOLEAN, "one trace of all ranks"),
        Parameter("detailed_annotations", BOOLEAN, "requests and KV lengths of each step"),
    ),
}


def read_parameters(kind: str, fields: Mapping[str, Any], folder: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """Return parameters as they are sent, without those that were left empty, and what is wrong by name.

    Values are as JSON or as a form has them. `folder`: where the engine may write.
    """
    by_name = {parameter.name: parameter for parameter in PARAMETERS[kind]}
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {str(name)[:60]: f"{kind} has no such parameter" for name in fields if name not in by_name}
    for name in by_name.keys() & fields.keys():
        value = fields[name]
        if value is None or value in ("", []):
            continue
        try:
            values[name] = _read(by_name[name], value)
        except ValueError as error:
            wrong[name] = str(error)
    if "output_dir" in values and "output_dir" not in wrong and not _is_below(values["output_dir"], folder):
        wrong["output_dir"] = f"a folder below {folder}" if folder else "the server has no folder: leave it empty"
    return {name: values[name] for name in by_name if name in values and name not in wrong}, wrong


def _read(parameter: Parameter, value: Any) -> Any:
    kind = parameter.kind
    if kind == BOOLEAN:
        if isinstance(value, str):
            value = {"true": True, "on": True, "false": False, "off": False}.get(value.lower(), value)
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value
    if kind == INTEGER:
        if isinstance(value, str) and value.isdecimal() and len(value) < 10:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not parameter.least <= value <= 10**6:
            raise ValueError(f"a whole number from {parameter.least} to 1,000,000")
        return value
    if kind == OBJECT:
        return _object(value)
    if kind == TEXTS:
        values = value.replace(",", " ").split() if isinstance(value, str) else value
        if not isinstance(values, list) or not values or not set(map(str, values)) <= set(parameter.choices):
            raise ValueError(f"of {', '.join(parameter.choices)}")
        return list(dict.fromkeys(values))
    if not isinstance(value, str) or len(value) > MOST_TEXT or not value.isprintable():
        raise ValueError(f"a text of at most {MOST_TEXT} characters")
    if parameter.name in (PREFIX, "profile_id") and not _PREFIX.fullmatch(value):
        raise ValueError("letters, digits, '.', '_' and '-', the first a letter or digit, at most 128")
    return value


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError("an object as JSON") from error
    if not isinstance(value, dict) or len(json.dumps(value)) > MOST_OBJECT:
        raise ValueError(f"an object as JSON, of at most {MOST_OBJECT:,} characters")
    return value


def _is_below(path: str, folder: str) -> bool:
    parts = path.split("/")
    return bool(folder) and ".." not in parts and (path == folder or path.startswith(folder.rstrip("/") + "/"))


# What a serving engine's own metrics say: requests, latencies and time per output token, from Prometheus text.
#
# Names: vllm/v1/metrics/loggers.py (0.33.0), sglang/srt/observability/metrics_collector.py (0.5.23). Series of all labels are
# added.

PATH = "/metrics"
MOST_BYTES = 8 << 20
LATENCIES = {
    "vllm": {"e2e": "vllm:e2e_request_latency_seconds", "ttft": "vllm:time_to_first_token_seconds"},
    "sglang": {"e2e": "sglang:e2e_request_latency_seconds", "ttft": "sglang:time_to_first_token_seconds"}}
TOKENS = {"vllm": "vllm:inter_token_latency_seconds", "sglang": "sglang:inter_token_latency_seconds"}
REQUESTS = {"vllm": "vllm:request_success_total", "sglang": "sglang:num_requests_total"}
NO_METRICS = {"vllm": "its /metrics hold no such series", "sglang": "SGLang has metrics only with --enable-metrics"}
_LINE = re.compile(r'([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+([^\s{}]+)(?:\s+-?\d+)?')
_EDGE = re.compile(r'(?:^|,)\s*le="([^"]*)"')


@dataclass
class Histogram:
    """`buckets`: upper edge in s -> how many were at most so long."""

    buckets: dict[float, float] = field(default_factory=dict)
    total_s: float = 0.0
    count: float = 0.0


@dataclass(frozen=True)
class Reading:
    histograms: Mapping[str, Histogram]
    counters: Mapping[str, float]

    def requests(self, kind: str) -> float | None:
        """Return how many requests the engine has served, None where it does not say."""
        return self.counters.get(REQUESTS[kind])


def read_metrics(text: str, kind: str) -> Reading:
    """Return the series that are asked about; lines that are none, and numbers that are not finite, are left out."""
    names = {*LATENCIES[kind].values(), TOKENS[kind]}
    histograms: dict[str, Histogram] = {}
    counters: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or not (match := _LINE.fullmatch(line.strip())):
            continue
        name, labels, value = match[1], match[2] or "", _number(match[3])
        if value is None or value < 0:
            continue
        base, _, part = name.rpartition("_")
        if name == REQUESTS[kind]:
            counters[name] = counters.get(name, 0.0) + value
        elif base in names:
            own = histograms.setdefault(base, Histogram())
            edge = _EDGE.search(labels) if part == "bucket" else None
            upper = _number(edge[1], True) if edge else None
            if upper is not None:
                own.buckets[upper] = own.buckets.get(upper, 0.0) + value
            elif part == "sum":
                own.total_s += value
            elif part == "count":
                own.count += value
    return Reading(histograms, counters)


def edge_of(histogram: Histogram, threshold_s: float) -> float | None:
    """Return the bucket's edge from which on requests count as slow: the first that is no less. None above the last."""
    return min((bound for bound in histogram.buckets if bound >= threshold_s and math.isfinite(bound)), default=None)


def slow_between(before: Histogram, now: Histogram, edge_s: float) -> float:
    """Return how many requests ended between two readings and took longer than an edge; 0 where the engine was started anew."""
    ended = now.count - before.count
    return max(0.0, ended - (now.buckets.get(edge_s, 0.0) - before.buckets.get(edge_s, 0.0))) if ended > 0 else 0.0


def tokens_between(before: Reading, now: Reading, kind: str) -> tuple[int, float] | None:
    """Return (output tokens, their time in ms) between two readings; None where none came."""
    first, last = before.histograms.get(TOKENS[kind]), now.histograms.get(TOKENS[kind])
    if first is None or last is None or last.count <= first.count or last.total_s <= first.total_s:
        return None
    return int(last.count - first.count), 1e3 * (last.total_s - first.total_s)


def _number(text: str, infinite: bool = False) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) or (infinite and value == math.inf) else None


MOST_ANSWER = 1 << 20
QUICK_S, START_S, STOP_S = 5.0, 60.0, 300.0         # a stop ends when the traces are written


class EngineProblem(Exception):
    """The engine did not do what was asked; `hint`: what helps."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


@dataclass(frozen=True)
class Engine:
    """`private`: addresses inside the network are meant; those of no service never are."""

    kind: str
    address: str
    token: str = ""
    private: bool = True

    def version(self) -> str:
        """Return the version that it states. Raises EngineProblem."""
        problem = EngineProblem("it states no version", f"is it {self.kind}, at this address?")
        for path in VERSIONS[self.kind]:
            answer = self._ask("GET", path, None, QUICK_S)
            if answer.status == 404:
                continue
            self._check(answer, path)
            try:
                version = json.loads(answer.body)["version"]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise problem from None
            if isinstance(version, str) and version and version.isprintable():
                return version[:80]
        raise problem

    def start(self, parameters: Mapping[str, Any]) -> None:
        """Begin a capture. Raises EngineProblem."""
        self._check(self._ask("POST", START, parameters, START_S), START)

    def stop(self, total_s: float = STOP_S) -> None:
        """End a capture; it returns when the traces are written. Raises EngineProblem."""
        self._check(self._ask("POST", STOP, {}, total_s), STOP)

    def metrics(self) -> Reading:
        """Return what its metrics say now. Raises EngineProblem."""
        answer = self._ask("GET", PATH, None, QUICK_S, MOST_BYTES)
        self._check(answer, PATH)
        if not answer.whole:
            raise EngineProblem(f"its metrics are above {MOST_BYTES:,} bytes")
        return read_metrics(answer.body.decode(errors="replace"), self.kind)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, total_s: float, most_bytes: int = MOST_ANSWER) -> Answer:
        headers = {"Accept": "application/json, text/plain"} | ({"Authorization": f"Bearer {self.token}"} if self.token else {}) | (
            {} if body is None else {"Content-Type": "application/json"})
        try:
            addresses = checked_addresses(self.address, self.private)
            return exchange(method, self.address.rstrip("/") + path, None if body is None else json.dumps(body).encode(), headers,
                            found=addresses, most_bytes=most_bytes, total_s=total_s)
        except Refused as error:
            raise EngineProblem(str(error)) from error
        except NotSent as error:
            raise EngineProblem(f"{path}: {error}", "is the server up, and can the worker reach it?") from error

    def _check(self, answer: Answer, path: str) -> None:
        if 200 <= answer.status < 300:
            return
        text = " ".join(answer.body[:300].decode(errors="replace").split())[:160]
        if answer.status == 404:
            raise EngineProblem(f"it has no route {path}", NEEDS[self.kind] if path in (START, STOP) else "")
        if answer.status in (401, 403):
            raise EngineProblem(f"{path}: it refuses the token ({answer.status})", "an owner gives the server's admin or API key")
        if 300 <= answer.status < 400:
            raise EngineProblem(f"{path}: it redirects, which is not followed")
        raise EngineProblem(f"{path}: {answer.status}{': ' + text if text else ''}")


def checked_addresses(address: str, private: bool) -> list[str]:
    """Return where a name leads, once each of it may be asked. Raises Refused, NotSent."""
    parts = parse_address(address)
    ips = resolve_host((parts.hostname or "").encode("idna").decode(), parts.port or (443 if parts.scheme == "https" else 80))
    if not ips:
        raise NotSent("the name has no address")
    if any(is_metadata(ip) for ip in ips):
        raise Refused("no serving engine has a link-local or metadata address")
    if not private and not all(is_public(ip) for ip in ips):
        raise Refused("it is inside this network; RIDGEPOINT_ENGINE_PRIVATE=1 allows such addresses")
    return ips
