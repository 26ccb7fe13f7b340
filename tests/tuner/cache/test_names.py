"""Names that a job gets wrong: told once with the nearest right one, or raised; types by one table."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.cache import client
from tuner.cache.client import Card, Client, Device, UnknownName, choose_device, dtype_name, name_problem
from tuner.cache.entries.bans import capability_of, served_as

OPERATORS = {"matmul": {"dims": ["M", "N", "K"], "dtypes": ["bf16", "fp16", "fp8"], "exact": [],
                        "policy": {"steps_per_doubling": 2, "exact_up_to": 64}},
             "softmax": {"dims": ["R", "C"], "dtypes": ["bf16"], "exact": [],
                         "policy": {"steps_per_doubling": 2, "exact_up_to": 64}},
             "triton:mine": {"dims": [], "dtypes": [], "exact": [], "policy": {"steps_per_doubling": 2, "exact_up_to": 64}}}
SHAPE = {"M": 64, "N": 64, "K": 64}


class Named:
    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(("given", "name"), [
    (Named("torch.bfloat16"), "bf16"), ("bfloat16", "bf16"), ("*bf16", "bf16"), (np.dtype("float16"), "fp16"), (np.float32, "fp32"),
    ("torch.float8_e4m3fn", "fp8"), ("fp8e4nv", "fp8"), ("f8E4M3FN", "fp8"), ("fp8e5", "fp8e5"), ("torch.float8_e5m2", "fp8e5"),
    ("float8_e4m3fnuz", "fp8e4b8"), ("fp8e5b16", "fp8e5b16"), ("nvfp4", "nvfp4"),
    ("f8E4M3FNUZ", "fp8e4b8"), ("fp8_e5m2fnuz", "fp8e5b16"), ("e4m3fn", "fp8"), ("tl.float8e4nv", "fp8"), ("__nv_fp8_e4m3", "fp8"),
    ("float8_e4m3b11fnuz", "fp8e4b15"), ("__nv_bfloat16", "bf16"), ("__half", "fp16"), ("single", "fp32"), ("i64", "int64"),
    ("torch.long", "int64"), ("u32", "uint32"), (np.int16, "int16"), ("pointer<fp16>", "fp16"), ("dtype('float16')", "fp16"),
    (Named("<class 'jax.numpy.bfloat16'>"), "bf16"), ("dtype[bfloat16]", "bf16"), (np.bool_, "bool"),
    ("float8_e4m3", "float8_e4m3"), ("*kbf16", "bf16"), ("tensordesc<fp8e4nv[64, 64]>", "fp8"), ("const_pointer<fp8e5>", "fp8e5"),
    ("F8_E4M3", "fp8"), ("F8_E5M2", "fp8e5"), ("fp8e4m3", "fp8"), ("e4m3fnuz", "fp8e4b8"), ("e5m2fnuz", "fp8e5b16"),
    ("Float8E4M3FN", "fp8"), ("f8e4m3b11fnuz", "fp8e4b15"), ("f8e4m3", "f8e4m3"), ("s8", "int8"), ("pred", "bool"),
    (np.dtype("float16").str, "fp16"), ("<f4", "fp32"), ("|u1", "uint8"), ("<i8", "int64"), ("i8", "int8"), ("torch.int", "int32"),
    ("torch.float8_e8m0fnu", "float8_e8m0fnu"), ("float4_e2m1fn_x2", "float4_e2m1fn_x2")])
def test_one_table_of_types(given: Any, name: str) -> None:
    assert dtype_name(given) == name


@pytest.mark.parametrize(("operator", "dtype", "shape", "words"), [
    ("matmull", "bf16", SHAPE, "no operator 'matmull', did you mean 'matmul'?"), ("rope", "", SHAPE, "no operator 'rope'"),
    ("matmul", "fp4", SHAPE, "it has bf16, fp16, fp8"), ("softmax", "bf61", {"R": 1, "C": 1}, "did you mean 'bf16'?"),
    ("matmul", "bf16", {"m": 1, "N": 1, "K": 1}, "no dimension 'm', did you mean 'M'?"),
    ("matmul", "", SHAPE, "without a type, bf16 is taken"),
    ("matmul", "bf16", {"M": 1, "N": 1}, "it needs K"), ("matmul", "bf16", {**SHAPE, "B": 2}, "no dimension 'B'")])
def test_what_no_operator_has_is_named(operator: str, dtype: str, shape: dict[str, int], words: str) -> None:
    assert words in name_problem(OPERATORS, operator, dtype, shape)


def test_what_they_have_is_no_problem() -> None:
    assert name_problem(OPERATORS, "matmul", "fp8", SHAPE) == "" == name_problem(OPERATORS, "triton:mine", "bf16", {"X": 1})


def test_a_wrong_name_warns_once_and_raises_where_the_job_is_strict(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps({"version": 1, "id": "s1", "gpu": "NVIDIA H200", "toolkit": "", "operators": OPERATORS, "why": {},
                                "entries": []}))
    monkeypatch.delenv("RIDGEPOINT_STRICT", raising=False)
    job = Client("", "", snapshot="", file=str(file), gpu="NVIDIA H200", toolkit="")
    with caplog.at_level(logging.WARNING, "ridgepoint"):
        for size in (64, 128, 256):
            assert "did you mean 'matmul'?" in job.best("matmull", "bf16", M=size, N=64, K=64).why
        assert job.best("matmul", np.dtype("float16"), M=64, N=64, K=64).why == "nothing measured fits"      # type: ignore[arg-type]
    assert len([line for line in caplog.messages if "matmull" in line]) == 1
    monkeypatch.setenv("RIDGEPOINT_STRICT", "1")
    with pytest.raises(UnknownName, match="did you mean 'softmax'"):
        job.best("softmx", "bf16", R=64, C=64)
    job.close()


H100, NVL, H20 = (Device(f"NVIDIA {name}", "9.0", sms) for name, sms in (("H100 80GB HBM3", 132), ("H100 NVL", 132), ("H20", 78)))
SLICES = {"MIG-1a": Device("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9.0", 16),
          "MIG-2b": Device("NVIDIA H100 80GB HBM3 MIG 3g.40gb", "9.0", 60)}


@pytest.mark.parametrize(("cards", "visible", "by_bus", "chosen"), [
    ([Card("GPU-1", NVL, {})], "", False, NVL), ([Card("GPU-1", NVL, {}), Card("GPU-2", NVL, {})], "1", False, NVL),
    ([Card("GPU-1", NVL, {}), Card("GPU-2", H20, {})], "1", True, H20),
    ([Card("GPU-1", NVL, {}), Card("GPU-2", H20, {})], "1", False, None),                  # CUDA's own order: the fastest first
    ([Card("GPU-1", NVL, {}), Card("GPU-2", H20, {})], "GPU-2,GPU-1", False, H20),
    ([Card("GPU-1", H100, SLICES)], "", False, SLICES["MIG-1a"]),                          # CUDA takes the first slice
    ([Card("GPU-1", H100, SLICES)], "0", False, SLICES["MIG-1a"]),
    ([Card("GPU-1", H100, SLICES)], "MIG-2b", False, SLICES["MIG-2b"]),
    ([Card("GPU-1", H100, {}), Card("GPU-2", H100, SLICES)], "0", False, None), ([], "0", False, None),
    ([Card("GPU-1", H100, {})], "MIG-9c", False, Device("NVIDIA H100 80GB HBM3 MIG")), ([Card("GPU-1", H20, {})], "7", True, None)])
def test_the_device_is_the_one_that_cuda_takes_first(cards: list[Card], visible: str, by_bus: bool, chosen: Device | None) -> None:
    assert choose_device(cards, visible, by_bus) == chosen


class Nvml:
    """NVML's C functions over a host with an H20, and an H100 that is cut into two slices."""

    def __init__(self, with_mig: bool = True) -> None:
        self.handles = {1: ("GPU-h20", "NVIDIA H20", 78), 2: ("GPU-h100", "NVIDIA H100 80GB HBM3", 132),
                        11: ("MIG-1a", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16), 12: ("MIG-2b", "NVIDIA H100 80GB HBM3", 60)}
        if not with_mig:
            self.nvmlDeviceGetMigMode = None                 # type: ignore[assignment]
            del self.handles[11], self.handles[12]

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if found is None:
            raise AttributeError(name)
        return found

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = index + 1
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = 9, 0
        return 0

    def nvmlDeviceGetName(self, handle: Any, text: Any, size: int) -> int:
        text.value = self.handles[handle.value][1].encode()
        return 0

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, size: int) -> int:
        text.value = self.handles[handle.value][0].encode()
        return 0

    def nvmlDeviceGetNumGpuCores(self, handle: Any, cores: Any) -> int:
        cores._obj.value = 128 * self.handles[handle.value][2]
        return 0

    def nvmlDeviceGetMigMode(self, handle: Any, now: Any, later: Any) -> int:
        now._obj.value = int(handle.value == 2)
        return 0 if handle.value == 2 else 3                                              # NVML_ERROR_NOT_SUPPORTED

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, most: Any) -> int:
        most._obj.value = 7
        return 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, place: int, part: Any) -> int:
        part._obj.value = 11 + place
        return 0 if place < 2 else 6                                                      # NVML_ERROR_NOT_FOUND

    def nvmlDeviceGetAttributes_v2(self, handle: Any, told: Any) -> int:
        told._obj[0] = self.handles[handle.value][2]
        return 0


