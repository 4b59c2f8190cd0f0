/* Messages between devices with the driver of the machine: contents, half a round trip and bandwidth, beside a copy of the
 * same bytes by the driver. Two ranks; `scripts/gpu` runs it. Each rank uses the device of its number, modulo the devices.
 *
 * test: only=build link=-ldl */
#include "../check.h"
#include <dlfcn.h>
#include <stdint.h>

#define DRIVER(F)                                             \
    F(cuInit, (unsigned))                                     \
    F(cuDeviceGetCount, (int *))                              \
    F(cuDeviceGetName, (char *, int, int))                    \
    F(cuDevicePrimaryCtxRetain, (uintptr_t *, int))           \
    F(cuCtxSetCurrent, (uintptr_t))                           \
    F(cuMemAlloc_v2, (uintptr_t *, size_t))                   \
    F(cuMemcpyHtoD_v2, (uintptr_t, const void *, size_t))     \
    F(cuMemcpyDtoH_v2, (void *, uintptr_t, size_t))           \
    F(cuMemcpyDtoDAsync_v2, (uintptr_t, uintptr_t, size_t, uintptr_t)) \
    F(cuStreamCreate, (uintptr_t *, unsigned))                \
    F(cuStreamSynchronize, (uintptr_t))
#define DECLARE(name, arguments) static int(*name) arguments;
DRIVER(DECLARE)

/* Ends the job if a call of the driver fails. */
#define DRIVE(call)                                                     \
    do {                                                                \
        int code_ = (call);                                             \
        if (code_) {                                                    \
            fprintf(stderr, "%s returns error %d\n", #call, code_);     \
            MPI_Abort(MPI_COMM_WORLD, 2);                               \
        }                                                               \
    } while (0)

enum { LONGEST = 64 << 20, IN_FLIGHT = 8 };

static double exchange(void *buffer, int bytes, int rounds)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < rounds; i++)
        if (rank == 0) {
            MPI_Send(buffer, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(buffer, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buffer, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        }
    return (MPI_Wtime() - begin) / rounds / 2;
}

static double stream_of(char *buffer, int bytes, int rounds)
{
    MPI_Request requests[IN_FLIGHT];
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < rounds; i++) {
        for (int j = 0; j < IN_FLIGHT; j++)
            if (rank == 0)
                MPI_Isend(buffer, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &requests[j]);
            else
                MPI_Irecv(buffer, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &requests[j]);
        MPI_Waitall(IN_FLIGHT, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return bytes * (double)rounds * IN_FLIGHT / (MPI_Wtime() - begin);
}

static double copy(uintptr_t to, uintptr_t from, int bytes, int rounds, uintptr_t stream)
{
    double begin = MPI_Wtime();
    for (int i = 0; i < rounds; i++) {
        DRIVE(cuMemcpyDtoDAsync_v2(to, from, bytes, stream));
        DRIVE(cuStreamSynchronize(stream));
    }
    return (MPI_Wtime() - begin) / rounds;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || ranks != 2) {
        fprintf(stderr, "two ranks and libcuda.so.1 are needed: %s\n", library ? "wrong number of ranks" : dlerror());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
#define FIND(name, arguments) name = (int(*) arguments)dlsym(library, #name);
    DRIVER(FIND)
    int devices;
    char name[100] = "";
    uintptr_t context, one, two, stream;
    DRIVE(cuInit(0));
    DRIVE(cuDeviceGetCount(&devices));
    DRIVE(cuDeviceGetName(name, sizeof name, rank % devices));
    DRIVE(cuDevicePrimaryCtxRetain(&context, rank % devices));
    DRIVE(cuCtxSetCurrent(context));
    DRIVE(cuMemAlloc_v2(&one, LONGEST));
    DRIVE(cuMemAlloc_v2(&two, LONGEST));
    DRIVE(cuStreamCreate(&stream, 1));
    unsigned char *host = malloc(LONGEST), *expected = malloc(LONGEST);
    for (int i = 0; i < LONGEST; i++)
        expected[i] = (unsigned char)(i * 7 + (i >> 10));
    if (!rank) {
        printf("%s, %d device%s; half a round trip in us, bandwidth in MB/s (10^6 bytes), copy: by the driver on one device\n",
               name, devices, devices == 1 ? "" : "s");
        printf("%10s %12s %12s %12s %12s %12s\n", "bytes", "device us", "host us", "copy us", "device MB/s", "copy MB/s");
    }
    for (int bytes = 8; bytes <= LONGEST; bytes *= bytes < 4096 ? 8 : 4) {
        int rounds = bytes < 65536 ? 200 : bytes < 4 << 20 ? 50 : 10;
        memset(host, 0, bytes);
        DRIVE(cuMemcpyHtoD_v2(one, rank ? host : expected, bytes));
        if (rank) {
            OK(MPI_Recv((void *)one, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            DRIVE(cuMemcpyDtoH_v2(host, one, bytes));
            CHECK(!memcmp(host, expected, bytes));
        } else
            OK(MPI_Send((void *)one, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD));
        exchange((void *)one, bytes, rounds / 10 + 1);
        double device = exchange((void *)one, bytes, rounds), plain = exchange(host, bytes, rounds);
        double rate = stream_of((void *)one, bytes, rounds / 5 + 1), copied = copy(two, one, bytes, rounds, stream);
        if (!rank)
            printf("%10d %12.2f %12.2f %12.2f %12.0f %12.0f\n", bytes, 1e6 * device, 1e6 * plain, 1e6 * copied, rate / 1e6,
                   bytes / copied / 1e6);
    }
    MPI_Finalize();
    return failures > 0;
}
