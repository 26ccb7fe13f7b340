"""Threads in which the log and the budgets are read and written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import close_old_connections

Result = TypeVar("Result")
_pool = ThreadPoolExecutor(4, thread_name_prefix="agents")


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run work over the database in a thread of its own kind, which keeps its connection."""
    def run() -> Result:
        close_old_connections()
        try:
            return work()
        finally:
            close_old_connections()
    return await asyncio.get_running_loop().run_in_executor(_pool, run)
