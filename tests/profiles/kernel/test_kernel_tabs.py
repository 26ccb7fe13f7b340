"""The tabs of a kernel, NVIDIA's rules at their charts, and a baseline's numbers beside those of a page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import File
from django.test import Client

from profiles.analysis.kernel.anatomy import Anatomy
from profiles.charts.sampling import sampling_figures
from profiles.kernel import selectors
from profiles.kernel.selectors import part_of
from profiles.models import KernelStat, Profile
from profiles.source.sampling_selectors import sampling_page
from profiles.upload import services

DATA = Path(__file__).resolve().parents[2] / "data" / "h200"


def read(name: str) -> Profile:
    made = services.profile_create(owner=None, file=File(io.BytesIO((DATA / name).read_bytes()), name=name), name=name)
    return services.profile_ingest(made.pk, "test")


@pytest.fixture(scope="module")
def stored(django_db_setup: None, django_db_blocker: Any) -> Iterator[list[Profile]]:
    """Two builds and a trace, which no test changes."""
    with django_db_blocker.unblock():
        made = [read(name) for name in ("buildA.ncu-rep.zst", "buildB.ncu-rep.zst", "kineto_layer.json.gz")]
        yield made
        for profile in made:
            services.profile_delete(profile=profile)


@pytest.fixture
def builds(stored: list[Profile], db: None) -> tuple[KernelStat, KernelStat]:
    """The same softmax of two builds."""
    first, second = (profile.kernels.get(short_name="softmax_row") for profile in stored[:2])
    return first, second


@pytest.fixture
def of_trace(stored: list[Profile], db: None) -> KernelStat:
    """A kernel without counters."""
    return stored[2].kernels.all()[0]


def address(kernel: KernelStat, tab: str = "") -> str:
    return f"/profiles/{kernel.profile_id}/kernels/{kernel.pk}/{tab}"


def overlay(client: Client, kernel: KernelStat, baseline: str) -> dict[str, dict[str, Any]]:
    answer = client.get(f"/api{address(kernel)}overlay/?baseline={baseline}")
    assert answer.status_code == 200
    return {each["key"]: each for each in answer.json()["measures"]}


def test_the_overlays_numbers_are_those_of_the_baselines_own_page(builds: tuple[KernelStat, KernelStat], client: Client) -> None:
    old, new = builds
    over, own = overlay(client, new, str(old.pk)), overlay(client, old, str(old.pk))
    assert len(over) > 200 and {each["tab"] for each in over.values()} == {"summary", "memory", "warps", "launches", "raw"}
    for key, each in over.items():
        assert each["baseline"] == own[key]["value"] == own[key]["baseline"], key
        assert own[key]["change_pct"] in (0.0, None), key
        if each["baseline"]:
            assert each["change_pct"] == pytest.approx(100 * (each["value"] / each["baseline"] - 1)), key
        else:
            assert each["change_pct"] is None, key
    assert over["time:mean_ns"]["baseline"] == old.mean_ns != over["time:mean_ns"]["value"] == new.mean_ns
    launch = max(old.counter_launches.all(), key=lambda row: row.duration_ns or 0.0)
    said = client.get(f"/api{address(old)}anatomy/?launch={launch.index}").json()
    assert {f"pipe:{pipe['name']}": pipe["pct"] for pipe in said["pipes"]} == {
        key: each["baseline"] for key, each in over.items() if key.startswith("pipe:")}
    assert {(link["source"], link["target"]): link["amount"] for link in said["chart"]["links"] if link["amount"] is not None} == {
        tuple(key.split(":")[1:]): each["baseline"] for key, each in over.items() if key.startswith("link:")}


def test_pages_show_the_baseline_on_every_tab_and_keep_it_in_their_links(builds: tuple[KernelStat, KernelStat],
                                                                        client: Client) -> None:
    old, new = builds
    over = overlay(client, new, str(old.pk))
    for tab, most in (("", 10), ("memory/", 10), ("warps/", 10), ("launches/", 5), ("raw/", 50)):
        plain, page = (client.get(address(new, tab) + query).content.decode() for query in ("", f"?baseline={old.pk}"))
        assert 'class="versus"' not in plain and "sol-ghost" not in plain, tab
        shown = re.findall(r'class="versus" data-key="([^"]+)"', page)
        assert len(set(shown)) >= most and set(shown) <= set(over), tab
        for other in ("", "memory/", "warps/", "raw/"):
            assert f'href="{address(new, other)}?baseline={old.pk}"' in page, (tab, other)
    bar = re.search(r'class="sol-ghost" style="width:([\d.]+)%', client.get(f"{address(new)}?baseline={old.pk}").content.decode())
    assert bar is not None and float(bar[1]) == pytest.approx(over["sol:Compute (SM)"]["baseline"], abs=0.006)


def test_one_launch_is_a_baseline_and_what_is_unknown_is_none(builds: tuple[KernelStat, KernelStat], client: Client) -> None:
    old, new = builds
    launch = min(old.counter_launches.all(), key=lambda row: row.index)
    over = overlay(client, new, f"{old.pk}-{launch.index}")
    assert over["sol:DRAM"]["baseline"] == launch.facts["sol"]["dram_pct"]
    for wrong in ("", "x", "999999", f"-{launch.index}", "9" * 40):
        assert client.get(f"/api{address(new)}overlay/?baseline={wrong}").status_code == 404, wrong
        assert client.get(f"{address(new)}?baseline={wrong}").status_code == 200, wrong


def test_the_list_of_baselines_is_searched_and_begins_with_the_same_kernel(builds: tuple[KernelStat, KernelStat],
                                                                          client: Client) -> None:
    old, new = builds
    listed = client.get(f"/api{address(new)}baselines/").json()["baselines"]
    assert listed[0]["baseline"] == str(old.pk) and listed[0]["is_same"]
    assert str(new.pk) not in {each["baseline"] for each in listed} and len(listed) > 3
    found = client.get(f"/api{address(new)}baselines/?q=matmul buildA").json()["baselines"]
    assert {(each["kernel"], each["profile"]) for each in found} == {("matmul", "buildA.ncu-rep.zst")}
    assert client.get(f"/api{address(new)}baselines/?q=nowhere").json() == {"baselines": [], "choices": []}
    line = client.get(f"/api{address(new)}baselines/?q=softmax buildA").json()["choices"][0]
    assert line["value"] == str(old.pk) and line["title"] == "buildA.ncu-rep.zst"
    assert line["note"].startswith("NVIDIA H200 · 20") and "mean" in line["note"]          # GPU, date, time; no build was given


def test_each_rule_stands_at_its_chart_and_all_under_rules(builds: tuple[KernelStat, KernelStat], client: Client) -> None:
    kernel = builds[0]
    rules = [rule for row in kernel.counter_launches.filter(incomplete="") for rule in row.rules]
    assert rules
    every = client.get(address(kernel, "rules/")).content.decode()
    tab_of = {"memory": "memory/", "stalls": "warps/", "occupancy": "warps/", "pipes": "warps/", "speed": "", "roofline": "",
              "source": "source/", "sampling": "sampling/"}
    placed = set()
    for rule in rules:
        assert f"<b>{rule['title']}</b>" in every, rule["identifier"]
        part = part_of(rule["section"])
        assert part, rule["section"]
        page = client.get(address(kernel, tab_of[part])).content.decode()
        assert f"<b>{rule['title']}</b>" in page, (part, rule["title"])
        placed.add(part)
    assert len(placed) >= 3


def test_tabs_without_data_are_absent_and_their_addresses_say_why(of_trace: KernelStat, client: Client) -> None:
    kernel = of_trace
    page = client.get(address(kernel)).content.decode()
    bar = page[page.index("kernel-tabs"):]
    bar = bar[:bar.index("</nav>")]
    assert re.findall(r">([A-Z][\w ]*)</a>", bar) == ["Summary", "Launches"]
    for tab in (each.name for each in selectors.TABS if each.name not in ("", "launches")):
        answer = client.get(address(kernel, f"{tab}/"))
        assert answer.status_code == 200 and "unknown" in answer.content.decode().lower(), tab


def test_a_tab_computes_only_what_it_shows(builds: tuple[KernelStat, KernelStat], client: Client,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that a tab does not show may not even be asked for, of the kernel or of its baseline."""
    old, new = builds
    shows = {"chart": {"memory/"}, "mix": {"warps/"}, "sections": {"raw/"}, "sides": {""}, "issue": {"warps/"}}
    asked: set[str] = set()
    for name in shows:
        known = vars(Anatomy)[name].func

        def asking(parts: Anatomy, name: str = name, known: Any = known) -> Any:
            asked.add(name)
            return known(parts)
        monkeypatch.setattr(Anatomy, name, property(asking))
    for tab in ("", "memory/", "warps/", "launches/", "rules/", "raw/"):
        for query in ("", f"?baseline={old.pk}"):
            asked.clear()
            assert client.get(address(new, tab) + query).status_code == 200
            assert asked == {name for name, tabs_of in shows.items() if tab in tabs_of}, (tab, query)


