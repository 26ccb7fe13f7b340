"""cuDNN's choice for a convolution, from the kernel's name: the algorithm, and whether it runs on tensor cores.

Names are those of cuDNN 7 to 9 (algorithms: cuDNN Developer Guide, `cudnnConvolutionFwdAlgo_t`: implicit GEMM,
precomputed implicit GEMM, explicit GEMM, direct, FFT, Winograd). A name proves neither: where the report counted tensor
instructions, the count decides.
"""

from __future__ import annotations

from dataclasses import dataclass

NAME_CHARS = 2_000
ALGORITHMS: tuple[tuple[str, tuple[str, ...]], ...] = (          # the first whose word is in the name
    ("Winograd", ("winograd",)),
    ("FFT", ("fft2d", "fft1d", "fft3d", "cnn::fft", "fft_tiling")),
    ("explicit GEMM", ("explicit_convolve", "im2col")),
    ("implicit GEMM", ("implicit_convolve", "implicit_gemm", "implicitgemm", "precomputed_convolve", "scudnn", "cudnn_gemm")),
    ("direct", ("conv2d_grouped_direct", "conv_depthwise", "depthwise", "dgrad2d_grouped_direct", "wgrad2d_grouped_direct",
                "direct_conv", "convolve_direct", "dgrad_engine", "wgrad_alg0_engine", "wgrad_alg1_engine")),
    ("implicit GEMM", ("fprop", "dgrad", "wgrad")),
)
_TENSOR = ("tensorop", "tensor_op", "1688", "16816", "884", "8816", "hmma", "gmma", "tf32f32", "xmma_fprop_implicit_gemm_bf16",
           "xmma_fprop_implicit_gemm_f16", "xmma_dgrad_implicit_gemm_f16", "xmma_wgrad_implicit_gemm_f16", "tst_", "nvjet")
_LEGACY = ("scudnn", "convolve_sgemm", "simt", "ffma", "f32f32_f32f32", "dgrad_engine", "wgrad_alg", "fft2d", "winograd",
           "grouped_direct", "depthwise")


@dataclass(frozen=True)
class Convolution:
    """`on_tensor_cores` is None where the name does not tell."""

    algorithm: str
    on_tensor_cores: bool | None


def convolution_of(name: str) -> Convolution | None:
    """Return what a kernel's name says of a convolution, None where it is none."""
    lower = name[:NAME_CHARS].lower()
    algorithm = next((algorithm for algorithm, words in ALGORITHMS if any(word in lower for word in words)), None)
    if algorithm is None:                                       # cuFFT's own kernels ("regular_fft", "vector_fft") are none
        return None
    tensor = any(word in lower for word in _TENSOR)
    return Convolution(algorithm, True if tensor else False if any(word in lower for word in _LEGACY) else None)
