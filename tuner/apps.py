from django.apps import AppConfig


class TunerConfig(AppConfig):
    name = "tuner"
