"""Commands whose memory the operating system bounds, as that of a worker's stages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.core.management.base import CommandError

from workers.bounded_process import bound_memory


@contextmanager
def within_stage_memory() -> Iterator[None]:
    """Bound the command's process by RIDGEPOINT_STAGE_MEMORY_MB. Raises CommandError where it needs more."""
    try:
        with bound_memory(settings.STAGE_MEMORY_MB):
            yield
    except MemoryError:
        raise CommandError(f"it needs more memory than {settings.STAGE_MEMORY_MB:,} MB; raise RIDGEPOINT_STAGE_MEMORY_MB") from None
