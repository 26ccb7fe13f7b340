"""The typed forms in which trace records are decoded: what becomes a column is named here, the rest is skipped unread.

Two stages. First every record with its `args` left as raw JSON text; then, per kind of record, all those texts in one
call into the form that fits the kind. Fields are loose (`Any`) on purpose: eight years of files disagree on types, and
the columns convert in bulk. Nested arguments that are only shown stay raw text.
"""

from __future__ import annotations

from typing import Any

import msgspec

MISSING = -(2**63)          # of id fields: no id has this value, so that a list converts to int64 in one call
RAW = msgspec.Raw(b"")


def _field(name: str, default: Any = None) -> Any:
    return msgspec.field(default=default, name=name)


class Event(msgspec.Struct, gc=False):
    ph: Any = None
    cat: Any = None
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    id: Any = None
    args: msgspec.Raw = RAW


class IdArgs(msgspec.Struct, gc=False):
    """Runtime and driver calls, annotations, overhead: only their ids matter."""

    external_id: Any = _field("External id", MISSING)
    correlation: Any = MISSING
    external_id_old: Any = _field("external id", MISSING)       # PyTorch 1.8-1.10


class OpArgs(msgspec.Struct, gc=False):
    """Framework operators."""

    external_id: Any = _field("External id", MISSING)
    concrete_inputs: msgspec.Raw = _field("Concrete Inputs", RAW)
    input_type: msgspec.Raw = _field("Input type", RAW)
    input_strides: msgspec.Raw = _field("Input Strides", RAW)
    input_dims: msgspec.Raw = _field("Input Dims", RAW)
    input_dims_old: msgspec.Raw = _field("Input dims", RAW)
    call_stack: msgspec.Raw = _field("Call stack", RAW)
    module_hierarchy: msgspec.Raw = _field("Module Hierarchy", RAW)
    collective: msgspec.Raw = _field("Collective name", RAW)
    kernel_file: msgspec.Raw = RAW
    kernel_backend: msgspec.Raw = RAW
    kernel_hash: msgspec.Raw = RAW
    kernel_kwargs: msgspec.Raw = RAW
    num_warps: msgspec.Raw = RAW
    num_stages: msgspec.Raw = RAW
    external_id_old: Any = _field("external id", MISSING)       # PyTorch 1.8-1.10


class GpuArgs(msgspec.Struct, gc=False):
    """Everything on a GPU lane."""

    external_id: Any = _field("External id", MISSING)
    device: Any = None
    context: msgspec.Raw = RAW
    stream: Any = None
    correlation: Any = MISSING
    registers: Any = _field("registers per thread")
    shared_memory: Any = _field("shared memory")
    grid: Any = None
    block: Any = None
    occupancy: Any = _field("est. achieved occupancy %")
    bytes: Any = None
    kind: msgspec.Raw = RAW
    priority: msgspec.Raw = RAW
    graph_id: msgspec.Raw = _field("graph id", RAW)
    graph_node_id: msgspec.Raw = _field("graph node id", RAW)
    occupancy_limits: msgspec.Raw = _field("occupancy", RAW)
    collective: msgspec.Raw = _field("Collective name", RAW)
    in_elements: msgspec.Raw = _field("In msg nelems", RAW)
    out_elements: msgspec.Raw = _field("Out msg nelems", RAW)
    group_size: msgspec.Raw = _field("Group size", RAW)
    dtype: msgspec.Raw = RAW
    group_name: msgspec.Raw = _field("Process Group Name", RAW)
    group_description: msgspec.Raw = _field("Process Group Description", RAW)
    group_ranks: msgspec.Raw = _field("Process Group Ranks", RAW)
    sync_kind: msgspec.Raw = _field("cuda_sync_kind", RAW)
    wait_on_stream: msgspec.Raw = RAW
    wait_on_record: msgspec.Raw = _field("wait_on_cuda_event_record_corr_id", RAW)
    wait_on_event: msgspec.Raw = _field("wait_on_cuda_event_id", RAW)
    external_id_old: Any = _field("external id", MISSING)


class MetaArgs(msgspec.Struct, gc=False):
    """ph M: names and order of processes and threads."""

    name: Any = None
    labels: Any = None
    sort_index: Any = None


class MemoryArgs(msgspec.Struct, gc=False):
    """`[memory]` instants of the profiler's allocator hook."""

    bytes: Any = _field("Bytes")
    address: Any = _field("Addr")
    device_type: Any = _field("Device Type")
    device_id: Any = _field("Device Id")
    total_allocated: Any = _field("Total Allocated")
    total_reserved: Any = _field("Total Reserved")


def _details(form: type[msgspec.Struct]) -> list[tuple[str, str]]:
    return [(f.name, f.encode_name) for f in msgspec.structs.fields(form) if f.type is msgspec.Raw]


OP_DETAILS = _details(OpArgs)           # attribute, name in the file: the arguments shown as they are
GPU_DETAILS = _details(GpuArgs)
EVENTS = msgspec.json.Decoder(list[Event])


class ExactTime(msgspec.Struct, gc=False):
    """A record's time as its text, for files whose numbers float64 cannot hold."""

    ts: msgspec.Raw = RAW


EXACT_TIMES = msgspec.json.Decoder(list[ExactTime])
