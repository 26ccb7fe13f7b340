"""A launch taken apart: against identities of the hardware, arithmetic on known kernels, and faults that were planted."""

from __future__ import annotations

import csv
import io
import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import File
from django.core.management import CommandError, call_command
from django.test import Client

from profiles.analysis.kernel.anatomy import UNIT_PARTS as PARTS
from profiles.analysis.kernel.anatomy import UNIT_SIDES, Anatomy, anatomy
from profiles.analysis.kernel.memory_chart import chart
from profiles.analysis.kernel.pipes import GROUPS, MIX, group_of
from profiles.charts.counters import heat, memory_chart
from profiles.ingest.trace import CounterLaunch, Report
from profiles.models import KernelStat, Profile
from profiles.upload import services
from tests.profiles.kernel import reports

DATA = Path(__file__).resolve().parents[2] / "data"
REPORTS = [*sorted((DATA / "h200").glob("*.ncu-rep.zst")), *sorted((DATA / "causes").glob("*.ncu-rep.zst")),
           *sorted(path for path in (DATA / "corpus" / "ncu").iterdir() if ".ncu-rep" in path.name)]
Launches = dict[str, tuple[CounterLaunch, Anatomy]]


@cache
def taken_apart(path: Path) -> list[tuple[CounterLaunch, Anatomy]]:
    report = reports.read(path)
    assert isinstance(report, Report)
    return [(launch, anatomy(launch.metrics, report.metadata.get("breakdowns", {}))) for launch in report.launches
            if not launch.incomplete]


@pytest.fixture(scope="module")
def planted() -> Launches:
    return {launch.kernel.partition("(")[0]: (launch, found)
            for launch, found in taken_apart(DATA / "causes" / "causes_planted.ncu-rep.zst")}


@pytest.fixture(scope="module")
def mended() -> Launches:
    return {launch.kernel.partition("(")[0]: (launch, found)
            for launch, found in taken_apart(DATA / "causes" / "causes_mended.ncu-rep.zst")}


@pytest.fixture(scope="module")
def gemm() -> tuple[CounterLaunch, Anatomy]:
    return taken_apart(DATA / "h200" / "full.ncu-rep.zst")[0]


@pytest.mark.slow
@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.name)
def test_what_holds_for_every_launch(path: Path) -> None:
    for launch, found in taken_apart(path):
        for side in found.sides:
            if side.pct is not None and side.stated:
                assert max(part.pct for part in side.parts) == pytest.approx(side.pct, rel=1e-12)
                assert side.parts[0].pct == pytest.approx(side.pct, rel=1e-12)
            assert all(part.unit for part in side.parts), [part.metric for part in side.parts if not part.unit]
        if found.mix:
            assert found.mix.total == launch.metrics["sass__inst_executed_per_opcode"]
            assert sum(share for _, _, share in found.mix.groups) == pytest.approx(100.0)
            assert {group: share for group, _, share in found.mix.groups}.get("Other", 0.0) < 0.5
        for table in found.tables:
            assert all(len(row) == len(table.columns) for row in table.rows)
        for link in found.chart.links:
            assert link.amount is None or link.amount >= 0
        drawn = memory_chart(found.chart)
        assert (drawn is None) == (not found.chart.collected)
        steps = [warps for _, warps, _ in found.issue.ladder]
        assert all(a >= b - 0.02 for a, b in pairwise(steps)), steps       # several passes


@pytest.mark.slow
def test_hit_rates_are_those_the_report_states() -> None:
    """The tables divide sectors found by sectors looked up; the report has the same as a metric of its own."""
    stated = {"Global loads": "l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct",
              "Global stores": "l1tex__t_sector_pipe_lsu_mem_global_op_st_hit_rate.pct",
              "Local loads": "l1tex__t_sector_pipe_lsu_mem_local_op_ld_hit_rate.pct"}
    seen = 0
    for name in ("h200/full", "causes/causes_planted", "h200/buildA"):
        for launch, found in taken_apart(DATA / f"{name}.ncu-rep.zst"):
            for table in found.tables:
                for row in table.rows if table.title == "L1 cache" else []:
                    metric = stated.get(str(row[0]))
                    if metric in launch.metrics:
                        assert row[5] == pytest.approx(launch.metrics[metric], abs=0.01)
                        seen += 1
    assert seen > 50


