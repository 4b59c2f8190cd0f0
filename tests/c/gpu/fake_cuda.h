/* Functions of the CUDA driver that the fake driver has (cuda.h 12.9), and functions to control the fake. */
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uintptr_t CUdeviceptr;
typedef uintptr_t CUcontext;
typedef uintptr_t CUstream;
typedef uintptr_t CUevent;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_NOT_SUPPORTED = 801,
};

typedef struct {
    size_t srcXInBytes, srcY;
    unsigned srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    void *srcArray;
    size_t srcPitch, dstXInBytes, dstY;
    unsigned dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    void *dstArray;
    size_t dstPitch, WidthInBytes, Height;
} CUDA_MEMCPY2D;

/* Kinds of memory that the fake allocates. */
enum { FAKE_DEVICE, FAKE_MANAGED, FAKE_POOL, FAKE_MAPPED };

/* Functions of the fake driver; `fake` finds each in the loaded library. */
#define FAKE_FUNCTIONS(F)                                                                              \
    F(CUresult, cuInit, (unsigned flags))                                                              \
    F(CUresult, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                      \
    F(CUresult, cuCtxSetCurrent, (CUcontext context))                                                  \
    F(CUresult, cuMemAlloc_v2, (CUdeviceptr * at, size_t bytes))                                       \
    F(CUresult, cuMemFree_v2, (CUdeviceptr at))                                                        \
    F(CUresult, cuMemHostRegister_v2, (void *at, size_t bytes, unsigned flags))                        \
    F(CUresult, cuMemHostUnregister, (void *at))                                                       \
    F(CUresult, cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes))                     \
    F(CUresult, cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                           \
    F(CUresult, fake_alloc, (CUdeviceptr * at, size_t bytes, int kind, int device))                    \
    F(void *, fake_shadow, (CUdeviceptr at))                                                           \
    F(long, fake_calls, (const char *name))                                                            \
    F(size_t, fake_registered_bytes, (void))                                                           \
    F(int, fake_most_queued, (int restart))                                                            \
    F(int, fake_primary_contexts, (void))
