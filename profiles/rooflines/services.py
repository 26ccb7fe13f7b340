"""What people may say of a trace's kernels: the operator's shape, where the trace tells none."""

from __future__ import annotations

from django.db import transaction

from profiles.analysis.trace.layer.typed import MOST_TYPED, typed_work
from profiles.base.refused import Refused
from profiles.models import KernelStat, Profile
from profiles.store.typed import typed_read, typed_write


def typed_set(kernel: KernelStat, *, operator: str, dims: str, dtype: str) -> None:
    """Keep an operator's shape and type for every launch of a kernel that the trace tells none of; empty `dims` forget it.

    Raises Refused with the reason. The topic "layer" is made again when it is next asked for.
    """
    with transaction.atomic():
        Profile.objects.select_for_update().get(pk=kernel.profile_id)           # one writer at a time
        document = typed_read(kernel.profile_id)
        document.pop(kernel.name, None)
        if dims.strip():
            typed_work(operator, dims, dtype)
            if len(document) >= MOST_TYPED:
                raise Refused(f"at most {MOST_TYPED} kernels of a profile")
            document[kernel.name] = {"operator": operator, "dims": dims.strip(), "dtype": dtype}
        typed_write(kernel.profile_id, document)
