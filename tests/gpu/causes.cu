// Kernels whose cause of slowness is known because it was put there; compiled with -DMENDED the cause is gone and all else is
// the same. Recorded by record/causes.py.
#include <cstdio>
#include <cstdlib>

#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { std::fprintf(stderr, "%s\n", cudaGetErrorString(e)); std::exit(1); } } while (0)

// A warp's threads read addresses 32 floats apart: 32 sectors per request where 4 would do.
__global__ void uncoalesced_copy(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef MENDED
  int at = i;
#else
  int rows = n / 32;
  int at = (i % rows) * 32 + i / rows;
#endif
  if (i < n) out[i] = in[at] * 2.0f;
}

// Columns of a 32 x 32 tile lie in one bank; a padded row moves each to its own.
__global__ void bank_conflict_transpose(const float* in, float* out, int size) {
#ifdef MENDED
  __shared__ float tile[32][33];
#else
  __shared__ float tile[32][32];
#endif
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int r = 0; r < 32; r += 8) tile[threadIdx.y + r][threadIdx.x] = in[(y + r) * size + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
  for (int r = 0; r < 32; r += 8) out[(y + r) * size + x] = tile[threadIdx.x][threadIdx.y + r];
}

// Neighbouring threads take different long branches.
__global__ void divergent_branches(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
#ifdef MENDED
  int lane = (i / 32) % 8;
#else
  int lane = i % 8;
#endif
  float v = in[i];
  switch (lane) {
    case 0: for (int k = 0; k < 64; k++) v = __sinf(v) + 0.1f; break;
    case 1: for (int k = 0; k < 64; k++) v = __cosf(v) + 0.2f; break;
    case 2: for (int k = 0; k < 64; k++) v = __expf(-v) + 0.3f; break;
    case 3: for (int k = 0; k < 64; k++) v = __logf(v + 2.0f) + 0.4f; break;
    case 4: for (int k = 0; k < 64; k++) v = v * v * 0.5f + 0.5f; break;
    case 5: for (int k = 0; k < 64; k++) v = rsqrtf(v + 1.5f); break;
    case 6: for (int k = 0; k < 64; k++) v = v * 0.99f + __sinf(v); break;
    default: for (int k = 0; k < 64; k++) v = v * 1.01f - __cosf(v); break;
  }
  out[i] = v;
}

// 96 live values per thread in at most 32 registers.
#ifdef MENDED
__global__ void __launch_bounds__(256, 1) spilling_registers(const float* in, float* out, int n) {
#else
__global__ void __launch_bounds__(256, 8) spilling_registers(const float* in, float* out, int n) {
#endif
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v[96];
#pragma unroll
  for (int k = 0; k < 96; k++) v[k] = in[(i + k * 4096) % n];
  for (int turn = 0; turn < 8; turn++) {
#pragma unroll
    for (int k = 0; k < 96; k++) v[k] = v[k] * v[(k + 37) % 96] + 0.5f;
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 96; k++) sum += v[k];
  out[i] = sum;
}

// Shared memory for one block per SM: few warps hide no latency.
__global__ void low_occupancy(const float* in, float* out, int n) {
  extern __shared__ float buffer[];
  buffer[threadIdx.x] = 0.0f;
  int step = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) out[i] = in[i] + buffer[threadIdx.x];
}

// Fewer blocks than SMs.
__global__ void small_grid(const float* in, float* out, int n) {
  int step = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) out[i] = in[i] * 3.0f;
}

// One block more than the GPU holds at once: a second wave of one block.
__global__ void tail_wave(float* out, int turns) {
  extern __shared__ float room[];
  float v = threadIdx.x * 0.001f;
  for (int k = 0; k < turns; k++) v = v * 1.0001f + 0.5f;
  room[threadIdx.x] = v;
  out[blockIdx.x * blockDim.x + threadIdx.x] = room[threadIdx.x];
}

// Every thread adds to one address; mended, a warp adds once.
__global__ void atomic_contention(const float* in, float* sum, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? in[i] : 0.0f;
#ifdef MENDED
  for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
  if (threadIdx.x % 32 == 0) atomicAdd(sum + blockIdx.x % 1024, v);
#else
  atomicExch(sum, v);
#endif
}

