"""Several profiles on one roofline: dots, arrows, regions, losses and their API."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import File
from django.test import Client

from profiles.ceilings.services import ceilings_load
from profiles.charts.roofline import hull, roofline_figure
from profiles.models import CeilingRun, Profile
from profiles.rooflines.page_selectors import losses, roofline_page
from profiles.rooflines.selectors import roofline_json
from profiles.upload import services

DATA = Path(__file__).resolve().parents[2] / "data"
pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def builds(django_db_setup: Any, django_db_blocker: Any) -> Any:
    """buildA, buildB and what a GPU of their model reached; once for all tests here."""
    with django_db_blocker.unblock():
        made = []
        for build in ("buildA", "buildB"):
            data = (DATA / "h200" / f"{build}.ncu-rep.zst").read_bytes()
            made.append(services.profile_create(owner=None, file=File(io.BytesIO(data), name=f"{build}.ncu-rep.zst"), name="five",
                                                build=build))
            services.profile_ingest(made[-1].pk, "w1")
            made[-1].refresh_from_db()
        run = ceilings_load(json.loads((DATA / "h200" / "ceilings.json").read_text()))
        yield made
        run.delete()
        for profile in made:
            services.profile_delete(profile=profile)


def page_of(builds: list[Profile], **params: str) -> dict[str, Any]:
    return roofline_page(builds, params)


def test_arrows_join_the_same_kernels_before_and_after(builds: list[Profile]) -> None:
    a, b = builds
    page = page_of(builds, before=str(a.pk), after=str(b.pk))
    dots = page["dots"]
    pairs = {(dots[i]["name"], dots[i]["build"], dots[j]["name"], dots[j]["build"]) for i, j in page["dot_pairs"]}
    assert pairs == {(name, "buildA", name, "buildB") for name in ("matmul", "softmax_row", "layernorm_row", "attn_fwd")}
    slower = {dots[i]["name"] for i, j in page["dot_pairs"] if dots[j]["time_ns"] > dots[i]["time_ns"]}
    assert slower == {"matmul", "softmax_row", "layernorm_row"}                   # the recording's known truth
    assert page_of(builds, before=str(a.pk), after=str(a.pk))["dot_pairs"] == []
    assert page_of(builds, before="999", after=str(b.pk))["dot_pairs"] == []
    launches = page_of(builds, before=str(a.pk), after=str(b.pk), per="launch")
    assert len(launches["dots"]) == 30 and len(launches["dot_pairs"]) == 15
    assert all(launches["dots"][i]["index"] == launches["dots"][j]["index"] for i, j in launches["dot_pairs"])


def test_points_come_in_pages_and_whole_as_a_file(builds: list[Profile]) -> None:
    a, b = builds
    asked = {"profiles": f"{a.pk},{b.pk}", "per": "launch", "before": a.pk, "after": b.pk}
    whole = Client().get("/api/roofline/", asked).json()
    page = Client().get("/api/roofline/", {**asked, "limit": 4, "offset": 2}).json()
    assert page["points"] == whole["points"][2:6] and page["pairs"] == whole["pairs"] and page["ceilings"] == whole["ceilings"]
    assert (page["count"], page["next_offset"], whole["next_offset"]) == (30, 6, None)
    assert Client().get("/api/roofline/", {**asked, "limit": 4, "format": "csv"}).content.count(b"buildA") >= 15
    one = Client().get(f"/api/profiles/{a.pk}/roofline/", {"limit": 1})
    assert len(one.json()["points"]) == 1 and 'offset=1>; rel="next"' in one["Link"]


def test_equal_names_are_told_apart_by_build(builds: list[Profile]) -> None:
    labels = {dot["profile_label"] for dot in page_of(builds)["dots"]}
    assert labels == {"five (buildA)", "five (buildB)"}
    assert page_of(builds)["colour"] == "profile" and page_of(builds[:1])["colour"] == "bound"


def test_every_origin_of_a_ceiling_is_there_and_none_lies_above_what_is_possible(builds: list[Profile]) -> None:
    lines = roofline_json(builds, {})["ceilings"]
    assert {line["origin"] for line in lines} == {"stated", "other", "measured", "sheet"}
    assert {line["kind"] for line in lines} == {"dram", "l2", "l1", "compute"}
    stated = {(line["kind"], line["precision"]): line["value"] for line in lines if line["origin"] == "stated"}
    for line in (line for line in lines if line["origin"] == "measured"):
        assert 0.85 < line["value"] / stated[line["kind"], line["precision"]] <= 1.0, line["label"]
    others = {line["precision"] for line in lines if line["origin"] == "other"}
    assert others >= {"fp64", "tf32_tensor", "fp8_tensor", "int8_tensor"}


def test_losses_add_up_to_the_data_sheet(builds: list[Profile]) -> None:
    """matmul of build A ran as fast as a GPU of the model can at its clock, to a tenth; B leaves most itself."""
    rows = {(row["point"]["name"], row["point"]["build"]): row for row in losses(roofline_json(builds, {})["points"])}
    for row in rows.values():
        assert sum(share for _, share, _ in row["segments"]) == pytest.approx(100.0, abs=0.5)
        ends = [start + share for _, share, start in row["segments"]]
        assert ends == sorted(ends)
    good, bad = rows["matmul", "buildA"], rows["matmul", "buildB"]
    share = {name: {kind: part for kind, part, _ in row["segments"]} for name, row in (("good", good), ("bad", bad))}
    assert share["bad"]["kernel"] > 3 * share["good"]["kernel"]
    assert good["rungs"]["clock"]["rate"] / good["rungs"]["sheet"]["rate"] == pytest.approx(1 - good["clock_pct"] / 100)
    assert bad["kernel_lost_ns"] > 5 * good["kernel_lost_ns"]


def test_without_a_measurement_the_ladder_has_one_rung_less(builds: list[Profile]) -> None:
    run = CeilingRun.objects.get()
    CeilingRun.objects.filter(pk=run.pk).update(status="cancelled")
    point = roofline_json(builds, {})["points"][0]
    assert [rung["name"] for rung in point["ladder"]] == ["sheet", "clock", "achieved"]
    CeilingRun.objects.filter(pk=run.pk).update(status="done")


@pytest.mark.parametrize("query", ["&colour=family", "&colour=build", "&per=launch&colour=bound", "&colour=x"])
def test_the_page_in_its_variants(builds: list[Profile], query: str) -> None:
    a, b = builds
    answer = Client().get(f"/roofline/?profiles={a.pk},{b.pk}&before={a.pk}&after={b.pk}{query}")
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "Where the rate goes" in text and "What would help" in text and "Classification" in text
    assert "Arrows: five (buildA) → five (buildB)" in text and "recorded on NVIDIA H200" in text


def test_profiles_are_chosen_and_nonsense_is_passed_over(builds: list[Profile]) -> None:
    a, b = builds
    empty = Client().get("/roofline/").content.decode()
    assert "Choose counter reports" in empty and f'value="{a.pk}"' in empty
    for asked in (f"{a.pk}&profiles={b.pk}", f"{a.pk},{b.pk},999999,x,-1,{'9' * 30}"):
        answer = Client().get(f"/api/roofline/?profiles={asked}").json()
        assert answer["profiles"] == [a.pk, b.pk]
    own = Client().get(f"/api/profiles/{b.pk}/roofline/?profiles={a.pk}").json()
    assert own["profiles"] == [b.pk, a.pk] and own["profile"] == b.pk
    assert Client().get("/api/roofline/?profiles=nothing").json()["points"] == []
    csv = Client().get(f"/api/roofline/?profiles={a.pk},{b.pk}&format=csv")
    assert csv.status_code == 200 and csv.content.decode().count("\n") >= 8


def test_a_region_holds_every_dot_of_its_family() -> None:
    places = [(1.0, 1e12), (100.0, 5e13), (10.0, 1e13), (3.0, 9e12), (50.0, 2e12)]
    xs, ys = hull(places)
    ring = [(math.log10(x), math.log10(y)) for x, y in zip(xs, ys, strict=True)]
    for x, y in ((math.log10(x), math.log10(y)) for x, y in places):
        turns = [(bx - ax) * (y - ay) - (by - ay) * (x - ax) for (ax, ay), (bx, by) in zip(ring, ring[1:] + ring[:1], strict=True)]
        assert all(turn > 0 for turn in turns)           # strictly inside: a counter-clockwise ring has it on the left everywhere
    assert len(hull(places[:1])[0]) == 8                    # one dot: an octagon around it


def test_a_figure_of_many_dots_keeps_the_other_levels_for_a_click(builds: list[Profile]) -> None:
    def levels(page: dict[str, Any]) -> list[bool]:
        figure = roofline_figure(page["dots"], page["ceilings"])
        assert figure is not None
        text = json.dumps(figure)
        return [f"traffic at {name}" in text for name in ("L2", "L1")] + ['"visible": false' in text]

    assert levels(page_of(builds, per="launch")) == [True, True, True]
