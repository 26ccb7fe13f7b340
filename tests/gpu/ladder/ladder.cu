// Ladders of kernels: each step is the one before it with one fault mended, so that what the next step wins is known.
//
// The steps are those that public teaching material climbs: the parallel reduction (M. Harris, "Optimizing Parallel Reduction in
// CUDA"), the matrix transpose (G. Ruetsch, P. Micikevicius, "Optimizing Matrix Transpose in CUDA"), the softmax of rows and the
// layer norm of rows. The code is our own.
//
//   ladder time          times each step by CUDA events (median of 15) and checks it against the first of its ladder: JSON lines
//   ladder once          launches each step once, for a profiler
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e)); std::exit(1); } } while (0)

constexpr int BLOCK = 256;
constexpr unsigned FULL = 0xffffffffu;

// ---- Sum of n floats: one partial sum a block ---------------------------------------------------------------------------

// Threads whose number is a multiple of 2s add: the warps diverge at every step.
__global__ void reduce_divergent(const float* in, float* out) {
  __shared__ float part[BLOCK];
  unsigned t = threadIdx.x;
  part[t] = in[blockIdx.x * BLOCK + t];
  __syncthreads();
  for (unsigned s = 1; s < BLOCK; s *= 2) {
    if (t % (2 * s) == 0) part[t] += part[t + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

// The first threads add, at a stride: whole warps, but their words lie in few banks.
__global__ void reduce_strided(const float* in, float* out) {
  __shared__ float part[BLOCK];
  unsigned t = threadIdx.x;
  part[t] = in[blockIdx.x * BLOCK + t];
  __syncthreads();
  for (unsigned s = 1; s < BLOCK; s *= 2) {
    unsigned at = 2 * s * t;
    if (at < BLOCK) part[at] += part[at + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

// Neighbouring words: no conflicts; half of the threads only load.
__global__ void reduce_sequential(const float* in, float* out) {
  __shared__ float part[BLOCK];
  unsigned t = threadIdx.x;
  part[t] = in[blockIdx.x * BLOCK + t];
  __syncthreads();
  for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
    if (t < s) part[t] += part[t + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

// Each thread adds two words while it loads.
__global__ void reduce_two_loads(const float* in, float* out) {
  __shared__ float part[BLOCK];
  unsigned t = threadIdx.x;
  unsigned i = blockIdx.x * BLOCK * 2 + t;
  part[t] = in[i] + in[i + BLOCK];
  __syncthreads();
  for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
    if (t < s) part[t] += part[t + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(FULL, value, offset);
  return value;
}

__device__ float block_sum(float value, float* part) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x < BLOCK / 32 ? part[threadIdx.x] : 0.0f;
  return threadIdx.x < 32 ? warp_sum(value) : 0.0f;
}

// Shuffles within the warp: one barrier in place of nine.
__global__ void reduce_shuffles(const float* in, float* out) {
  __shared__ float part[BLOCK / 32];
  unsigned i = blockIdx.x * BLOCK * 2 + threadIdx.x;
  float sum = block_sum(in[i] + in[i + BLOCK], part);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// A thread adds many words before it meets the others.
__global__ void reduce_many_loads(const float* in, float* out, int n) {
  __shared__ float part[BLOCK / 32];
  float sum = 0.0f;
  for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += gridDim.x * BLOCK) sum += in[i];
  sum = block_sum(sum, part);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// Four words a load, four loads in flight.
__global__ void reduce_vectorized(const float4* in, float* out, int n) {
  __shared__ float part[BLOCK / 32];
  float sum = 0.0f;
  int stride = gridDim.x * BLOCK;
#pragma unroll 4
  for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n / 4; i += stride) {
    float4 v = in[i];
    sum += (v.x + v.y) + (v.z + v.w);
  }
  sum = block_sum(sum, part);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// ---- Transpose of a square matrix --------------------------------------------------------------------------------------

constexpr int TILE = 32, ROWS = 8;

// Reads rows, writes columns: 32 sectors a store.
__global__ void transpose_naive(const float* in, float* out, int size) {
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  for (int r = 0; r < TILE; r += ROWS) out[x * size + y + r] = in[(y + r) * size + x];
}

// Through shared memory: whole sectors both ways, but a column of the tile lies in one bank.
__global__ void transpose_tile(const float* in, float* out, int size) {
  __shared__ float tile[TILE][TILE];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  for (int r = 0; r < TILE; r += ROWS) tile[threadIdx.y + r][threadIdx.x] = in[(y + r) * size + x];
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
  for (int r = 0; r < TILE; r += ROWS) out[(y + r) * size + x] = tile[threadIdx.x][threadIdx.y + r];
}

// One word of padding a row.
__global__ void transpose_padded(const float* in, float* out, int size) {
  __shared__ float tile[TILE][TILE + 1];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  for (int r = 0; r < TILE; r += ROWS) tile[threadIdx.y + r][threadIdx.x] = in[(y + r) * size + x];
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
  for (int r = 0; r < TILE; r += ROWS) out[(y + r) * size + x] = tile[threadIdx.x][threadIdx.y + r];
}

// A tile of 64 x 64, 16 words a thread, four words a load and a store: more bytes in flight.
__global__ void transpose_wide(const float4* in, float4* out, int size) {
  __shared__ float tile[64][65];
  int quad = threadIdx.x % 16, row = threadIdx.x / 16;
#pragma unroll
  for (int r = 0; r < 64; r += 16) {
    float4 v = in[((blockIdx.y * 64 + row + r) * size + blockIdx.x * 64) / 4 + quad];
    tile[row + r][4 * quad] = v.x, tile[row + r][4 * quad + 1] = v.y;
    tile[row + r][4 * quad + 2] = v.z, tile[row + r][4 * quad + 3] = v.w;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < 64; r += 16) {
    int c = row + r;
    out[((blockIdx.x * 64 + c) * size + blockIdx.y * 64) / 4 + quad] =
        make_float4(tile[4 * quad][c], tile[4 * quad + 1][c], tile[4 * quad + 2][c], tile[4 * quad + 3][c]);
  }
}

// ---- Softmax of rows ----------------------------------------------------------------------------------------------------

constexpr int COLUMNS = 4096, QUADS = COLUMNS / 4 / BLOCK;      // float4 of a row that a thread holds

// One thread a row: a warp reads 32 rows at once.
__global__ void softmax_thread_a_row(const float* in, float* out, int rows) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* x = in + size_t(row) * COLUMNS;
  float most = -INFINITY, sum = 0.0f;
  for (int c = 0; c < COLUMNS; c++) most = fmaxf(most, x[c]);
  for (int c = 0; c < COLUMNS; c++) sum += expf(x[c] - most);
  for (int c = 0; c < COLUMNS; c++) out[size_t(row) * COLUMNS + c] = expf(x[c] - most) / sum;
}

__device__ float tree(float value, float* part, bool take_most) {
  part[threadIdx.x] = value;
  __syncthreads();
  for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
    if (threadIdx.x < s) {
      float other = part[threadIdx.x + s];
      part[threadIdx.x] = take_most ? fmaxf(part[threadIdx.x], other) : part[threadIdx.x] + other;
    }
    __syncthreads();
  }
  float all = part[0];
  __syncthreads();
  return all;
}

// One block a row; three reads of it, two trees with a barrier a level.
__global__ void softmax_block_a_row(const float* in, float* out) {
  __shared__ float part[BLOCK];
  const float* x = in + size_t(blockIdx.x) * COLUMNS;
  float most = -INFINITY, sum = 0.0f;
  for (int c = threadIdx.x; c < COLUMNS; c += BLOCK) most = fmaxf(most, x[c]);
  most = tree(most, part, true);
  for (int c = threadIdx.x; c < COLUMNS; c += BLOCK) sum += expf(x[c] - most);
  sum = tree(sum, part, false);
  for (int c = threadIdx.x; c < COLUMNS; c += BLOCK) out[size_t(blockIdx.x) * COLUMNS + c] = expf(x[c] - most) / sum;
}

__device__ float warps_most(float value, float* part) {
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(FULL, value, offset));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  value = part[threadIdx.x % (BLOCK / 32)];
  for (int offset = BLOCK / 64; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(FULL, value, offset));
  return value;
}

__device__ float warps_sum(float value, float* part) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(FULL, value, offset);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  value = part[threadIdx.x % (BLOCK / 32)];
  for (int offset = BLOCK / 64; offset > 0; offset /= 2) value += __shfl_xor_sync(FULL, value, offset);
  return value;
}

// Shuffles in place of the trees; the row is still read three times, a word a load.
__global__ void softmax_shuffles(const float* in, float* out) {
  __shared__ float part[2][BLOCK / 32];
  const float* x = in + size_t(blockIdx.x) * COLUMNS;
  float most = -INFINITY, sum = 0.0f;
  for (int c = threadIdx.x; c < COLUMNS; c += BLOCK) most = fmaxf(most, x[c]);
  most = warps_most(most, part[0]);
  for (int c = threadIdx.x; c < COLUMNS; c += BLOCK) sum += expf(x[c] - most);
  sum = warps_sum(sum, part[1]);
  for (int c = threadIdx.x; c < COLUMNS; c += BLOCK) out[size_t(blockIdx.x) * COLUMNS + c] = expf(x[c] - most) / sum;
}

// The row stays in registers: read once, four words a load, one reciprocal a row.
__global__ void softmax_registers(const float4* in, float4* out) {
  __shared__ float part[2][BLOCK / 32];
  const float4* x = in + size_t(blockIdx.x) * COLUMNS / 4;
  float4 held[QUADS];
  float most = -INFINITY, sum = 0.0f;
#pragma unroll
  for (int q = 0; q < QUADS; q++) {
    held[q] = x[q * BLOCK + threadIdx.x];
    most = fmaxf(fmaxf(most, fmaxf(held[q].x, held[q].y)), fmaxf(held[q].z, held[q].w));
  }
  most = warps_most(most, part[0]);
#pragma unroll
  for (int q = 0; q < QUADS; q++) {
    held[q] = make_float4(__expf(held[q].x - most), __expf(held[q].y - most), __expf(held[q].z - most), __expf(held[q].w - most));
    sum += (held[q].x + held[q].y) + (held[q].z + held[q].w);
  }
  float scale = 1.0f / warps_sum(sum, part[1]);
#pragma unroll
  for (int q = 0; q < QUADS; q++)
    out[size_t(blockIdx.x) * COLUMNS / 4 + q * BLOCK + threadIdx.x] =
        make_float4(held[q].x * scale, held[q].y * scale, held[q].z * scale, held[q].w * scale);
}

// ---- Layer norm of rows -------------------------------------------------------------------------------------------------

constexpr float EPSILON = 1e-5f;

__global__ void layernorm_thread_a_row(const float* in, float* out, int rows) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* x = in + size_t(row) * COLUMNS;
  float mean = 0.0f, square = 0.0f;
  for (int c = 0; c < COLUMNS; c++) mean += x[c];
  mean /= COLUMNS;
  for (int c = 0; c < COLUMNS; c++) square += (x[c] - mean) * (x[c] - mean);
  float scale = rsqrtf(square / COLUMNS + EPSILON);
  for (int c = 0; c < COLUMNS; c++) out[size_t(row) * COLUMNS + c] = (x[c] - mean) * scale;
}

// One block a row, a barrier a level of two trees, and only one word of a thread in flight.
__global__ void layernorm_block_a_row(const float* in, float* out) {
  __shared__ float part[BLOCK];
  const float* x = in + size_t(blockIdx.x) * COLUMNS;
  float mean = 0.0f, square = 0.0f;
  for (int c = threadIdx.x; c < COLUMNS; c += BLOCK) mean += x[c];
  mean = tree(mean, part, false) / COLUMNS;
  for (int c = threadIdx.x; c < COLUMNS; c += BLOCK) square += (x[c] - mean) * (x[c] - mean);
  float scale = rsqrtf(tree(square, part, false) / COLUMNS + EPSILON);
  for (int c = threadIdx.x; c < COLUMNS; c += BLOCK) out[size_t(blockIdx.x) * COLUMNS + c] = (x[c] - mean) * scale;
}

// Shuffles, the row read twice more.
__global__ void layernorm_shuffles(const float* in, float* out) {
  __shared__ float part[2][BLOCK / 32];
  const float* x = in + size_t(blockIdx.x) * COLUMNS;
  float mean = 0.0f, square = 0.0f;
  for (int c = threadIdx.x; c < COLUMNS; c += BLOCK) mean += x[c];
  mean = warps_sum(mean, part[0]) / COLUMNS;
  for (int c = threadIdx.x; c < COLUMNS; c += BLOCK) square += (x[c] - mean) * (x[c] - mean);
  float scale = rsqrtf(warps_sum(square, part[1]) / COLUMNS + EPSILON);
  for (int c = threadIdx.x; c < COLUMNS; c += BLOCK) out[size_t(blockIdx.x) * COLUMNS + c] = (x[c] - mean) * scale;
}

// The row in registers, read once, four words a load.
__global__ void layernorm_registers(const float4* in, float4* out) {
  __shared__ float part[2][BLOCK / 32];
  const float4* x = in + size_t(blockIdx.x) * COLUMNS / 4;
  float4 held[QUADS];
  float mean = 0.0f, square = 0.0f;
#pragma unroll
  for (int q = 0; q < QUADS; q++) {
    held[q] = x[q * BLOCK + threadIdx.x];
    mean += (held[q].x + held[q].y) + (held[q].z + held[q].w);
  }
  mean = warps_sum(mean, part[0]) / COLUMNS;
#pragma unroll
  for (int q = 0; q < QUADS; q++) {
    held[q] = make_float4(held[q].x - mean, held[q].y - mean, held[q].z - mean, held[q].w - mean);
    square += (held[q].x * held[q].x + held[q].y * held[q].y) + (held[q].z * held[q].z + held[q].w * held[q].w);
  }
  float scale = rsqrtf(warps_sum(square, part[1]) / COLUMNS + EPSILON);
#pragma unroll
  for (int q = 0; q < QUADS; q++)
    out[size_t(blockIdx.x) * COLUMNS / 4 + q * BLOCK + threadIdx.x] =
        make_float4(held[q].x * scale, held[q].y * scale, held[q].z * scale, held[q].w * scale);
}

// ---- The steps in order ---------------------------------------------------------------------------------------------------

constexpr int N = 1 << 26, SIZE = 8192, ROW_COUNT = N / COLUMNS, PERSISTENT = 132 * 8;

struct Step { const char* ladder; const char* name; int results; void (*launch)(const float*, float*); };

const Step STEPS[] = {
  {"reduction", "reduce_divergent", N / BLOCK, [](const float* in, float* out) { reduce_divergent<<<N / BLOCK, BLOCK>>>(in, out); }},
  {"reduction", "reduce_strided", N / BLOCK, [](const float* in, float* out) { reduce_strided<<<N / BLOCK, BLOCK>>>(in, out); }},
  {"reduction", "reduce_sequential", N / BLOCK, [](const float* in, float* out) { reduce_sequential<<<N / BLOCK, BLOCK>>>(in, out); }},
  {"reduction", "reduce_two_loads", N / BLOCK / 2, [](const float* in, float* out) { reduce_two_loads<<<N / BLOCK / 2, BLOCK>>>(in, out); }},
  {"reduction", "reduce_shuffles", N / BLOCK / 2, [](const float* in, float* out) { reduce_shuffles<<<N / BLOCK / 2, BLOCK>>>(in, out); }},
  {"reduction", "reduce_many_loads", PERSISTENT, [](const float* in, float* out) { reduce_many_loads<<<PERSISTENT, BLOCK>>>(in, out, N); }},
  {"reduction", "reduce_vectorized", PERSISTENT, [](const float* in, float* out) { reduce_vectorized<<<PERSISTENT, BLOCK>>>((const float4*)in, out, N); }},
  {"transpose", "transpose_naive", N, [](const float* in, float* out) { transpose_naive<<<dim3(SIZE / TILE, SIZE / TILE), dim3(TILE, ROWS)>>>(in, out, SIZE); }},
  {"transpose", "transpose_tile", N, [](const float* in, float* out) { transpose_tile<<<dim3(SIZE / TILE, SIZE / TILE), dim3(TILE, ROWS)>>>(in, out, SIZE); }},
  {"transpose", "transpose_padded", N, [](const float* in, float* out) { transpose_padded<<<dim3(SIZE / TILE, SIZE / TILE), dim3(TILE, ROWS)>>>(in, out, SIZE); }},
  {"transpose", "transpose_wide", N, [](const float* in, float* out) { transpose_wide<<<dim3(SIZE / 64, SIZE / 64), 256>>>((const float4*)in, (float4*)out, SIZE); }},
  {"softmax", "softmax_thread_a_row", N, [](const float* in, float* out) { softmax_thread_a_row<<<ROW_COUNT / 64, 64>>>(in, out, ROW_COUNT); }},
  {"softmax", "softmax_block_a_row", N, [](const float* in, float* out) { softmax_block_a_row<<<ROW_COUNT, BLOCK>>>(in, out); }},
  {"softmax", "softmax_shuffles", N, [](const float* in, float* out) { softmax_shuffles<<<ROW_COUNT, BLOCK>>>(in, out); }},
  {"softmax", "softmax_registers", N, [](const float* in, float* out) { softmax_registers<<<ROW_COUNT, BLOCK>>>((const float4*)in, (float4*)out); }},
  {"layernorm", "layernorm_thread_a_row", N, [](const float* in, float* out) { layernorm_thread_a_row<<<ROW_COUNT / 64, 64>>>(in, out, ROW_COUNT); }},
  {"layernorm", "layernorm_block_a_row", N, [](const float* in, float* out) { layernorm_block_a_row<<<ROW_COUNT, BLOCK>>>(in, out); }},
  {"layernorm", "layernorm_shuffles", N, [](const float* in, float* out) { layernorm_shuffles<<<ROW_COUNT, BLOCK>>>(in, out); }},
  {"layernorm", "layernorm_registers", N, [](const float* in, float* out) { layernorm_registers<<<ROW_COUNT, BLOCK>>>((const float4*)in, (float4*)out); }},
};

// The greatest difference from the ladder's first step; of a reduction that of the sum of all partial sums, relative.
double difference(const Step& step, const std::vector<float>& first, const std::vector<float>& now, int first_results) {
  if (!std::strcmp(step.ladder, "reduction")) {
    double a = 0.0, b = 0.0;
    for (int i = 0; i < first_results; i++) a += first[i];
    for (int i = 0; i < step.results; i++) b += now[i];
    return std::fabs(a - b) / std::fabs(a);
  }
  double most = 0.0;
  for (int i = 0; i < step.results; i++) most = std::max(most, std::fabs(double(first[i]) - double(now[i])));
  return most;
}

int main(int argc, char** argv) {
  bool timing = argc > 1 && !std::strcmp(argv[1], "time");
  float *in, *out;
  CHECK(cudaMalloc(&in, sizeof(float) * N));
  CHECK(cudaMalloc(&out, sizeof(float) * N));
  std::vector<float> host(N);
  unsigned state = 1;
  for (float& each : host) { state = state * 1664525u + 1013904223u; each = float(state >> 8) / (1 << 24); }
  CHECK(cudaMemcpy(in, host.data(), sizeof(float) * N, cudaMemcpyHostToDevice));
  std::vector<float> first, now(N);
  int first_results = 0;
  const char* ladder = "";
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  for (const Step& step : STEPS) {
    if (!timing) {
      step.launch(in, out);
      CHECK(cudaGetLastError());
      CHECK(cudaDeviceSynchronize());
      continue;
    }
    std::vector<float> times;
    for (int run = 0; run < 18; run++) {                 // the first three warm up
      CHECK(cudaEventRecord(start));
      step.launch(in, out);
      CHECK(cudaEventRecord(stop));
      CHECK(cudaEventSynchronize(stop));
      float ms;
      CHECK(cudaEventElapsedTime(&ms, start, stop));
      if (run >= 3) times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    CHECK(cudaMemcpy(now.data(), out, sizeof(float) * step.results, cudaMemcpyDeviceToHost));
    if (std::strcmp(ladder, step.ladder)) { ladder = step.ladder; first = now; first_results = step.results; }
    std::printf("{\"ladder\": \"%s\", \"kernel\": \"%s\", \"median_us\": %.2f, \"least_us\": %.2f, \"most_us\": %.2f, \"difference\": %.3g}\n",
                step.ladder, step.name, 1000 * times[times.size() / 2], 1000 * times.front(), 1000 * times.back(),
                difference(step, first, now, first_results));
    std::fflush(stdout);
  }
  return 0;
}
