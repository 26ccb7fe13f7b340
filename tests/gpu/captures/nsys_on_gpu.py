"""Nsight Systems on a real GPU, without Django: the product's own commands over a training loop, what they find, what they cost.

    RIDGEPOINT_NSYS=…/bin/nsys python3 tests/gpu/captures/nsys_on_gpu.py FOLDER [--seconds 500] [--only NAME]

Needs torch, psutil and, to read the exports, numpy and pyarrow. Each capture of CAPTURES is run as a worker runs it, its export
read by the product's reader, and the loop's step time compared with runs without a profiler before and after. Then a stop in the
middle, and with two GPUs a job of two ranks under nsys and under torch.profiler. FOLDER/nsys.json is written anew after each;
exports below 4 MB are kept beside it. Without a GPU the same is run over traces of the CPU, which tries this script.

A machine whose nsys lacks its importer: `OUT.tar.xz --pack INSTALLATION` packs what profile and export need of a whole one.
NVIDIA's licence allows no modification: unpack it where it is used, keep it nowhere.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from profiles.base.refused import Refused
from profiles.capture import command
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.nsys import NsysOptions, installed_nsys
from profiles.capture.tools.options import Options
from profiles.capture.tools.tool import Paths
from profiles.capture.tools.torch_profiler import TorchOptions
from workers.core import gpu, reaper

PROJECT = Path(__file__).resolve().parents[3]
TRAIN = ["{python}", str(Path(__file__).with_name("train.py"))]
STEPS = ["400"]
RANGES = ["--profiler", "100", "120", "--profiler", "200", "220"]
CAPTURES: dict[str, tuple[dict[str, Any], list[str]]] = {              # name -> options, arguments of the loop
    "default": ({}, STEPS),
    "cuda alone": ({"trace": ["cuda"], "cpuctxsw": "none"}, STEPS),
    "cuda range": ({"capture_range": "cudaProfilerApi"}, [*STEPS, *RANGES]),
    "range twice": ({"capture_range": "cudaProfilerApi", "capture_range_end": "repeat:2"}, [*STEPS, *RANGES]),
    "nvtx range": ({"capture_range": "nvtx", "nvtx_capture": "step"}, STEPS),
    "graph": ({"cuda_graph_trace": "graph"}, [*STEPS, "--graph"]),
    "graph nodes": ({"cuda_graph_trace": "node"}, [*STEPS, "--graph"]),
    "memory": ({"cuda_memory_usage": True}, STEPS),
    "gpu metrics": ({"gpu_metrics_devices": "all"}, STEPS),
    "libraries": ({"trace": ["cuda", "nvtx", "cublas", "cudnn"]}, STEPS),
    "python": ({"python_sampling": True, "trace": ["cuda", "nvtx", "python-gil"]}, STEPS),
    "cpu sampling": ({"sample": "process-tree", "backtrace": "fp"}, STEPS)}
KEPT_BYTES = 4_000_000
LIMIT_S = 180.0


def options_of(given: dict[str, Any]) -> NsysOptions:
    """The options, without what needs a GPU where there is none."""
    if gpu.gpus():
        return NsysOptions.parse(given)
    trace = [each for each in given.get("trace", ["osrt"]) if each in ("osrt", "python-gil")] or ["osrt"]
    return NsysOptions.parse({**{key: value for key, value in given.items() if key.startswith(("python", "sample", "back"))},
                              "trace": trace})


def run(argv: list[str], environ: dict[str, str], stop_after_s: float | None = None) -> tuple[int, str, float]:
    """Run under the reaper; return status, output and seconds. `stop_after_s`: as Stop does it."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, reaper.__file__, *argv], env={**os.environ, **environ}, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def tell(byte: int | None) -> None:
        if process.stdin and not process.stdin.closed:
            if byte is None:
                process.stdin.close()
            else:
                process.stdin.write(bytes([byte]))
                process.stdin.flush()

    timers = [threading.Timer(LIMIT_S, tell, [None])]
    if stop_after_s is not None:
        timers.append(threading.Timer(stop_after_s, tell, [int(CAPTURE_TOOLS["nsys"].stop.signal)]))
    for timer in timers:
        timer.start()
    output = process.stdout.read().decode(errors="replace") if process.stdout else ""
    status = process.wait()
    for timer in timers:
        timer.cancel()
    return status, output, time.monotonic() - began


def step_ms(output: str) -> list[float]:
    return [json.loads(line)["step_ms"] for line in output.splitlines() if line.startswith('{"rank"')]


