from django.apps import AppConfig


class TunerConfig(AppConfig):
    name = "tuner"

    def ready(self) -> None:
        from tuner.bring.own import selectors as own
        from tuner.cache.entries.services import environment_added
        from tuner.team.selectors import usable_operators
        from tuner.tuning.operators import provide

        provide(usable_operators)          # of teams' packages that owners enabled, from their rows
        provide(own.usable_operators)      # and of files that nobody packaged
        environment_added.connect(_revalidate, weak=False)


def _revalidate(**_: object) -> None:
    from tuner.revalidation.policy_services import wake_revalidations

    wake_revalidations()
