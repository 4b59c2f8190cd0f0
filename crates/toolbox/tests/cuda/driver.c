/* A fake CUDA driver with one GPU, for the tests of `fastpath explain probe`. GPU memory is host memory, copies are
   memcpy, and the kernel is a loop. Arguments are checked, and unreleased resources are reported at the end. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, BAD_VALUE = 1, NO_CONTEXT = 201 };
enum { DEVICE = 7, MAPPED = 2 };

static int started, retained, current, alive;
static const char *const names[] = {"CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE"};
static int context, module, kernel;

/* Returns whether the call `name` must fail: FAKE_FAIL holds its name. */
static int fails(const char *name) {
    const char *which = getenv("FAKE_FAIL");
    return which != NULL && strcmp(which, name) == 0;
}

int cuInit(unsigned flags) {
    started = flags == 0;
    return fails("cuInit") ? BAD_VALUE : OK;
}

int cuGetErrorName(int status, const char **name) {
    if (status < 0 || status > BAD_VALUE)
        return BAD_VALUE;
    *name = names[status];
    return OK;
}

int cuDeviceGetCount(int *count) {
    *count = 1;
    return started ? OK : BAD_VALUE;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = DEVICE;
    return ordinal == 0 ? OK : BAD_VALUE;
}

static int put(char *text, int length, int device, const char *what) {
    if (device != DEVICE || length <= 0)
        return BAD_VALUE;
    snprintf(text, (size_t)length, "%s", what);
    return OK;
}

int cuDeviceGetName(char *text, int length, int device) {
    return put(text, length, device, "A GPU that is none");
}

int cuDeviceGetPCIBusId(char *text, int length, int device) {
    return put(text, length, device, "0000:C1:00.0");
}

int cuDevicePrimaryCtxRetain(void **made, int device) {
    *made = &context;
    retained++;
    return device == DEVICE ? OK : BAD_VALUE;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    retained--;
    fprintf(stderr, "driver: %d contexts, %d buffers and modules left\n", retained, alive);
    return device == DEVICE ? OK : BAD_VALUE;
}

int cuCtxSetCurrent(void *of) {
    current = of == &context;
    return current ? OK : BAD_VALUE;
}

int cuCtxSynchronize(void) {
    return current ? OK : NO_CONTEXT;
}

static void *take(size_t bytes) {
    alive++;
    return aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
}

static int give(void *at) {
    alive--;
    free(at);
    return OK;
}

int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
    if (fails("cuMemAlloc"))
        return BAD_VALUE;
    *at = (uint64_t)(uintptr_t)take(bytes);
    return current ? OK : NO_CONTEXT;
}

int cuMemFree_v2(uint64_t at) { return give((void *)(uintptr_t)at); }

int cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
    *at = take(bytes);
    return flags == MAPPED ? OK : BAD_VALUE;
}

int cuMemFreeHost(void *at) { return give(at); }

int cuMemHostGetDevicePointer_v2(uint64_t *at, void *host, unsigned flags) {
    *at = (uint64_t)(uintptr_t)host;
    return flags == 0 ? OK : BAD_VALUE;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    if (stream != NULL || fails("cuMemcpyHtoD"))
        return BAD_VALUE;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return OK;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return stream == NULL ? OK : BAD_VALUE;
}

int cuModuleLoadData(void **made, const void *image) {
    if (strstr(image, ".visible .entry chase") == NULL || fails("cuModuleLoadData"))
        return BAD_VALUE;
    *made = &module;
    alive++;
    return OK;
}

int cuModuleUnload(void *of) {
    alive--;
    return of == &module ? OK : BAD_VALUE;
}

int cuModuleGetFunction(void **made, void *of, const char *name) {
    *made = &kernel;
    return of == &module && strcmp(name, "chase") == 0 ? OK : BAD_VALUE;
}

/* Each thread follows its own chain, as the kernel does. */
int cuLaunchKernel(void *of, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **arguments, void **extra) {
    if (of != &kernel || gx * gy * gz * by * bz != 1 || shared != 0 || stream != NULL || extra != NULL)
        return BAD_VALUE;
    uint64_t start = *(uint64_t *)arguments[0];
    uint32_t count = *(uint32_t *)arguments[1];
    for (unsigned lane = 0; lane < bx; lane++) {
        uint64_t at = start + lane * 8, end = at + 4194304;
        for (uint32_t left = count - (fails("chase") ? 1 : 0); left > 0; left--)
            at = *(volatile uint64_t *)(uintptr_t)at;
        *(uint64_t *)(uintptr_t)end = at;
    }
    return OK;
}