def capture(options: Options, arguments: list[str], keep: Path, name: str, stop_after_s: float | None = None) -> dict[str, Any]:
    """One capture as a worker runs it, and what its results hold."""
    tool = CAPTURE_TOOLS[options.TOOL]
    installed = {} if tool.runs_in_target else tool.installed()
    cards = gpu.gpus()[:tool.gpus(options)]
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths(installed.get("path", ""), sys.executable, str(PROJECT), folder, installed)
        try:
            argv = command.build_command(options, [*TRAIN, *arguments], paths)
        except Refused as error:
            return {"refused": str(error)}
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(card.uuid for card in cards)} if cards else {}
        status, output, seconds = run(argv, {**visible, **tool.environ(options, paths)}, stop_after_s)
        said = {"command": command.shell_text(argv).replace(folder, "."), "status": status, "seconds": round(seconds, 1),
                "step_ms": step_ms(output), "said": output.replace("\r", "\n").replace(folder, ".")[-1500:]}
        files = sorted(path.name for path in Path(folder).iterdir())
        for after in tool.after(options, files, paths):
            ended, printed, took = run(after, {})
            said["export"] = {"status": ended, "seconds": round(took, 1), "said": printed[-500:]}
        found = {path.name: path for result in tool.results for path in sorted(Path(folder).glob(result.name))}
        said["files"] = {each: path.stat().st_size for each, path in found.items()}
        said["read"] = {each: read(path) for each, path in found.items() if not each.endswith((".nsys-rep", ".qdstrm"))}
        for each, path in found.items():
            if path.stat().st_size < KEPT_BYTES and not each.endswith(".qdstrm"):
                plain = re.sub(r"[^A-Za-z0-9]+", "-", name)
                (keep / f"{plain}-{each}.gz").write_bytes(gzip.compress(path.read_bytes()))
        return said


def read(path: Path) -> dict[str, Any]:
    """What the product's reader finds in a result."""
    try:
        from profiles import ingest
        from profiles.analysis.core.kernels import kernel_table

        trace = ingest.read(path)
        kernels = kernel_table(trace)
        return {"kernels": len(kernels), "launches": sum(kernel.launches for kernel in kernels),
                "devices": [device.name for device in trace.devices], "integrity": trace.integrity.as_json()}
    except Exception as error:              # the answer of this capture, not the end of the run
        return {"failed": f"{type(error).__name__}: {error}"[:500]}


def main(folder: Path, seconds: float, only: list[str]) -> None:
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"gpus": [card.as_json() for card in gpu.gpus()], "nsys": installed_nsys(), "captures": {}}

    def keep(name: str, said: dict[str, Any]) -> None:
        document["captures"][name] = said
        (folder / "nsys.json").write_text(json.dumps(document, indent=1))
        print(name, {key: said.get(key) for key in ("status", "refused", "seconds", "step_ms", "files")}, flush=True)

    def baseline() -> dict[str, Any]:
        status, output, took = run([sys.executable, *TRAIN[1:], *STEPS], {})
        return {"status": status, "seconds": round(took, 1), "step_ms": step_ms(output),
                "said": output[-1500:] if status else ""}

    def several(options: Options, arguments: list[str], name: str) -> dict[str, Any]:
        cards = len(gpu.gpus())
        return capture(options, arguments, folder, name) if cards != 1 else {"refused": "this host has one GPU"}

    plan = {"without": baseline}
    plan |= {name: partial(capture, options_of(given), arguments, folder, name) for name, (given, arguments) in CAPTURES.items()}
    plan |= {
        "without, after": baseline, "stopped": partial(capture, options_of({}), ["1000000"], folder, "stopped", 15.0),
        "ranks, nsys": partial(several, NsysOptions.parse({**options_of({}).as_json(), "processes": 2}), STEPS, "ranks-nsys"),
        "ranks, torch": partial(several, TorchOptions(processes=2, active=2), ["40"], "ranks-torch")}
    for name, one in plan.items():
        if name in (only or plan):
            keep(name, one() if time.monotonic() - began < seconds - 60 else {"refused": "no time is left"})


def pack(installation: Path, out: Path) -> None:
    """Pack what profile and export need: the target side with the newest CUPTI, the importer with its libraries."""
    target, host = installation / "target-linux-x64", installation / "host-linux-x64"
    newest = max(target.glob("libcupti.so.*"), key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)])
    left_out = {"CollectX", "vulkan-layers", "reports", "rules", "python", "libnvperf_grfx_host.so"}
    files = [path for path in target.iterdir() if path.name not in left_out
             and (not path.name.startswith("libcupti") or path == newest)]
    linked = subprocess.run(["ldd", host / "QdstrmImporter"], capture_output=True, text=True, check=True).stdout
    names = {Path(line.split()[2]).name for line in linked.splitlines() if "/host-linux-x64/" in line}
    files += [host / name for name in sorted({"QdstrmImporter", *names})]
    files += [path for path in host.iterdir() if path.name in ("config.ini", "nvlog.config.template")]
    with tarfile.open(out, "w:xz", preset=6) as archive:
        for path in files:
            archive.add(path.resolve(), f"nsys/{path.relative_to(installation)}")

    print(f"{out}: {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the results; with --pack the archive")
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="of the plan, once or more")
    parser.add_argument("--pack", type=Path, metavar="INSTALLATION")
    asked = parser.parse_args()
    if asked.pack:
        pack(asked.pack, asked.folder)
    else:
        main(asked.folder, asked.seconds, asked.only)
