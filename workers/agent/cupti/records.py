"""Kernel records of CUPTI as numpy columns: a whole buffer at a time, no Python per record.

Offsets are those of `CUpti_ActivityKernel7` to `13` in cupti_activity.h of CUDA 11.8, 12.1, 12.4, 12.6, 12.8, 12.9 and 13.0 to 13.5
(compiled with offsetof): versions append fields and keep those before. What differs is the size of a record, and that is measured
at run time: the distance of two neighbouring records of the library that is loaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

KERNEL, CONCURRENT_KERNEL = 3, 10           # CUpti_ActivityKind; CONCURRENT_KERNEL is what is asked for
# the size of a record in bytes -> its struct and the first CUPTI that writes it
SIZES = {176: ("CUpti_ActivityKernel7", "11.6"), 200: ("CUpti_ActivityKernel8", "11.8"), 208: ("CUpti_ActivityKernel9", "12.0"),
         216: ("CUpti_ActivityKernel10", "13.0"), 224: ("CUpti_ActivityKernel11", "13.1"), 232: ("CUpti_ActivityKernel12", "13.3"),
         248: ("CUpti_ActivityKernel13", "13.4")}
# launch: grid x y z, block x y z, static and dynamic shared bytes, which lie one behind the other
_FIELDS: dict[str, tuple[Any, int]] = {
    "kind": ("<u4", 0), "start_ns": ("<u8", 16), "end_ns": ("<u8", 24), "device": ("<u4", 40), "stream": ("<u4", 48),
    "launch": (("<i4", (8,)), 52), "correlation": ("<u4", 92), "name": ("<u8", 104), "graph": ("<u4", 156)}
MOST_THREADS = 1024                         # of a block's side: what no record may exceed


class RecordsRefused(ValueError):
    """The bytes are not kernel records of a known layout."""


def layout(size: int) -> np.dtype[np.void]:
    """Return the dtype of records of `size` bytes.

    Raises:
        RecordsRefused: no known version of CUPTI writes such records.
    """
    if size not in SIZES:
        raise RecordsRefused(f"kernel records of {size} bytes: no known version of CUPTI writes them")
    return np.dtype({"names": list(_FIELDS), "formats": [kind for kind, _ in _FIELDS.values()],
                     "offsets": [offset for _, offset in _FIELDS.values()], "itemsize": size})


def decode(buffer: npt.NDArray[Any], valid_bytes: int, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Return the kernel records of a buffer as a view of it.

    Raises:
        RecordsRefused: other kinds of records lie between, or numbers that no launch has.
    """
    count, rest = divmod(valid_bytes, dtype.itemsize)
    records = buffer.view(np.uint8)[:count * dtype.itemsize].view(dtype)
    kind = records["kind"]
    if rest or not ((kind == CONCURRENT_KERNEL) | (kind == KERNEL)).all():
        raise RecordsRefused("a buffer holds other records than kernels: another tool asked for them")
    if count:
        check(records[:1])
        check(records[-1:])
    return records


def check(records: npt.NDArray[np.void]) -> None:
    """Refuse records whose fields no launch can have: the layout is another than it is taken for."""
    launch = records["launch"]
    sane = (records["end_ns"] >= records["start_ns"]) & (launch[:, :3] >= 1).all(axis=1) & (records["name"] != 0)
    sane &= ((launch[:, 3:6] >= 1) & (launch[:, 3:6] <= MOST_THREADS)).all(axis=1) & (launch[:, 6:] >= 0).all(axis=1)
    if not sane.all():
        raise RecordsRefused("a record holds numbers that no launch has: its layout is another")


def group(records: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (key of each record, first record of each key): equal device, kernel, grid, block and shared memory have one key."""
    if not records.size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    words = np.ascontiguousarray(records["launch"]).view(np.uint64)
    mixed = records["name"] ^ (records["device"].astype(np.uint64) << np.uint64(56))
    columns = [*words.T, records["name"], records["device"].astype(np.uint64)]
    for word in words.T:
        mixed = (mixed ^ word) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    _, first, key = np.unique(mixed, return_index=True, return_inverse=True)
    if all((column == column[first][key]).all() for column in columns):
        return key.astype(np.int64), first.astype(np.int64)
    _, first, key = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)       # two signatures hashed alike
    return key.reshape(-1).astype(np.int64), first.astype(np.int64)
