"""GPUs of a host and the lease, with processes that hold and die."""

import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest

from workers.core import gpu
from workers.core.facts import worker_facts
from workers.core.gpu import Gpu, NoLease

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
        "import sys, time; from pathlib import Path; from workers.core.gpu import Gpu, lease\n"
        "with lease([Gpu(0, 'GPU-1', 'x', '9.0', '', 1)], folder=Path(sys.argv[1])):\n"
        "    print('held', flush=True); time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(NoLease), gpu.lease([CARD], folder=tmp_path, wait_s=0.1):
        pass
    holder.kill()
    holder.wait()
    with gpu.lease([CARD], folder=tmp_path, wait_s=20):         # the holder meant to keep it for a minute
        pass


def test_facts_name_what_is_there_and_what_is_missing_and_why():
    said = worker_facts(["gpu", "replay"])
    assert said["queues"] == ["gpu", "replay"] and said["pid"] and said["host"] and said["busy"] is None
    assert set(said["tools"]) == {"cutlass", "ncu", "nsys", "proton", "torch", "triton"}
    assert all("version" in tool or tool["missing"] for tool in said["tools"].values())
    assert "matmul" in said["replay"]
    ingests = worker_facts(["ingest"])
    assert set(ingests["tools"]) == {"nsys"} and ("version" in ingests["tools"]["nsys"] or ingests["tools"]["nsys"]["missing"])
    assert ingests | {"pid": 0, "host": "", "tools": {}} == {
        "queues": ["ingest"],
        "host": "",
        "pid": 0,
        "gpus": [],
        "tools": {},
        "replay": [],
            "packages": [],
        "busy": None,
    }


@pytest.mark.process
def test_facts_do_not_import_torch():
    program = ("import sys; from workers.core.facts import worker_facts; worker_facts(['gpu', 'replay']); "
               "sys.exit('torch' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_several_gpus_are_leased_together_or_not_at_all(tmp_path):
    with gpu.lease_several([CARD, OTHER], 2, folder=tmp_path) as held:
        assert held == [CARD, OTHER]
        with pytest.raises(NoLease), gpu.lease([CARD, OTHER], folder=tmp_path, wait_s=0.1):
            pass
    with gpu.lease([OTHER], folder=tmp_path):
        both = gpu.lease_several([CARD, OTHER], 2, folder=tmp_path, wait_s=0.1)
        with pytest.raises(NoLease, match="2 GPUs did not become free"), both:
            pass
        with gpu.lease([CARD], folder=tmp_path, wait_s=0.1) as free:            # nobody holds one while it waits for two
            assert free == CARD
    with pytest.raises(NoLease, match="no 3 GPUs"), gpu.lease_several([CARD, OTHER], 3, folder=tmp_path):
        pass


def test_a_seat_is_on_an_idle_gpu_first_and_each_gpu_has_few(tmp_path):
    with gpu.seat([CARD, OTHER], folder=tmp_path) as first, gpu.seat([CARD, OTHER], folder=tmp_path) as second:
        assert (first, second) == (CARD, OTHER)
        with gpu.seat([CARD, OTHER], folder=tmp_path) as third, gpu.seat([CARD, OTHER], folder=tmp_path) as fourth:
            assert (third, fourth) == (CARD, OTHER)
            with pytest.raises(NoLease), gpu.seat([CARD, OTHER], folder=tmp_path, wait_s=0.1):
                pass


def test_two_jobs_on_one_gpu_take_turns(tmp_path):
    """Neither runs while the other does, and none waits for the other's whole job."""
    spans: list[tuple[float, float, int]] = []

    def job(number: int) -> None:
        turn = gpu.Turn(CARD, folder=tmp_path)
        for _ in range(10):
            with turn():
                began = time.monotonic()
                time.sleep(0.01)
                spans.append((began, time.monotonic(), number))
            time.sleep(0.01)

    threads = [threading.Thread(target=job, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spans.sort()
    assert len(spans) == 20 and all(one[1] <= two[0] for one, two in pairwise(spans))
    assert sum(one[2] != two[2] for one, two in pairwise(spans)) >= 6


def test_a_job_on_several_gpus_has_them_all_in_its_turn_and_holds_none_while_it_waits(tmp_path):
    ended = threading.Event()
    turn = gpu.Turn(CARD, ended.is_set, folder=tmp_path, others=[OTHER])
    with turn(), pytest.raises(NoLease), gpu.lease([CARD, OTHER], folder=tmp_path, wait_s=0.1):
        pass
    with gpu.lease([OTHER], folder=tmp_path):
        threading.Timer(0.3, ended.set).start()
        with pytest.raises(NoLease), turn():
            pass
        with gpu.lease([CARD], folder=tmp_path, wait_s=0.1):
            pass


def test_a_worker_of_one_gpu_knows_the_others_of_its_host(monkeypatch):
    monkeypatch.setattr(gpu.nvml, "devices", lambda: [vars(each) for each in (CARD, OTHER)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(OTHER.index))
    assert [each.uuid for each in gpu.gpus()] == [each.uuid for each in gpu.gpus_of_host()] == [OTHER.uuid]
    monkeypatch.setenv(gpu.OF_HOST, gpu.ALL)                    # as `manage.py serve` tells its workers
    assert [each.uuid for each in gpu.gpus()] == [OTHER.uuid]
    assert [each.uuid for each in gpu.gpus_of_host()] == [CARD.uuid, OTHER.uuid]
    monkeypatch.setenv(gpu.OF_HOST, CARD.uuid)                  # what the host itself was given
    assert [each.uuid for each in gpu.gpus_of_host()] == [CARD.uuid]


def test_others_of_a_job_are_of_the_same_model_and_near():
    cards = [gpu.Gpu(index, f"GPU-{index}", "B" if index == 2 else "A", "9.0", "", 1) for index in range(5)]
    assert [each.index for each in gpu.neighbours(cards[3], cards, 2)] == [4, 1]
    assert [each.index for each in gpu.neighbours(cards[0], cards, 9)] == [1, 3, 4] and gpu.neighbours(cards[2], cards, 1) == []


def test_who_measures_with_a_turn_waits_for_whoever_holds_the_whole_gpu(tmp_path):
    ended = threading.Event()
    turn = gpu.Turn(CARD, ended.is_set, folder=tmp_path)
    with gpu.lease([CARD], folder=tmp_path):
        threading.Timer(0.2, ended.set).start()
        with pytest.raises(NoLease), turn():
            pass
    ended.clear()
    with turn():
        pass
