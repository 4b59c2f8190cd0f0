/* Ranks that wait for each other, or seem to, in the way that the first argument names.
 * test: only=build */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank, size, value;

/* More than any buffer between two ranks. */
static char large[8 << 20];

static void compute(void)
{
    for (volatile unsigned i = 0;; i++)
        ;
}

static void receive(int source, int tag)
{
    MPI_Recv(&value, 1, MPI_INT, source, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Known numbers of messages of each protocol, of which rank 1 does not ask for all; then both wait for ever. */
static void make_traffic(void)
{
    MPI_Request requests[3];
    if (rank == 0) {
        for (int i = 0; i < 100; i++)
            MPI_Send(&value, 1, MPI_INT, 1, 20, MPI_COMM_WORLD);
        for (int i = 0; i < 5; i++)
            MPI_Send(large, 1 << 10, MPI_CHAR, 1, 21, MPI_COMM_WORLD);
        for (int i = 0; i < 2; i++)
            MPI_Isend(large, 1 << 20, MPI_CHAR, 1, 22, MPI_COMM_WORLD, &requests[i]);
        receive(1, 23);
    }
    for (int i = 0; i < 100; i++)
        receive(0, 20);
    MPI_Recv(large, 1 << 10, MPI_CHAR, 0, 21, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 3; i++)
        MPI_Irecv(large + i, 1, MPI_CHAR, 0, 30 + i, MPI_COMM_WORLD, &requests[i]);
    receive(0, 24);
}

static void *compute_in_thread(void *nothing)
{
    compute();
    return nothing;
}

/* Sleeps outside of MPI first, then sends what rank 0 waits for. */
static void *send_in_thread(void *seconds)
{
    sleep(atoi(seconds));
    MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    return NULL;
}

/* Waits for a message with this tag, from the rank whose number is the thread's share. */
static int sources[6];
static void *receive_in_thread(void *number)
{
    int own;
    if (number == &sources[0])
        pthread_setname_np(pthread_self(), "halo");
    MPI_Recv(&own, 1, MPI_INT, *(int *)number, 20 + (int)((int *)number - sources), MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return NULL;
}

static void receive_in_threads(int count)
{
    pthread_t thread;
    for (int i = 0; i < count; i++)
        pthread_create(&thread, NULL, receive_in_thread, &sources[i]);
}

static void exchange(void)
{
    for (;;) {
        int other = rank ^ 1;
        if (other < size)
            MPI_Sendrecv(&rank, 1, MPI_INT, other, 0, &value, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void wait_any(void)
{
    MPI_Request requests[2];
    int index;
    for (int i = 0; i < 2; i++)
        MPI_Irecv(&value, 1, MPI_INT, 1 + i, 4, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
}

/* Begins what the last word of `how` names, with rank 0 as the peer of partitions. */
static void begin(const char *how, MPI_Request *request)
{
    static char parts[2];
    if (strstr(how, "iallreduce"))
        MPI_Iallreduce(&rank, &value, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, request);
    else if (strstr(how, "ibarrier"))
        MPI_Ibarrier(MPI_COMM_WORLD, request);
    else if (strstr(how, "barrier-init"))
        MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, request);
    else if (rank == 0)
        MPI_Psend_init(parts, 2, 1, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, request);
    else
        MPI_Precv_init(parts, 2, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, request);
    if (strstr(how, "init"))
        MPI_Start(request);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int level = strncmp(how, "multiple", 8) == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, level, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("ready\n");
    fflush(stdout);
    if (strcmp(how, "ring") == 0) {
        receive((rank + 1) % size, 10 + rank);
    } else if (strcmp(how, "pair") == 0) {
        /* Ranks 0 and 1 wait for each other, the others work. */
        if (rank > 1)
            exchange();
        receive(1 - rank, 10 + rank);
    } else if (strcmp(how, "send") == 0) {
        MPI_Send(large, sizeof large, MPI_CHAR, (rank + 1) % size, 5, MPI_COMM_WORLD);
    } else if (strcmp(how, "reversed") == 0) {
        /* The communicator's ranks are not those of the job. */
        MPI_Comm comm;
        MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
        MPI_Recv(&value, 1, MPI_INT, rank == 0 ? 1 : 2, 6, comm, MPI_STATUS_IGNORE);
    } else if (strcmp(how, "self") == 0) {
        receive(rank, 7);
    } else if (strcmp(how, "any") == 0 || strcmp(how, "multiple-any") == 0) {
        receive(MPI_ANY_SOURCE, 8);
    } else if (strcmp(how, "waitany") == 0) {
        if (rank == 0)
            wait_any();
        receive(0, 4);
    } else if (strcmp(how, "probe") == 0) {
        MPI_Probe((rank + 1) % size, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (strcmp(how, "barrier-work") == 0) {
        if (rank == size - 1)
            compute();
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(how, "barrier-wait") == 0) {
        if (rank == size - 1)
            receive(0, 11);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (strcmp(how, "wait-ibarrier") == 0 || strcmp(how, "waitany-ibarrier") == 0) {
        MPI_Request request;
        int index;
        if (rank == size - 1)
            receive(0, 11);
        begin(how, &request);
        if (strcmp(how, "wait-ibarrier") == 0)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        else
            MPI_Waitany(1, &request, &index, MPI_STATUS_IGNORE);
    } else if (strcmp(how, "beside-ibarrier") == 0) {
        /* Rank 0 waits for a message of rank 2, but its barrier sends what rank 2 waits for when rank 3 has come. */
        MPI_Request request;
        if (rank == 3)
            compute();
        begin(how, &request);
        if (rank == 0)
            receive(2, 13);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (strcmp(how, "given-up") == 0) {
        /* Rank 1 is in MPI_Finalize until rank 0 receives what it has sent. */
        static char data[1 << 22];
        MPI_Request request;
        if (rank == 0)
            compute();
        MPI_Isend(data, sizeof data, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
    } else if (strncmp(how, "work-", 5) == 0) {
        MPI_Request request;
        if (rank == 0 && strstr(how, "parts")) {
            begin(how, &request);
            MPI_Pready(0, request);
        }
        if (rank == 0)
            compute();
        begin(how, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (strcmp(how, "finalized") == 0 || strcmp(how, "multiple-finalized") == 0) {
        if (rank != 0) {
            MPI_Finalize();
            pause();
        }
        receive(level == MPI_THREAD_MULTIPLE ? MPI_ANY_SOURCE : 1, 12);
    } else if (strcmp(how, "traffic") == 0) {
        make_traffic();
    } else if (strcmp(how, "work") == 0) {
        compute();
    } else if (strcmp(how, "exchange") == 0) {
        exchange();
    } else if (strcmp(how, "await-work") == 0) {
        if (rank == 1)
            compute();
        receive(1, 13);
    } else if (strcmp(how, "await-sleep") == 0) {
        if (rank == 1)
            pause();
        receive(1, 13);
    } else if (strcmp(how, "thread-works") == 0 || strcmp(how, "multiple-thread-works") == 0) {
        if (rank == 1)
            pthread_create(&thread, NULL, compute_in_thread, NULL);
        receive(1 - rank, 14);
    } else if (strcmp(how, "multiple-threads") == 0 || strcmp(how, "multiple-crowd") == 0) {
        /* All threads of each rank wait for the other rank. */
        for (int i = 0; i < 6; i++)
            sources[i] = 1 - rank;
        receive_in_threads(strcmp(how, "multiple-crowd") == 0 ? 6 : 1);
        receive(1 - rank, 15);
    } else if (strcmp(how, "multiple-threads-work") == 0) {
        /* One thread of rank 0 waits for rank 2, which works. */
        if (rank == 2)
            compute();
        sources[0] = rank == 0 ? 2 : 0;
        receive_in_threads(1);
        receive(1 - rank, 15);
    } else if (strcmp(how, "multiple-thread-sends") == 0) {
        /* Rank 0 goes on once the other thread of rank 1 has slept, and then answers. */
        if (rank == 1)
            pthread_create(&thread, NULL, send_in_thread, argv[2]);
        receive(1 - rank, rank == 0 ? 1 : 0);
        if (rank == 0)
            MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    } else {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Finalize();
    return 0;
}
