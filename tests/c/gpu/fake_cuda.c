/* A CUDA driver for tests. The processor cannot touch its device memory: an address of a device is a mapping without
 * access rights, so a touch is SIGSEGV. Copies of the fake use a second mapping of the same pages.
 *
 * Copies are queued, and done when their stream or an event behind them is synchronized. A caller that does not wait gets old data, and one that
 * reuses a source too early sends new data.
 *
 * FAKE_CUDA_FAIL=CALL:N:ERROR,... lets the call fail from its Nth time on with the error. Old interfaces abort.
 *
 * test: only=build link=-shared link=-fPIC link=-Wl,-soname,libcuda.so.1 */
#define _GNU_SOURCE
#include "fake_cuda.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALLOCATIONS = 1024, DEVICES = 2, DEPTH = 16, STREAMS = 64, EVENTS = 4096, QUEUE = 1 << 16, NAMES = 64 };

enum { ATTRIBUTE_CONTEXT = 1, ATTRIBUTE_TYPE, ATTRIBUTE_DEVICE_POINTER, ATTRIBUTE_ID = 7, ATTRIBUTE_MANAGED,
       ATTRIBUTE_ORDINAL, ATTRIBUTE_START = 11, ATTRIBUTE_SIZE, ATTRIBUTE_POOL = 17 };

struct allocation {
    char *at, *shadow;
    size_t bytes;
    uint64_t id;
    int device, kind;
    bool freed;
};

