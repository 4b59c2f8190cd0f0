/* test: ranks=1,2 variants=none
   A restarted persistent collective allocates no memory. Any number of ranks. With an argument, only calls that use
   shared lines if FASTPATH_COLL names them, on at least 3 ranks. */
#define _GNU_SOURCE
#include "../coll_check.h"
#include <dlfcn.h>

enum { STARTS = 500, FEW = STARTS / 10, ROUNDS = 20 };

/* Allocations of this process, by any caller. */
static long allocations;

void *malloc(size_t bytes)
{
    static void *(*next)(size_t);
    if (!next)
        next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    allocations++;
    return next(bytes);
}

void *realloc(void *at, size_t bytes)
{
    static void *(*next)(void *, size_t);
    if (!next)
        next = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    allocations++;
    return next(at, bytes);
}

int posix_memalign(void **at, size_t alignment, size_t bytes)
{
    static int (*next)(void **, size_t, size_t);
    if (!next)
        next = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    allocations++;
    return next(at, alignment, bytes);
}

/* Starts and completes the request many times and returns the allocations meanwhile. */
static long starts(MPI_Request *request)
{
    long before = allocations;
    for (int i = 0; i < STARTS; i++) {
        MPI_Start(request);
        MPI_Wait(request, MPI_STATUS_IGNORE);
    }
    return allocations - before;
}

/* Repeats the measurement until two rounds have hardly an allocation on any rank, then frees the request. A rank
 * that the kernel moves to another processor may allocate: on a busy machine in many rounds, but not in most. */
static void check(const char *name, MPI_Request request)
{
    int good_rounds = 0;
    long taken = 0;
    starts(&request);
    for (int round = 0; round < ROUNDS && good_rounds < 2; round++) {
        taken = starts(&request);
        int is_good = taken <= FEW;
        MPI_Allreduce(MPI_IN_PLACE, &is_good, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
        good_rounds += is_good;
    }
    if (good_rounds < 2 && failures++ < 10)
        fprintf(stderr, "rank %d of %d: %s: %ld allocations in %d starts\n", me, ranks, name, taken, STARTS);
    MPI_Request_free(&request);
}

int main(int argc, char **argv)
{
    enum { LONG = 1 << 14, SHORT = 100 };
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Info none = MPI_INFO_NULL;
    MPI_Request request;
    int *a = ints(ranks * LONG, 1), *b = ints(ranks * LONG, 2), *counts = ints(ranks, SHORT);
    /* Blocking calls make the lines. */
    for (int i = 0; argc > 1 && i < 8; i++)
        MPI_Barrier(world);
    MPI_Barrier_init(world, none, &request);
    check("barrier", request);
    if (argc > 1) {
        MPI_Bcast_init(a, 1, MPI_INT, 0, world, none, &request);
        check("bcast", request);
        MPI_Allreduce_init(a, b, SHORT, MPI_INT, MPI_SUM, world, none, &request);
        check("allreduce", request);
        MPI_Allgather_init(a, 1, MPI_INT, b, 1, MPI_INT, world, none, &request);
        check("allgather", request);
        free(a), free(b), free(counts);
        return finish();
    }
    for (int n = 1; n <= LONG; n *= 128) {
        MPI_Bcast_init(a, n, MPI_INT, 0, world, none, &request);
        check("bcast", request);
        MPI_Reduce_init(a, b, n, MPI_INT, MPI_SUM, 0, world, none, &request);
        check("reduce", request);
        MPI_Allreduce_init(a, b, n, MPI_INT, MPI_SUM, world, none, &request);
        check("allreduce", request);
        MPI_Allgather_init(a, n, MPI_INT, b, n, MPI_INT, world, none, &request);
        check("allgather", request);
        MPI_Scan_init(a, b, n, MPI_INT, MPI_SUM, world, none, &request);
        check("scan", request);
    }
    for (int n = 1; n <= SHORT; n *= SHORT) {
        MPI_Gather_init(a, n, MPI_INT, b, n, MPI_INT, 0, world, none, &request);
        check("gather", request);
        MPI_Scatter_init(a, n, MPI_INT, b, n, MPI_INT, 0, world, none, &request);
        check("scatter", request);
        MPI_Alltoall_init(a, n, MPI_INT, b, n, MPI_INT, world, none, &request);
        check("alltoall", request);
        MPI_Alltoall_init(MPI_IN_PLACE, n, MPI_INT, b, n, MPI_INT, world, none, &request);
        check("alltoall in place", request);
        MPI_Reduce_scatter_block_init(a, b, n, MPI_INT, MPI_SUM, world, none, &request);
        check("reduce_scatter_block", request);
    }
    MPI_Reduce_scatter_init(a, b, counts, MPI_INT, MPI_SUM, world, none, &request);
    check("reduce_scatter", request);
    free(a), free(b), free(counts);
    return finish();
}
