"""What is in quarantine, as the cache asks it: by operator, data type, configuration, class of GPUs, toolkit and kernel source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.cache.rules import holds_under
from tuner.models import GpuEnvironment, Quarantine
from tuner.texts import REASON_WORDS
from tuner.tuning.trial import Config, config_key

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
        found = self.by_configuration.get((operator, dtype, config_key(config)), []) if self.by_configuration else []
        return [ban for ban in found if ban.capability in ("", capability)]

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
    found: dict[_Configuration, list[Ban]] = defaultdict(list)
    rows = Quarantine.objects.filter(lifted=None).values_list(
        "operator", "dtype", "config", "capability", "toolkit", "source_hash", "reason", "message")
    for operator, dtype, config, capability, toolkit, source_hash, reason, message in rows.iterator():
        lines = message.strip().splitlines()
        why = ": ".join(each for each in (REASON_WORDS.get(reason, reason), lines[0][:160] if lines else "") if each)
        found[operator, dtype, config_key(config)].append(Ban(capability, toolkit, source_hash, why))
    seen = GpuEnvironment.objects.order_by("first_seen", "pk").values_list("gpu", "toolkit") if found else []
    return Bans(dict(found), dict(seen))
