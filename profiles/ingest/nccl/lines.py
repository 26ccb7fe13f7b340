"""Lines of an NCCL log: what stands in front of the message, and the messages whose form is known.

Forms as NCCL prints them in versions 2.10 to 2.28: src/debug.cc (prefix), src/init.cc (communicators, rings, trees),
src/graph/{rings,search,topo}.cc (ring order, patterns, topology), src/transport/{p2p,shm,net}.cc (connections), src/enqueue.cc
(collectives, choice of algorithm). NCCL prints pointers, bus ids and operation counts in hexadecimal.
"""

from __future__ import annotations

import re
from typing import NamedTuple

ADDRESS = r"(0x[0-9a-f]{1,16}|\(nil\))"
_LEVELS = (" NCCL INFO ", " NCCL WARN ", " NCCL CALL ", " NCCL TRACE ")
_PREFIX_CHARS = 600
_PLACE = re.compile(r"(?:.{0,100}[:>\]])?([^\s:>\]]{1,256}):(\d{1,10}):(\d{1,10})", re.ASCII)     # host:process:thread
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)*", re.ASCII)
_DEVICE = re.compile(r"\[(-?\d{1,5})\]", re.ASCII)
_VERSION = re.compile(r"NCCL version (\d{1,3}\.\d{1,3}\.\d{1,4}[\w.-]{0,24})(?:\+(cuda|hip)(\d{1,3}\.\d{1,3}[\w.-]{0,16}))?",
                      re.ASCII)

# The names of these numbers: src/nccl.h.in, src/include/nccl_common.h, src/include/graph.h.
DATATYPES = {0: ("int8", 1), 1: ("uint8", 1), 2: ("int32", 4), 3: ("uint32", 4), 4: ("int64", 8), 5: ("uint64", 8),
             6: ("float16", 2), 7: ("float32", 4), 8: ("float64", 8), 9: ("bfloat16", 2), 10: ("float8 e4m3", 1),
             11: ("float8 e5m2", 1)}
OPERATIONS = {0: "sum", 1: "prod", 2: "max", 3: "min", 4: "avg"}
REDUCING = ("AllReduce", "Reduce", "ReduceScatter")
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
PATTERNS = {1: "balanced tree", 2: "split tree", 3: "tree", 4: "ring", 5: "NVLS", 6: "CollNet direct"}

# "ncclCommInitRank comm 0x55 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 18000 commId 0x5a - Init COMPLETE";
# 2.30 puts "[Rank 0] " in front, 2.10 leaves out what comes before comm and behind the bus
INIT = re.compile(
    rf"(?:\[Rank \d+\] )?(?:\w+ )?comm {ADDRESS} rank (\d+) nranks (\d+) cudaDev (\d+) (?:nvmlDev (\d+) )?busId ([0-9a-f]{{1,16}})"
    rf"(?: commId (0x[0-9a-f]{{1,16}}))?(?: parent {ADDRESS}(?: (?:splitCount|childCount) (\d+))? color (-?\d+) key -?\d+)?"
    r" ?- Init (START|COMPLETE)", re.ASCII)
# "comm 0x55 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0"
NODES = re.compile(rf"comm {ADDRESS} rank (\d+) nRanks (\d+) nNodes (\d+) localRanks (\d+) localRank (\d+)", re.ASCII)
# "Channel 00/24 :    0   1": the ranks of a ring in their order, by rank 0 alone
RING_ORDER = re.compile(r"Channel (\d+)/(\d+) :((?: +\d+)+)( ?\.{1,3})?", re.ASCII)
RING = re.compile(r"Ring (\d+) : (\d+) -> (\d+) -> (\d+)", re.ASCII)           # before, this rank, next
TREES = re.compile(r"Trees((?: \[\d+\] -?\d+(?:/-?\d+)*->-?\d+->-?\d+)+)", re.ASCII)
TREE = re.compile(r"\[(\d+)\] (-?\d+(?:/-?\d+)*)->(-?\d+)->(-?\d+)", re.ASCII)  # children, this rank, parent
CONNECTION = re.compile(
    r"Channel (\d+)(?:/\d+)? : (\d+)\[[0-9a-f]+\] -> (\d+)\[[0-9a-f]+\] (?:\[(send|receive)\] )?via (\S.{0,160})", re.ASCII)