def test_source_and_over_time_show_the_baselines_times_in_their_header(builds: tuple[KernelStat, KernelStat],
                                                                      client: Client) -> None:
    old, new = builds
    for tab in ("source/", "sampling/"):
        page = client.get(f"{address(new, tab)}?baseline={old.pk}").content.decode()
        assert {"time:mean_ns", "time:total_ns"} <= set(re.findall(r'class="versus" data-key="([^"]+)"', page)), tab


def test_every_number_of_memory_and_warps_has_the_baselines_beside_it(builds: tuple[KernelStat, KernelStat],
                                                                     client: Client) -> None:
    old, new = builds
    over = overlay(client, new, str(old.pk))
    for tab in ("memory", "warps"):
        page = client.get(f"{address(new, tab)}/?baseline={old.pk}").content.decode()
        shown = set(re.findall(r'class="versus" data-key="([^"]+)"', page))
        in_pictures = ("place:", "hit:", "group:")             # said by the picture itself
        missing = {key for key, each in over.items() if each["tab"] == tab and not key.startswith(in_pictures)} - shown
        assert missing <= {"occupancy:tail"} | {key for key in over if over[key]["value"] == 0}, (tab, missing)
    assert "waves-base" in page and "mix-base" in page
    memory = client.get(f"{address(new)}memory/?baseline={old.pk}").content.decode()
    for key, words in (("hit:l2", "hit"), ("place:device", "")):
        assert re.search(rf'class="base">was [^<]*{round(over[key]["baseline"])} %', memory), (key, words)


