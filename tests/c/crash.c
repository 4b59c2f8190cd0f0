/* Crashes on rank 1 in the way that the first argument names; the others wait for it.
 * test: only=build */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *volatile nowhere = (void *)16;
static volatile int zero;

static void bad_operation(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)in, (void)inout, (void)len, (void)type;
    *(volatile int *)nowhere = 1;
}

static void own_handler(int signal)
{
    (void)signal;
    _exit(42);
}

static int overflow(int depth)
{
    volatile char frame[4096];
    frame[0] = (char)depth;
    if (depth < zero)
        return 0;
    return overflow(depth + 1) + frame[0];
}

static void crash(const char *how, int count)
{
    static char data[2000000];
    MPI_Request request;
    MPI_Op op;
    if (!strcmp(how, "send"))
        MPI_Send(nowhere, count, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    if (!strcmp(how, "isend")) {
        MPI_Isend(nowhere, count, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (!strcmp(how, "recv"))
        MPI_Recv(nowhere, count, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!strcmp(how, "bcast"))
        MPI_Bcast(nowhere, count, MPI_BYTE, 1, MPI_COMM_WORLD);
    if (!strcmp(how, "waitall"))
        MPI_Waitall(3, nowhere, MPI_STATUSES_IGNORE);
    if (!strcmp(how, "operation")) {
        MPI_Op_create(bad_operation, 1, &op);
        MPI_Reduce_local(data, data + 100, 1, MPI_INT, op);
    }
    if (!strcmp(how, "size"))
        MPI_Type_get_extent(MPI_INT, nowhere, nowhere);
    /* Outside of MPI, after some calls of it. */
    MPI_Sendrecv(data, 2000, MPI_BYTE, 1, 0, data + 3000, 2000, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!strcmp(how, "own"))
        *(volatile int *)nowhere = 1;
    if (!strcmp(how, "own-libc"))
        memset(nowhere, zero, (size_t)count);
    if (!strcmp(how, "own-overflow"))
        overflow(zero);
    if (!strcmp(how, "own-sent"))
        raise(SIGSEGV);
    if (!strcmp(how, "handled"))
        *(volatile int *)nowhere = 1;
}

static int count;

static void *crash_in_thread(void *how)
{
    pthread_setname_np(pthread_self(), "wor\nker");
    crash(how, count);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int rank, level = MPI_THREAD_SINGLE;
    pthread_t thread;
    count = argc > 2 ? atoi(argv[2]) : 1;
    if (!strncmp(how, "thread-", 7) || !strncmp(how, "multiple-", 9))
        level = MPI_THREAD_MULTIPLE;
    static char data[2000000];
    if (!strcmp(how, "handled"))
        signal(SIGSEGV, own_handler);
    MPI_Init_thread(&argc, &argv, level, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1 && !strncmp(how, "thread-", 7)) {
        pthread_create(&thread, NULL, crash_in_thread, (void *)(how + 7));
        MPI_Recv(data, 1, MPI_BYTE, 0, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 1)
        crash(strncmp(how, "multiple-", 9) ? how : how + 9, count);
    if (!strcmp(how, "recv"))
        MPI_Send(data, count, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(data, sizeof data, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(data, sizeof data, MPI_BYTE, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0;
}
