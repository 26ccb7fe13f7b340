"""The configuration that a launch gets: key and state of an entry, and the order of rules.

An entry measured for one key may serve another, by stated rules, nearest first. Every answer says which rule served it,
and every entry that does not serve says why. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tuner.cache.buckets import BUCKETS, Buckets, bucket_distance, off_centre
from tuner.tuning.trial import Config


def toolkit_text(environment: Mapping[str, object]) -> str:
    """Return what a kernel was compiled with: "cuda 13.0, triton 3.6.0"."""
    parts = [f"{name} {str(environment[name]).split('+')[0]}" for name in ("cuda", "triton") if environment.get(name)]
    return ", ".join(parts) or "unknown"


def is_newer(left: str, right: str) -> bool:
    """Return whether some version in `left` is greater than in `right` and none is smaller.

    Versions are compared by name ("cuda", "triton"); what one of them does not name says nothing.
    """
    a, b = _versions(left), _versions(right)
    shared = a.keys() & b.keys()
    return any(a[name] > b[name] for name in shared) and all(a[name] >= b[name] for name in shared)


def is_same_toolkit(left: str, right: str) -> bool:
    """Return whether two texts name the same versions, however they spell and order them."""
    return left == right or (bool(named := _versions(left)) and named == _versions(right))


def _versions(text: str) -> dict[str, tuple[int, ...]]:
    return {name: tuple(int(number) for number in numbers.split("."))
            for name, numbers in re.findall(r"([a-z]*)\s*(\d{1,9}(?:\.\d{1,9})*)", text.lower())}


@dataclass(frozen=True)
class Key:
    """What an entry was measured for; `bucket` is the text of its bucket.

    compute capability is the class within which an entry may serve; the model (`gpu`) refines it.
    """

    operator: str
    dtype: str
    bucket: str
    gpu: str
    compute_capability: str = ""
    toolkit: str = ""
    source_hash: str = ""
    driver: str = ""
    policy: str = ""             # how it was timed: "cold", "warm", "graph"
    flush: str = ""              # how L2 was flushed for that: "unpin, write 256 MB"; "": not known


class State(StrEnum):
    """What is known of an entry now."""

    VERIFIED = "verified"            # measured under the newest toolkit and driver seen on its GPU
    UNVERIFIED = "unverified"        # a newer toolkit, driver or kernel source was seen since, or nobody here measured it
    STALE = "stale"                  # measured again under a newer one, and replaced there
    QUARANTINED = "quarantined"      # crashed, hung or computed wrong results


class Origin(StrEnum):
    """Source of the evidence, best first: only a tune job checks results and measures the default."""

    TUNE = "tune"
    LISTENER = "listener"            # Triton's own autotuner in somebody's job
    IMPORT = "import"                # a file


class Rule(StrEnum):
    """Why an entry may serve, best first."""

    EXACT = "exact"                          # this very shape, same GPU, toolkit
    BUCKET = "bucket"                        # another shape of the same bucket (or one not kept), same GPU, toolkit
    OTHER_TOOLKIT = "older toolkit"          # same bucket and GPU, measured under another toolkit or kernel source
    SAME_ARCHITECTURE = "same architecture"  # same bucket, another GPU of the same compute capability
    NEAREST_BUCKET = "nearest bucket"        # same GPU, the closest other bucket
    DEFAULT = "default"                      # no entry: the operator's own default configuration


WHY = {
    Rule.EXACT: "measured at this very shape on this GPU with this toolkit",
    Rule.BUCKET: "measured on this GPU with this toolkit at a shape of the same bucket",
    Rule.OTHER_TOOLKIT: "measured for this shape bucket on this GPU, under another toolkit, driver or kernel source",
    Rule.SAME_ARCHITECTURE: "measured for this shape bucket on another GPU of the same compute capability",
    Rule.NEAREST_BUCKET: "measured on this GPU for the nearest other shape bucket",
    Rule.DEFAULT: "nothing measured fits: the operator's default configuration",
}


RECORDED_WHY = "recorded, not measured here"


def why_of(rule: Rule, toolkit: str, recorded: bool = False) -> str:
    """Return a rule in words for a launch; one whose toolkit is not known is never told that it is the entry's."""
    why = WHY[rule] if is_known(toolkit) else WHY[rule].replace("with this toolkit", "(the launch's toolkit is not known)")
    return f"{RECORDED_WHY}: {why}" if recorded else why


