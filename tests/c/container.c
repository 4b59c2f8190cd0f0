/* A job that uses what a container may refuse, for tests/jobs/seccomp.py and container.py: messages of all sizes, memory of
 * the library, waits that sleep, output. In place of that, as the first argument says, it aborts, waits for
 * ever, or starts receives until there are no more requests.
 * test: only=build */
#include "check.h"
#include <poll.h>

static const int sizes[] = {0, 1, 48, 49, 1000, 8192, 20000, 65536, 300000, 2000000};

static void exchange(int bytes, int way)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    unsigned char *out = allocate((size_t)bytes + 1), *in;
    MPI_Request requests[2];
    /* Every other one is received in memory that peers can reach. */
    if (way == 0)
        in = allocate((size_t)bytes + 1);
    else
        MPI_Alloc_mem(bytes + 1, MPI_INFO_NULL, &in);
    fill(out, (size_t)bytes, (unsigned)(rank + bytes));
    if (way == 0) {
        MPI_Sendrecv(out, bytes, MPI_BYTE, to, 1, in, bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Irecv(in, bytes, MPI_BYTE, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, bytes, MPI_BYTE, to, 2, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    HOLDS(in, (size_t)bytes, (unsigned)(from + bytes));
    if (way == 0)
        free(in);
    else
        MPI_Free_mem(in);
    free(out);
}

/* Each rank in turn lets the others wait for long enough that they sleep. */
static void wake_up(void)
{
    for (int late = 0; late < ranks; late++) {
        if (rank == late)
            poll(NULL, 0, 3);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "all";
    int sum = 0;
    start(&argc, &argv);
    if (strcmp(what, "abort") == 0) {
        if (rank == ranks - 1)
            MPI_Abort(MPI_COMM_WORLD, 7);
        what = "wait";
    }
    if (strcmp(what, "requests") == 0)
        for (MPI_Request request;;)
            MPI_Irecv(&sum, 1, MPI_INT, rank, 9, MPI_COMM_WORLD, &request);
    if (strcmp(what, "wait") == 0)
        MPI_Recv(&sum, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int way = 0; way < 2; way++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
            exchange(sizes[i], way);
    wake_up();
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    SAME(sum, ranks * (ranks - 1) / 2);
    printf("rank %d is well\n", rank);
    return finish();
}
