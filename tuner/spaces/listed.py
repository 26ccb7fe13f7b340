"""Keep what a worker listed of an operator whose space only the GPU's machine knows, and find it for the form of a new job."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.models import ListedSpace
from tuner.tuning.offer import Offer, read_offer
from tuner.tuning.trial import config_key

KEPT = 50                    # listings of a project, the newest; one is at most some hundred kB


def store_listing(operator: str, shape: Mapping[str, int], dtype: str, gpu: str, offer: Offer) -> None:
    """Store the listing in the place of an older one of the same problem."""
    row, _ = ListedSpace.objects.update_or_create(
        operator=operator, dtype=dtype, shape_key=config_key(shape)[:200], gpu=gpu[:120],
        defaults={"library": offer.library, "offer": offer.as_json()})
    kept = ListedSpace.objects.values_list("pk", flat=True)[:KEPT]
    ListedSpace.objects.exclude(pk__in=[row.pk, *kept]).delete()


def find_listing(operator: str, shape: Mapping[str, int], dtype: str, gpu: str) -> tuple[Offer, str] | None:
    """Return the newest listing and its GPU model, of `gpu` where that is named; None where nobody listed the problem."""
    rows = ListedSpace.objects.filter(operator=operator, dtype=dtype, shape_key=config_key(shape)[:200])
    row = (rows.filter(gpu=gpu) if gpu else rows).first()
    if row is None:
        return None
    try:
        return read_offer(row.offer), row.gpu
    except ValueError:            # listed by another version of this code
        return None
