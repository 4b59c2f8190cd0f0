/* Buffers in the memory of fake devices, for programs that load the fake driver themselves: FAKE_CUDA is its path. */
#include "fake_cuda.h"
#include <dlfcn.h>

#define DECLARE(result, name, arguments) static result(*name) arguments;
FAKE_FUNCTIONS(DECLARE)

/* Loads the driver, and makes the context of a device current. */
__attribute__((unused)) static void load_driver(int device)
{
    void *library = dlopen(getenv("FAKE_CUDA"), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
#define FIND(result, name, arguments) name = (result(*) arguments)dlsym(library, #name);
    FAKE_FUNCTIONS(FIND)
    CUcontext context;
    SAME(cuInit(0), CUDA_SUCCESS);
    SAME(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    SAME(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

/* Memory of a kind, filled with a byte. */
__attribute__((unused)) static char *device_memory(size_t bytes, int kind, int device, int fill)
{
    CUdeviceptr at = 0;
    SAME(fake_alloc(&at, bytes ? bytes : 1, kind, device), CUDA_SUCCESS);
    memset(fake_shadow(at), fill, bytes ? bytes : 1);
    return (char *)at;
}

/* The bytes at an address of a device, for the test's own use. */
__attribute__((unused)) static char *at(const void *address)
{
    return fake_shadow((CUdeviceptr)address);
}