CHANNELS = re.compile(r"(\d+) coll channels, (?:\d+ collnet channels, )?(?:(\d+) nvls channels, )?(\d+) p2p channels", re.ASCII)
NETWORK = re.compile(r"Using network (.{1,80})")
PATTERN = re.compile(r"Pattern (\d+), crossNic (\d+), nChannels (\d+), (?:bw|speed) ([\d.]+)/([\d.]+), type (\w+)/(\w+), "
                     r"sameChannels (\d+)", re.ASCII)
SYSTEM = re.compile(r"=== System : max(?:Bw|Width) ([\d.]+) total(?:Bw|Width) ([\d.]+) ===", re.ASCII)
SETTING = re.compile(r"(NCCL_[A-Z0-9_]{1,60}) set by environment to (.{0,300})", re.ASCII)
TIMINGS = re.compile(r"Init timings(?: - [^:]{0,60})?: rank (\d+) nranks \d+ total ([\d.]+)", re.ASCII)
CALL = re.compile(
    rf"(\w{{2,40}}): opCount ([0-9a-f]{{1,16}}) sendbuff {ADDRESS} recvbuff {ADDRESS} count (\d{{1,18}}) datatype (\d{{1,3}}) "
    rf"op (\d{{1,10}}) root (-?\d{{1,10}}) comm {ADDRESS} \[nranks=(\d{{1,7}})\] stream {ADDRESS}", re.ASCII)
# 2.19 to 2.22 name no collective; to 2.25 the numbers of algorithm and protocol and the model's time, then their names and channels
CHOICE = re.compile(r"(?:(\w{2,40}): )?(\d{1,18}) Bytes -> Algo (\w{1,20}) proto (\w{1,20})(?: time ([\d.]{1,20}))?"
                    r"(?: channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?", re.ASCII)


class Place(NamedTuple):
    """Where a line was printed: one process has a thread per use; `device` is CUDA's index in that process."""

    host: str
    pid: int
    device: int | None


class Line(NamedTuple):
    place: Place
    level: str                   # "INFO" | "WARN" | "CALL" | "TRACE"
    source: str                  # of a warning: "misc/ibvwrap.cc:94"
    text: str


def parse_line(line: str) -> Line | None:
    """Return what a line of NCCL says; None for what the program itself printed.

    A launcher may have put its own words in front ("[1,0]<stdout>:", "(Worker pid=5) ", a time).
    """
    start, level = min(((start, tag) for tag in _LEVELS if (start := line.find(tag, 0, _PREFIX_CHARS)) >= 0), default=(-1, ""))
    if start < 0:
        return None
    words = line[:start].split()
    places = [(number, match) for number, word in enumerate(words) if (match := _PLACE.fullmatch(word))]
    if not places:
        return None
    number, match = places[-1]                   # a time of day in front has the same form
    rest = words[number + 1:]
    device = next((int(device_match[1]) for word in rest if (device_match := _DEVICE.fullmatch(word))), None)
    source = next((word for word in rest if ":" in word), "")
    return Line(Place(match[1], int(match[2]), device), level.split()[1], source[:200], line[start + len(level):].rstrip())


def parse_version(line: str) -> tuple[str, str] | None:
    """("2.21.5", "CUDA 12.4") where a line states NCCL's version: with a prefix or, from rank 0, without."""
    match = _VERSION.search(line, 0, _PREFIX_CHARS) if "NCCL version" in line else None
    if match is None:
        return None
    return match[1], f"{ {'cuda': 'CUDA', 'hip': 'HIP'}[match[2]]} {match[3]}" if match[2] else ""


def without_numbers(text: str) -> str:
    """Return a message with # for its numbers and addresses: the same for all lines of a kind."""
    return _NUMBERS.sub("#", text[:300])


def algorithm_name(text: str) -> str:
    """"1" or "RING" → "Ring"."""
    return _name(text, ALGORITHMS)


def protocol_name(text: str) -> str:
    """"2" or "SIMPLE" → "Simple"."""
    return _name(text, PROTOCOLS)


def _name(text: str, names: tuple[str, ...]) -> str:
    if text.isdecimal():
        return names[int(text)] if int(text) < len(names) else f"number {text}"
    plain = text.replace("_", "").lower()
    return next((name for name in names if name.lower() == plain), text)
