"""Sums without a timeline: their kernel table, their tables in the store, on the page and over the API."""

from __future__ import annotations

import pytest
from django.test import Client

from profiles import ingest
from profiles.analysis.core import result
from profiles.analysis.core.kernels import summary_table
from profiles.analysis.core.sentences import plural, verb
from profiles.ingest.nsys import report
from profiles.ingest.trace import Device, Integrity, KernelSum, Summary, SummaryColumn, SummaryTable, TraceError
from profiles.models import Profile
from profiles.profile.selectors import answer
from profiles.store.objects import tables_of
from profiles.upload import services
from tests.profiles.pages.test_pages import page, text
from tests.profiles.pages.test_services import create, ingested, upload


def summary(**fields) -> Summary:
    made = {
        "format": "test-sums", "integrity": Integrity(records_read=5, records_kept=5), "devices": [Device(0, "NVIDIA H200")],
        "kernels": [KernelSum("void gemm<float>(float*)", 4, 400, p50_ns=90, p95_ns=120, min_ns=80, max_ns=130,
                              registers_per_thread=32, occupancy_pct=50.0),
                    KernelSum("add", 1, 60, min_ns=60, max_ns=60, occupancy_pct=10.0),
                    KernelSum("add", 3, 240, occupancy_pct=20.0)],
        "tables": [SummaryTable("API calls", [SummaryColumn("Name", text=True), SummaryColumn("Total", "ns"),
                                              SummaryColumn("Bytes", "bytes"), SummaryColumn("Share", "pct")],
                                [["cudaLaunchKernel", 12_400, 4096, 61.3], ["=cmd|' /C calc'!A0", None, None, None]],
                                note="As the tool summed them.")],
        "metadata": {"tool": "made by a test"}}
    return Summary(**{**made, **fields})


def test_sums_of_one_name_are_one_row_and_unknown_stays_unknown():
    gemm, add = summary_table(summary())
    assert (gemm.name, gemm.launches, gemm.total_ns, gemm.mean_ns, gemm.p50_ns, gemm.min_ns) == (
        "void gemm<float>(float*)", 4, 400, 100.0, 90, 80)
    assert (add.launches, add.total_ns, add.mean_ns, add.p50_ns, add.p95_ns) == (4, 300, 75.0, None, None)
    assert (add.min_ns, add.max_ns) == (None, None)       # one of the two does not state them
    assert add.occupancy_pct == pytest.approx((10 * 60 + 20 * 240) / 300)
    assert gemm.share_pct == pytest.approx(100 * 400 / 700)


def test_sums_beyond_any_clock_are_an_error():
    with pytest.raises(TraceError, match="no clock counts"):
        summary_table(summary(kernels=[KernelSum("a", 1, 2**62), KernelSum("b", 1, 1)]))


def test_tables_are_cut_to_what_a_profile_holds_and_the_rest_is_counted(monkeypatch):
    monkeypatch.setattr(result, "MAX_ROWS", 3)
    columns = [SummaryColumn("n", "count")]
    found = summary(tables=[SummaryTable("a", columns, [[1], [2]]), SummaryTable("b", columns, [[1], [2], [3]])])
    result.cut_tables(found)
    assert [len(table.rows) for table in found.tables] == [2, 1]
    assert list(found.integrity.remarks.values()) == [2]


@pytest.fixture
def profile(monkeypatch, tmp_store, db) -> Profile:
    monkeypatch.setattr(ingest, "read", lambda *_, **__: summary())
    return ingested(create(upload("sums.csv", b"x")))