def test_bytes_of_a_matrix_product(gemm: tuple[CounterLaunch, Anatomy]) -> None:
    """4096³ in bf16 by tiles of 256 × 128: each of the 512 tiles reads its rows and columns once, the result is written once."""
    link = {(each.source, each.target): each for each in gemm[1].chart.links}
    assert link["l2", "smem"].amount == 512 * 4096 * (256 + 128) * 2
    assert link["smem", "l2"].amount == 4096 * 4096 * 2
    assert link["kernel", "local"].amount == 0 and link["system", "l2"].amount is not None
    # every tensor instruction of a warp group multiplies 64 × 128 × 16
    hgmma = next(opcode for opcode in gemm[1].mix.opcodes if opcode.name == "HGMMA") if gemm[1].mix else None
    assert hgmma is not None and hgmma.warps * 64 * 128 * 16 / 4 == 4096**3        # four warps issue each together


def test_a_copy_moves_what_it_says(planted: Launches) -> None:
    """memory_twin copies 2²⁵ floats in pieces of 16 bytes."""
    launch, found = planted["memory_twin"]
    link = {(each.source, each.target): each for each in found.chart.links}
    assert link["l2", "l1"].amount == link["l1", "l2"].amount == 4 * 2**25
    assert link["kernel", "global"].amount == 2 * 2**25 / 4 / 32
    assert link["device", "l2"].amount == pytest.approx(4 * 2**25, rel=0.01)
    assert link["device", "l2"].rate == pytest.approx(launch.metrics["dram__bytes_read.sum.per_second"], rel=1e-6)
    loads = next(row for table in found.tables if table.title == "L1 cache" for row in table.rows if row[0] == "Global loads")
    assert loads[4] == 16.0                                                          # sectors per request


def test_asynchronous_copies_and_matrix_loads_are_counted_once() -> None:
    """16 × 4096 × 4096 in bf16 by 64 blocks: each reads all of the small matrix and a 64th of the large one, by cp.async of 512
    bytes a warp, and takes it from shared memory with ldmatrix.x4: four wavefronts, no conflict."""
    found = next(found for launch, found in taken_apart(DATA / "h200" / "buildA.ncu-rep.zst") if launch.index == 4)
    link = {(each.source, each.target): each for each in found.chart.links}
    read = 64 * (16 * 4096 * 2) + 4096 * 4096 * 2
    assert link["l2", "smem"].amount == read and link["ldgsts", "l1"].amount == read / 512
    assert link["l1", "l2"].amount == 16 * 4096 * 2 and link["global", "l1"].amount == link["kernel", "global"].amount
    table = {table.title: {row[0]: row for row in table.rows} for table in found.tables}
    assert table["L1 cache"]["Global loads"][1] == link["kernel", "ldgsts"].amount
    assert table["Shared memory"]["Loads"][3] == 4.0


def test_planted_faults_show_and_are_gone_when_mended(planted: Launches, mended: Launches) -> None:
    waste = {name: {each.what: each.excess_pct for each in found.wastes} for name, (_, found) in planted.items()}
    sectors, waves = "sectors asked for by global memory accesses", "wavefronts of shared memory"
    # 32 sectors per load in place of 4, the stores as they should be: (32 + 4 - 8) / 36
    assert waste["uncoalesced_copy"] == {sectors: pytest.approx(100 * 28 / 36)}
    # 32 passes in place of one for the loads, the stores as they should be: (32 + 1 - 2) / 33
    assert waste["bank_conflict_transpose"] == {waves: pytest.approx(100 * 31 / 33)}
    assert waste["spilling_registers"] == {"requests of spilled registers to local memory": 100.0}
    quiet = set(planted) - {"uncoalesced_copy", "bank_conflict_transpose", "spilling_registers", "pointer_chase"}
    assert all(waste[name] == {} for name in quiet)
    for name, (_, found) in mended.items():
        assert found.wastes == [] or name == "pointer_chase", name                   # which is the same code in both


