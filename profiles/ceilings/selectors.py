"""Reads of measured ceilings: runs, what they found, and the data sheet beside it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

from django.db.models import QuerySet
from django.urls import reverse

from profiles.analysis.core import gpus
from profiles.analysis.kernel.ceilings import MeasuredCeiling, MeasuredCeilings, best_ceilings, newest_of_model
from profiles.base.answers import ErrorJson, Facts, make_answer
from profiles.models import CeilingRun, Profile
from workers import jobs

START_ONE = "start one (manage.py worker gpu) on a machine with an NVIDIA GPU"
EXPECTED = 15                  # measurements of a run: workers.capture.ceilings.NAMES


class MeasureAbilityJson(TypedDict):
    able: bool
    why: str
    gpu: str


def ability() -> MeasureAbilityJson:
    """Return whether anybody could measure now."""
    serving = [worker for worker in jobs.workers() if "gpu" in worker.get("queues", ())]
    if not serving:
        return {"able": False, "why": f"No gpu worker is running: {START_ONE}.", "gpu": ""}
    with_gpu = [worker for worker in serving if worker.get("gpus")]
    if not with_gpu:
        return {"able": False, "why": f"The gpu worker sees no NVIDIA GPU: {START_ONE}, and check nvidia-smi there.", "gpu": ""}
    for worker in with_gpu:
        lacks = [tool["missing"] for name in ("torch", "triton") if "missing" in (tool := worker.get("tools", {}).get(name, {}))]
        if not lacks:
            card = worker["gpus"][0]["name"]
            return {"able": True, "why": f"{card} on {worker.get('host')} can be measured now: about one minute.", "gpu": card}
    return {"able": False, "why": f"The gpu worker cannot: {lacks[0]}.", "gpu": ""}


def runs() -> QuerySet[CeilingRun]:
    """Return measurements, newest first."""
    return CeilingRun.objects.select_related("owner")


def measured_of(run: CeilingRun) -> MeasuredCeilings:
    when = (run.finished or run.created).date().isoformat()
    return best_ceilings(run.gpu, run.recorded or f"measured {when}", run.results, reverse("ceiling-run", args=[run.pk]))


def measured_gpus() -> list[MeasuredCeilings]:
    """The newest complete run of each GPU model; one measured here goes before a recorded one."""
    measured: list[MeasuredCeilings] = []
    done = CeilingRun.objects.filter(status=CeilingRun.Status.DONE).exclude(gpu="")
    for run in sorted(done, key=lambda ceiling: (bool(ceiling.recorded), -(ceiling.finished or ceiling.created).timestamp())):
        if newest_of_model(measured, run.gpu) is None:
            measured.append(measured_of(run))
    return measured


def measured_for(gpu: str) -> MeasuredCeilings | None:
    """Return what was measured on this model of GPU, or None."""
    return newest_of_model(measured_gpus(), gpu) if gpu else None


def gpu_rows(measured: MeasuredCeilings | None, gpu: str) -> list[dict[str, Any]]:
    """Return one row per level and precision: data sheet beside measurement."""
    model = gpus.lookup(gpu)
    keys = [("dram", "DRAM", "B/s"), ("l2", "L2", "B/s"), ("l1", "L1", "B/s"),
            *((name, label, "OP/s" if name.startswith("int") else "FLOP/s") for name, label in gpus.PRECISIONS.items())]
    rows = []
    for key, label, unit in keys:
        sheet = model.dram_bytes_s if model and key == "dram" else model.peaks.get(key) if model else None
        one = measured.ceilings.get(key) if measured else None
        if sheet is None and one is None:
            continue
        rows.append({"key": key, "label": label, "unit": unit, "sheet": sheet, "measured": one,
                     "spread_pct": 100.0 * one.spread if one else None,
                     "pct": 100.0 * one.rate / sheet if one and sheet else None, "source": model.source if model and sheet else "",
                     "clock_pct": _clock_pct(one, model, key)})
    return rows


def _clock_pct(ceiling: MeasuredCeiling | None, model: gpus.Gpu | None, key: str) -> float | None:
    """The clock of the measurement as a share of the one that the data sheet's peak stands for."""
    if ceiling is None or model is None or ceiling.clock_hz is None or key not in model.peaks:
        return None
    return 100.0 * ceiling.clock_hz / model.peak_clock_hz(key)


def results_in_order(run: CeilingRun) -> list[tuple[str, dict[str, Any]]]:
    """Memory first, from DRAM to L1, then arithmetic by precision; what was refused stands last."""
    places = ["dram", "l2", "l1", *gpus.PRECISIONS]

    def place(item: tuple[str, dict[str, Any]]) -> tuple[int, str]:
        key = item[1].get("precision") or item[1].get("kind") or ""
        return (places.index(key) if key in places else len(places), item[0])
    return sorted(run.results.items(), key=place)


def known_gpus() -> list[str]:
    """Models that profiles or measurements name."""
    named = [*CeilingRun.objects.exclude(gpu="").values_list("gpu", flat=True),
             *Profile.objects.filter(status=Profile.Status.READY).exclude(gpu="").values_list("gpu", flat=True).distinct()]
    names: dict[str, str] = {}
    for name in named:
        if len(name) < 80 and "," not in name:
            names.setdefault(gpus.key(name), name)
    return sorted(names.values())


class SheetRowJson(TypedDict):
    """A rate of the data sheet; `pct`: of it that was measured."""

    key: str
    label: str
    unit: str
    sheet: float | None
    pct: float | None
    source: str


class DataSheetJson(TypedDict):
    version: str
    rows: list[SheetRowJson]


class CeilingRunJson(TypedDict):
    """A measurement of a GPU's ceilings, beside its data sheet."""

    id: int
    status: str
    gpu: str
    recorded: str
    environment: Facts
    results: dict[str, Facts]
    error: ErrorJson | None
    worker: str
    created: datetime
    started: datetime | None
    finished: datetime | None
    ceilings: dict[str, MeasuredCeiling]
    data_sheet: DataSheetJson


def run_json(run: CeilingRun) -> CeilingRunJson:
    return {"id": run.pk, "status": run.status, "gpu": run.gpu, "recorded": run.recorded, "environment": run.environment,
            "results": run.results, "error": run.error, "worker": run.worker, "created": run.created, "started": run.started,
            "finished": run.finished, "ceilings": measured_of(run).as_json()["ceilings"],
            "data_sheet": {"version": gpus.VERSION,
                           "rows": [make_answer(SheetRowJson, None, **row) for row in gpu_rows(measured_of(run), run.gpu)]}}