def test_cards_and_slices_are_read_of_the_driver() -> None:
    h20, h100 = client.read_cards(Nvml())
    assert h20 == Card("GPU-h20", H20, {}) and h100.whole == H100
    assert h100.slices == {"MIG-1a": SLICES["MIG-1a"], "MIG-2b": Device("NVIDIA H100 80GB HBM3 MIG 60 SMs", "9.0", 60)}
    assert [card.slices for card in client.read_cards(Nvml(with_mig=False))] == [{}, {}], "a driver from before MIG"


def test_a_slice_is_not_the_whole_card(monkeypatch: Any, tmp_path: Path) -> None:
    told = tmp_path / "information"
    told.write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 1\n")
    monkeypatch.delenv("RIDGEPOINT_GPU", raising=False)
    monkeypatch.setattr(client, "_driver_cards", list)
    monkeypatch.setattr(client.glob, "glob", lambda pattern: [str(told)])
    monkeypatch.setitem(client.sys.modules, "torch", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert client.gpu_name() == "NVIDIA H100 80GB HBM3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-5e7cd9fb")
    assert client.gpu_name() == "NVIDIA H100 80GB HBM3 MIG"


def test_the_client_asks_with_capability_and_sms(monkeypatch: Any) -> None:
    monkeypatch.delenv("RIDGEPOINT_GPU", raising=False)
    monkeypatch.setattr(client, "device", lambda: SLICES["MIG-1a"])
    asked: list[str] = []

    def answer(self: Any, path: str, timeout: float, **more: Any) -> tuple[int, bytes]:
        asked.append(path)
        raise OSError("away")

    monkeypatch.setattr(client.Server, "ask", answer)
    job = Client("http://guard.example", "", snapshot="", file="", toolkit="")
    assert "gpu=NVIDIA+H100+80GB+HBM3+MIG+1g.10gb" in asked[0] and "compute_capability=9.0" in asked[0] and "sms=16" in asked[0]
    assert (job.status()["compute_capability"], job.status()["sms"]) == ("9.0", 16)
    job.close()


