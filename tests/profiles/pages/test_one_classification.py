"""A kernel stands under one roof, whichever page says it, and a report of another product changes nothing of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from profiles.advice.selectors import advice_json
from profiles.analysis.kernel import bounds, counters
from profiles.analysis.kernel.facts import OccupancyFacts, SpeedOfLight
from profiles.analysis.kernel.roofline import Roofs, point
from profiles.analysis.kernel.work import Work
from profiles.models import Profile
from profiles.profile.selectors import kernel_table
from profiles.rooflines.page_selectors import roofline_page
from profiles.topics.services import kernel_bounds, topics_make
from tests.profiles.pages.test_families import ready, shown

HEAD = "8192 × 128256 × 4096"            # the product over all tokens


def test_a_product_near_its_roof_is_bound_by_it_whatever_the_units_say() -> None:
    """811 of 989 TFLOP/s: the units' own shares may lie below the border, as the tensor pipe is counted in several ways."""
    ceilings = Roofs(4.8e12, None, {"bf16_tensor": 989e12}, {}, None)
    done = Work({"bf16_tensor": 8.6e12}, {})
    near = point(8.6e12 / 811e12 * 1e9, done, 2e9, ceilings)
    idle = OccupancyFacts(None, None, None, None, {}, [], None, None, None, "")
    bound = bounds.classify(SpeedOfLight(55.0, 40.0, 30.0, None, None), near, idle, [])
    assert near.roof_pct == pytest.approx(82.0, abs=0.1) and (bound.kind, bound.ceiling) == ("compute", "BF16 tensor")
    far = point(8.6e12 / 300e12 * 1e9, done, 2e9, ceilings)
    assert bounds.classify(SpeedOfLight(55.0, 40.0, 30.0, None, None), far, idle, []).kind == "latency"


def test_a_kernel_of_several_shapes_is_named_by_most_of_its_time() -> None:
    def row(kernel: str, side: str, total_ns: int, floor_ns: float | None = None, mark: str = "") -> dict[str, Any]:
        return {"kernel": kernel, "side": side, "total_ns": total_ns, "floor_ns": floor_ns, "mark": mark}

    made = kernel_bounds([row("a", "compute", 70, 35.0), row("a", "memory", 30, 30.0), row("b", "", 60),
                          row("b", "memory", 40, 20.0), row("c", "memory", 10, 12.0, "impossible")])
    assert made["a"] == ("compute", "50 % of its compute roof for 70 % of its time, by the dimensions of its launches")
    assert "b" not in made                                  # of most of its time nothing is known
    assert made["c"][0] == "memory" and "%" not in made["c"][1]


@pytest.mark.django_db
@pytest.mark.usefixtures("tmp_store")
def test_every_page_names_the_same_roof(client: Client, alice: Any) -> None:
    client.force_login(alice)
    trace = ready("../recorded/logits_of_all_tokens.json.gz", build="b1", model="head")
    topics_make(trace.pk)
    before = client.get("/api/kernels/").json()["families"]
    ready("full.ncu-rep.zst")

    # the roofline: one sentence, its shares are those of all kernels' time
    page = roofline_page([trace], {})
    spent: dict[str, float] = {}
    for each in page["points"]:
        spent[each["bound"]] = spent.get(each["bound"], 0.0) + each["time_ns"]
    shares = dict(page["answer"]["kinds"])
    assert shares == pytest.approx({bounds.WORDS[bound]: 100.0 * ns / sum(spent.values()) for bound, ns in spent.items()})
    assert sum(shares.values()) == pytest.approx(100.0)
    text = shown(client, f"/profiles/{trace.pk}/roofline/")
    said = re.findall(r"memory-bound [0-9.]+ %|under the memory roof", re.sub(r"<[^>]+>", "", text))
    assert said == [f"memory-bound {shares['memory-bound']:.1f} %"]

    # the kernels' table, the API, the page of a kernel: as the roofline has it
    rows = {row.name: row for row in trace.kernels.all()}
    sides: dict[str, dict[str, float]] = {}
    for each in page["points"]:
        of = sides.setdefault(each["name"], {})
        of[each["side"]] = of.get(each["side"], 0.0) + each["time_ns"]
    for name, of in sides.items():
        known = {side: ns for side, ns in of.items() if side}
        if known and sum(known.values()) > 0.5 * rows[name].total_ns:
            assert rows[name].bound == max(known, key=lambda side: known[side]), name
    head = next(each for each in page["points"] if each["shape"] == HEAD)
    assert (head["bound"], rows[head["name"]].bound) == ("compute", "compute") and head["roof_pct"] > 60
    listed = {row["name"]: row["bound"] for row in client.get(f"/api/profiles/{trace.pk}/kernels/").json()["kernels"]}
    assert listed == {name: row.bound for name, row in rows.items()}
    assert "latency" not in re.sub(r"<[^>]+>", "", shown(client, f"/profiles/{trace.pk}/kernels/")).split("Bound")[1]
    page_of_head = re.sub(r"<[^>]+>", "", shown(client, head["url"]))
    assert "compute-bound: " in page_of_head and "bound unknown" not in page_of_head
    assert "other shapes" in page_of_head.split("Time and counters")[1]
    assert not any(line.counted for line in kernel_table(trace))         # 4096³, 16 rows and the rest: none of these launches

    # a report of another product was loaded meanwhile
    after = {row["family"]: row for row in client.get("/api/kernels/").json()["families"]}
    told = ("basis", "expected_ns", "expected_low_ns", "expected_high_ns", "roof_pct", "shapes_roof_pct", "known_ns")
    for row in before:
        if row["basis"] == "shapes":
            for name in told:
                same = row[name] if row[name] is None or name == "basis" else pytest.approx(row[name])
                assert after[row["family"]][name] == same, (row["name"], name)
    assert Profile.objects.count() == 2 and all(row["basis"] != "measured" for row in after.values())


@pytest.mark.django_db
@pytest.mark.usefixtures("tmp_store")
def test_the_gain_of_a_kernel_is_one_number(client: Client, alice: Any) -> None:
    """`matmul` was counted with 4096 and with 16 rows: each launch is held against its own roof, on every page."""
    client.force_login(alice)
    report = ready("buildA.ncu-rep.zst", build="a", model="five")
    points = {point["kernel_id"]: point for point in client.get(f"/api/profiles/{report.pk}/roofline/").json()["points"]}
    families = {row["family"]: row for row in client.get("/api/kernels/", {"kind": "counters"}).json()["families"]}
    compared = 0
    for kernel in report.kernels.all():
        facts = [counters.from_json(row.facts) for row in kernel.counter_launches.filter(incomplete="")]
        left = [bounds.recoverable_ns(each.duration_ns, reached[0]) for each in facts
                if (reached := bounds.reached_roof(each.point, each.sol, each.bounded))]
        if len(left) < len(facts):
            continue
        expected_ns = sum(ns or 0.0 for ns in left)
        assert (advice_json(kernel)["headroom"] or {})["left_ns"] == pytest.approx(expected_ns, rel=1e-3), kernel.name
        assert points[kernel.pk]["recoverable_ns"] == pytest.approx(expected_ns, rel=1e-3), kernel.name
        assert families[kernel.family_id]["recoverable_ns"] == pytest.approx(expected_ns, rel=1e-3), kernel.name
        compared += 1
    assert compared >= 4
    page = roofline_page([report], {})["answer"]
    assert page["gap_ns"] == page["farthest"]["recoverable_ns"] == max(point["recoverable_ns"] or 0.0 for point in points.values())
