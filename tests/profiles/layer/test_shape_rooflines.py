"""A trace's roofline from shapes: its dots, ceilings, what people type, and the same rows in SQL, API and page."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.files.base import File
from django.test import Client

from profiles.ceilings.services import ceilings_load
from profiles.charts.roofline import roofline_figure
from profiles.models import CeilingRun, Profile
from profiles.rooflines.page_selectors import roofline_page
from profiles.rooflines.selectors import roofline_json
from profiles.sql.services import query_run
from profiles.store.objects import derived_delete, typed_read
from profiles.topics.services import document_of
from profiles.topics.table import topic_of
from profiles.upload import services
from tests.profiles.ingest.corpus import DATA

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def stored(django_db_setup: Any, django_db_blocker: Any) -> Any:
    """A recorded layer, and a decode step whose graph replays hold no shapes."""
    with django_db_blocker.unblock():
        made = []
        for path in ("h200/kineto_layer.json.gz", "corpus/kineto/sglang_mi300_qwen3-8b_decode.json.gz"):
            file = File(io.BytesIO((DATA / path).read_bytes()), name=path.rsplit("/", 1)[-1])
            made.append(services.profile_create(owner=None, file=file, name=path))
            services.profile_ingest(made[-1].pk, "w1")
            made[-1].refresh_from_db()
        yield made
        for profile in made:
            services.profile_delete(profile=profile)


def layer(profile: Profile) -> dict[str, Any]:
    topic = topic_of("layer")
    assert topic is not None
    document = document_of(profile, topic)
    assert document is not None
    return document


def test_dots_of_a_trace_are_one_for_each_kernel_and_shape(stored: list[Profile]) -> None:
    page = roofline_page(stored[:1], {})
    names = [dot["name"] for dot in page["dots"]]
    assert len(names) == 10 > len(set(names)), "one kernel ran with several shapes: several dots"
    assert {dot["basis"] for dot in page["dots"]} == {"from shapes"} and page["from_shapes"] and page["only_shapes"]
    assert all(dot["levels"] == {} and dot["sm_clock_hz"] is None for dot in page["dots"])      # nobody counted them
    figure = roofline_figure(page["dots"], page["ceilings"])
    assert "from shapes (minimal bytes)" in json.dumps(figure)
    rows = {(row["kernel"], row["text"]): row for row in layer(stored[0])["numbers"]["work"]}
    for dot in page["dots"]:                # page, API and analysis say the same
        row = rows[dot["name"], dot["shape"]]
        assert (dot["roof_pct"], dot["flop"], dot["dram_bytes"]) == (row["roof_pct"], row["flop"], row["bytes"])
    answer = Client().get(f"/profiles/{stored[0].pk}/roofline/").content.decode()
    assert "From shapes" in answer and "thick edge stand on shapes and least bytes" in answer
    assert Client().get(f"/api/profiles/{stored[0].pk}/roofline/?format=csv").status_code == 200


def test_a_measurement_of_the_gpu_becomes_the_ceiling(stored: list[Profile]) -> None:
    before = layer(stored[0])
    ceilings_load(json.loads((DATA / "h200" / "ceilings.json").read_text()))
    after = layer(stored[0])
    assert "data sheet" in before["numbers"]["work"][0]["ceiling"] and "measured" in after["numbers"]["work"][0]["ceiling"]
    assert before["numbers"]["work"][0]["roof_pct"] < after["numbers"]["work"][0]["roof_pct"] < 100
    assert {line["origin"] for line in roofline_json(stored[:1], {})["ceilings"]} == {"sheet", "measured"}
    CeilingRun.objects.all().delete()
    assert layer(stored[0])["numbers"] == before["numbers"]


def test_sql_holds_the_same_rows(stored: list[Profile]) -> None:
    sql = "SELECT sum(flop) AS flop, sum(total_ns) AS ns, count(*) AS n FROM work WHERE basis = 'from shapes' AND class = 'compute'"
    answer = query_run(sql, stored[:1], "alice").table.to_pylist()[0]
    rows = [row for row in layer(stored[0])["numbers"]["work"] if row["side"] == "compute"]
    assert {name: int(value) for name, value in answer.items()} == {
        "flop": sum(row["flop"] for row in rows), "ns": sum(row["total_ns"] for row in rows), "n": len(rows)}


def test_shapes_that_people_type_stand_until_they_are_taken_back(stored: list[Profile], client: Client, alice: Any) -> None:
    profile = stored[1]
    kernel = profile.kernels.order_by("-total_ns").first()
    assert kernel is not None
    url, form = f"/profiles/{profile.pk}/roofline/typed/", {"kernel": kernel.pk, "operator": "linear", "dtype": "bf16"}
    client.force_login(alice)
    assert client.post(url, {**form, "dims": "32x4096, 24576x4096"}).status_code == 302
    row = next(each for each in layer(profile)["numbers"]["work"] if each["kernel"] == kernel.name)
    assert (row["basis"], row["flop"]) == ("typed", 2 * 32 * 4096 * 24576 * kernel.launches)
    part = {each["part"]: each for each in layer(profile)["numbers"]["layer"] if each["is_named"]}["gate and up projections"]
    assert part["flop_per_layer"] == 2 * 32 * 4096 * 24576 and part["calls"] == kernel.launches == 36
    dot = next(each for each in roofline_page([profile], {})["dots"] if each["name"] == kernel.name)
    assert dot["basis"] == "typed" and dot["side"] == "memory"
    assert "24576x4096" in client.get(f"/profiles/{profile.pk}/roofline/").content.decode()
    client.post(url, {**form, "dims": "32x4096, 24576x4097"})              # refused: what stood stays
    assert typed_read(profile.pk)[kernel.name]["dims"] == "32x4096, 24576x4096"
    derived_delete_keeps = typed_read(profile.pk)
    client.post(url, {**form, "dims": ""})
    assert typed_read(profile.pk) == {} != derived_delete_keeps
    assert not any(each["basis"] == "typed" for each in layer(profile)["numbers"]["work"])
    assert client.post(url, {**form, "kernel": "9" * 30}).status_code == 404
    assert client.post(f"/profiles/{stored[0].pk}/roofline/typed/", {**form, "dims": "1x1, 1x1"}).status_code == 404


def test_an_ingest_anew_keeps_what_people_typed(stored: list[Profile], tmp_store: Any) -> None:
    from profiles.store.objects import typed_write

    typed_write(7, {"k": {"operator": "mm", "dims": "2x2, 2x2", "dtype": "fp16"}})
    derived_delete(7)
    assert typed_read(7)["k"]["operator"] == "mm"
