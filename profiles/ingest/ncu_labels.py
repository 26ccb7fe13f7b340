"""Labels of `ncu --page details` → metric names. A label that `profiles.analysis.sections` does not list is counted as left out."""

from __future__ import annotations

from profiles.analysis.sections import LABELS


def metric_of(section: str, label: str) -> str | None:
    """The metric a line of the details page shows; a real metric name (``--metrics``, ``--print-metric-name name``)
    stands for itself."""
    if "__" in label and "." in label and " " not in label:
        return label
    return LABELS.get(section, {}).get(label)
