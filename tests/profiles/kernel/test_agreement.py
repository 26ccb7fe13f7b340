"""What is said of a kernel in two places is the same: table and page, waves and their picture, roofline and report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from django.test import Client

from profiles.analysis.kernel import counters
from profiles.analysis.kernel.advising.gains import headroom
from profiles.analysis.kernel.occupancy import waves, waves_sentence, waves_text
from profiles.families.follow_services import shapes_make
from profiles.families.services import family_merge
from profiles.ingest.trace import Report, TraceError
from profiles.models import KernelShape, KernelStat
from tests.profiles.ingest.corpus import DATA, larger_are_deep
from tests.profiles.kernel import reports
from tests.profiles.pages.test_pages import page, ready, text

REPORTS = sorted([*DATA.glob("h200/**/*.ncu-rep.*"), *DATA.glob("causes/*.ncu-rep.zst"), *DATA.glob("corpus/ncu/*.ncu-rep*"),
                  *DATA.glob("corpus/ncu_csv/*.csv")])
REPORTS = [path for path in REPORTS if path.name != "base-everything.ncu-rep.gz"]      # as slow-everything, and large


@pytest.mark.slow
@pytest.mark.parametrize("path", larger_are_deep(REPORTS, 700_000), ids=lambda path: path.name)
def test_every_report_says_one_thing(path: Path) -> None:
    try:
        report = reports.read(path)
    except TraceError:
        return                                              # of the damaged ones what is said stands in other tests
    assert isinstance(report, Report)
    launches: dict[str, list[counters.LaunchFacts]] = {}
    for launch in report.launches:
        if launch.incomplete:
            continue
        facts = counters.launch_facts(launch)
        stored = counters.from_json(json.loads(json.dumps(facts.as_json())))       # as a page reads it
        assert stored.bound == facts.bound and stored.signals == facts.signals
        launches.setdefault(launch.kernel, []).append(stored)
        occupancy, blocks, sms = facts.occupancy, facts.launch.get("grid_size"), facts.launch.get("sm_count")
        stated = facts.launch.get("waves_per_sm")
        if isinstance(stated, int | float) and occupancy.waves is not None:
            assert occupancy.waves == pytest.approx(stated, rel=0.006)             # NVIDIA's own, from the same launch
        known = isinstance(blocks, int | float) and isinstance(sms, int | float)
        if occupancy.waves is not None and occupancy.blocks_per_sm and known:
            grid = waves(int(blocks), occupancy.blocks_per_sm, int(sms))
            assert grid is not None and grid.text == waves_text(occupancy.waves)
            if grid.waves >= 1:
                assert f" {grid.text} wave" in waves_sentence(grid, int(blocks), occupancy.blocks_per_sm * int(sms))
    rows = {row.name: row for row in counters.kernel_table(report)}
    for name, facts_of in launches.items():
        whole = counters.combine_launches(facts_of)
        if whole is None:
            continue
        assert (rows[name].bound, rows[name].bound_reason) == (whole.bound, whole.bound_reason), name
        assert whole.bounded is None or whole.bounded.kind == whole.bound
        if len(facts_of) == 1:
            assert whole.bound == facts_of[0].bound                                # the launch's row and its card
        if whole.point.duration_ns is not None:
            assert whole.point.duration_ns == pytest.approx(rows[name].total_ns, abs=1)
        room = headroom(whole, float(rows[name].total_ns or 0))
        if room is not None and whole.point.roof_pct is not None:
            assert room.reached_pct == whole.point.roof_pct and room.left_ns == pytest.approx(
                rows[name].total_ns * max(0.0, 1 - whole.point.roof_pct / 100))


@pytest.mark.django_db
def test_pages_say_the_same(tmp_store, sign_in_mode, alice):
    """The kernels table, the kernel's page, its advice and the roofline of one report."""
    profile = ready("buildB.ncu-rep.zst")
    client = Client()
    client.force_login(alice)
    points = {point["kernel_id"]: point for point in client.get(f"/api/profiles/{profile.pk}/roofline/").json()["points"]}
    assert sum(point["time_ns"] for point in points.values()) == pytest.approx(profile.gpu_time_ns, rel=1e-6)
    shown = client.get(f"/profiles/{profile.pk}/kernels/").content.decode()
    for kernel in profile.kernels.all():
        link = f'<a href="/profiles/{profile.pk}/kernels/{kernel.pk}/">'
        row = re.search(rf'<td class="name"[^>]*>\s*{link}.*?</tr>', shown, re.DOTALL)
        cell = re.search(r'<td data-value="(\w*)" title', row[0]) if row else None
        said = text(page(alice, f"/profiles/{profile.pk}/kernels/{kernel.pk}/"))
        assert cell and cell[1] == kernel.bound == points[kernel.pk]["bound"]
        assert f"{kernel.bound.capitalize()}-bound: " in said and kernel.bound_reason in said
        document = client.get(f"/api/profiles/{profile.pk}/kernels/{kernel.pk}/advice/").json()
        causes = [each["cause"] for each in document["advice"]]
        assert ("bandwidth" not in causes or kernel.bound == "memory") and "roof" not in causes
        if document["headroom"] and points[kernel.pk]["roof_pct"] is not None:
            assert document["headroom"]["reached_pct"] == pytest.approx(points[kernel.pk]["roof_pct"])
            assert re.search(r"Headroom \d", said)
        assert said.count("L2 hit rate, all accesses") == 1 and "rule of thumb" in said


@pytest.mark.django_db
def test_time_and_counters_of_a_kernel_stand_in_one_row(tmp_store, sign_in_mode, alice):
    """A trace and a report of one GPU model: the row names both origins, from either side."""
    trace, report = ready("kineto_train.json.gz"), ready("full.ncu-rep.zst")
    timed, counted = trace.kernels.first(), report.kernels.first()
    family_merge(timed.family, counted.family, by=alice)
    for profile, kernel in ((trace, timed), (report, counted)):
        said = page(alice, f"/profiles/{profile.pk}/kernels/{kernel.pk}/")
        row = text(said.split('id="beside"', 1)[1].split("</section>")[0])
        assert trace.name in row and report.name in row and counted.bound in row
    # the list of the trace's kernels names a report only where it counted launches of the same shape
    assert shapes_make(trace) and shapes_make(report)
    link = f'href="/profiles/{report.pk}/kernels/{counted.pk}/">report</a>'
    assert link not in page(alice, f"/profiles/{trace.pk}/kernels/")
    ran, seen = timed.shapes.first(), counted.shapes.first()
    timed.shapes.exclude(pk=ran.pk).delete()
    KernelShape.objects.filter(pk=seen.pk).update(grid=ran.grid, block=ran.block, flop=ran.flop, total_ns=ran.total_ns,
                                                  launches=ran.launches)
    KernelShape.objects.filter(pk=ran.pk).update(total_ns=timed.total_ns)
    KernelStat.objects.filter(pk=timed.pk).update(bound="", bound_reason="")
    assert link in page(alice, f"/profiles/{trace.pk}/kernels/")
    told = page(alice, f"/profiles/{trace.pk}/kernels/{timed.pk}/").split('id="beside"', 1)[1]
    named = re.search(rf'kernels/{counted.pk}/">[^<]*</a>(\s+<span class="muted"[^>]*>other shapes)?', told)
    assert named and named[1] is None
