"""What own kernels are measured with where there is no GPU: Triton's interpreter behind the same walls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.bring.travel.described import describe_text
from tuner.bring.travel.files import hash_of, name_of
from workers.core import gpu, sandboxed
from workers.tune import own

CARD = gpu.Gpu(0, "GPU-interpreted", "Triton's interpreter", "9.0", "", 1)
ON_THE_CPU = own.Programs(child="tests.workers.tune.own_child", compilers=0, policy={"max_samples": 5, "rounds": 2},
                          read=(*sandboxed.OURS, sandboxed.PROJECT / "tests"))


@dataclass(frozen=True)
class Version:
    """See workers.tune.own.Version."""

    name: str
    file: str
    sources: Mapping[str, str]
    adapter: str
    description: str
    source_hash: str
    is_independent: bool = True


def with_text(text: str, adapter: str, kernel: str, beside: Mapping[str, str] | None = None) -> Version:
    """Return the version that a text is with an adapter and with files beside it."""
    sources = {**(beside or {}), "mine.py": text}
    digest = hash_of(sources, "mine.py", adapter)
    name = name_of(kernel, digest, 1)
    described = describe_text(adapter, name, title=name, kernel=kernel, source_hash=digest)
    return Version(name, "mine.py", sources, adapter, json.dumps(described), digest)
