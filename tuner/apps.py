from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from tuner.tuning.operators import Operator


class TunerConfig(AppConfig):
    name = "tuner"

    def ready(self) -> None:
        from tuner.cache.entries.signals import environment_added
        from tuner.tuning.offered import provide

        provide(_offer_packages)
        provide(_offer_own_kernels)
        environment_added.connect(_revalidate, weak=False)


def _offer_packages() -> Mapping[str, Operator]:
    """Return the operators of teams' packages that owners enabled, from their rows."""
    from tuner.team.selectors import usable_operators  # when one is looked for: numpy, and all operators

    return usable_operators()


def _offer_own_kernels() -> Mapping[str, Operator]:
    """Return the operators of files that nobody packaged."""
    from tuner.bring.own.selectors import usable_operators

    return usable_operators()


def _revalidate(**_: object) -> None:
    from tuner.revalidation.policy_services import wake_revalidations

    wake_revalidations()
