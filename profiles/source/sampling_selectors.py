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
    means = {(row["name"], row["unit"]): row["mean"] for row in base["rows"]}
    rows = [row | {"base_mean": means.get((row["name"], row["unit"]))} for row in page["rows"]]
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
    totals = {metric["metric"]: metric["value"] for metric in metrics_of(profile.pk, index)}
    rows: list[dict[str, Any]] = []
    for curve in series:
        values = sampling.samples_within(curve, window) if window else curve.values
        rows.append({
            "metric": curve.metric, "name": curve.name, "label": curve.label, "unit": curve.unit, "panel": curve.panel,
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
        "checks": [{"label": check.label, "sampled": check.sampled, "counted": check.counted, "off_pct": check.off_pct}
                   for check in document["checks"]],
        "series": [{"metric": series.metric, "label": series.label, "unit": series.unit, "panel": series.panel,
                    "time_ns": series.time_ns.tolist(), "values": series.values.tolist()} for series in document["series"]],
    }
