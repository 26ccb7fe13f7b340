"""Does a kernel run on tensor cores, and where it does not, why not: by its name, and by what its operator multiplies.

Sources. Names: NVIDIA PyProf `prof/tc.py` (the list that PyTorch's TensorBoard plugin uses, `tensor_core.py`), extended by
what cuBLAS 12, cuDNN 9, CUTLASS 3, Tensile and flash attention call their kernels. Sizes: NVIDIA, Matrix Multiplication
Background User's Guide, section 2.1 "Tensor Core Requirements", table 1 (16 bytes); Convolutional Layers User's Guide,
"Channels in and out"; the smallest tile is that of PTX `mma.m16n8k8`. AMD's matrix cores count as tensor cores.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from profiles.analysis.core import gpus
from profiles.analysis.trace.operators.matmuls import Problem

ALIGNED = {"fp16": 8, "bf16": 8, "fp32": 4, "fp8": 16, "int8": 16, "fp64": 2}     # elements in 16 bytes; fp32 as TF32
TILE = 8                            # rows or columns of one instruction's tile: fewer leave the rest of it idle
# element type -> precision of its tensor cores, and what its name on the page is
TENSOR = {"fp32": "tf32_tensor", "fp16": "fp16_tensor", "bf16": "bf16_tensor", "fp64": "fp64_tensor", "int8": "int8_tensor",
          "fp8": "fp8_tensor"}

_BESIDE_FLASH = re.compile(r"dot_do_o|convert_dq|convert_dkv", re.IGNORECASE)
_CUDA_CORES = re.compile(r"simt|ffma", re.IGNORECASE)
_TENSOR_CORES = re.compile(
    r"tensorop|gmma|[hidq]mma|[hsicd](884|1688|16816)|16816|161616|i16832|nvjet|tf32f32|tensor8x8x4"
    r"|xmma_(gemm|sparse|fprop|dgrad|wgrad|implicit|warp)|dgrad_1x1_stride_2x2|first_layer_wgrad|conv2d_c1_k1"
    r"|flash_(fwd|bwd)|flash_[fb]prop|fmha_cutlass[FB]_|fmha_v2|_mi\d+x\d+x\d+|mfma|deep_gemm", re.IGNORECASE)
_BESIDE = re.compile(
    r"splitk_?reduce|elementwise|reduce_kernel|nchwtonhwc|nhwctonchw|memset|memcpy|_copy|batchedcopy|transpose|scalepackedtensor"
    r"|fill|im2col|col2im|softmax|winograd(forward|wgrad|generate)|quantize|postgsu|index_|scatter|gather|philox|distribution"
    r"|tensortransform|addpadding|init_device_workspace|flip_filter|pointwise_mult|globalkernel|scal_kernel",
    re.IGNORECASE)
_NOT = re.compile(
    r"(?<![a-z\d])[sdczh]gemm|gemv|gemm_?sn|gemmk1|dot_kernel|scudnn|convolve_[sd]gemm|convolve_common|winograd|[wd]grad\d?d?_(alg\d_)?engine"
    r"|depthwise|fft2?d|cijk_(?!.*_mi\d)", re.IGNORECASE)
_ALIGNED_TO = re.compile(r"align(?:a)?(\d+)(?!\d)", re.IGNORECASE)
# What one element of a tensor-core kernel's operands takes, by its name; the first that is found.
_ELEMENT_BYTES = ((1, re.compile(r"_s8|_u8|i16832|i8816|i161616|e4m3|e5m2", re.IGNORECASE)), (8, re.compile(r"d884|f64f64")),
                  (2, re.compile(r"f16_s|bf16|f16f16|h1688|h16816|h884|_f16", re.IGNORECASE)), (4, re.compile(r"s1688|tf32")))
_NAMED_TYPES = (("fp32", re.compile(r"(?<![a-z\d])sgemm|scudnn|_sgemm|f32f32_f32f32|<float", re.IGNORECASE)),
                ("fp64", re.compile(r"(?<![a-z\d])dgemm|f64f64|<double", re.IGNORECASE)),
                ("fp16", re.compile(r"(?<![a-z\d])hgemm|<__half|<c10::Half", re.IGNORECASE)))


@lru_cache(maxsize=16384)
def on_tensor_cores(kernel: str) -> str:
    """Tell whether a kernel of a matrix operator runs on tensor cores.

    "yes", "no", "beside" (a copy, a layout change, a reduction around the product), or "unknown": its name does not say.
    """
    if _BESIDE_FLASH.search(kernel):
        return "beside"
    if _CUDA_CORES.search(kernel):
        return "no"
    if _TENSOR_CORES.search(kernel):
        return "yes"
    if _BESIDE.search(kernel):
        return "beside"
    return "no" if _NOT.search(kernel) else "unknown"


def type_of(kernel: str) -> str:
    """Return the element type of a CUDA-core kernel by its name, "" where it does not say.

    `sgemm` is single precision.
    """
    return next((dtype for dtype, named in _NAMED_TYPES if named.search(kernel)), "")


@lru_cache(maxsize=16384)
def alignment_of(kernel: str) -> int | None:
    """Return the elements that a CUTLASS or cuDNN kernel loads at once, if under 16 bytes.

    On tensor cores; `…_align1` of FP16. None where they are 16 bytes, or the name does not say.
    """
    match = _ALIGNED_TO.search(kernel)
    if match is None or on_tensor_cores(kernel) != "yes":
        return None
    size = next((size for size, named in _ELEMENT_BYTES if named.search(kernel)), None)
    return int(match[1]) if size is not None and int(match[1]) * size < 16 else None


@dataclass(frozen=True)
class Reason:
    """Why a product is not on tensor cores, or not well. `code` is of REASONS."""

    code: str
    text: str
    fix: str

    @property
    def helps(self) -> bool:
        """Would tensor cores make it faster once the obstacle is gone?"""
        return REASONS[self.code][1]


REASONS = {                         # code -> heading of the finding, whether tensor cores would make it faster
    "dtype": ("their type is not one that the tensor cores are used for", True),
    "alignment": ("dimensions are not multiples of 16 bytes", True),
    "small": ("the product is too small to fill a tile", False),
    "gpu": ("the GPU has no tensor cores for it", False),
    "library": ("type and sizes allow it: the library chose another kernel", True),
    "shapes": ("the trace holds no input shapes", False),
    "layout": ("sizes allow more, the library chose this kernel", False),
}


def why_not(problem: Problem, compute_capability: str | None) -> Reason:
    """Return the first obstacle in the order in which they have to be removed.

    For a problem whose kernel is not on tensor cores.
    """
    sizes = [size for size in (problem.m, problem.n, problem.k) if size is not None]
    if problem.kind == "conv" and problem.channels[1]:
        sizes = [*problem.channels]
    if not problem.dtype and not sizes:
        return Reason("shapes", "the operator's input shapes and types are not recorded", "record with record_shapes=True")
    if reason := _gpu(problem.dtype, compute_capability):
        return reason
    if problem.depthwise:
        return Reason("small", "a depthwise convolution multiplies one channel by one filter: no matrices",
                      "nothing to win from tensor cores; fuse it with its neighbours")
    if problem.kind == "matmul" and sizes and 1 in (problem.m, problem.n):
        return Reason("small", f"a matrix times a vector ({problem.text}): every weight is used once, memory bounds it",
                      "batch several vectors into one product")
    if problem.kind == "matmul" and sizes and min(sizes) < TILE:
        return Reason("small", f"{problem.text}: a dimension is smaller than {TILE}, the rows of one tensor instruction's tile",
                      "batch small products into one larger, or pad where they are many")
    odd = unaligned_dimensions(problem)
    if reason := _type(problem, odd, compute_capability):
        return reason
    if odd:
        return Reason("alignment", f"{odd} not a multiple of {ALIGNED[problem.dtype]} ({problem.dtype})",
                      f"pad {odd} to the next multiple of {ALIGNED[problem.dtype]}")
    return Reason("library", f"{problem.dtype or 'type unknown'}, {problem.text or 'sizes unknown'}: nothing recorded forbids it",
                  "try another layout (channels_last, contiguous), a newer library, or torch.compile with max-autotune")


def unaligned_dimensions(problem: Problem) -> str:
    """Return the names of the dimensions that are no multiple of 16 bytes.

    "N = 1021 and K = 1021"; "" where all are, or unknown.
    """
    step = ALIGNED.get(problem.dtype)
    if step is None:
        return ""
    named = [("M", problem.m), ("N", problem.n), ("K", problem.k)]
    if problem.kind == "conv":
        named = [("input channels", problem.channels[0] or None), ("output channels", problem.channels[1] or None)]
    elif problem.kind == "attention":
        named = [("head size", problem.k)]
    odd = [f"{name} = {size}" for name, size in named if size is not None and size % step]
    return ", ".join(odd[:-1]) + f" and {odd[-1]}" if len(odd) > 1 else "".join(odd)


def _gpu(dtype: str, compute_capability: str | None) -> Reason | None:
    if compute_capability and _version(compute_capability) < (7, 0):
        return Reason("gpu", f"compute capability {compute_capability} has no tensor cores", "run it on Volta or newer")
    precision = TENSOR.get(dtype)
    peaks = gpus.OPS_PER_SM_CYCLE.get(compute_capability or "")
    if peaks and precision and precision not in peaks and not (dtype == "fp32" or dtype == "bf16"):
        return Reason("gpu", f"compute capability {compute_capability} has no {gpus.PRECISIONS[precision]} unit",
                      "use a type that it has: FP16, BF16 or TF32")
    return None


def _type(problem: Problem, odd: str, compute_capability: str | None) -> Reason | None:
    dtype = problem.dtype
    also = f"; then pad {odd} to a multiple of {ALIGNED[dtype]}" if odd else ""
    if dtype == "fp32" and compute_capability and _version(compute_capability) < (8, 0):
        return Reason("dtype", f"FP32 operands run on CUDA cores: compute capability {compute_capability} has no TF32",
                      f"autocast to FP16 (`torch.autocast`){also}")
    if dtype == "fp32" and problem.kind == "conv" and odd:          # cuDNN may use TF32 unless it is told not to
        return Reason("alignment", f"{odd} not a multiple of {ALIGNED[dtype]} (TF32)",
                      f"pad {odd} to the next multiple of {ALIGNED[dtype]}, and leave `torch.backends.cudnn.allow_tf32` on")
    if dtype == "fp32":
        switch = 'torch.set_float32_matmul_precision("high")'
        if problem.kind == "conv":
            switch = "torch.backends.cudnn.allow_tf32 = True"
        return Reason("dtype", "FP32 operands run on CUDA cores while TF32 is not allowed",
                      f"`{switch}` (TF32, compute capability 8.0 and newer), or autocast to BF16 or FP16{also}")
    if dtype == "fp64":
        return Reason("dtype", "FP64: few GPUs have tensor cores for it, and the library chose CUDA cores",
                      f"FP32 with TF32 where the accuracy allows{also}")
    if dtype and dtype not in TENSOR:
        return Reason("dtype", f"no tensor core multiplies {dtype}", "a floating-point type, or INT8")
    return None


def _version(compute_capability: str) -> tuple[int, ...]:
    parts = compute_capability.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() and len(part) < 4 for part in parts) else (99,)


def peak_of(problem: Problem, gpu: gpus.Gpu) -> float | None:
    """Return the dense rate of the tensor cores that operands of this type can use.

    Older GPUs' FP16 for BF16 and TF32.
    """
    precision = TENSOR.get(problem.dtype, "")
    if precision in ("bf16_tensor", "tf32_tensor") and precision not in gpu.peaks:
        precision = "fp16_tensor"
    return gpu.peaks.get(precision)


def least_ns(problem: Problem, gpu: gpus.Gpu | None) -> float | None:
    """Return how long the product takes at best on tensor cores, or None.

    The longer of FLOP at the dense peak and bytes at the DRAM's (roofline; Williams et al., CACM 52(4), 2009). None where GPU, type
    or sizes are not known.
    """
    peak = peak_of(problem, gpu) if gpu else None
    if gpu is None or peak is None or problem.flop is None:
        return None
    return 1e9 * max(problem.flop / peak, (problem.bytes or 0) / gpu.dram_bytes_s)
