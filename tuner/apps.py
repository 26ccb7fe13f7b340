from django.apps import AppConfig


class TunerConfig(AppConfig):
    name = "tuner"

    def ready(self) -> None:
        from tuner.operators import provide
        from tuner.team.selectors import operators

        provide(operators)          # of teams' packages that owners enabled, from their rows
