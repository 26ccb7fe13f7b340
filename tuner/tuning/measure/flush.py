"""What makes the L2 cache cold before a launch: a buffer larger than it is written, and no line of an earlier launch outlives that.

Lines loaded with the hint `evict_last` outlive a write of ordinary lines: the next kernel on the same inputs, or the same one,
then finds them there and is timed as faster than it is. So before the write another buffer, larger than L2 as well, is read with
that hint, which displaces them, and its own lines are given back to the ordinary order (PTX `applypriority`). All of it is queued
on the stream, so that the host need not wait between two launches. Before a batch, when nothing runs, the driver resets what is
left (`begin`). The way is part of what a time was taken under.

The two kernels are PTX for the driver: nothing is compiled when a job starts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from tuner.tuning.measure.policy import RESET, UNPINNED, WRITE

LEAST_BYTES = 256 * 2**20
LINE_BYTES, LOAD_BYTES, THREADS = 128, 16, 256

# read_last: each thread loads 16 bytes with evict_last (they are summed, so that the load is needed; the store never happens).
# apply_normal: each thread gives one line of 128 bytes the ordinary priority. Both: (first byte, threads that have work).
PTX = """
.version 7.4
.target sm_80
.address_size 64

.visible .entry read_last(.param .u64 words, .param .u32 count)
{
    .reg .pred %p<3>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<5>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [count];
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 bra DONE;
    ld.param.u64 %rd1, [words];
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %r4, 16;
    add.u64 %rd3, %rd1, %rd2;
    createpolicy.fractional.L2::evict_last.b64 %rd4, 1.0;
    ld.global.L2::cache_hint.v4.b32 {%r6, %r7, %r8, %r9}, [%rd3], %rd4;
    or.b32 %r10, %r6, %r7;
    or.b32 %r11, %r8, %r9;
    or.b32 %r10, %r10, %r11;
    setp.ne.u32 %p2, %r10, 0;
    @%p2 st.global.b32 [%rd3], %r10;
DONE:
    ret;
}

.visible .entry apply_normal(.param .u64 words, .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [count];
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 bra DONE;
    ld.param.u64 %rd1, [words];
    cvta.to.global.u64 %rd1, %rd1;
    mul.wide.u32 %rd2, %r4, 128;
    add.u64 %rd3, %rd1, %rd2;
    applypriority.global.L2::evict_normal [%rd3], 128;
DONE:
    ret;
}
"""


class Flush:
    """Called before a launch; its kernels are loaded when it is made."""

    def __init__(self, device: torch.device, l2_bytes: int) -> None:
        self.buffer = torch.empty(flush_bytes(l2_bytes), dtype=torch.int8, device=device)
        self._write, self._synchronize, self._device = self.buffer.zero_, torch.cuda.synchronize, device
        self._unpin = make_unpin(device, l2_bytes)
        self._reset = find_reset(device)
        self.way = UNPINNED if self._unpin else RESET if self._reset else WRITE

    def begin(self) -> None:
        """Reset what kernels before this batch left; call it while nothing runs on the device."""
        if self._reset is not None:
            self._reset()

    def __call__(self) -> None:
        if self._unpin is not None:
            self._unpin()
        elif self._reset is not None:
            self._synchronize(self._device)
            self._reset()
        self._write()

    def about(self) -> dict[str, Any]:
        """Return fields for the policy."""
        return {"cold_l2": True, "flush": self.way, "flush_bytes": self.buffer.numel()}


def flush_bytes(l2_bytes: int) -> int:
    """Return the size of the buffer that is written."""
    return max(4 * l2_bytes, LEAST_BYTES)


def make_unpin(device: torch.device, l2_bytes: int) -> Callable[[], None] | None:
    """Return what displaces lines with evict_last, in the order of the current stream; None where the driver refuses that."""
    if torch.cuda.get_device_capability(device) < (8, 0):           # has no such lines
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    with torch.cuda.device(device):
        buffer = torch.zeros(max(2 * l2_bytes, LEAST_BYTES // 8) // LINE_BYTES * LINE_BYTES, dtype=torch.int8, device=device)
        torch.cuda.synchronize(device)
        try:
            kernels = _load(driver, buffer)
        except RuntimeError:
            return None
    current_stream = torch.cuda.current_stream

    def unpin() -> None:
        stream = ctypes.c_void_p(current_stream(device).cuda_stream)
        for kernel in kernels:
            kernel.launch(stream)

    try:
        unpin()
        torch.cuda.synchronize(device)
    except RuntimeError:
        return None
    return unpin


def _load(driver: ctypes.CDLL, buffer: torch.Tensor) -> list[_PtxKernel]:
    module = ctypes.c_void_p()
    _check(driver.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(PTX.encode())), "cuModuleLoadData")
    return [_PtxKernel(driver, module, name, buffer, step)
            for name, step in ((b"read_last", LOAD_BYTES), (b"apply_normal", LINE_BYTES))]


class _PtxKernel:
    """One of the two kernels, with its arguments: each thread has `step` bytes of the buffer."""

    def __init__(self, driver: ctypes.CDLL, module: ctypes.c_void_p, name: bytes, buffer: torch.Tensor, step: int) -> None:
        self._buffer, self._function = buffer, ctypes.c_void_p()
        _check(driver.cuModuleGetFunction(ctypes.byref(self._function), module, ctypes.c_char_p(name)), "cuModuleGetFunction")
        threads = buffer.numel() // step
        self._values = ctypes.c_uint64(buffer.data_ptr()), ctypes.c_uint32(threads)
        self._arguments = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in self._values))
        self._blocks, self._launch = -(-threads // THREADS), driver.cuLaunchKernel

    def launch(self, stream: ctypes.c_void_p) -> None:
        _check(self._launch(self._function, self._blocks, 1, 1, THREADS, 1, 1, 0, stream, self._arguments, None), "cuLaunchKernel")


def find_reset(device: torch.device) -> Callable[[], None] | None:
    """Return the driver's function that makes all persisting lines ordinary ones; None where it has none.

    It takes effect when it returns, not in the order of a stream: call it while nothing runs.
    """
    try:
        reset = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
    except (OSError, AttributeError):
        return None
    with torch.cuda.device(device):
        torch.cuda.synchronize(device)
        refused = reset() != 0
    return None if refused else lambda: _check(reset(), "cuCtxResetPersistingL2Cache")


def _check(error: int, what: str) -> None:
    if error:
        raise RuntimeError(f"{what}: the driver's error {error}")
