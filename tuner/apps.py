from django.apps import AppConfig


class TunerConfig(AppConfig):
    name = "tuner"

    def ready(self) -> None:
        from tuner.cache.entries.services import environment_added
        from tuner.operators import provide
        from tuner.team.selectors import usable_operators

        provide(usable_operators)          # of teams' packages that owners enabled, from their rows
        environment_added.connect(_revalidate, weak=False)


def _revalidate(**_: object) -> None:
    from tuner.revalidation.policy_services import wake_revalidations

    wake_revalidations()
