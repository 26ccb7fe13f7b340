/* A stand-in of the driver's library, for tests without a GPU: the functions of NVML that the worker calls, over one imaginary GPU
 * whose state is a file of numbers that every process reads and writes (STAND_IN_NVML names it). It is no driver: what a real one
 * does with these calls it does not show. Signatures as in nvml.h of CUDA 13. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, SMALL = 7, UNKNOWN = 999 };
enum { MAX_SM = 1980, STEP = 15, LOW_SM = 345, MEMORY = 2619, LOW_MEMORY = 1593 };
static const char UUID[] = "GPU-57a0d1a0-0000-0000-0000-000000000000";

/* persistence, graphics and memory lock in MHz (0: none), refusals (1: persistence, 2: graphics, 4: memory, 8: putting back),
 * changes so far, and those of them that were made while there was no file that STAND_IN_SAVED names */
struct state { int persistence, graphics, memory, refuse, changes, unsaved; };

static int opened(struct state *now) {
    const char *path = getenv("STAND_IN_NVML");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    char text[128] = "";
    if (file < 0) return -1;
    flock(file, LOCK_EX);
    if (pread(file, text, sizeof text - 1, 0) <= 0) { close(file); return -1; }
    sscanf(text, "%d %d %d %d %d %d", &now->persistence, &now->graphics, &now->memory, &now->refuse, &now->changes,
           &now->unsaved);
    return file;
}

static int change(int refusal, int persistence, int graphics, int memory) {       /* -1: leaves it */
    struct state now;
    int file = opened(&now), back = persistence <= 0 && graphics <= 0 && memory <= 0;
    char text[128];
    if (file < 0) return UNKNOWN;
    if ((now.refuse & refusal) || (back && (now.refuse & 8))) { close(file); return NO_PERMISSION; }
    if (persistence >= 0) now.persistence = persistence;
    if (graphics >= 0) now.graphics = graphics;
    if (memory >= 0) now.memory = memory;
    const char *saved = getenv("STAND_IN_SAVED");
    now.unsaved += !saved || access(saved, R_OK) != 0;
    int length = snprintf(text, sizeof text, "%d %d %d %d %d %d\n", now.persistence, now.graphics, now.memory, now.refuse,
                          now.changes + 1, now.unsaved);
    int written = pwrite(file, text, length, 0) == length && ftruncate(file, length) == 0;
    close(file);
    return written ? SUCCESS : UNKNOWN;
}

static int read_state(struct state *now) {
    int file = opened(now);
    if (file < 0) return UNKNOWN;
    close(file);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int error) {
    return error == NO_PERMISSION ? "Insufficient Permissions" : error == NOT_SUPPORTED ? "Not Supported"
         : error == NOT_FOUND ? "Not Found" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char *text, unsigned length) { snprintf(text, length, "stand-in"); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) { *gpu = (void *)UUID; return index ? INVALID : SUCCESS; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **gpu) {
    *gpu = (void *)UUID;
    return strcmp(uuid, UUID) ? NOT_FOUND : SUCCESS;
}
int nvmlDeviceGetUUID(void *gpu, char *text, unsigned length) { snprintf(text, length, "%s", UUID); return SUCCESS; }
int nvmlDeviceGetName(void *gpu, char *text, unsigned length) { snprintf(text, length, "Imaginary GPU"); return SUCCESS; }
int nvmlDeviceGetMinorNumber(void *gpu, unsigned *minor) { *minor = 0; return SUCCESS; }
int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor) { *major = 9; *minor = 0; return SUCCESS; }
int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long *bytes) { bytes[0] = bytes[1] = 1 << 30; bytes[2] = 0; return SUCCESS; }
int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *celsius) { *celsius = 40; return SUCCESS; }
int nvmlDeviceGetPowerUsage(void *gpu, unsigned *mw) { *mw = 100000; return SUCCESS; }
int nvmlDeviceGetApplicationsClock(void *gpu, int kind, unsigned *mhz) { return NOT_SUPPORTED; }
int nvmlDeviceGetMaxClockInfo(void *gpu, int kind, unsigned *mhz) { *mhz = kind == 2 ? MEMORY : MAX_SM; return SUCCESS; }

int nvmlDeviceGetClockInfo(void *gpu, int kind, unsigned *mhz) {
    struct state now;
    if (read_state(&now)) return UNKNOWN;
    *mhz = kind == 2 ? (now.memory ? now.memory : MEMORY) : now.graphics ? now.graphics : LOW_SM;
    return SUCCESS;
}

int nvmlDeviceGetPersistenceMode(void *gpu, int *on) {
    struct state now;
    if (read_state(&now)) return UNKNOWN;
    *on = now.persistence;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *gpu, unsigned long long *bits) {
    struct state now;
    if (read_state(&now)) return UNKNOWN;
    *bits = 1 | (now.graphics ? 2 : 0);
    return SUCCESS;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, unsigned long long *bits) {
    return nvmlDeviceGetCurrentClocksEventReasons(gpu, bits);
}

int nvmlDeviceGetSupportedMemoryClocks(void *gpu, unsigned *count, unsigned *mhz) {
    int fits = *count >= 2;
    *count = 2;
    if (!fits) return SMALL;
    mhz[0] = MEMORY; mhz[1] = LOW_MEMORY;
    return SUCCESS;
}

int nvmlDeviceGetSupportedGraphicsClocks(void *gpu, unsigned memory, unsigned *count, unsigned *mhz) {
    unsigned there = (MAX_SM - LOW_SM) / STEP + 1;
    int fits = *count >= there;
    *count = there;
    if (!fits) return SMALL;
    for (unsigned at = 0; at < there; at++) mhz[at] = MAX_SM - at * STEP;
    return SUCCESS;
}

int nvmlDeviceSetPersistenceMode(void *gpu, int on) { return change(1, on, -1, -1); }
int nvmlDeviceSetGpuLockedClocks(void *gpu, unsigned low, unsigned high) { return low == high ? change(2, -1, low, -1) : INVALID; }
int nvmlDeviceResetGpuLockedClocks(void *gpu) { return change(0, -1, 0, -1); }
int nvmlDeviceSetMemoryLockedClocks(void *gpu, unsigned low, unsigned high) { return change(4, -1, -1, high); }
int nvmlDeviceResetMemoryLockedClocks(void *gpu) { return change(0, -1, -1, 0); }
