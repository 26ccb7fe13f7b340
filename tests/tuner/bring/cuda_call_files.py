"""CUDA C++ files with a host function each, as people write them, and a call of it."""

from __future__ import annotations

SCALE = """#include <cuda_runtime.h>
#include <cooperative_groups.h>
#define ROWS 4
namespace cg = cooperative_groups;
template <typename T> __device__ T warp_sum(T v) { for (int i = 16; i; i /= 2) v += __shfl_xor_sync(~0u, v, i); return v; }
template <typename T, int ITEMS>
__global__ void scale_add(T *__restrict__ y, const T *__restrict__ x, const float a, int n) {
  int first = (blockIdx.x * blockDim.x + threadIdx.x) * ITEMS;
  for (int k = 0; k < ITEMS; k++) if (first + k < n) y[first + k] = a * x[first + k];
}
__global__ void sum_rows(float *out, const float *in, int columns) {
  float v = 0;
  for (int at = threadIdx.x; at < columns; at += 32) v += in[(blockIdx.x * ROWS + threadIdx.y) * columns + at];
  v = warp_sum(v);
  if (threadIdx.x == 0) out[blockIdx.x * ROWS + threadIdx.y] = v;
}
void scale(float *y, const float *x, float a, int n, cudaStream_t stream) {
  const int threads = 256;
  dim3 grid((n + threads * 4 - 1) / (threads * 4));
  scale_add<float, 4><<<grid, threads, 0, stream>>>(y, x, a, n);
}
void sums(float *out, const float *in, int rows, int columns) {
  sum_rows<<<rows / ROWS, dim3(32, ROWS)>>>(out, in, columns);
}
float first_of(const float *x) { return x[0]; }
"""
SCALE_CALL = "scale(empty(1000000), randn(1000000), 2.0, 1000000)"
SUMS_CALL = "sums(empty(4096), randn(4096, 1024), 4096, 1024)"

SOFTMAX = """#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <limits>
template <typename scalar_t, int THREADS>
__global__ void softmax_rows(scalar_t *__restrict__ y, const scalar_t *__restrict__ x, int64_t columns) {
  __shared__ float held[THREADS / 32];
  const scalar_t *row = x + blockIdx.x * columns;
  float most = -INFINITY, sum = 0;
  for (int64_t at = threadIdx.x; at < columns; at += THREADS) most = fmaxf(most, float(row[at]));
  for (int by = 16; by; by /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, by));
  if (threadIdx.x % 32 == 0) held[threadIdx.x / 32] = most;
  __syncthreads();
  for (int w = 0; w < THREADS / 32; w++) most = fmaxf(most, held[w]);
  __syncthreads();
  for (int64_t at = threadIdx.x; at < columns; at += THREADS) sum += expf(float(row[at]) - most);
  for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(0xffffffff, sum, by);
  if (threadIdx.x % 32 == 0) held[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int w = 0; w < THREADS / 32; w++) sum += held[w];
  for (int64_t at = threadIdx.x; at < columns; at += THREADS)
    y[blockIdx.x * columns + at] = scalar_t(expf(float(row[at]) - most) / sum);
}
torch::Tensor softmax_cuda(torch::Tensor x, double unused) {
  TORCH_CHECK(x.is_cuda(), "x must lie on a GPU");
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  auto y = torch::empty_like(x);
  constexpr int kThreads = 1024;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "softmax", ([&] {
    softmax_rows<scalar_t, kThreads><<<x.size(0), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
        y.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), x.size(1));
  }));
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("softmax", &softmax_cuda, "softmax", py::arg("x"), py::arg("unused") = 1.0); }
"""
SOFTMAX_CALL = "softmax(randn(8192, 3000, dtype=fp16))"

ACCESSOR = """#include <torch/extension.h>
#define BLOCK 8
template <typename scalar_t>
__global__ void add_bias(const torch::PackedTensorAccessor32<scalar_t, 3, torch::RestrictPtrTraits> x,
                         const torch::PackedTensorAccessor32<scalar_t, 1, torch::RestrictPtrTraits> bias,
                         torch::PackedTensorAccessor32<scalar_t, 3, torch::RestrictPtrTraits> y) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y, n = blockIdx.z;
  if (row < x.size(1) && column < x.size(2)) y[n][row][column] = x[n][row][column] + bias[column];
}
torch::Tensor add(torch::Tensor x, torch::Tensor bias) {
  auto y = torch::empty_like(x);
  const dim3 threads(BLOCK, BLOCK);
  const dim3 blocks((x.size(2) + BLOCK - 1) / BLOCK, (x.size(1) + BLOCK - 1) / BLOCK, x.size(0));
  AT_DISPATCH_FLOATING_TYPES(x.type(), "add", ([&] {
    add_bias<scalar_t><<<blocks, threads>>>(x.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>(),
        bias.packed_accessor32<scalar_t, 1, torch::RestrictPtrTraits>(),
        y.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>());
  }));
  return y;
}
"""
ACCESSOR_CALL = "add(randn(16, 1000, 2048), randn(2048))"