@pytest.mark.django_db
def test_an_ingest_stores_sums_and_the_page_says_that_there_is_no_timeline(profile, alice):
    assert profile.error is None
    assert (profile.status, profile.kind, profile.format, profile.gpu) == ("ready", "summary", "test-sums", "NVIDIA H200")
    assert (profile.launches, profile.gpu_time_ns, profile.top_kernel) == (8, 700, "gemm<float>")
    shown = page(alice, f"/profiles/{profile.pk}/")
    plain = text(shown)
    assert "8 launches of 2 kernels take 700 ns; gemm<float> takes 57 % of it." in plain.replace("57.1", "57")
    assert "Sums, no timeline" in plain and f"/profiles/{profile.pk}/timeline/" not in shown
    assert "API calls" in plain and "12.4 µs" in plain and "4.10 kB" in plain and "As the tool summed them." in plain
    assert "made by a test" in plain and "all 5 records kept" in plain


@pytest.mark.django_db
def test_the_verb_agrees_with_one_launch_of_one_kernel(profile):
    profile.kernels.exclude(pk=profile.kernels.first().pk).delete()
    profile.launches, profile.gpu_time_ns = 1, 52_000_000_000
    for kind in (Profile.Kind.SUMMARY, Profile.Kind.COUNTERS):
        profile.kind = kind
        assert "".join(text for text, _ in answer(profile, [])).startswith("1 launch of 1 kernel takes 52.0 s; ")
    assert plural(2, "launch") == "2 launches" and (verb(1, "is", "are"), verb(0, "is", "are")) == ("is", "are")


@pytest.mark.django_db
def test_the_api_gives_the_tables_and_each_as_a_file(profile, alice):
    client = Client()
    client.force_login(alice)
    found = client.get(f"/api/profiles/{profile.pk}/").json()
    assert "timeline" not in found["links"] and found["links"]["tables"].endswith(f"/api/profiles/{profile.pk}/tables/")
    tables = client.get(f"/api/profiles/{profile.pk}/tables/").json()["tables"]
    assert tables == [{**each, "row_count": len(each["rows"])} for each in tables_of(profile.pk)]
    assert tables[0]["rows"][0] == ["cudaLaunchKernel", 12_400, 4096, 61.3]
    page = client.get(f"/api/profiles/{profile.pk}/tables/?limit=1").json()
    assert page["tables"][0]["rows"] == tables[0]["rows"][:1] and page["next_offset"] == 1
    csv = client.get(f"/api/profiles/{profile.pk}/tables/?table=0&as=csv").content.decode().splitlines()
    assert csv[0] == "Name,Total (ns),Bytes (bytes),Share (pct)" and "'=cmd|" in csv[2]      # no formula
    assert client.get(f"/api/profiles/{profile.pk}/tables/?table=1").status_code == 404
    kernels = client.get(f"/api/profiles/{profile.pk}/kernels/").json()["kernels"]
    assert kernels[1]["p95_ns"] is None and kernels[1]["total_ns"] == 300
    assert client.get(f"/api/profiles/{profile.pk}/timeline/").status_code in (404, 409)
    assert client.get(f"/profiles/{profile.pk}/kernels/{kernels[1]['id']}/").status_code == 200
    assert client.get("/kernels/?kind=summary").status_code == 200


@pytest.mark.django_db
def test_what_is_ingested_again_leaves_one_set_of_tables(profile):
    services.Profile.objects.filter(pk=profile.pk).update(status="uploaded")
    assert ingested(profile).status == "ready" and len(tables_of(profile.pk)) == 1


@pytest.mark.django_db
def test_a_report_without_its_tool_fails_with_the_command_to_copy(tmp_store, alice, monkeypatch):
    monkeypatch.setattr(report, "nsys_path", lambda: None)
    failed = ingested(create(upload("run.nsys-rep", b"NVIDIA Tegra Profiler Report 2025@3@2@474-1v0.\n" + bytes(50))))
    assert failed.status == "failed" and "written by nsys 2025.3.2.474" in failed.error["what"]
    shown = page(alice, f"/profiles/{failed.pk}/")
    assert '<code id="command">nsys export --type sqlite -o out.sqlite file.nsys-rep</code>' in shown and "js/lib/copy.js" in shown
    other = ingested(create(upload("a", b"x")))
    assert 'id="command"' not in page(alice, f"/profiles/{other.pk}/")
