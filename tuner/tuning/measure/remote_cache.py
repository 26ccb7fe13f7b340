"""Compiled kernels in Redis, as a backend of Triton's remote cache.

Triton loads it by name (TRITON_CACHE_MANAGER, TRITON_REMOTE_CACHE_BACKEND) in every process that compiles or measures.
Its own Redis backend knows neither a URL with a password nor an end of what it keeps.
"""

from __future__ import annotations

import os

import redis
from triton.runtime.cache import RemoteCacheBackend

URL = "RIDGEPOINT_TRITON_REDIS"
KEPT_S = 3600                        # a job's binaries are read within seconds
MAX_BYTES = 64 * 2**20


class RedisCache(RemoteCacheBackend):  # type: ignore[misc]  # Triton has no types
    """Triton's remote cache over Redis."""
    def __init__(self, key: str) -> None:
        self._prefix = f"ridgepoint:triton:{key}:"
        self._redis = redis.Redis.from_url(os.environ[URL])

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        values = self._redis.mget([self._prefix + name for name in filenames]) if filenames else []
        return {name: data for name, data in zip(filenames, values, strict=True) if isinstance(data, bytes)}

    def put(self, filename: str, data: bytes) -> None:
        if len(data) <= MAX_BYTES:
            self._redis.set(self._prefix + filename, data, ex=KEPT_S)
