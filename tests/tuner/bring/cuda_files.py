"""Kernels in CUDA C++ as people write them."""

from __future__ import annotations

SCALE_ADD = '''
#include <stdio.h>
#include <cuda_fp16.h>

#ifndef block_size_x
#define block_size_x 128
#endif
#define ITEMS_PER_THREAD 2          // elements of one thread

/* y = a x + b; __global__ void not_this_one(int) {} */
__global__ void __launch_bounds__(1024) scale_add(float* __restrict__ y, const float* __restrict__ x,
                                                  const float *b, float a, long long n)
{
    long long first = (long long)blockIdx.x * block_size_x * ITEMS_PER_THREAD + threadIdx.x;
    #pragma unroll
    for (int item = 0; item < ITEMS_PER_THREAD; item++) {
        long long i = first + item * block_size_x;
        if (i < n) y[i] = a * x[i] + b[i];
    }
}

int main() { printf("host code is left out\\n"); return 0; }
'''
TILED = '''
#include <cuda_fp16.h>
#include <cuda_bf16.h>

template <int BM, int BN, int BK, typename T>
__global__ void tiled_matmul(T* C, const T* A, const T* B, int M, int N, int K)
{
    __shared__ float a[BK][BM];
    __shared__ float b[BK][BN];
    int row = blockIdx.y * BM + threadIdx.x / BN, column = blockIdx.x * BN + threadIdx.x % BN;
    float sum = 0.f;
    for (int k = 0; k < K; k += BK) {
        for (int at = threadIdx.x; at < BM * BK; at += BM * BN) {
            int m = blockIdx.y * BM + at / BK, kk = k + at % BK;
            a[at % BK][at / BK] = m < M && kk < K ? (float)A[(size_t)m * K + kk] : 0.f;
        }
        for (int at = threadIdx.x; at < BN * BK; at += BM * BN) {
            int kk = k + at / BN, n = blockIdx.x * BN + at % BN;
            b[at / BN][at % BN] = kk < K && n < N ? (float)B[(size_t)kk * N + n] : 0.f;
        }
        __syncthreads();
        for (int kk = 0; kk < BK; kk++) sum += a[kk][threadIdx.x / BN] * b[kk][threadIdx.x % BN];
        __syncthreads();
    }
    if (row < M && column < N) C[(size_t)row * N + column] = (T)sum;
}
'''
KERNEL_TUNER = '''
import numpy as np
from kernel_tuner import tune_kernel

kernel_string = """
__global__ void vector_add(float *c, float *a, float *b, int n) {
    int i = (blockIdx.x * block_size_x + threadIdx.x) * vector_width;
    #pragma unroll
    for (int k = 0; k < vector_width; k++) if (i + k < n) c[i + k] = a[i + k] + b[i + k];
}
"""
size = 1 << 20
a = np.random.randn(size).astype(np.float32)
args = [np.zeros_like(a), a, np.random.randn(size).astype(np.float32), np.int32(size)]

tune_params = dict()
tune_params["block_size_x"] = [64 * i for i in range(1, 17)]
tune_params["vector_width"] = [2**i for i in range(3)]
restrict = ["block_size_x * vector_width <= 1024", "block_size_x % 128 == 0 or vector_width == 1"]

tune_kernel("vector_add", kernel_string, size, args, tune_params, grid_div_x=["block_size_x", "vector_width"],
            restrictions=restrict, lang="CUDA")
'''
