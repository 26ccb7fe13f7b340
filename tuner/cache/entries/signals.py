"""What the cache tells: a module of its own, for who listens while the apps start."""

from django.dispatch import Signal

environment_added = Signal()               # a GPU model, toolkit and driver that nothing ran on before
