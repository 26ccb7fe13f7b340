// CUB's classes of a block and a warp for a host that asks how much shared memory they take: what nvcc alone knows is declared.
#pragma once
#include <cuda_runtime.h>
#include <device_launch_parameters.h>
#if __has_include(<cuda/std/__internal/namespaces.h>)
#include <cuda/__cccl_config>
#include <cuda/std/__internal/namespaces.h>
#ifdef _CCCL_BEGIN_NAMESPACE_CUDA_PTX
_CCCL_BEGIN_NAMESPACE_CUDA_PTX
inline unsigned get_sreg_laneid() { return 0; }
inline unsigned get_sreg_lanemask_eq() { return 0; }
inline unsigned get_sreg_lanemask_ge() { return 0; }
inline unsigned get_sreg_lanemask_gt() { return 0; }
inline unsigned get_sreg_lanemask_le() { return 0; }
inline unsigned get_sreg_lanemask_lt() { return 0; }
_CCCL_END_NAMESPACE_CUDA_PTX
_CCCL_BEGIN_NAMESPACE_CUDA_DEVICE
template <class T> struct ridgepoint_shuffled { T data; bool pred; operator T() const { return data; } };
#define RIDGEPOINT_SHUFFLE(name) \
  template <int W = 32, class T, class... A> ridgepoint_shuffled<T> name(const T &value, A...) { return {value, false}; }
RIDGEPOINT_SHUFFLE(warp_shuffle_up) RIDGEPOINT_SHUFFLE(warp_shuffle_down) RIDGEPOINT_SHUFFLE(warp_shuffle_idx) RIDGEPOINT_SHUFFLE(warp_shuffle_xor)
#undef RIDGEPOINT_SHUFFLE
_CCCL_END_NAMESPACE_CUDA_DEVICE
#endif
#endif
