"""The flush before a cold sample: its PTX is what every GPU that has such lines takes, and the policy says which way it was."""

import subprocess
from pathlib import Path

import pytest

from tests.tuner.measure.chosen import WITHOUT_TORCH

pytest.importorskip("torch", reason=WITHOUT_TORCH)
pytest.importorskip("triton", reason="its ptxas assembles the flush")

import triton

from tuner.tuning.measure import flush
from tuner.tuning.measure.policy import policy_rows

pytestmark = pytest.mark.torch
PTXAS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"


@pytest.mark.skipif(not PTXAS.exists(), reason="Triton brings no ptxas here")
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_the_kernels_of_the_flush_assemble(arch, tmp_path):
    source, binary = tmp_path / "flush.ptx", tmp_path / "flush.cubin"
    source.write_text(flush.PTX)
    subprocess.run([PTXAS, "-arch", arch, source, "-o", binary], check=True, timeout=60)
    assert b"read_last" in binary.read_bytes() and b"apply_normal" in binary.read_bytes()


def test_a_policy_says_how_the_cache_was_flushed():
    said = dict(policy_rows({"kind": "cold", "cold_l2": True, "flush": flush.UNPINNED, "flush_bytes": 256 << 20}))
    assert said["L2 flushed"] == "evict_last lines displaced before each launch, then a write of 256 MB"
    assert "may outlive" in dict(policy_rows({"cold_l2": True, "flush_bytes": 200 << 20}))["L2 flushed"], "a policy from before"
    assert "L2 flushed" not in dict(policy_rows({"kind": "warm", "cold_l2": False}))
