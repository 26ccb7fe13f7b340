"""GPUs of a host and the lease, with processes that hold and die."""

import subprocess
import sys
import time

import pytest

from workers import gpu
from workers.facts import facts
from workers.gpu import Gpu, NoLease

CARD = Gpu(0, "GPU-1", "NVIDIA H200", "9.0", "580", 1)
OTHER = Gpu(1, "GPU-2", "NVIDIA H200", "9.0", "580", 1)


def test_smi_lines_are_read_and_other_lines_passed_over():
    text = (
        "0, GPU-a, NVIDIA H200, 9.0, 580.159.04, 143771\n"
        "Failed to initialize NVML\n1, GPU-b, NVIDIA L4, 8.9, 580, [N/A]\n"
    )
    first, second = gpu.parse_smi(text)
    assert first == Gpu(0, "GPU-a", "NVIDIA H200", "9.0", "580.159.04", 143771 * 2**20)
    assert second.memory_bytes == 0 and second.index == 1


def test_no_driver_means_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpu.nvml, "devices", list)
    assert gpu.gpus() == []


def test_only_visible_gpus_count(monkeypatch):
    monkeypatch.setattr(gpu.nvml, "devices", lambda: [card.__dict__ for card in (CARD, OTHER)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpu.gpus() == [OTHER]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    assert gpu.gpus() == [CARD]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpu.gpus() == []


def test_one_process_per_gpu(tmp_path):
    with gpu.lease([CARD], folder=tmp_path) as held:
        assert held == CARD
        with pytest.raises(NoLease), gpu.lease([CARD], folder=tmp_path, wait_s=0.1):
            pass
        with gpu.lease([CARD, OTHER], folder=tmp_path) as second:
            assert second == OTHER
    with gpu.lease([CARD], folder=tmp_path, wait_s=0.1):
        pass


def test_a_stop_ends_the_wait(tmp_path):
    with (
        gpu.lease([CARD], folder=tmp_path),
        pytest.raises(NoLease),
        gpu.lease([CARD], folder=tmp_path, should_stop=lambda: True),
    ):
        pass


def test_a_killed_holder_frees_its_gpu(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from workers.gpu import Gpu, lease\n"
        "with lease([Gpu(0, 'GPU-1', 'x', '9.0', '', 1)], folder=Path(sys.argv[1])):\n"
        "    print('held', flush=True); time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(NoLease), gpu.lease([CARD], folder=tmp_path, wait_s=0.1):
        pass
    holder.kill()
    holder.wait()
    started = time.monotonic()
    with gpu.lease([CARD], folder=tmp_path, wait_s=5):
        assert time.monotonic() - started < 2


def test_facts_name_what_is_there_and_what_is_missing_and_why():
    said = facts(["gpu", "replay"])
    assert said["queues"] == ["gpu", "replay"] and said["pid"] and said["host"] and said["busy"] is None
    assert set(said["tools"]) == {"ncu", "torch", "triton"}
    assert all("version" in tool or tool["missing"] for tool in said["tools"].values())
    assert "matmul" in said["replay"]
    ingests = facts(["ingest"])
    assert set(ingests["tools"]) == {"nsys"} and ("version" in ingests["tools"]["nsys"] or ingests["tools"]["nsys"]["missing"])
    assert ingests | {"pid": 0, "host": "", "tools": {}} == {
        "queues": ["ingest"],
        "host": "",
        "pid": 0,
        "gpus": [],
        "tools": {},
        "replay": [],
        "busy": None,
    }


def test_facts_do_not_import_torch():
    program = "import sys; from workers.facts import facts; facts(['gpu', 'replay']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