@pytest.mark.parametrize(("name", "capability"), [
    ("NVIDIA H100 NVL", "9.0"), ("NVIDIA H200 NVL", "9.0"), ("NVIDIA GH200 480GB", "9.0"), ("NVIDIA GH200 144G HBM3e", "9.0"),
    ("NVIDIA H20", "9.0"), ("NVIDIA H20-3e", "9.0"), ("NVIDIA H800", "9.0"), ("NVIDIA B200", "10.0"), ("NVIDIA GB200", "10.0"),
    ("NVIDIA B300 SXM6 AC", "10.3"), ("NVIDIA GB300", "10.3"), ("NVIDIA GB10", "12.1"), ("NVIDIA RTX A6000", "8.6"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0"), ("NVIDIA RTX 6000 Ada Generation", "8.9"), ("NVIDIA L40", "8.9"),
    ("NVIDIA GeForce RTX 4080 SUPER", "8.9"), ("NVIDIA GeForce RTX 5070 Ti", "12.0"), ("Quadro RTX 8000", "7.5"),
    ("NVIDIA A10G", "8.6"), ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", "9.0"), ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "8.0"),
    ("Tesla V100-PCIE-16GB", "7.0"), ("NVIDIA H2000", ""), ("", "")])
def test_models_have_their_compute_capability(name: str, capability: str) -> None:
    assert capability_of(name) == capability


def test_fewer_sms_than_the_card_has_are_a_slice() -> None:
    assert served_as("NVIDIA H100 NVL", 132) == served_as("NVIDIA H100 NVL") == "NVIDIA H100 NVL"
    assert served_as("NVIDIA H100 80GB HBM3", 16) == "NVIDIA H100 80GB HBM3 MIG 16 SMs" != served_as("NVIDIA H20", 16)
    assert served_as("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16) == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert served_as("NVIDIA Z1", 16) == "NVIDIA Z1", "nobody knows how many it has"
