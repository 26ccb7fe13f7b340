"""Reads of a launch over time: its periodic samples, the window in which it ran. Page and API share them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles.analysis.kernel import sampling
from profiles.base.answers import plain
from profiles.models import KernelStat, Profile
from profiles.source.selectors import baseline_of, chosen_index, launches_inside
from profiles.store import source as store
from profiles.store.counters import metrics_of


def sampling_page(kernel: KernelStat, params: Mapping[str, str]) -> dict[str, Any]:
    """Return everything the page of a launch's time shows.

    `series` is empty where nothing was sampled.
    """
    listed = launches_inside(kernel, "samples")
    index = chosen_index(listed, params)
    page: dict[str, Any] = {"kernel": kernel, "profile": kernel.profile, "launches": listed, "index": index, "series": [],
                            "has_source": bool(launches_inside(kernel, "instructions"))}
    if index is None:
        return page
    page |= launch_samples(kernel.profile, index)
    return page | _beside(page, params)


def _beside(page: Mapping[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    """Return the samples of the result that lies over the page, and its means in the rows.

    `base_missing` says why there are none where a baseline is chosen.
    """
    chosen = baseline_of(params)
    if chosen is None or not page["series"]:
        return {"base": None, "base_missing": ""}
    kernel, launch = chosen
    index = chosen_index(launches_inside(kernel, "samples"), {"launch": launch})
    base = launch_samples(kernel.profile, index) if index is not None else {"series": []}
    if index is None or not base["series"]:
        return {"base": None, "base_missing": "The baseline’s report holds no periodic samples of its kernel"}
    known = {(row["name"], row["unit"]): row["mean"] for row in base["rows"]}
    rows = [row | {"base_mean": known.get((row["name"], row["unit"]))} for row in page["rows"]]
    return {"base": base | {"index": index, "kernel": kernel}, "base_missing": "",
            "rows": [row | {"change_pct": _change_pct(row["mean"], row["base_mean"])} for row in rows]}


def _change_pct(mean: float | None, before: float | None) -> float | None:
    return 100.0 * (mean / before - 1.0) if before and mean is not None else None


def launch_samples(profile: Profile, index: int) -> dict[str, Any]:
    """Return the series, the window in which the kernel ran, and the checks of their sums.

    The sums are held against the launch's totals.
    """
    table = store.periodic_read(profile.pk, index)
    if table is None:
        return {"series": [], "window": None, "checks": []}
    series = sampling.series_of(table)
    window = sampling.window(series)
    totals = {each["metric"]: each["value"] for each in metrics_of(profile.pk, index)}
    rows: list[dict[str, Any]] = []
    for each in series:
        values = sampling.samples_within(each, window) if window else each.values
        rows.append({
            "metric": each.metric, "name": each.name, "label": each.label, "unit": each.unit, "panel": each.panel,
            "samples": int(values.size), "mean": float(values.mean()) if values.size else None,
            "lowest": float(values.min()) if values.size else None, "highest": float(values.max()) if values.size else None,
        })
    shown = [row for row in rows if row["panel"] == "SM" and row["highest"] and row["name"].find("pipe") >= 0]
    return {"series": series, "rows": rows, "window": window, "checks": sampling.checks(series, totals),
            "busiest": max(shown, key=lambda row: row["mean"] or 0.0, default=None),
            "duration_ns": totals.get("gpu__time_duration.sum"), "version": ("sampling", profile.pk, profile.sha256, index)}


def sampling_json(profile: Profile, index: int) -> dict[str, Any]:
    document = launch_samples(profile, index)
    return {
        "profile": profile.pk, "launch": index, "window": plain(document["window"]),
        "checks": [{"label": each.label, "sampled": each.sampled, "counted": each.counted, "off_pct": each.off_pct}
                   for each in document["checks"]],
        "series": [{"metric": each.metric, "label": each.label, "unit": each.unit, "panel": each.panel,
                    "time_ns": each.time_ns.tolist(), "values": each.values.tolist()} for each in document["series"]],
    }
