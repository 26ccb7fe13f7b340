"""Small whole files of every format, unpacked: what mutations start from."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import tempfile
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path

import zstandard

DATA = Path(__file__).resolve().parents[1] / "data"
EVENTS_OF_A_KIND = 6
FILES = {
    "kineto": ("corpus/kineto/hta_cuda_event_sync_multi_stream_a100.json.gz",
               "corpus/kineto/tracelens_mi300_torch_compile_triton.json.gz",
               "h200/kineto_layer_stack.json.gz", "corpus/kineto/vllm_mi300_decode_full_graph_execution.json.gz",
               "recorded/torch_graph_stack_memory.json.gz"),
    "chrome": ("corpus/chrome/speedscope_multiprocess.json", "corpus/chrome/perfetto_flow_events_v2.json",
               "corpus/chrome/speedscope_simple-partial-trailing-comma.json", "recorded/proton_trace.chrome_trace"),
    "xprof": ("recorded/jax_trace.json.gz", "corpus/xprof/tracelens_mi300_jax_conv.trace.json.gz"),
    "xplane": ("recorded/jax_xplane.pb",),
    "ncu-rep": ("corpus/ncu/esmm_a10g_incomplete_last_kernel.ncu-rep",),
    "ncu-csv": ("corpus/ncu_csv/esmm_a10g_incomplete_last_kernel.raw.csv", "corpus/ncu_csv/llmperfopt_rtx5090_k0001.details.csv",
                "corpus/ncu_csv/llmperfopt_rtx5090_k0001.metrics.csv", "ncu/single_metrics.details.csv",
                "ncu/single_metrics.raw.csv"),
    "nsys-sqlite": ("corpus/nsys/nsysai_healthy_minimal.sqlite.gz", "corpus/nsys/gtls_rtx4090_no_cuda.sqlite.gz"),
    "nsys-stats": ("corpus/nsys_stats/fuser_h200_cuda_gpu_kern_sum.csv", "corpus/nsys_stats/fuser_h200_cuda_gpu_trace.json",
                   "corpus/nsys_stats/fuser_h200_cuda_gpu_mem_time_sum.csv", "corpus/nsys_stats/fuser_h200_nvtx_sum.csv"),
    "rocpd": ("cases/rocpd.db",), "rpd": ("rocm/matmul_result.rpd.gz",), "rocprofv3-json": ("cases/rocprofv3_results.json",),
    "rocprof-csv": ("rocm/kernel_trace.csv", "rocm/counter_collection.csv", "rocm/hip_api_stats.csv"),
    "rocprof-json": ("cases/rocprofv1_truncated_us.json",), "ascend": ("cases/trace_view.json",),
    "onnxruntime": ("cases/cuda_profile.json",), "ncu-text": ("cases/ncu_default_text.txt",),
    "nsys-text": ("cases/nsys_stats_text.txt",), "tar": ("cases/trace.tar.gz",), "utf-16": ("cases/utf16.json",),
    "perfetto": ("corpus/perfetto/jacc_mi_rocprofv3_3648722_results.pftrace",),
    "gpu-logs": ("logs/nvidia_smi_query.csv", "logs/nvidia_smi_dmon.txt"),
    "nccl-log": ("logs/nccl_two_ranks.log",),
    "cprofile": ("cprofile/json_re_sleep.prof",),
    "event-list": ("events/memory_samples.json", "events/memory_ranks.jsonl"),
    "speedscope": ("samplers/pyspy.speedscope.json",),
    "cpuprofile": ("samplers/node.cpuprofile",),
    "proton": ("corpus/proton/tritonbench_h100_softmax.hatchet", "recorded/proton_tree.hatchet"),
    "snapshot": ("recorded/torch_snapshot.pickle",),
}
PERFETTO_BYTES = 24_000
FORMATS = (*FILES, "cutlass", "zip", "gzip", "zstd")
CUTLASS = (b"\nCSV Results:\n\nProblem,Provider,OperationKind,Operation,Disposition,Status,gemm_kind,m,n,k,A,B,C,D,alpha,beta,"
           b"split_k_slices,op_class,accum,cta_m,cta_n,cta_k,stages,warps_m,warps_n,warps_k,inst_m,inst_n,inst_k,min_cc,max_cc,"
           b"Bytes,Flops,Flops/Byte,Runtime,GB/s,GFLOPs\n"
           b"1,CUTLASS,gemm,cutlass_tensorop_s1688,passed,success,universal,1024,1024,1024,f32:column,f32:column,f32:column,f32:column,"
           b"1,0,1,tensorop,f32,128,128,16,5,2,2,1,16,8,8,80,1024,12582912,2149580800,170,0.0432,291.0,49758.8\n") * 2


@cache
def seeds(kind: str) -> tuple[bytes, ...]:
    """Contents of one format, a few kilobytes to a few hundred each."""
    if kind == "cutlass":
        return (CUTLASS,)
    if kind in ("zip", "gzip", "zstd"):
        return _wrapped(kind)
    return tuple(_small(kind, _unpacked(DATA / name)) for name in FILES[kind])


def _unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    while content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    return content


def _small(kind: str, content: bytes) -> bytes:
    """Few records of every kind: a mutation should hit something that is looked at."""
    if kind in ("kineto", "chrome", "xprof") and len(content) > 40_000:
        return _few_events(content)
    if kind == "perfetto":
        return content[:PERFETTO_BYTES]             # packets one after the other; the last is cut
    return _few_rows(content) if kind == "nsys-sqlite" else content


def _few_events(content: bytes) -> bytes:
    document, seen, kept = json.loads(content), Counter[str](), []
    for event in document["traceEvents"]:
        kind = f"{event.get('ph')} {event.get('cat')} {event.get('name') if event.get('ph') == 'M' else ''}"
        seen[kind] += 1
        if seen[kind] <= EVENTS_OF_A_KIND:
            kept.append(event)
    return json.dumps({**document, "traceEvents": kept}).encode()


def _few_rows(content: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "few.sqlite"
        path.write_bytes(content)
        database = sqlite3.connect(path)
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
        for (table,) in tables:
            if table != "StringIds":
                database.execute(f'DELETE FROM "{table}" WHERE rowid NOT IN (SELECT rowid FROM "{table}" LIMIT 12)')
        database.commit()
        database.execute("VACUUM")
        database.close()
        return path.read_bytes()


def _wrapped(kind: str) -> tuple[bytes, ...]:
    inner = seeds("chrome")[:2]
    if kind == "gzip":
        once = [gzip.compress(each, mtime=0) for each in inner]
        return (*once, gzip.compress(once[0], mtime=0))
    if kind == "zstd":
        return tuple(zstandard.compress(each) for each in inner)
    out = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive:
            archive.writestr(zipfile.ZipInfo("readme.txt"), "see the trace")
            archive.writestr(zipfile.ZipInfo("run/trace.json"), inner[0])
        out.append(file.getvalue())
    return tuple(out)