OWN_BUCKET = (Rule.EXACT, Rule.BUCKET)        # an entry of the launch's own bucket, GPU and toolkit
SERVES: dict[State, frozenset[Rule]] = {       # by which rules an entry of each state may serve
    State.VERIFIED: frozenset(Rule), State.UNVERIFIED: frozenset(Rule),
    State.STALE: frozenset({Rule.EXACT, Rule.BUCKET}),      # right for launches that still use its own toolkit
    State.QUARANTINED: frozenset(),
}
STATE_MEANS = {
    State.VERIFIED: "measured under the newest toolkit and driver seen on its GPU; serves by every rule",
    State.UNVERIFIED: "a newer toolkit, driver or kernel source was seen since, or it was never measured here; serves, and is "
                      "worth a re-validation",
    State.STALE: "measured again under a newer toolkit and replaced there; serves only launches of its own toolkit",
    State.QUARANTINED: "crashed, hung or computed wrong results; never serves",
}


@dataclass(frozen=True)
class Entry:
    """One cached configuration with its key."""

    id: int
    key: Key
    config: Config
    recorded: bool = False                   # from a replay: serves who asks for recordings, after what was measured here
    state: State = State.VERIFIED
    origin: Origin = Origin.TUNE
    shape: Mapping[str, int] = field(default_factory=dict)    # at which it was measured
    gain: float | None = None                # at least so much faster than the default where it was measured (0.1: 10 %)
    library: float | None = None             # the vendor library is so many times as fast as the best found: keep it; else None
    state_why: str = ""                      # why the state is what it is, in the words of who set it
    barred: Sequence[Sequence[str]] = ()     # [toolkit, source hash] under which its configuration is in quarantine; "": under any

    @property
    def off_centre(self) -> float:
        """Return powers of two from the measured shape to the middle of its bucket."""
        return off_centre(self.shape, self.key.bucket)


def is_verified(entry: Entry) -> bool:
    """Return whether a tune job here proved the entry, under the newest toolkit and driver seen."""
    return entry.state == State.VERIFIED and entry.origin == Origin.TUNE and not entry.recorded


NOT_VERIFIED = "only verified entries were asked for: measured here by a tune job, under the newest toolkit and driver seen"
NOT_RECORDED = "it is a recording: RIDGEPOINT_RECORDED=1 asks for them"



def recording_fits(entry: int, rule: str) -> str:
    """Return what an answer adds where a recording would serve that was not asked for; the client says the same."""
    return f"recording {entry} fits by the rule {rule} and serves only jobs that ask for recordings: RIDGEPOINT_RECORDED=1"


def is_known(toolkit: str) -> bool:
    """Return whether a toolkit's text names one."""
    return toolkit not in ("", "unknown")


def holds_under(bar: Sequence[str], toolkit: str, source_hash: str) -> bool:
    """Return whether a quarantine ([toolkit, source hash]) speaks for this toolkit and source; what is not known is no excuse."""
    its_toolkit, its_source = bar
    return ((is_same_toolkit(its_toolkit, toolkit) or not is_known(its_toolkit) or not is_known(toolkit))
            and (its_source == source_hash or not its_source or not source_hash))


@dataclass(frozen=True)
class Match:
    """How an entry serves a launch: rule, distance, differences and expected loss."""
    rule: Rule
    entry: Entry
    distance: float = 0.0                    # of the buckets, in powers of two
    differs: tuple[str, ...] = ()            # what is not as wanted: "shape", "toolkit", "driver", …
    loss: float | None = None                # expected, as measured between other entries (0.05: 5 % slower); None: unknown

    @property
    def why(self) -> str:
        """Return the reason in words."""
        return WHY[self.rule]


Loss = Callable[[Rule, Key, Key, float], float | None]    # (rule, the entry's key, wanted, distance) -> expected loss


def unknown_loss(rule: Rule, key: Key, wanted: Key, distance: float) -> float | None:
    """Return None: the loss of no step is known."""
    return 0.0 if rule == Rule.EXACT else None


