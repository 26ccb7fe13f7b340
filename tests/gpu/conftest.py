"""Tests on a real GPU: skipped, with the reason, where there is none. Results go to RIDGEPOINT_GPU_RESULTS (a folder)."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from profiles.capture.tools.ncu import installed_ncu
from profiles.capture.tools.tool import package_version
from tests.product import Product
from workers.core import gpu

PROJECT = Path(__file__).resolve().parents[2]
RESULTS = Path(os.environ.get("RIDGEPOINT_GPU_RESULTS", PROJECT / "build" / "gpu-results"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cards = gpu.gpus()
    for item in items:
        if "tests/gpu/" in item.nodeid:
            item.add_marker("gpu")
            item.add_marker(pytest.mark.timeout(280))
            if not cards:
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU: neither NVML nor nvidia-smi shows one"))


class Report:
    """What was measured, written after every stage: a later stage that fails or runs out of time loses nothing."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.stages: dict[str, Any] = {}
        self.began_s = time.monotonic()

    def add(self, stage: str, **numbers: Any) -> None:
        self.stages[stage] = {**numbers, "at_s": round(time.monotonic() - self.began_s, 1)}
        text = json.dumps({stage: self.stages[stage]}, default=str)
        sys.__stdout__.write(f"\nGPU {text[:600]}\n")
        sys.__stdout__.flush()
        document = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "command": "make test-gpu",
                    "environment": environment(), "stages": self.stages}
        (self.folder / "results.json").write_text(json.dumps(document, indent=1, default=str))

    def keep(self, source: Path, name: str) -> None:
        """A captured file, gzipped where it is not yet."""
        if source.suffix == ".gz":
            shutil.copyfile(source, self.folder / name)
            return
        with source.open("rb") as plain, gzip.open(self.folder / f"{name}.gz", "wb") as packed:
            shutil.copyfileobj(plain, packed)


def environment() -> dict[str, Any]:
    smi = subprocess.run(["nvidia-smi"], capture_output=True, text=True)
    return {"gpus": [card.as_json() for card in gpu.gpus()], "ncu": installed_ncu(), "torch": package_version("torch"),
            "triton": package_version("triton"), "python": sys.version.split()[0], "nvidia_smi_says": smi.stdout[:200]}


@pytest.fixture(scope="session")
def report() -> Report:
    return Report(RESULTS)


class Site:
    """The running product as a person's browser or script talks to it."""

    def __init__(self, product: Product) -> None:
        self.product, self.http = product, requests.Session()
        self.http.get(f"{product.url}/captures/new/", timeout=30).raise_for_status()

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(self.product.url + path, params=query, timeout=60)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:2000]}\n{self.product.log[-6000:]}"
        return answer.json() if "json" in answer.headers["content-type"] else answer.text

    def post(self, path: str, body: Any = None, data: Any = None) -> Any:
        headers = {"X-CSRFToken": self.http.cookies.get("csrftoken", ""), "Referer": self.product.url}
        answer = self.http.post(self.product.url + path, json=body, data=data, headers=headers, timeout=60)
        assert answer.status_code in (200, 201), (path, answer.status_code, answer.text[:2000])
        return answer.json() if "json" in answer.headers["content-type"] else answer.text

    def wait(self, path: str, ended: tuple[str, ...], within_s: float) -> dict[str, Any]:
        """The row at `path` once its status is one of `ended`."""
        end = time.monotonic() + within_s
        while True:
            row = self.get(path)
            if row["status"] in ended:
                return row
            assert time.monotonic() < end, (f"{path} is {row['status']} after {within_s} s", row, self.product.log[-4000:])
            time.sleep(0.5)


@pytest.fixture(scope="session")
def site(product: Product) -> Iterator[Site]:
    site = Site(product)
    end = time.monotonic() + 60
    while not any(worker["gpus"] for worker in workers(site) if "gpu" in worker["queues"]):
        assert time.monotonic() < end, f"no gpu worker announced itself; the log:\n{product.log[-6000:]}"
        time.sleep(0.5)
    yield site


def workers(site: Site) -> list[dict[str, Any]]:
    answer = site.get("/api/workers/")
    return answer if isinstance(answer, list) else answer["workers"]
