/* A stand-in for libnvidia-ml.so.1 where there is no driver: NVML's functions as nvidia-ml-py calls them, with values out of the file
 * that STANDIN_NVML names, one "GPU NAME VALUE" a line, read anew at each call. What the file does not hold is not supported. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_SUPPORTED 3
#define TIMEOUT 10
#define GPUS 2

typedef struct { unsigned id; int error; double value; const char *words[3]; } Metric;
typedef struct { unsigned version, count; void *first, *second; Metric metrics[]; } Metrics;
typedef struct { void *device; unsigned long long type, data; unsigned instance, compute; } Event;

static int look(void *device, const char *name, double *value)
{
    FILE *file = fopen(getenv("STANDIN_NVML"), "r");
    char own[64];
    int gpu, error = NOT_SUPPORTED;
    double found;
    while (file && fscanf(file, "%d %63s %lf", &gpu, own, &found) == 3)
        if (gpu + 1 == (int)(long)device && !strcmp(own, name)) {
            *value = found;
            error = 0;
        }
    if (file)
        fclose(file);
    return error;
}

static int whole(void *device, const char *name, unsigned *out)
{
    double value;
    int error = look(device, name, &value);
    if (!error)
        *out = (unsigned)value;
    return error;
}

static int wide(void *device, const char *name, unsigned long long *out)
{
    double value;
    int error = look(device, name, &value);
    if (!error)
        *out = (unsigned long long)value;
    return error;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = GPUS; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **device) { *device = (void *)(long)(at + 1); return at < GPUS ? 0 : 2; }
int nvmlDeviceGetName(void *device, char *name, unsigned size) { (void)device; snprintf(name, size, "NVIDIA H200"); return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) { snprintf(uuid, size, "GPU-%ld", (long)device - 1); return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = (void *)(long)(atoi(uuid + 4) + 1);
    return strncmp(uuid, "GPU-", 4) ? 6 : 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)       /* total, free, used */
{
    int error = wide(device, "memory", memory) | wide(device, "memory_used", memory + 2);
    memory[1] = memory[0] - memory[2];
    return error;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *busy) { return whole(device, "busy", busy) | whole(device, "busy", busy + 1); }
int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) { return whole(device, "power_mw", mw); }
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz) { return whole(device, kind == 1 ? "sm_mhz" : "memory_mhz", mhz); }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *c) { return sensor ? 2 : whole(device, "temperature", c); }
#ifdef OLD_DRIVER
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *bits) { return wide(device, "reasons", bits); }
#else
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *bits) { return wide(device, "reasons", bits); }
#endif
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *count)
{
    return counter ? 2 : wide(device, kind ? "ecc_uncorrected" : "ecc_corrected", count);
}

static unsigned told[GPUS + 1];
int nvmlEventSetCreate(void **set) { *set = malloc(1); return 0; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long kinds, void *set) { (void)set; return device && kinds == 8 ? 0 : 2; }
int nvmlEventSetWait_v2(void *set, Event *event, unsigned ms)
{
    (void)set, (void)ms;
    for (long gpu = 1; gpu <= GPUS; gpu++) {
        unsigned count;
        if (!whole((void *)gpu, "xids", &count) && told[gpu] < count) {
            told[gpu]++;
            *event = (Event){(void *)gpu, 8, 79, 0, 0};
            return 0;
        }
    }
    return TIMEOUT;
}

int nvmlGpmQueryDeviceSupport(void *device, unsigned *support)              /* version, isSupportedDevice */
{
    if (whole(device, "gpm", support + 1))
        support[1] = 0;
    return support[0] == 1 ? 0 : 25;
}
int nvmlGpmSampleAlloc(void **sample) { *sample = calloc(1, sizeof(void *)); return 0; }
int nvmlGpmSampleFree(void *sample) { free(sample); return 0; }
int nvmlGpmSampleGet(void *device, void **sample) { *sample = device; return 0; }
int nvmlGpmMetricsGet(Metrics *asked)
{
    if (asked->version != 1 || *(void **)asked->first != *(void **)asked->second || !*(void **)asked->first)
        return 2;
    for (unsigned at = 0; at < asked->count; at++) {
        char name[32];
        snprintf(name, sizeof name, "gpm_%u", asked->metrics[at].id);
        asked->metrics[at].error = look(*(void **)asked->first, name, &asked->metrics[at].value);
    }
    return 0;
}