def test_planted_faults_name_their_unit(planted: Launches) -> None:
    busiest = {name: {side.name: side.parts[0].metric.partition(".")[0] for side in found.sides}
               for name, (_, found) in planted.items()}
    assert busiest["bank_conflict_transpose"]["memory"] == "l1tex__data_pipe_lsu_wavefronts"
    assert busiest["divergent_branches"]["compute"] == "sm__inst_executed_pipe_xu"
    assert busiest["memory_twin"]["memory"] == "dram__cycles_active"
    mix = {name: found.mix for name, (_, found) in planted.items() if found.mix}
    share = {name: {group: pct for group, _, pct in each.groups} for name, each in mix.items()}
    assert share["accidental_double"]["FP64"] > 70 and all(
        each.get("FP64", 0.0) == 0.0 for name, each in share.items() if name != "accidental_double")
    assert share["spilling_registers"]["Local memory"] > 50
    assert "FP64 pipe" in planted["accidental_double"][1].sentences["speed"]
    assert mix["divergent_branches"].active_threads == pytest.approx(4.46, abs=0.01)
    assert "only 4.46 of a warp's 32 threads" in planted["divergent_branches"][1].sentences["pipes"]
    assert "unevenly" in planted["tail_wave"][1].sentences["shares"] and "unevenly" in planted["small_grid"][1].sentences["shares"]
    assert "they are the limit" in planted["compute_twin"][1].sentences["issue"]
    assert "waits 56 % of its time on Barrier" in planted["barrier_heavy"][1].sentences["issue"]


def test_what_was_not_collected_is_unknown_and_never_zero() -> None:
    empty = anatomy({}, {})
    assert [side.pct for side in empty.sides] == [None, None] and empty.pipes == [] and empty.mix is None
    assert all(link.amount is None for link in empty.chart.links) and memory_chart(empty.chart) is None
    assert empty.sentences == dict.fromkeys(("speed", "memory", "issue", "pipes", "shares"), "")
    part = chart({"dram__bytes_read.sum": 64.0})
    amounts = {(link.source, link.target): link.amount for link in part.links}
    assert amounts["device", "l2"] == 64.0 and amounts["l2", "device"] is None
    drawn = memory_chart(part)
    assert drawn is not None and any(arrow["label"] == "not collected" and arrow["unknown"] for arrow in drawn["arrows"])
    assert "Peer memory" not in drawn["text"].replace("Memory chart", "")


def test_words_where_numbers_are_expected_are_left_out() -> None:
    found = anatomy({"dram__bytes_read.sum": "n/a", f"{MIX}FFMA]": "many", "sm__cycles_active.avg": "x"},
                    {"breakdown:sm__throughput.avg.pct_of_peak_sustained_elapsed": ",,a,b.avg,,"})
    assert found.mix is None and found.shares == [] and found.sides[0].parts == []


def test_opcodes_and_parts_have_a_place() -> None:
    opcodes = ("FFMA", "LDGSTS", "LDSM", "UIADD3", "UTMALDG", "ULDC", "DMMA", "DFMA", "BRA", "ATOMG")
    assert [group_of(opcode) for opcode in opcodes] == [
        "FP32", "Global memory", "Shared memory", "Uniform", "Bulk copy (TMA)", "Constants", "Tensor", "FP64", "Control", "Atomics"]
    assert group_of("ZZZ") == "Other" and all(group_of(names[0]) == group for group, names in GROUPS.items())
    assert all(unit in UNIT_SIDES and title and meaning for unit, title, meaning in PARTS.values())
    assert [heat(pct) for pct in (None, 0.0, 9.9, 10.0, 45.0, 60.0, 80.0, 130.0)] == [0, 0, 0, 1, 2, 3, 4, 4]


