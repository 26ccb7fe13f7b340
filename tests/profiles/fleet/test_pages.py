"""The fleet's pages: they answer, their numbers are the API's, their links keep the filters, and names are text."""

from __future__ import annotations

import io
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from profiles.fleet import services
from profiles.fleet.browse.charts import hours_figure
from profiles.fleet.browse.time_selectors import OverTime, Series
from profiles.fleet.models import FleetAgent, FleetKernel, FleetSignature
from profiles.fleet.stores import fleet_store
from tests.profiles.fleet.records import HOUR_NS, START_NS, make_records, write_records
from webapp.templatetags.numbers import gpu_hours
from workers.agent.aggregate import Aggregator
from workers.agent.launches import Context, Gpu, Signature, Window, sum_durations
from workers.agent.wire import make_batch, pack

pytestmark = pytest.mark.django_db
PAGES = ("fleet", "fleet-gpus", "fleet-utilisation", "fleet-agents")
HOSTILE = '<img src=x onerror="alert(1)">\'"&'


@pytest.fixture
def visitor(client: Client, alice: Any) -> Client:
    client.force_login(alice)
    return client


def feed(tmp_path: Path, records: list[dict[str, Any]], *words: str) -> None:
    call_command("fleet", "feed", str(write_records(tmp_path / f"{len(records)}.jsonl.gz", records)), *words, stdout=io.StringIO())


def text_of(visitor: Client, name: str, query: str = "", status: int = 200) -> str:
    answer = visitor.get(f"{reverse(name)}{query}")
    assert answer.status_code == status
    return answer.content.decode()


def rows_of(html: str, table: str) -> list[list[str]]:
    """The cells of a table, each by the value that it sorts by."""
    body = re.search(rf'data-name="{table}".*?<tbody>(.*?)</tbody>', html, re.DOTALL)
    assert body
    return [[unescape(value) for value in re.findall(r'<td[^>]*?data-value="([^"]*)"', row)] for row in body[1].split("</tr>")[:-1]]


@pytest.mark.parametrize("name", PAGES)
def test_an_empty_fleet_says_what_to_do(visitor: Client, name: str) -> None:
    html = text_of(visitor, name)
    assert "manage.py fleet demo" in html and "manage.py fleet feed" in html and "nstall" in html
    assert "No agent reports yet" in html


@pytest.mark.parametrize("name", PAGES)
def test_pages_need_a_person(client: Client, sign_in_mode: None, name: str) -> None:
    assert client.get(reverse(name)).status_code == 302


def test_numbers_are_those_of_the_api(visitor: Client, tmp_path: Path, settings: Any) -> None:
    settings.GPU_HOUR_PRICE = "3.20 USD"
    feed(tmp_path, make_records(5000))
    for query in ("", "?group=signature", "?job=job-1&window=all", "?window=all&build=b1"):
        html = text_of(visitor, "fleet", query)
        address = re.search(r'href="(/api/fleet/top/\?[^"]*)"', html)
        assert address
        found = visitor.get(unescape(address[1])).json()
        shown = rows_of(html, "fleet")
        assert len(shown) == len(found["rows"]) > 3
        for cells, row in zip(shown, found["rows"], strict=True):
            name, *more, share, hours, cost, _, _, kind, p50, p95, launches = cells
            assert len(more) == ("group=signature" in query) and kind in ("elementwise", "matmul", "attention", "norm")
            assert name == row["kernel"] and float(share) == row["share_pct"] and int(launches) == row["launches"]
            assert float(hours) == row["estimate_ns"] / 3.6e12 and (float(p50), float(p95)) == (row["p50_ns"], row["p95_ns"])
            assert float(cost) == pytest.approx(3.2 * row["estimate_ns"] / 3.6e12)
        assert "±" not in html.split("<tbody>")[1].split("</tbody>")[0] and "complete" in html


