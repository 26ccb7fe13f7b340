// Stands in for libcupti's subscriber and activity calls: `launch` calls back as the runtime's launch does, with the driver's within it.
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRIVER = 1, RUNTIME = 2, ENTER = 0, EXIT = 1, INVALID = 1, MOST = 512 };
typedef void (*callback)(void *, int, uint32_t, int *);

static atomic_uintptr_t called;                 // of the subscriber, 0: none
static atomic_int enabled[3][MOST];
static atomic_int finalized, unsubscribed, finalized_domain, flushed, callbacks;
static _Thread_local int now_domain;
static const char *NAMES[3][MOST] = {
    [DRIVER] = {[2] = "cuDriverGetVersion", [5] = "cuMemAlloc_v2", [307] = "cuLaunchKernel", [480] = "cuLaunchCooperativeKernelMultiDevice"},
    [RUNTIME] = {[20] = "cudaMalloc_v3020", [211] = "cudaLaunchKernel_v7000"}};

int cuptiGetVersion(uint32_t *version) { *version = 130001; return 0; }
int cuptiSubscribe(void **subscriber, callback own, void *data) {
    atomic_store(&called, (uintptr_t)own);
    *subscriber = &called;
    return 0;
}
int cuptiUnsubscribe(void *subscriber) {
    atomic_store(&called, 0);
    for (int domain = 0; domain < 3; domain++)
        for (int at = 0; at < MOST; at++) enabled[domain][at] = 0;
    unsubscribed++;
    return 0;
}
int cuptiEnableCallback(uint32_t on, void *subscriber, int domain, uint32_t number) { enabled[domain][number] = on; return 0; }
int cuptiGetCallbackName(int domain, uint32_t number, const char **name) {
    if (number >= MOST || !NAMES[domain][number]) return INVALID;
    *name = NAMES[domain][number];
    return 0;
}
static void (*give)(void **, size_t *, size_t *);
int cuptiActivityRegisterCallbacks(void *own_give, void *take) { give = own_give; return 0; }
int cuptiActivityEnable(int kind) {             // asks for a buffer, writes into it and never gives it back
    void *buffer; size_t bytes, most;
    give(&buffer, &bytes, &most);
    memset(buffer, 1, bytes);
    return 0;
}
int cuptiActivityDisable(int kind) { return 0; }
int cuptiActivityFlushAll(uint32_t flag) { flushed++; return 0; }
int cuptiFinalize(void) {
    finalized++;
    finalized_domain = now_domain;
    return 0;
}

static void tell(int domain, uint32_t number, int site) {
    callback own = (callback)atomic_load(&called);
    if (!own || !enabled[domain][number]) return;
    callbacks++;
    now_domain = domain;
    own(NULL, domain, number, &site);
}

// ---- what the test calls

void in_driver(uint32_t number) { tell(DRIVER, number, ENTER); tell(DRIVER, number, EXIT); }
void launch(void) { tell(RUNTIME, 211, ENTER); in_driver(307); tell(RUNTIME, 211, EXIT); }
void allocate(void) { tell(RUNTIME, 20, ENTER); in_driver(5); tell(RUNTIME, 20, EXIT); }
int count_finalized(void) { return finalized; }
int count_callbacks(void) { return callbacks; }
int where_finalized(void) { return finalized_domain; }