@pytest.fixture
def kernels(alice: Any, tmp_store: Path) -> dict[str, KernelStat]:
    path = DATA / "h200" / "buildA.ncu-rep.zst"
    profile = services.profile_create(owner=alice, file=File(io.BytesIO(path.read_bytes()), name=path.name), name=path.name,
                                      build="A", model="", tags=[], notes="")
    services.profile_ingest(profile.pk, "test")
    return {kernel.short_name: kernel for kernel in Profile.objects.get(pk=profile.pk).kernels.all()}


def test_the_page_shows_every_part_and_one_launch_when_asked(kernels: dict[str, KernelStat], client: Client) -> None:
    kernel = kernels["softmax_row"]
    address = f"/profiles/{kernel.profile_id}/kernels/{kernel.pk}/"
    parts = {"": ("speed", "roofline-part", "advice"), "memory/": ("memory",), "warps/": ("occupancy", "stalls-part", "pipes"),
             "launches/": ("launches",), "rules/": ("rules",), "raw/": ("details", "metrics")}
    pages = {tab: client.get(f"{address}{tab}").content.decode() for tab in parts}
    for tab, names in parts.items():
        assert all(f'id="{name}"' in pages[tab] for name in names), tab
        assert all(f'href="{address}{other}"' in pages[tab] for other in parts), tab
    assert '<svg class="memory-chart"' in pages["memory/"] and 'aria-label="Memory chart.' in pages["memory/"]
    assert "What makes memory" in pages[""] and "As ncu prints it" in pages["raw/"]
    one = client.get(f"{address}raw/?launch=8").content.decode()
    assert '<option value="8" selected>' in one and "launch=8&amp;table=details" in one
    wrong = client.get(f"{address}?launch=99999")
    assert wrong.status_code == 200 and "selected>all together" in wrong.content.decode()
    assert client.get(f"{address}nothing/").status_code == 404


def test_api_and_every_table_as_a_file(kernels: dict[str, KernelStat], client: Client) -> None:
    kernel = kernels["softmax_row"]
    address = f"/api/profiles/{kernel.profile_id}/kernels/{kernel.pk}/anatomy/"
    said = client.get(address).json()
    longest = max(kernel.counter_launches.all(), key=lambda launch: launch.duration_ns or 0.0)
    assert said["launch"] == longest.index and said["sides"][1]["pct"] == longest.facts["sol"]["memory_pct"]
    names = ["speed", "links", "shared-memory", "l1-cache", "l2-cache", "device-memory", "pipes", "opcodes", "details"]
    for name in names:
        rows = list(csv.reader(io.StringIO(client.get(f"{address}?table={name}&format=csv").content.decode())))
        assert len(rows) > 1 and len({len(row) for row in rows}) == 1, name
        assert client.get(f"{address}?table={name}&format=parquet").status_code == 200
    assert client.get(f"{address}?launch=8").json()["launch"] == 8
    assert client.get(f"{address}?launch=99999").status_code == 404
    assert client.get(f"{address}?table=nothing").status_code == 404
    assert client.get(f"/api/profiles/{kernel.profile_id}/kernels/0/anatomy/").status_code == 404


def test_the_command_says_the_same(kernels: dict[str, KernelStat], client: Client, capsys: Any) -> None:
    kernel = kernels["layernorm_row"]
    said = client.get(f"/api/profiles/{kernel.profile_id}/kernels/{kernel.pk}/anatomy/").json()
    call_command("anatomy", kernel.pk)
    printed = capsys.readouterr().out
    assert said["sentences"]["speed"] in printed and said["sentences"]["memory"] in printed
    call_command("anatomy", kernel.pk, json=True)
    assert json.loads(capsys.readouterr().out) == said
    call_command("anatomy", kernel.pk, table="pipes")
    assert capsys.readouterr().out.splitlines()[0] == "pipe\tpct_of_peak\tof\tmetric"
    for wrong in ({"launch": 4711}, {"table": "nothing"}):
        with pytest.raises(CommandError):
            call_command("anatomy", kernel.pk, **wrong)
