"""The occupancy calculator: its ladder against trying every value, its page, API and command."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import File
from django.core.management import CommandError, call_command
from django.test import Client

from profiles.analysis.core import gpus
from profiles.analysis.kernel.occupancy import FIELDS, Question, answer, occupancy
from profiles.models import KernelStat, Profile
from profiles.upload import services

DATA = Path(__file__).resolve().parents[2] / "data"
GEMM = Question(threads=384, registers=168, smem_bytes=213188, barriers=3, blocks=132, sm_count=132)


@pytest.mark.parametrize("capability", gpus.LIMITS)
def test_the_ladder_says_what_trying_every_value_says(capability: str) -> None:
    gpu = gpus.LIMITS[capability]
    question = Question(capability, threads=160, registers=90, smem_bytes=9000)
    found = answer(question)
    for rung in found.ladder[::3]:
        registers = [n for n in range(1, 256) if occupancy(gpu, 160, n, 0).limits["registers"] >= rung.blocks]
        smem = [n for n in range(0, gpu.smem_bytes_per_block + 1, 32)
                if occupancy(gpu, 160, 1, n).limits["shared_mem"] >= rung.blocks]
        assert rung.registers == max(registers)
        assert rung.smem_bytes is not None and 0 <= rung.smem_bytes - max(smem) < 32
        fits = occupancy(gpu, 160, rung.registers, rung.smem_bytes)
        assert fits.blocks_per_sm >= rung.blocks and rung.warps == 5 * rung.blocks
    assert [rung.blocks for rung in found.ladder if rung.here] == [occupancy(gpu, 160, 90, 9000).blocks_per_sm]


def test_the_answer_of_a_gemm() -> None:
    found = answer(GEMM)
    assert "holds 1 block, 12 of its 64 warps: occupancy 18.75 %, limited by registers and shared memory" in found.sentence
    assert found.step == ("With at most 80 registers per thread (now 168) and at most 113 KiB of shared memory (now 208.2 KiB), "
                          "2 blocks would fit: 37.5 %.")
    assert found.waves is not None and found.waves.waves == 1.0
    curve = next(curve for curve in found.curves if curve.parameter == "registers")
    assert dict(zip(curve.x, curve.warps, strict=True))[168] == 12 and dict(zip(curve.x, curve.warps, strict=True))[176] == 0


def test_a_launch_that_cannot_start_says_why() -> None:
    found = answer(Question("8.6", threads=1024, registers=80))
    assert found.occupancy.blocks_per_sm == 0
    assert "cannot start on compute capability 8.6: registers do not suffice" in found.sentence
    assert found.step == "With at most 64 registers per thread (now 80), 1 block would fit: 66.67 %."


@pytest.fixture
def gemm(alice: Any, tmp_store: Path) -> KernelStat:
    path = DATA / "h200" / "full.ncu-rep.zst"
    profile = services.profile_create(owner=alice, file=File(io.BytesIO(path.read_bytes()), name=path.name), name=path.name,
                                      build="", model="", tags=[], notes="")
    services.profile_ingest(profile.pk, "test")
    return Profile.objects.get(pk=profile.pk).kernels.get(name__startswith="nvjet_sm90_tst_256x128")


def test_page_api_and_command_are_filled_in_from_a_kernel(gemm: KernelStat, client: Client, capsys: Any) -> None:
    page = client.get(f"/occupancy/?kernel={gemm.pk}")
    assert page.status_code == 200
    html = page.content.decode()
    assert 'name="threads" type="number" min="1" max="1024" step="1" value="384"' in html and 'value="213188"' in html
    assert "limited by registers and shared memory" in html and "Achieved: " in html
    said = client.get(f"/api/occupancy/?kernel={gemm.pk}").json()
    counted = gemm.counter_launches.get().facts["occupancy"]
    assert said["occupancy"]["theoretical_pct"] == counted["theoretical_pct"] == 18.75
    assert {name: said["occupancy"]["limits"][name] for name in counted["limits"]} == counted["limits"]
    assert said["achieved_pct"] == counted["achieved_pct"] and said["waves"]["waves"] == counted["waves"]
    changed = client.get(f"/api/occupancy/?kernel={gemm.pk}&registers=80&smem_bytes=115712").json()
    assert changed["occupancy"]["blocks_per_sm"] == 2 and changed["question"]["threads"] == 384
    call_command("occupancy", kernel=gemm.pk, json=True)
    assert json.loads(capsys.readouterr().out)["occupancy"] == said["occupancy"]
    kernel_page = client.get(f"/profiles/{gemm.profile_id}/kernels/{gemm.pk}/").content.decode()
    assert f"/occupancy/?kernel={gemm.pk}" in kernel_page


@pytest.mark.django_db
@pytest.mark.parametrize("wrong", [
    "threads=0", "threads=1025", "threads=x", "threads=%D9%A3%D9%A2", "registers=256", "smem_bytes=-1", "cc=6.1", "kernel=99999",
    "kernel=x", "barriers=17", "sm_count=0", "blocks=99999999999999999999"])
def test_a_wrong_value_says_what_would_be_valid(client: Client, wrong: str) -> None:
    name = wrong.partition("=")[0]
    said = client.get(f"/api/occupancy/?{wrong}")
    assert said.status_code == 400 and name in said.json()["errors"]
    page = client.get(f"/occupancy/?{wrong}")
    assert page.status_code == 400 and "field-error" in page.content.decode()


@pytest.mark.django_db
def test_every_bound_of_the_form_is_answered(client: Client) -> None:
    for capability in gpus.LIMITS:
        for edge in (1, 2):
            asked = "&".join(f"{name}={bounds[edge]}" for name, bounds in FIELDS.items())
            assert client.get(f"/api/occupancy/?cc={capability}&{asked}").status_code == 200


def test_the_command_refuses_with_words(db: None) -> None:
    with pytest.raises(CommandError, match="Threads per block: a whole number from 1 to 1,024"):
        call_command("occupancy", threads=4000)