def look_up(entries: Sequence[Entry], wanted: Key, exact: Collection[str] = (), policy: Buckets = BUCKETS,
            loss: Loss = unknown_loss, shape: Mapping[str, int] | None = None) -> Match | None:
    """Return the match that serves `wanted`; None when only the default can.

    An empty toolkit, driver, policy, flush or source hash in `wanted` accepts any. `exact` names dimensions that are never rounded.
    `shape` is the launch's own: without it no entry is said to be exact.
    Evidence of a tune job goes before any other; then the rule; then the distance; then what was measured here before
    recordings; then what is verified; then the shape nearest to the middle of its bucket.
    """
    ways = (match_entry(entry, wanted, exact, policy, loss, shape) for entry in entries)
    matches = [way for way in ways if isinstance(way, Match)]
    return min(matches, key=serving_order, default=None)


_RULES, _ORIGINS = tuple(Rule), tuple(Origin)


def serving_order(served: Match) -> tuple[float, ...]:
    """Return the sort key of matches, first what serves."""
    entry = served.entry
    return (_ORIGINS.index(entry.origin), _RULES.index(served.rule), served.distance, entry.recorded,
            entry.state != State.VERIFIED, entry.off_centre, entry.id)


def match_entry(entry: Entry, wanted: Key, exact: Collection[str] = (), policy: Buckets = BUCKETS,
                loss: Loss = unknown_loss, shape: Mapping[str, int] | None = None) -> Match | str:
    """Return how an entry may serve, or in words why it may not."""
    match = _match_key(entry, wanted, exact, policy, shape)
    if isinstance(match, str):
        return match
    if entry.state == State.STALE and not is_known(wanted.toolkit):
        return f"it is {entry.state}: {STATE_MEANS[entry.state]}, and the launch's is not known"
    if match.rule not in SERVES[entry.state]:
        if entry.state == State.QUARANTINED:
            return f"it is quarantined and never serves: {entry.state_why or 'crashed, hung or computed wrong results'}"
        return f"it is {entry.state}: {STATE_MEANS[entry.state]}"
    source = wanted.source_hash or entry.key.source_hash
    if bar := next((bar for bar in entry.barred if holds_under(bar, wanted.toolkit, source)), None):
        return (f"its configuration is quarantined under {bar[0] or 'any toolkit'}"
                + ("" if is_known(wanted.toolkit) else ", and the launch's toolkit is not known"))
    expected = loss(match.rule, entry.key, wanted, match.distance)
    if expected is not None and entry.gain is not None and match.rule not in OWN_BUCKET and entry.gain <= expected:
        return (f"it is at least {100 * entry.gain:.1f} % faster than the default where it was measured, and this step "
                f"({match.rule}) loses {100 * expected:.1f} %: the default may be faster")
    return Match(match.rule, entry, match.distance, match.differs, expected)


def _match_key(entry: Entry, wanted: Key, exact: Collection[str], policy: Buckets,
               shape: Mapping[str, int] | None) -> Match | str:
    key = entry.key
    if (key.operator, key.dtype) != (wanted.operator, wanted.dtype):
        return f"it is for {key.operator} {key.dtype}"
    same_gpu = key.gpu == wanted.gpu
    differs = tuple(name for name in ("toolkit", "source_hash", "driver", "policy", "flush")
                    if getattr(wanted, name) not in ("", getattr(key, name))
                    and not (name == "toolkit" and is_same_toolkit(wanted.toolkit, key.toolkit)))
    if key.bucket == wanted.bucket:
        at_shape = shape is not None and dict(entry.shape) == dict(shape)
        differs = differs if at_shape else ("shape", *differs)
        if same_gpu:
            rule = Rule.OTHER_TOOLKIT if set(differs) - {"shape"} else Rule.EXACT if at_shape else Rule.BUCKET
            return Match(rule, entry, differs=differs)
        if key.compute_capability and key.compute_capability == wanted.compute_capability:
            return Match(Rule.SAME_ARCHITECTURE, entry, differs=("gpu", *differs))
        return (f"it was measured on {key.gpu or 'an unnamed GPU'} (compute capability {key.compute_capability or 'unknown'}), "
                f"which is no {wanted.compute_capability or 'known'}")
    if not same_gpu:
        return "it is for another bucket on another GPU"
    distance = bucket_distance(key.bucket, wanted.bucket, exact, policy)
    if distance is None:
        return "its bucket differs in a dimension that is never rounded"
    if distance > policy.max_distance:
        return f"its bucket is {distance:g} powers of two away; at most {policy.max_distance:g} are allowed"
    return Match(Rule.NEAREST_BUCKET, entry, distance, ("bucket", *differs))