def test_over_time_draws_the_baseline_behind(builds: tuple[KernelStat, KernelStat], client: Client) -> None:
    old, new = builds
    rows = sampling_page(new, {"baseline": str(old.pk)})
    own = {row["name"]: row["mean"] for row in sampling_page(old, {})["rows"]}
    assert len(rows["rows"]) > 20 and all(row["base_mean"] == own.get(row["name"]) for row in rows["rows"])
    figure = str(sampling_figures(rows))
    assert figure.count("baseline: ") >= 8 and "baseline: " not in str(sampling_figures(sampling_page(new, {})))
    page = client.get(f"{address(new)}sampling/?baseline={old.pk}").content.decode()
    assert ">Baseline</th>" in page and "Dotted: baseline" in page


def test_over_time_says_why_a_baseline_has_no_curves(of_trace: KernelStat, builds: tuple[KernelStat, KernelStat],
                                                     client: Client) -> None:
    other = of_trace
    page = client.get(f"{address(builds[1])}sampling/?baseline={other.pk}").content.decode()
    assert "holds no periodic samples" in page and ">Baseline</th>" not in page
    for tab in selectors.NAMES:                                 # its times are all that lies over the other tabs
        answer = client.get(f"{address(builds[1], f'{tab}/' if tab else '')}?baseline={other.pk}")
        assert answer.status_code == 200 and "time:mean_ns" in answer.content.decode(), tab