def test_every_group_answers_and_leads_down_with_its_filters(visitor: Client, tmp_path: Path) -> None:
    feed(tmp_path, make_records(4000))
    query, below = "?window=all&job=job-1", ["signature", "build", "host", "gpu", "kernel"]
    for group in below:
        html = text_of(visitor, "fleet", query)
        links = [unescape(link) for link in re.findall(r'<td class="name"[^>]*>\s*<a href="(\?[^"]+)"', html)]
        assert links, query
        query = links[0]
        assert f"group={group}" in query and "window=all" in query and "job=job-1" in query
    for name in ("kernel", "signature", "build", "host", "gpu"):
        assert f"{name}=" in query
    html = text_of(visitor, "fleet", query)
    assert html.count("Remove the filter") == 6 and "Of single GPUs and hosts" in html
    for group in ("model", "gpu_model", "job", "host", "gpu"):
        assert "No launch matches" not in text_of(visitor, "fleet", f"?group={group}&by={'build' if group == 'job' else 'model'}")


def test_a_kernel_is_found_by_its_number_however_large(visitor: Client, tmp_path: Path) -> None:
    feed(tmp_path, make_records(2000))
    for kernel in FleetKernel.objects.all():
        found = visitor.get(reverse("api-fleet-top"), {"kernel": str(kernel.id)}).json()["rows"]
        assert [row["kernel"] for row in found] == [kernel.name]
    largest = FleetSignature.objects.order_by("-id").values_list("id", flat=True)[0]
    assert len(visitor.get(reverse("api-fleet-top"), {"signature": str(largest), "group": "signature"}).json()["rows"]) == 1
    for word in ("9" * 30, "--5", "٣", "-1"):
        assert visitor.get(reverse("api-fleet-top"), {"signature": word}).json()["rows"] == []


def test_what_cannot_be_read_is_said_and_the_rest_is_kept(visitor: Client, tmp_path: Path) -> None:
    feed(tmp_path, make_records(500))
    html = text_of(visitor, "fleet", "?from=yesterday&job=job-1", 400)
    assert "is no moment" in html and 'value="yesterday"' in html
    assert "is none of kernel" in text_of(visitor, "fleet", "?group=colour", 400)
    assert "No launch matches" in text_of(visitor, "fleet", "?job=nobody")
    assert "No launch matches" in text_of(visitor, "fleet", "?from=1970-01-01&to=1970-01-02")
    for name in PAGES:
        text_of(visitor, name, "?window=x&by=y&page=z&verdict=q&state=s&q=%FF")


def test_hostile_names_are_text(visitor: Client, tmp_path: Path) -> None:
    records = [{**each, **{name: f"{HOSTILE}{each[name]}" for name in ("kernel", "job", "build", "host", "gpu_uuid", "gpu_model")},
                "model": HOSTILE} for each in make_records(3000, gpus=8, slow={5: (1.3, 0)})]
    feed(tmp_path, records)
    FleetAgent.objects.create(name=HOSTILE, host=HOSTILE, state={"version": HOSTILE, "jobs": [
        {"job": HOSTILE, "state": HOSTILE, "why": HOSTILE, "loss_pct": HOSTILE}]})
    for query in ("", "?group=signature", "?group=gpu", "?group=host", "?group=job&by=build"):
        assert "<img src=x" not in text_of(visitor, "fleet", query)
    for name in PAGES:
        html = text_of(visitor, name)
        assert "<img src=x" not in html and "&lt;img src=x" in html


def test_simulated_records_are_labelled_on_every_page(visitor: Client, tmp_path: Path) -> None:
    feed(tmp_path, make_records(1000), "--simulated")
    for name in PAGES:
        assert '<span class="recorded">simulated</span>' in text_of(visitor, name)
    feed(tmp_path, make_records(900, seed=2))
    assert "partly simulated" in text_of(visitor, "fleet")
    feed(tmp_path, [{**each, "gpu_uuid": f"SIM-{each['rank']}", "host": "simulated host", "job": "made up"}
                    for each in make_records(800, seed=3)], "--simulated")
    for group, named in (("gpu", "SIM-3"), ("host", "simulated host"), ("job", "made up")):
        labels = {row["name"]: row["simulated"] for row in visitor.get(reverse("api-fleet-top"), {
            "group": group, "limit": "50"}).json()["rows"]}
        assert labels[named], group
        html = text_of(visitor, "fleet", f"?group={group}&window=all&simulated=yes")
        cell = re.search(rf'<td class="name" data-value="{named}">(.*?)</td>', html, re.DOTALL)
        assert cell and '<span class="recorded">simulated</span>' in cell[1]
    only = text_of(visitor, "fleet", "?simulated=no")
    assert "partly simulated" not in only and '<span class="recorded">simulated</span>' not in only


