/* Starts the agent of a process that CUDA loads this library into: CUDA_INJECTION64_PATH names it, cuInit calls InitializeInjection.
 *
 * A Python that runs in the process is asked to import workers.agent.auto when it next may, in its main thread: nothing here waits for
 * the GIL, which the caller of cuInit may hold. Where there is no Python, RIDGEPOINT_AGENT_LIBPYTHON may name a libpython that is then
 * started in a thread of its own. Without either the job runs as if this library were not there. Everything of Python is looked up at
 * run time, so one build fits all versions. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static const char MODULE[] = "workers.agent.auto";
static void *python = RTLD_DEFAULT;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *symbol(const char *name) { return dlsym(python, name); }

static void say(const char *what)
{
    char line[300];
    int size = snprintf(line, sizeof line, "ridgepoint-agent: not started: %s\n", what);
    if (size > 0 && write(2, line, size < (int)sizeof line ? (size_t)size : sizeof line - 1) < 0) {
        /* nobody to tell */
    }
}

/* With the GIL. An error of the import ends here. */
static int import_agent(void *unused)
{
    void *(*import)(const char *) = (void *(*)(const char *))symbol("PyImport_ImportModule");
    void (*clear)(void) = (void (*)(void))symbol("PyErr_Clear");
    (void)unused;
    if (import && clear && !import(MODULE)) {
        clear();
        say("workers.agent.auto cannot be imported (pip install ridgepoint-agent)");
    }
    return 0;
}

static void *embed(void *path)
{
    void (*initialize)(int);
    void *(*release)(void);
    python = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!python) {
        say(dlerror());
        return NULL;
    }
    initialize = (void (*)(int))symbol("Py_InitializeEx");
    release = (void *(*)(void))symbol("PyEval_SaveThread");
    if (!initialize || !release) {
        say("RIDGEPOINT_AGENT_LIBPYTHON names no libpython");
        return NULL;
    }
    initialize(0);              /* no signal handlers */
    import_agent(NULL);
    release();
    for (;;)
        pause();                /* Python's main thread lives as long as the process */
    return NULL;
}

static int is_off(void)
{
    const char *off = getenv("RIDGEPOINT_AGENT");
    return off && (!strcmp(off, "0") || !strcmp(off, "off") || !strcmp(off, "no") || !strcmp(off, "false"));
}

static void start(void)
{
    int (*running)(void) = (int (*)(void))symbol("Py_IsInitialized");
    const char *path = getenv("RIDGEPOINT_AGENT_LIBPYTHON");
    pthread_t thread;
    if (is_off())
        return;
    if (running) {
        int (*later)(int (*)(void *), void *) = (int (*)(int (*)(void *), void *))symbol("Py_AddPendingCall");
        if (running() && later && later(import_agent, NULL))
            say("Python takes no more pending calls");
        return;
    }
    if (path && *path && !pthread_create(&thread, NULL, embed, (void *)path))
        pthread_detach(thread);
}

EXPORT int InitializeInjection(void)
{
    pthread_once(&once, start);
    return 1;
}
