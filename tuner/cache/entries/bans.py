"""What is in quarantine, as the cache asks it: by operator, data type, configuration, class of GPUs, toolkit and kernel source."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tuner.cache.rules import holds_under
from tuner.models import GpuEnvironment, Quarantine
from tuner.texts import REASON_WORDS
from tuner.tuning.operators import limits
from tuner.tuning.trial import Config, config_key

# What a GPU's name says where its driver was not asked: compute capability, SMs, and whether it is a slice of a card.
#
# The table of tuner.tuning.operators.limits goes first. Its models have peaks, these have none. Compute capabilities are
# those of https://developer.nvidia.com/cuda-gpus, SMs those of the models' data sheets; 0 where several cards bear the name.

# pattern of a name in lower case without its maker → compute capability, SMs
MODELS: tuple[tuple[str, str, int], ...] = (
    (r"h100 nvl|h200 nvl|gh200( .*)?|h800( .*)?", "9.0", 132), (r"h100( .*)?|h200( .*)?", "9.0", 0),
    (r"h20( 3e)?", "9.0", 78), (r"b200|hgx b200", "10.0", 148), (r"gb200( .*)?|b100( .*)?", "10.0", 0),
    (r"b300( .*)?|gb300( .*)?", "10.3", 0), (r"gb10", "12.1", 0), (r"rtx pro 6000 blackwell( .*)?", "12.0", 188),
    (r"rtx pro \d+ blackwell( .*)?|geforce rtx 50\d\d( .*)?", "12.0", 0), (r"rtx 6000 ada generation|l40", "8.9", 142),
    (r"rtx \d+( sff)? ada generation( .*)?|geforce rtx 40\d\d( .*)?|l20|l2|l40g", "8.9", 0), (r"rtx a6000", "8.6", 84),
    (r"rtx a\d+( .*)?|geforce rtx 30\d\d( .*)?|a2|a16|a10g|a10m", "8.6", 0), (r"a30( .*)?", "8.0", 56),
    (r"a100( .*)?|a800( .*)?", "8.0", 108), (r"quadro rtx \d+( .*)?|titan rtx|geforce rtx 20\d\d( .*)?", "7.5", 0),
    (r"v100( .*)?|titan v", "7.0", 80))
SLICE = re.compile(r"\s+MIG\b.*$", re.IGNORECASE)


def card_name(name: str) -> str:
    """Return the whole card's name of a slice's: "NVIDIA H100 80GB HBM3" of "NVIDIA H100 80GB HBM3 MIG 1g.10gb"."""
    return SLICE.sub("", name)


def capability_of(name: str) -> str:
    """Return the compute capability of a card or slice by its driver's name, "" where no table has it."""
    return _look_up(card_name(name))[0]


def served_as(name: str, sms: int = 0) -> str:
    """Return the name under which a GPU is served: one with fewer SMs than its card has is a slice, and not the card."""
    whole = _look_up(name)[1]
    return f"{name} MIG {sms} SMs" if SLICE.search(name) is None and 0 < sms < whole else name


def spell_as(name: str, known: Iterable[str]) -> str:
    """Return a GPU's name as one of `known` is spelled, where they differ in case, blanks or the maker's name alone."""
    return name if name in (there := list(known)) else next((label for label in there if _words(label) == _words(name)), name)


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9.]+", name.lower()) if word and word not in ("nvidia", "tesla", "gpu")]


def _look_up(name: str) -> tuple[str, int]:
    if (facts := limits(name)).compute_capability:
        return facts.compute_capability, facts.sms
    phrase = " ".join(_words(name))
    return next(((capability, sms) for pattern, capability, sms in MODELS if re.fullmatch(pattern, phrase)), ("", 0))


_Configuration = tuple[str, str, str]          # operator, dtype, tuner.tuning.trial.config_key


@dataclass(frozen=True)
class Ban:
    """One quarantine; an empty text speaks for all of its kind."""

    capability: str
    toolkit: str
    source_hash: str
    why: str                     # "crashed: illegal memory access"


@dataclass(frozen=True)
class Bans:
    """The quarantines in force."""

    by_configuration: Mapping[_Configuration, list[Ban]] = field(default_factory=dict)
    newest: Mapping[str, str] = field(default_factory=dict)          # GPU model → the newest toolkit that a worker ran on it

    def of(self, operator: str, dtype: str, config: Config, capability: str) -> list[Ban]:
        """Return the bans of a configuration on a class of GPUs, under whatever toolkit and source."""
        bans = self.by_configuration.get((operator, dtype, config_key(config)), []) if self.by_configuration else []
        return [ban for ban in bans if ban.capability in ("", capability)]

    def holding(self, operator: str, dtype: str, config: Config, capability: str, toolkit: str, source_hash: str) -> Ban | None:
        """Return the ban that keeps a configuration from running under this toolkit and source; None without one."""
        return next((ban for ban in self.of(operator, dtype, config, capability)
                     if holds_under((ban.toolkit, ban.source_hash), toolkit, source_hash)), None)

    @property
    def operators(self) -> set[str]:
        """Return the operators that have a ban at all."""
        return {operator for operator, _, _ in self.by_configuration}


def read_bans() -> Bans:
    """Return the quarantines in force, by the configuration itself: of a long one its column holds a digest."""
    bans: dict[_Configuration, list[Ban]] = defaultdict(list)
    rows = Quarantine.objects.filter(lifted=None).values_list(
        "operator", "dtype", "config", "capability", "toolkit", "source_hash", "reason", "message")
    for operator, dtype, config, capability, toolkit, source_hash, reason, message in rows.iterator():
        lines = message.strip().splitlines()
        why = ": ".join(part for part in (REASON_WORDS.get(reason, reason), lines[0][:160] if lines else "") if part)
        bans[operator, dtype, config_key(config)].append(Ban(capability, toolkit, source_hash, why))
    environments = GpuEnvironment.objects.order_by("first_seen", "pk").values_list("gpu", "toolkit") if bans else []
    return Bans(dict(bans), dict(environments))
