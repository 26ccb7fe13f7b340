"""Answers over a fleet, kept in this process until a row that they rest on changes.

Summing two million kernels takes the database seconds whatever the query; saying whether any of them changed takes milliseconds.
Of a few thousand each row's last write is asked for, which is exact; of millions the numbers of the latest rows. A fleet between
the two is summed anew for each answer.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

from django.db import connection
from django.db.models import BigIntegerField, Case, F, When
from django.db.models.functions import Cast, Round

from profiles.models import KernelStat, Profile
from workers.scope import current

# How many launches the time of a kernel is the sum of: a counter report may hold launches that were not measured to their end.

# of KernelStat with a time. A report's mean is that of the launches that were measured
TIMED = Case(When(profile__kind=Profile.Kind.COUNTERS, mean_ns__gt=0,
                  then=Cast(Round(F("total_ns") / F("mean_ns")), BigIntegerField())),
             default=F("launches"), output_field=BigIntegerField())


def timed_launches(stat: KernelStat) -> int:
    """Return what TIMED counts, of one kernel."""
    if stat.profile.kind == Profile.Kind.COUNTERS and stat.total_ns and stat.mean_ns:
        return round(stat.total_ns / stat.mean_ns)
    return stat.launches


LARGE_ROWS = 100_000            # of the kernel table, as the database estimates them
SMALL_ROWS = 10_000             # of kernels, and of their shapes, as counted
KEPT_ANSWERS = 32
KEPT_FOR_S = 600.0              # for the one change that leaves no trace: `manage.py families` moves a kernel to a known family
_WRITES = ", ".join(f"(SELECT sum(hashtextextended(concat(id, ' ', xmin, ' ', ctid), 0)) FROM profiles_{table})"
                    for table in ("kernelstat", "kernelshape", "kernelfamily"))
_STATE = f"""
SELECT size.rows, size.most, CASE WHEN size.rows < %(large)s AND size.most <= %(small)s THEN ARRAY[{_WRITES}] END,
       (SELECT max(id) FROM profiles_kernelstat), (SELECT max(id) FROM profiles_kernelshape),
       (SELECT max(id) FROM profiles_kernelfamily), (SELECT max(id) FROM profiles_familyrule),
       (SELECT sum(hashtextextended(concat(id, ' ', xmin, ' ', ctid), 0)) FROM profiles_familyedit),
       (SELECT sum(hashtextextended(concat(id, ' ', xmin, ' ', ctid), 0)) FROM profiles_profile WHERE status = 'ready')
FROM (SELECT (SELECT reltuples::bigint FROM pg_class WHERE oid = 'profiles_kernelstat'::regclass) AS rows,
             greatest((SELECT count(*) FROM (SELECT FROM profiles_kernelstat LIMIT %(small)s + 1) AS kernels),
                      (SELECT count(*) FROM (SELECT FROM profiles_kernelshape LIMIT %(small)s + 1) AS shapes)) AS most) AS size
"""                             # xmin, ctid: who last wrote the row and where it lies; kernels and shapes are replaced, not edited
Answer = TypeVar("Answer")
_kept: OrderedDict[Hashable, tuple[float, tuple[object, ...], object]] = OrderedDict()
_lock = threading.Lock()        # also so that a fleet is summed once where several ask


def cached_answer(key: Hashable, make: Callable[[], Answer]) -> Answer:
    """Return what `make` returns, or returned before for `key` where no row has changed since; see above for which fleets.

    The answer is shared: nobody may change it.
    """
    with connection.cursor() as cursor:
        cursor.execute(_STATE, {"small": SMALL_ROWS, "large": LARGE_ROWS})
        rows, most, *state = cursor.fetchone()
    if rows < LARGE_ROWS and most > SMALL_ROWS:
        return make()
    key = (connection.settings_dict["NAME"], current().sees, key)
    with _lock:
        at_s, old_state, answer = _kept.get(key, (0.0, (), None))
        if old_state != tuple(state) or time.monotonic() - at_s > KEPT_FOR_S:
            answer = make()
            _kept[key] = (time.monotonic(), tuple(state), answer)
        _kept.move_to_end(key)
        while len(_kept) > KEPT_ANSWERS:
            _kept.popitem(last=False)
        return answer           # type: ignore[return-value]