@pytest.mark.parametrize("summed", [False, True], ids=["hours", "days"])
def test_hours_over_time_add_up(visitor: Client, tmp_path: Path, summed: bool) -> None:
    records = make_records(3000, hours=60)
    feed(tmp_path, records)
    first = START_NS // HOUR_NS // 24
    if summed:
        fleet_store().roll_up(sorted({each["ts_ns"] // HOUR_NS // 24 for each in records}))
    from profiles.fleet.browse.addresses import view_of
    from profiles.fleet.browse.time_selectors import over_time

    truth = sum(each["dur_ns"] for each in records) / 3.6e12
    whole = over_time(view_of({"window": "all"}), "build")
    assert whole is not None and whole.step_hours == 24 and sum(each.total for each in whole.series) == pytest.approx(truth)
    day = str(np.datetime64(first + 1, "D"))
    own = [each for each in records if each["ts_ns"] // HOUR_NS // 24 == first + 1]
    hourly = over_time(view_of({"from": day, "to": str(np.datetime64(first + 2, "D")), "job": "job-1"}), "job")
    assert hourly is not None and hourly.step_hours == 1 and len(hourly.starts) == 24
    for hour, ns in zip(hourly.starts, hourly.series[0].hours, strict=True):       # no hour of a summed day is lost in its first
        expected = sum(each["dur_ns"] for each in own if each["job"] == "job-1" and each["ts_ns"] // HOUR_NS == hour)
        assert ns == pytest.approx(expected / 3.6e12)


def test_the_trend_is_that_of_the_window_before(visitor: Client, tmp_path: Path) -> None:
    records = make_records(4000, hours=72)
    feed(tmp_path, records)
    first = START_NS // HOUR_NS // 24 + 2                   # it and the day before are whole
    day, after = (str(np.datetime64(each, "D")) for each in (first, first + 1))
    html = text_of(visitor, "fleet", f"?from={day}&to={after}")
    sums: dict[tuple[str, int], int] = {}
    for each in records:
        at = each["ts_ns"] // HOUR_NS // 24 - first
        sums[each["kernel"], at] = sums.get((each["kernel"], at), 0) + each["dur_ns"]
    shown = rows_of(html, "fleet")
    assert len(shown) == 5 and "that both windows hold data for" not in html
    for cells in shown:
        assert float(cells[3]) == pytest.approx(sums[cells[0], 0] / sums[cells[0], -1])
    assert "no data of the window before" in text_of(visitor, "fleet", "?window=all")


def test_the_trend_compares_only_time_that_both_windows_hold(visitor: Client, tmp_path: Path) -> None:
    records = make_records(4000, hours=60)
    feed(tmp_path, records)
    begin = max(START_NS // HOUR_NS, min(each["ts_ns"] for each in records) // HOUR_NS)
    first = begin // 24 * 24 + 24                           # the day before has data from its afternoon on
    both = first + begin % 24, first + 24
    html = text_of(visitor, "fleet", f"?from={first * 3600}&to={(first + 24) * 3600}")
    sums: dict[tuple[str, bool], int] = {}
    for each in records:
        hour = each["ts_ns"] // HOUR_NS
        for shift in (0, 24):
            if both[0] - shift <= hour < both[1] - shift:
                sums[each["kernel"], bool(shift)] = sums.get((each["kernel"], bool(shift)), 0) + each["dur_ns"]
    shown = rows_of(html, "fleet")
    assert len(shown) == 5
    for cells in shown:
        assert float(cells[3]) == pytest.approx(sums[cells[0], False] / sums[cells[0], True])
    assert f"Trend: {both[1] - both[0]} of 24 hours, those that both windows hold data for" in html


def test_an_address_that_cannot_be_read_is_an_error_on_an_empty_fleet_too(visitor: Client) -> None:
    for name in PAGES:
        assert "is no moment" in text_of(visitor, name, "?from=nonsense", 400)
        assert "is no moment" in text_of(visitor, name, "?to=nonsense", 400)
    assert visitor.get(reverse("api-fleet-top"), {"from": "nonsense"}).status_code == 400


def sampled(windows: int = 20) -> list[bytes]:
    """Batches of an agent that watched a tenth of each minute, with sensors of eight GPUs."""
    chance = np.random.default_rng(3)
    aggregator = Aggregator()
    gpus = [Gpu(f"GPU-{at}", "NVIDIA H200", f"host-{at // 4}") for at in range(8)]
    signature = Signature("ampere_gemm", (132, 1, 1), (256, 1, 1), 0)
    for at, gpu in enumerate(gpus):
        context = Context(f"job-{at // 3}", "b1", "NVIDIA H200", "llama")
        for minute in range(windows):
            count = 2 if at == 7 else 400
            durations = chance.lognormal(np.log(10e6), 0.1, count).astype(np.int64)
            own = sum_durations(np.zeros(count, np.int64), durations, [signature])
            aggregator.add(Window(context, gpu, START_NS + minute * 60 * 10**9, 6 * 10**9, 60 * 10**9, own, at))
    minutes = aggregator.take()
    telemetry = [{"minute": START_NS // (60 * 10**9) + minute, "gpu": gpu, "samples": 60, "sm_pct": 10.0 if at < 3 else 80.0,
                  "power_w": 300.0 + at, "sm_mhz": 1200.0 if at == 2 else 1755.0, "temperature_c": 88.0 if at == 2 else 60.0,
                  "memory_used_bytes": 30e9 if at == 4 else 120e9, "memory_bytes": 140e9, "throttle_s": 30.0 if at == 2 else 0.0}
                 for at, gpu in enumerate(gpus) for minute in range(windows)]
    state = {"version": "1.2", "pid": 7, "rss_bytes": 40_000_000, "cpu_pct": 0.4, "spool_bytes": 0, "spool_batches": 0,
             "dropped_batches": 3, "jobs": [
                 {"job": "job-0", "pid": 11, "rank": 0, "state": "collecting", "loss_pct": 0.31, "loss_low_pct": 0.2,
                  "loss_high_pct": 0.42, "coverage_pct": 10.0, "records": 12_345},
                 {"job": "job-1", "pid": 12, "state": "not collected", "why": "launch-bound: 7 % of its step time"}]}
    return [pack(make_batch("agent-1", 0, START_NS + windows * 60 * 10**9, minutes, telemetry, state))]


def test_kernels_of_one_gpu_are_scaled_by_its_windows_and_complete_ones_have_no_interval(visitor: Client, tmp_path: Path) -> None:
    for payload in sampled():
        services.batch_accept(payload)
    services.merge_waiting()
    whole = {row["name"]: row for row in visitor.get(reverse("api-fleet-top"), {"group": "gpu"}).json()["rows"]}
    for query in ({"gpu": "GPU-2"}, {"gpu": "GPU-2", "group": "signature"}, {"kernel": "ampere_gemm", "group": "gpu"}):
        rows = {row["name"]: row for row in visitor.get(reverse("api-fleet-top"), query).json()["rows"]}
        row = rows["GPU-2" if query.get("group") == "gpu" else "ampere_gemm"]
        assert row["estimate_ns"] == pytest.approx(whole["GPU-2"]["estimate_ns"]) == pytest.approx(10 * row["total_ns"])
        assert row["estimate_launches"] == pytest.approx(10 * row["launches"]) and 0 < row["interval_pct"] < 20
    assert "not scaled" not in (html := text_of(visitor, "fleet", "?gpu=GPU-2")) and "±" in html.split("<tbody>")[1]

    feed(tmp_path, [{**each, "gpu_uuid": "GPU-whole", "host": "watched", "kernel": "ampere_gemm"} for each in make_records(
        400, hours=1)])
    rows = {row["name"]: row for row in visitor.get(reverse("api-fleet-top"), {"group": "gpu"}).json()["rows"]}
    assert rows["GPU-whole"]["interval_pct"] is None and rows["GPU-2"]["interval_pct"] == pytest.approx(
        whole["GPU-2"]["interval_pct"], rel=1e-6)
    kernel = visitor.get(reverse("api-fleet-top")).json()["rows"][0]       # of both: the complete part makes it no less certain
    alone = sum(row["estimate_ns"] for row in whole.values())
    assert kernel["estimate_ns"] == pytest.approx(alone + rows["GPU-whole"]["total_ns"]) and kernel["interval_pct"] > 0


def test_a_sampled_fleet_is_an_estimate_with_its_interval(visitor: Client) -> None:
    for payload in sampled():
        services.batch_accept(payload)
    services.merge_waiting()
    html = text_of(visitor, "fleet")
    assert re.search(r'<span class="muted">± <span class="num" title="[\d.]+ %">', html) and "estimate" in html
    assert re.search(r'title="10 %">10\xa0%</span></b><small>of the time watched', html)
    found = visitor.get(reverse("api-fleet-top")).json()["rows"][0]
    assert float(rows_of(html, "fleet")[0][2]) == found["estimate_ns"] / 3.6e12 > 5 * found["total_ns"] / 3.6e12


def test_utilisation_names_idle_gpus_unused_memory_and_what_is_unknown(visitor: Client) -> None:
    for payload in sampled():
        services.batch_accept(payload)
    services.merge_waiting()
    html = text_of(visitor, "fleet-utilisation")
    idle, half = (html.split(f'id="{name}"')[1].split("</section>")[0] for name in ("idle", "memory"))
    assert re.findall(r"gpu=(GPU-\d)", idle) == ["GPU-7"] and re.findall(r"gpu=(GPU-\d)", half) == ["GPU-4"]
    jobs = {cells[0]: cells for cells in rows_of(html, "jobs")}
    job, gpus, hours, busy, sm, tensor, dram, power, memory = jobs["job-0"]
    assert (job, gpus, tensor, dram) == ("job-0", "3", "", "") and float(sm) == pytest.approx(10)
    assert float(power) == pytest.approx(301)
    assert float(hours) == pytest.approx(1.0) and float(busy) == pytest.approx(100 * 400 * 10.05e6 / 6e9, rel=0.02)
    assert float(memory) == pytest.approx(100 * 120 / 140, rel=1e-3)
    assert re.search(r"▼\s+<span[^>]*>10\xa0%", html) and "unknown: no agent sent it" in html


def test_sensors_stand_beside_the_median_of_the_model(visitor: Client, tmp_path: Path) -> None:
    for payload in sampled():
        services.batch_accept(payload)
    feed(tmp_path, [{**each, "gpu_uuid": f"GPU-{each['rank']}"} for each in make_records(20_000, hours=1, slow={2: (1.3, 0)})])
    services.merge_waiting()
    html = text_of(visitor, "fleet-gpus")
    found = visitor.get(unescape(re.search(r'href="(/api/fleet/gpus/\?[^"]*)"', html)[1])).json()         # type: ignore[index]
    shown = rows_of(html, "gpus")
    assert [(cells[0], cells[1]) for cells in shown] == [(row["gpu_uuid"], row["verdict"]) for row in found["rows"]]
    assert [row["gpu_uuid"] for row in found["rows"] if row["verdict"] == "SLOWER"] == ["GPU-2"]
    card = html.split('aria-label="GPU-2"')[1].split("</section>")[0]
    assert "1,200 MHz" in card and "1,755 MHz" in card and "88 °C" in card and "50 %" in card
    assert rows_of(text_of(visitor, "fleet-gpus", "?verdict=SLOWER"), "gpus") == [shown[0]]


def test_agents_show_what_they_told_whatever_it_is(visitor: Client) -> None:
    for payload in sampled():
        services.batch_accept(payload)
    told: list[Any] = [[], "x", 5, {"jobs": 3}, {"jobs": [None, [], {}, {"loss_pct": True, "records": 1e300, "why": []}]},
                       {"rss_bytes": "many", "version": 3}, {"jobs": [{"job": str(at)} for at in range(200)]}]
    for at, state in enumerate(told):
        FleetAgent.objects.create(name=f"odd-{at}", state=state)
    html = text_of(visitor, "fleet-agents")
    assert "launch-bound: 7 % of its step time" in html and "(0.20 to 0.42)" in html
    assert "40.0\xa0MB" in html and ">136</span> more<" in html
    assert "http://testserver" in html and "systemd" in html and "DaemonSet" in html
    assert "odd-0" in text_of(visitor, "fleet-agents", "?state=silent") and "agent-1" not in rows_of(
        text_of(visitor, "fleet-agents", "?state=silent"), "agents")[0]


def test_a_large_fleet_answers_at_once_and_its_numbers_follow(visitor: Client, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiles.fleet.browse.pages.LARGE_GPUS", 4)
    monkeypatch.setattr("profiles.fleet.browse.pages.LARGE_GPU_HOURS", 4)
    feed(tmp_path, make_records(1000))
    said = {"fleet-gpus": "Comparing the kernels of 8 GPUs", "fleet-utilisation": "Adding up the sensors of 8 GPUs"}
    for name, words in said.items():
        html = text_of(visitor, name)
        assert words in html and 'id="fleet-body"' in html and "<tbody>" not in html
        assert 'id="fleet-body"' in text_of(visitor, name, "?whole=1") and "<tbody>" in text_of(visitor, name, "?whole=1")


def test_time_to_win_back_is_an_estimate_by_profiles_of_the_same_kernel(visitor: Client, tmp_path: Path) -> None:
    from profiles.families.services import families_assign
    from profiles.models import KernelShape, KernelStat, Profile

    report = Profile.objects.create(name="report", status="ready", kind="counters", gpu="NVIDIA H200", file_name="r.ncu-rep",
                                    upload_key="k")
    stat = KernelStat.objects.create(profile=report, name="_attn_fwd", short_name="_attn_fwd", category="compute", launches=1,
                                     total_ns=1_000_000, share_pct=100.0)
    families_assign({"_attn_fwd": stat.pk})
    KernelShape.objects.create(kernel=stat, launches=1, total_ns=1_000_000, min_ns=1, max_ns=1, bucket=15, roof_pct=75.0,
                               roof_side="compute")
    feed(tmp_path, make_records(3000))
    html = text_of(visitor, "fleet")
    rows = {cells[0]: cells for cells in rows_of(html, "fleet")}
    assert float(rows["_attn_fwd"][4]) == pytest.approx(0.25 * float(rows["_attn_fwd"][2]))
    assert rows["rms_norm"][4] == "" and "est." in html and "counters of this kernel on NVIDIA H200" in html
    assert f"/kernels/{KernelStat.objects.get(pk=stat.pk).family_id}/" in html


@pytest.mark.parametrize(("hours", "unit", "total"), [(0.0012, "GPU-seconds", "8.64\N{NO-BREAK SPACE}GPU-seconds"),
                                                      (0.02, "GPU-hours", "0.040\N{NO-BREAK SPACE}GPU-hours")])
def test_heading_axis_and_legend_of_the_hours_are_in_one_unit(hours: float, unit: str, total: str) -> None:
    over_time = OverTime(1, (490_000, 490_001), (Series("k", (hours, hours)),), 1, None, 0.0)
    drawn = json.dumps(hours_figure(over_time, ["k"]))
    assert over_time.unit == unit and f"{unit} in kernels a hour" not in drawn and f"{unit} in kernels an hour" in drawn
    assert gpu_hours(over_time.series[0].total, over_time.unit) == total