// A barrier after every addition, one warp does the work between them.
__global__ void barrier_heavy(const float* in, float* out, int n) {
  __shared__ float shared[1024];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i % n];
  for (int k = 0; k < 64; k++) {
#ifndef MENDED
    if (threadIdx.x < 32) for (int t = 0; t < 8; t++) v = v * 0.9f + 0.1f;
    __syncthreads();
    shared[threadIdx.x] = v;
    __syncthreads();
    v = shared[(threadIdx.x + 33) % blockDim.x];
#else
    v = __shfl_sync(~0u, v * 0.9f + 0.1f, (threadIdx.x + 1) % 32);
#endif
  }
  out[i] = v;
}

// Each load waits for the one before.
__global__ void pointer_chase(const int* next, int* out, int turns) {
  int at = (blockIdx.x * blockDim.x + threadIdx.x) * 33;
  for (int k = 0; k < turns; k++) at = next[at];
  out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}

// As long as compute_twin: all of it waiting for DRAM.
__global__ void memory_twin(const float4* in, float4* out, int n) {
  int step = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) out[i] = in[i];
}

// As long as memory_twin: all of it fused multiply-adds.
__global__ void compute_twin(float* out, int turns) {
  float a = threadIdx.x * 1e-3f, b = a + 1, c = a + 2, d = a + 3, e = a + 4, f = a + 5, g = a + 6, h = a + 7;
  for (int k = 0; k < turns; k++) {
    a = a * 1.0001f + 0.5f; b = b * 1.0001f + 0.5f; c = c * 1.0001f + 0.5f; d = d * 1.0001f + 0.5f;
    e = e * 1.0001f + 0.5f; f = f * 1.0001f + 0.5f; g = g * 1.0001f + 0.5f; h = h * 1.0001f + 0.5f;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d + e + f + g + h;
}

// fp64 where the rest of the program is fp32.
__global__ void accidental_double(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
#ifdef MENDED
  float v = in[i];
  for (int k = 0; k < 64; k++) v = v * 1.0001f + 0.5f;
#else
  double v = in[i];
  for (int k = 0; k < 64; k++) v = v * 1.0001 + 0.5;
#endif
  out[i] = v;
}

int main() {
  const int n = 1 << 25, size = 4096;
  float *in, *out; int* next;
  CHECK(cudaMalloc(&in, n * sizeof(float)));
  CHECK(cudaMalloc(&out, n * sizeof(float)));
  CHECK(cudaMalloc(&next, n * sizeof(int)));
  CHECK(cudaMemset(in, 0x3f, n * sizeof(float)));
  int* host = static_cast<int*>(std::malloc(n * sizeof(int)));
  for (int i = 0; i < n; i++) host[i] = static_cast<int>((i * 1103515245LL + 12345) & (n - 1));
  CHECK(cudaMemcpy(next, host, n * sizeof(int), cudaMemcpyHostToDevice));
  CHECK(cudaFuncSetAttribute(low_occupancy, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  CHECK(cudaFuncSetAttribute(tail_wave, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
#ifdef MENDED
  const int shared = 1024, few = 132 * 8, tail = 132;
#else
  const int shared = 200 * 1024, few = 16, tail = 133;
#endif
  uncoalesced_copy<<<n / 256, 256>>>(in, out, n);
  bank_conflict_transpose<<<dim3(size / 32, size / 32), dim3(32, 8)>>>(in, out, size);
  divergent_branches<<<n / 256, 256>>>(in, out, n);
  spilling_registers<<<4096, 256>>>(in, out, n);
  low_occupancy<<<132 * (shared > 4096 ? 1 : 8), 256, shared>>>(in, out, n);
  small_grid<<<few, 256>>>(in, out, n / 4);
  tail_wave<<<tail, 256, 200 * 1024>>>(out, 20000);
  atomic_contention<<<n / 32 / 256, 256>>>(in, out, n / 32);
  barrier_heavy<<<4096, 1024>>>(in, out, n);
  pointer_chase<<<132, 32>>>(next, reinterpret_cast<int*>(out), 400);
  memory_twin<<<132 * 16, 512>>>(reinterpret_cast<float4*>(in), reinterpret_cast<float4*>(out), n / 4);
  compute_twin<<<132 * 8, 256>>>(out, 835);
  accidental_double<<<n / 256, 256>>>(in, out, n);
  CHECK(cudaDeviceSynchronize());
  return 0;
}
