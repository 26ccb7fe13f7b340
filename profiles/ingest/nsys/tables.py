"""What the tables of an Nsight Systems export are called, from 2021 to today, and what their numbers mean.

Tables are created lazily: a table that is absent recorded nothing. Columns come and go with the schema (3.6 in 2023.4,
3.28 in 2026.4); every name that has changed stands here, nothing else in this reader spells a second name.
Source: "SQLite Export Schema Reference", docs.nvidia.com/nsight-systems (2021.5 to 2026), and real exports.
"""

from __future__ import annotations

from typing import NamedTuple

from profiles.ingest.trace import Category

# what this reader calls a table -> how exports call it, newest first
TABLES = {
    "TARGET_INFO_GPU": ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU"),                     # the latter until early 2021
    "META_DATA_EXPORT": ("META_DATA_EXPORT", "EXPORT_META_DATA"),                       # the latter until 2022
    "CUPTI_ACTIVITY_KIND_KERNEL": ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"),
}
# what this reader calls a column -> how exports call it, newest first
COLUMNS = {
    "id": ("id", "deviceId"), "smCount": ("smCount", "numMultiprocessors"), "totalMemory": ("totalMemory", "globalMemorySize"),
    "computeMajor": ("computeMajor", "computeCapabilityMajor", "smMajor"),
    "computeMinor": ("computeMinor", "computeCapabilityMinor", "smMinor"),
    "start": ("start", "timestamp", "rawTimestamp"), "timestamp": ("timestamp", "start"),
    "value": ("value", "data"), "severity": ("severity", "level"),
    "nameId": ("nameId", "textId", "functionId"),
}
# tables that hold no events: what they describe is read with the events, or is not needed
DESCRIPTIONS = ("ENUM_*", "META_DATA_*", "EXPORT_META_DATA", "TARGET_INFO_*", "ANALYSIS_*", "sqlite_*", "StringIds", "PROCESSES",
                "ProcessStreams", "ThreadNames", "*_CALLCHAINS", "NVTX_PAYLOAD_*", "MPI_RANKS", "MPI_COMMUNICATORS", "UCP_WORKERS",
                "UnwindMethodType", "GENERIC_EVENT_SOURCES", "GENERIC_EVENT_TYPES", "GENERIC_EVENT_TYPE_FIELDS", "ETW_PROVIDERS",
                "ETW_TASKS", "NIC_ID_MAP", "NET_*_INFO", "CUDA_DEVICES")


class Api(NamedTuple):
    """Calls on CPU threads. `track` "" is the thread's own, where ranges and calls nest; else a track beside it."""

    category: Category
    track: str = ""


APIS = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": Api(Category.RUNTIME), "CUPTI_ACTIVITY_KIND_DRIVER": Api(Category.RUNTIME),
    "CUDNN_EVENTS": Api(Category.CPU_OP), "CUBLAS_EVENTS": Api(Category.CPU_OP), "CUSPARSE_EVENTS": Api(Category.CPU_OP),
    "CUSOLVER_EVENTS": Api(Category.CPU_OP), "CUFFT_EVENTS": Api(Category.CPU_OP), "NCCL_EVENTS": Api(Category.CPU_OP),
    "MPI_P2P_EVENTS": Api(Category.OTHER), "MPI_COLLECTIVES_EVENTS": Api(Category.OTHER),
    "MPI_START_WAIT_EVENTS": Api(Category.OTHER), "MPI_OTHER_EVENTS": Api(Category.OTHER),
    "UCP_SUBMIT_EVENTS": Api(Category.OTHER, "UCX"), "UCP_PROGRESS_EVENTS": Api(Category.OTHER, "UCX"),
    "UCP_EVENTS": Api(Category.OTHER, "UCX"),
    "CUDA_GRAPH_EVENTS": Api(Category.OTHER, "CUDA graphs"), "CUDA_GRAPH_NODE_EVENTS": Api(Category.OTHER, "CUDA graphs"),
    "OSRT_API": Api(Category.OTHER, "OS runtime"), "SYSCALL": Api(Category.OTHER, "system calls"),
    "OPENACC_DATA_EVENTS": Api(Category.CPU_OP), "OPENACC_LAUNCH_EVENTS": Api(Category.CPU_OP),
    "OPENACC_OTHER_EVENTS": Api(Category.CPU_OP),
    "PROFILER_OVERHEAD": Api(Category.OVERHEAD, "profiler overhead"),
    "CUPTI_ACTIVITY_KIND_OVERHEAD": Api(Category.OVERHEAD, "CUPTI overhead"),
}
# numbers of a call that are worth showing: column -> what people call it
API_DETAILS = {"returnValue": "return value", "size": "bytes", "recvSize": "bytes received", "packedSize": "bytes", "tag": "tag",
               "remoteRank": "remote rank", "rootRank": "root rank", "graphId": "graph", "graphExecId": "graph exec",
               "graphNodeId": "graph node", "originalGraphNodeId": "original graph node", "originalGraphId": "original graph"}

NVTX_CATEGORY, NVTX_THREAD, NVTX_DOMAIN, NVTX_DOMAIN_END = 33, 39, 75, 76      # names, not events
NVTX_MARKS, NVTX_PUSH_POP, NVTX_START_END = (34, 65), (59, 70), (60, 71)

COPY_KINDS = {0: "", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
              11: "unified HtoD", 12: "unified DtoH", 13: "unified DtoD"}
MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static"}
SYNC_TYPES = {1: "Event sync", 2: "Stream wait event", 3: "Stream sync", 4: "Context sync"}
ALLOCATION = 0                  # memoryOperationType; 1 is a deallocation
WARNING = 2                     # DIAGNOSTIC_EVENT.severity: 1 information, 2 warning, 3 error
