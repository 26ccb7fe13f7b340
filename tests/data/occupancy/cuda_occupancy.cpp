// NVIDIA's own occupancy calculator (cuda_occupancy.h of CUDA 12.9) over random launches, one line each: the truth of
// tests/profiles/test_occupancy.py. The header comes with the toolkit (PyPI: nvidia-cuda-runtime-cu12==12.9.79) and is not here.
//   g++ -I nvidia/cuda_runtime/include cuda_occupancy.cpp && ./a.out | gzip -9n > cuda_occupancy_12.9.csv.gz
#include <climits>
#include <cstdio>
#include <random>
#include "cuda_occupancy.h"
struct Gpu { const char *cc; int major, minor, threads; size_t smem_sm, optin, reserved; };
// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; 11.0 is what 12.9 calls 10.1
static const Gpu gpus[] = {
  {"7.0",7,0,2048,96*1024,96*1024,0},{"7.5",7,5,1024,64*1024,64*1024,0},
  {"8.0",8,0,2048,164*1024,163*1024,1024},{"8.6",8,6,1536,100*1024,99*1024,1024},{"8.7",8,7,1536,164*1024,163*1024,1024},
  {"8.9",8,9,1536,100*1024,99*1024,1024},{"9.0",9,0,2048,228*1024,227*1024,1024},{"10.0",10,0,2048,228*1024,227*1024,1024},
  {"10.3",10,3,2048,228*1024,227*1024,1024},{"11.0",10,1,1536,228*1024,227*1024,1024},
  {"12.0",12,0,1536,100*1024,99*1024,1024},{"12.1",12,1,1536,100*1024,99*1024,1024}};
int main() {
  std::mt19937 random(20261121);
  puts("compute_capability,threads,registers,smem_bytes,barriers,blocks,by_warps,by_registers,by_smem,by_blocks,by_barriers");
  for (const Gpu &gpu : gpus) {
    cudaOccDeviceProp prop;
    prop.computeMajor=gpu.major; prop.computeMinor=gpu.minor; prop.maxThreadsPerBlock=1024;
    prop.maxThreadsPerMultiprocessor=gpu.threads; prop.regsPerBlock=65536; prop.regsPerMultiprocessor=65536; prop.warpSize=32;
    prop.sharedMemPerBlock=48*1024; prop.sharedMemPerMultiprocessor=gpu.smem_sm; prop.numSms=100;
    prop.sharedMemPerBlockOptin=gpu.optin; prop.reservedSharedMemPerBlock=gpu.reserved;
    for (int i = 0; i < 400; i++) {
      int threads = i%3==0 ? 32*(1+random()%32) : 1+random()%1024;
      int most = 65536/((threads+127)/128*128); if (most>255) most=255; int registers = i%8==7 ? random()%256 : random()%(most+1);
      size_t smem = i%4==0 ? 0 : i%4==1 ? random()%(gpu.optin+1) : i%4==2 ? random()%16384 : 256*(random()%((gpu.optin+20480)/256));
      int barriers = random()%6;
      cudaOccFuncAttributes f; f.maxThreadsPerBlock=INT_MAX; f.numRegs=registers; f.sharedSizeBytes=0;
      f.partitionedGCConfig=PARTITIONED_GC_OFF; f.shmemLimitConfig=FUNC_SHMEM_LIMIT_OPTIN; f.maxDynamicSharedSizeBytes=smem;
      f.numBlockBarriers=barriers;
      cudaOccDeviceState state; cudaOccResult r;
      if (cudaOccMaxActiveBlocksPerMultiprocessor(&r,&prop,&f,&state,threads,smem) != CUDA_OCC_SUCCESS) { fprintf(stderr,"failed %s\n",gpu.cc); return 1; }
      printf("%s,%d,%d,%zu,%d,%d,%d,%d,%d,%d,%d\n",gpu.cc,threads,registers,smem,barriers,r.activeBlocksPerMultiprocessor,
        r.blockLimitWarps,r.blockLimitRegs,r.blockLimitSharedMem,r.blockLimitBlocks,r.blockLimitBarriers);
    }
  }
}
