"""What vLLM's and SGLang's own functions make of the files that are exported for them (tests/data/loaders)."""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import runpy
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Optional

import pytest

from tuner.cache.exchange import export_selectors
from tuner.cache.exchange import services as exchange_services
from tuner.cache.formats import fused_moe

pytestmark = pytest.mark.django_db
LOADERS = Path(__file__).resolve().parents[2] / "data" / "loaders"
CONFIG = {"BM": 16, "BN": 64, "BK": 128, "GM": 1, "num_warps": 4, "num_stages": 4}
THEIRS = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
LINEAR = "N=4096,K=1024,device_name=NVIDIA_H200_NVL,dtype=fp8_w8a8,block_shape=[128,128].json"
LAYER = "E=128,N=768,device_name=NVIDIA_H200_NVL.json"
HINTS = exchange_services.Hints(shape={"K": 2048, "topk": 8})


class Logger(logging.Logger):
    """vLLM's has messages that are said once."""

    def info_once(self, *args: Any, **more: Any) -> None: ...

    def warning_once(self, *args: Any, **more: Any) -> None: ...


def loaders(name: str, beside: Path, monkeypatch: pytest.MonkeyPatch, gpu: str, triton: str = "3.6.0") -> dict[str, Any]:
    """Return the functions of a file as if their code lay in the folder `beside`, on a machine with this GPU and Triton."""
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(beside))
    platforms = ModuleType("vllm.platforms")
    platforms.current_platform = SimpleNamespace(get_device_name=lambda device_id=0: gpu)  # type: ignore[attr-defined]
    for package in ("vllm", "vllm.platforms"):
        monkeypatch.setitem(sys.modules, package, platforms)
    deterministic = SimpleNamespace(deterministic=SimpleNamespace(enable_deterministic_inference=False))
    given: dict[str, Any] = {
        "Any": Any, "Dict": dict, "Optional": Optional, "functools": functools, "cache": functools.cache, "json": json, "os": os,
        "re": re, "logger": Logger(name), "_is_cuda": True, "get_exec": lambda: deterministic, "get_device_name": lambda: gpu,
        "log_info_on_rank0": lambda *said: None,
        "torch": SimpleNamespace(_dynamo=SimpleNamespace(is_compiling=lambda: False)),
        "triton": SimpleNamespace(__version__=triton),
        "envs": SimpleNamespace(VLLM_BATCH_INVARIANT=False, VLLM_TUNED_CONFIG_FOLDER=str(beside))}
    return runpy.run_path(str(shutil.copy(LOADERS / name, beside / "module.py")), given)


def exported(owner: Any, kind: str, folder: Path) -> list[str]:
    """Import a layer and a linear product, export them for a project into a folder; return the paths."""
    for name in (LAYER, LINEAR):
        data = fused_moe.write({1: CONFIG, 64: CONFIG}, "3.6.0" if name == LAYER else "").encode()
        hints = HINTS if name == LAYER else exchange_services.Hints()
        exchange_services.import_file(owner=owner, name=name, data=data, hints=hints)
    files = export_selectors.export_entries(kind, {"topk": "8", "K": "2048"}).files
    files = {**files, **export_selectors.export_entries(kind, {"operator": "fp8_block_matmul", "dtype": "fp8"}).files}
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return sorted(files)


def test_vllm_reads_both_kinds(olga: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a linear layer every key is a batch size: with a Triton version in it, its loader fails."""
    paths = exported(olga, "vllm", tmp_path)
    assert paths == ["E=128,N=768,device_name=NVIDIA_H200.json", LINEAR]
    (tmp_path / "configs").mkdir()
    (tmp_path / LINEAR).rename(tmp_path / "configs" / LINEAR)         # of linear layers no folder is asked for but its own
    theirs = loaders("vllm-0.33.0.txt", tmp_path, monkeypatch, "NVIDIA H200 NVL")
    assert theirs["get_moe_configs"](128, 768, None) == {1: THEIRS, 64: THEIRS}
    assert theirs["get_w8a8_block_fp8_configs"](4096, 1024, 128, 128) == {1: THEIRS, 64: THEIRS}
    assert theirs["get_moe_configs"](64, 768, None) is None


def test_sglang_reads_both_kinds(olga: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(tmp_path))
    spaced = LINEAR.replace("[128,128]", "[128, 128]")
    assert exported(olga, "sglang", tmp_path) == [f"configs/{spaced}", f"configs/triton_3_6_0/{LAYER}"]
    for triton in ("3.6.0", "3.7.1"):                                  # where it has none of its own it takes an older one's
        theirs = loaders("sglang-0.5.23.txt", tmp_path, monkeypatch, "NVIDIA H200 NVL", triton)
        assert theirs["get_moe_configs"](128, 768, None) == {1: THEIRS, 64: THEIRS}
    assert theirs["get_w8a8_block_fp8_configs"](4096, 1024, 128, 128) == {1: THEIRS, 64: THEIRS}


def test_both_read_each_batch_size_and_sglang_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they take at a launch is the batch size nearest to the number of tokens."""
    monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(tmp_path))
    by_batch, name = {64: CONFIG, 1: {**CONFIG, "BM": 32}}, "E=128,N=768,device_name=NVIDIA_H200.json"
    folder = tmp_path / fused_moe.sglang_folder("3.6.0")
    assert folder == tmp_path / "configs" / "triton_3_6_0"
    folder.mkdir(parents=True)
    (tmp_path / name).write_text(fused_moe.write(by_batch, "3.6.0"))
    configs = loaders("vllm-0.33.0.txt", tmp_path, monkeypatch, "NVIDIA H200")["get_moe_configs"](128, 768, None)
    assert list(configs) == [1, 64] and configs[min(configs, key=lambda batch: abs(batch - 50))] == THEIRS
    theirs = loaders("sglang-0.5.23.txt", tmp_path, monkeypatch, "NVIDIA H200")["get_moe_configs"]
    (folder / name).write_text(fused_moe.write(by_batch, "3.6.0"))
    with pytest.raises(ValueError):
        theirs(128, 768, None)                                          # a version would break it: it is left out there
    (folder / name).write_text(fused_moe.write(by_batch))
    assert list(theirs(128, 768, None)) == [1, 64]