struct copy {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, stream_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct allocation allocations[ALLOCATIONS];
static int allocated;
static uint64_t next_id = 1;
static struct { char *at; size_t bytes; } registered[ALLOCATIONS];
static int registrations;
static struct { struct copy *queue; int queued; long all; CUcontext context; } streams[STREAMS];
static int stream_count, most_queued;
static struct { CUstream stream; long position; CUcontext context; bool exists; } events[EVENTS];
static bool is_initialized, active[DEVICES];
static int retained;
static _Thread_local CUcontext stack[DEPTH];
static _Thread_local int depth;
static struct { const char *name; long calls; } counted[NAMES];

static CUcontext context_of(int device)
{
    return 0xc0de0000 + device;
}

/* Counts a call, and returns the error with which FAKE_CUDA_FAIL lets it fail. */
static CUresult enter(const char *name)
{
    pthread_mutex_lock(&mutex);
    int n = 0;
    while (counted[n].name && strcmp(counted[n].name, name))
        n++;
    counted[n].name = name;
    long calls = ++counted[n].calls;
    pthread_mutex_unlock(&mutex);
    size_t length = strlen(name);
    for (const char *rule = getenv("FAKE_CUDA_FAIL"); rule && *rule; rule = strchr(rule, ',') ? strchr(rule, ',') + 1 : "") {
        long from;
        int error;
        if (!strncmp(rule, name, length) && sscanf(rule + length, ":%ld:%d", &from, &error) == 2 && calls >= from)
            return error;
    }
    return is_initialized || !strcmp(name, "cuInit") ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

#define ENTER                                                                                          \
    do {                                                                                               \
        CUresult failed = enter(__func__);                                                             \
        if (failed)                                                                                    \
            return failed;                                                                             \
    } while (0)

static struct allocation *find(const void *at)
{
    struct allocation *found = NULL;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < allocated; i++) {
        struct allocation *one = &allocations[i];
        if (!one->freed && (const char *)at >= one->at && (const char *)at < one->at + one->bytes)
            found = one;
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

/* Address by which the fake reads and writes; NULL outside of an allocation. */
static char *reach(const void *at, size_t bytes)
{
    struct allocation *one = find(at);
    if (!one)
        return (char *)at;
    size_t offset = (const char *)at - one->at;
    return offset + bytes <= one->bytes ? one->shadow + offset : NULL;
}

long fake_calls(const char *name)
{
    for (int n = 0; n < NAMES && counted[n].name; n++)
        if (!strcmp(counted[n].name, name))
            return counted[n].calls;
    return 0;
}

size_t fake_registered_bytes(void)
{
    size_t bytes = 0;
    for (int i = 0; i < registrations; i++)
        bytes += registered[i].bytes;
    return bytes;
}

/* Most copies that waited in one stream since the last restart. */
int fake_most_queued(int restart)
{
    int most = most_queued;
    most_queued = restart ? 0 : most;
    return most;
}

int fake_primary_contexts(void)
{
    return retained;
}

void *fake_shadow(CUdeviceptr at)
{
    struct allocation *one = find((void *)at);
    return one ? one->shadow + ((char *)at - one->at) : NULL;
}

CUresult cuInit(unsigned flags)
{
    ENTER;
    is_initialized = true;
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    *name = error == CUDA_ERROR_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : error == CUDA_ERROR_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
                                                  : NULL;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER;
    retained += !active[device];
    active[device] = true;
    *context = context_of(device);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    ENTER;
    return device < DEVICES ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *is_active)
{
    ENTER;
    *flags = 0;
    *is_active = active[device];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    ENTER;
    *context = depth ? stack[depth - 1] : 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    ENTER;
    depth = depth ? depth : 1;
    stack[depth - 1] = context;
    if (!context)
        depth--;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    ENTER;
    if (!context || depth == DEPTH)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    ENTER;
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

CUresult fake_alloc(CUdeviceptr *at, size_t bytes, int kind, int device)
{
    pthread_mutex_lock(&mutex);
    struct allocation *one = NULL;
    /* An address that was freed is reused at once, with another number. */
    for (int i = 0; i < allocated && !one; i++)
        if (allocations[i].freed && allocations[i].bytes == bytes && allocations[i].kind == kind)
            one = &allocations[i];
    if (!one) {
        one = &allocations[allocated];
        int file = memfd_create("fake device", 0);
        if (allocated == ALLOCATIONS || file < 0 || ftruncate(file, bytes) < 0)
            abort();
        allocated++;
        int access = PROT_READ | PROT_WRITE;
        one->shadow = mmap(NULL, bytes, access, MAP_SHARED, file, 0);
        one->at = kind == FAKE_MANAGED ? one->shadow : mmap(NULL, bytes, PROT_NONE, MAP_SHARED, file, 0);
        close(file);
    }
    one->bytes = bytes;
    one->id = next_id++;
    one->device = device;
    one->kind = kind;
    one->freed = false;
    *at = (CUdeviceptr)one->at;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes)
{
    ENTER;
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    return fake_alloc(at, bytes, FAKE_DEVICE, stack[depth - 1] - context_of(0));
}

CUresult cuMemFree_v2(CUdeviceptr at)
{
    ENTER;
    struct allocation *one = find((void *)at);
    if (!one || (char *)at != one->at)
        return CUDA_ERROR_INVALID_VALUE;
    memset(one->shadow, 0xee, one->bytes);
    one->freed = true;
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags)
{
    (void)flags;
    ENTER;
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (registrations == ALLOCATIONS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < registrations; i++)
        if (registered[i].at == at)
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    registered[registrations].at = at;
    registered[registrations++].bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *at)
{
    ENTER;
    for (int i = 0; i < registrations; i++)
        if (registered[i].at == at) {
            registered[i] = registered[--registrations];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttributes(unsigned count, const int *names, void **values, CUdeviceptr at)
{
    ENTER;
    struct allocation *one = find((void *)at);
    bool is_pinned = false;
    for (int i = 0; i < registrations; i++)
        is_pinned |= (char *)at >= registered[i].at && (char *)at < registered[i].at + registered[i].bytes;
    bool has_context = one && (one->kind == FAKE_DEVICE || one->kind == FAKE_MANAGED);
    for (unsigned i = 0; i < count; i++)
        switch (names[i]) {
        case ATTRIBUTE_CONTEXT:
            *(CUcontext *)values[i] = has_context ? context_of(one->device) : 0;
            break;
        case ATTRIBUTE_TYPE:
            /* Managed memory reports either type. */
            *(unsigned *)values[i] = one && !(one->kind == FAKE_MANAGED && one->id % 2) ? 2 : one || is_pinned;
            break;
        case ATTRIBUTE_ID:
            *(uint64_t *)values[i] = one ? one->id : is_pinned ? 1ull << 40 : 0;
            break;
        case ATTRIBUTE_MANAGED:
            *(unsigned *)values[i] = one && one->kind == FAKE_MANAGED;
            break;
        case ATTRIBUTE_ORDINAL:
            *(int *)values[i] = one ? one->device : -1;
            break;
        case ATTRIBUTE_START:
            *(CUdeviceptr *)values[i] = one ? (CUdeviceptr)one->at : 0;
            break;
        case ATTRIBUTE_SIZE:
            *(size_t *)values[i] = one ? one->bytes : 0;
            break;
        case ATTRIBUTE_POOL:
            *(uintptr_t *)values[i] = one && one->kind == FAKE_POOL ? 0xb001 : 0;
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    (void)flags;
    ENTER;
    if (!depth || stream_count == STREAMS)
        return CUDA_ERROR_INVALID_CONTEXT;
    streams[stream_count].context = stack[depth - 1];
    streams[stream_count].all = 0;
    streams[stream_count].queue = malloc(QUEUE * sizeof(struct copy));
    *stream = ++stream_count;
    return CUDA_SUCCESS;
}

static CUresult run(const struct copy *one)
{
    for (size_t row = 0; row < one->height; row++) {
        char *to = reach(one->to + row * one->to_pitch, one->width);
        char *from = reach(one->from + row * one->from_pitch, one->width);
        if (!to || !from)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        memcpy(to, from, one->width);
    }
    return CUDA_SUCCESS;
}

/* Does the copies of a stream up to a position, which counts the copies since the stream was made. */
static CUresult run_until(CUstream stream, long position)
{
    pthread_mutex_lock(&stream_mutex);
    CUresult result = CUDA_SUCCESS;
    int ran = 0, queued = streams[stream - 1].queued;
    while (ran < queued && streams[stream - 1].all - queued + ran < position) {
        CUresult one = run(&streams[stream - 1].queue[ran++]);
        result = result ? result : one;
    }
    streams[stream - 1].queued -= ran;
    memmove(streams[stream - 1].queue, streams[stream - 1].queue + ran, (queued - ran) * sizeof(struct copy));
    pthread_mutex_unlock(&stream_mutex);
    return result;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    ENTER;
    if (!stream || stream > (CUstream)stream_count)
        return CUDA_ERROR_INVALID_HANDLE;
    return run_until(stream, streams[stream - 1].all);
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    (void)flags;
    ENTER;
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&mutex);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < EVENTS && result; i++)
        if (!events[i].exists) {
            events[i].exists = true;
            events[i].stream = 0;
            events[i].context = stack[depth - 1];
            *event = i + 1;
            result = CUDA_SUCCESS;
        }
    pthread_mutex_unlock(&mutex);
    return result;
}

static bool is_event(CUevent event)
{
    return event && event <= EVENTS && events[event - 1].exists;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    ENTER;
    if (!is_event(event) || !stream || stream > (CUstream)stream_count
        || streams[stream - 1].context != events[event - 1].context)
        return CUDA_ERROR_INVALID_HANDLE;
    events[event - 1].stream = stream;
    events[event - 1].position = streams[stream - 1].all;
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event)
{
    ENTER;
    if (!is_event(event))
        return CUDA_ERROR_INVALID_HANDLE;
    return events[event - 1].stream ? run_until(events[event - 1].stream, events[event - 1].position) : CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    ENTER;
    if (!is_event(event))
        return CUDA_ERROR_INVALID_HANDLE;
    events[event - 1].exists = false;
    return CUDA_SUCCESS;
}

static CUresult queue(CUstream stream, struct copy one)
{
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!stream || stream > (CUstream)stream_count || streams[stream - 1].context != stack[depth - 1])
        return CUDA_ERROR_INVALID_HANDLE;
    if (streams[stream - 1].queued == QUEUE)
        cuStreamSynchronize(stream);
    pthread_mutex_lock(&stream_mutex);
    streams[stream - 1].queue[streams[stream - 1].queued++] = one;
    streams[stream - 1].all++;
    if (streams[stream - 1].queued > most_queued)
        most_queued = streams[stream - 1].queued;
    pthread_mutex_unlock(&stream_mutex);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER;
    return queue(stream, (struct copy){(char *)to, (char *)from, 0, 0, bytes, 1});
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *rows, CUstream stream)
{
    ENTER;
    enum { UNIFIED = 4, LONGEST_PITCH = 1 << 20 };
    if (rows->srcMemoryType != UNIFIED || rows->dstMemoryType != UNIFIED || rows->srcPitch < rows->WidthInBytes
        || rows->dstPitch < rows->WidthInBytes || rows->srcPitch > LONGEST_PITCH || rows->dstPitch > LONGEST_PITCH)
        return CUDA_ERROR_INVALID_VALUE;
    return queue(stream, (struct copy){(char *)rows->dstDevice, (char *)rows->srcDevice, rows->dstPitch, rows->srcPitch,
                                       rows->WidthInBytes, rows->Height});
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    ENTER;
    return run(&(struct copy){(char *)to, from, 0, 0, bytes, 1});
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    ENTER;
    return run(&(struct copy){to, (char *)from, 0, 0, bytes, 1});
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER;
    return queue(stream, (struct copy){(char *)to, (char *)from, 0, 0, bytes, 1});
}

CUresult cuDeviceGetCount(int *count)
{
    ENTER;
    *count = DEVICES;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    ENTER;
    snprintf(name, length, "fake device %d", device);
    return CUDA_SUCCESS;
}

/* Interfaces of early drivers. Their arguments have other types. */
#define OLD(name)                                                                                      \
    void name(void);                                                                                   \
    void name(void)                                                                                    \
    {                                                                                                  \
        fprintf(stderr, "fake driver: the old interface " #name " was called\n");                      \
        abort();                                                                                       \
    }
OLD(cuMemAlloc)
OLD(cuMemFree)
OLD(cuMemcpyHtoD)
OLD(cuMemcpyDtoH)
OLD(cuMemcpyDtoHAsync)
OLD(cuMemcpyHtoDAsync)
OLD(cuMemcpy2DAsync)
OLD(cuMemHostRegister)
OLD(cuCtxPushCurrent)
OLD(cuCtxPopCurrent)
OLD(cuEventDestroy)
OLD(cuDevicePrimaryCtxRelease)
