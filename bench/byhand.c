/* One MPI call compared with the same operation written by hand with MPI_Isend and MPI_Irecv, alternating in one run.
 *
 *     mpiexec -n 8 byhand neighbours     MPI_Neighbor_alltoall on a periodic grid of 2 x 2 x 2 ranks
 *     mpiexec -n 2 byhand partitions     16 partitions of 4 KiB marked by 2 threads, and 16 messages sent by them
 *
 * Rank 0 prints a line for each size: bytes of a block or partition, the median of rounds for the call and by hand, in
 * microseconds, and the median of the ratios of two consecutive rounds. A round's time is that of the slowest rank. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 21, NEIGHBOURS = 6, PARTITIONS = 16, THREADS = 2 };

static int rank;
static char *out, *into;

typedef void Body(int bytes);

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, compare);
    return values[ROUNDS / 2];
}

static double time_round(Body *body, int bytes, int calls)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        body(bytes);
    double took = (MPI_Wtime() - start) / calls * 1e6, most;
    MPI_Allreduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

static void measure(Body *call, Body *by_hand, int bytes, int calls)
{
    double called[ROUNDS], written[ROUNDS], ratios[ROUNDS];
    time_round(call, bytes, calls);
    time_round(by_hand, bytes, calls);
    for (int i = 0; i < ROUNDS; i++) {
        called[i] = time_round(call, bytes, calls);
        written[i] = time_round(by_hand, bytes, calls);
        ratios[i] = called[i] / written[i];
    }
    double a = median(called), b = median(written), ratio = median(ratios);
    if (rank == 0)
        printf("%6d B  call %8.2f  by hand %8.2f  ratio %.2f\n", bytes, a, b, ratio);
}

static MPI_Comm grid;
static int from[NEIGHBOURS], to[NEIGHBOURS];

static void exchange_call(int bytes)
{
    MPI_Neighbor_alltoall(out, bytes, MPI_BYTE, into, bytes, MPI_BYTE, grid);
}

/* A message sent in one direction arrives from the opposite one. Two ranks can be neighbours on both sides, so the tag
 * names the side at which the receiver gets the message. */
static void exchange_by_hand(int bytes)
{
    MPI_Request requests[2 * NEIGHBOURS];
    for (int i = 0; i < NEIGHBOURS; i++)
        MPI_Irecv(into + i * bytes, bytes, MPI_BYTE, from[i], i, grid, &requests[i]);
    for (int i = 0; i < NEIGHBOURS; i++)
        MPI_Isend(out + i * bytes, bytes, MPI_BYTE, to[i], i ^ 1, grid, &requests[NEIGHBOURS + i]);
    MPI_Waitall(2 * NEIGHBOURS, requests, MPI_STATUSES_IGNORE);
}

static void run_neighbours(void)
{
    MPI_Cart_create(MPI_COMM_WORLD, 3, (int[]){2, 2, 2}, (int[]){1, 1, 1}, 0, &grid);
    for (int d = 0; d < 3; d++) {
        MPI_Cart_shift(grid, d, 1, &from[2 * d], &from[2 * d + 1]);
        to[2 * d] = from[2 * d], to[2 * d + 1] = from[2 * d + 1];
    }
    for (int bytes = 8; bytes <= 64 << 10; bytes *= bytes < 512 ? 128 : 8)
        measure(exchange_call, exchange_by_hand, bytes, bytes <= 1024 ? 200 : 30);
}

static MPI_Request whole;
static pthread_barrier_t begin, end;
static int size, sends_messages, is_over;

/* Marks or sends the partitions of one thread. */
static void hand_over(int thread)
{
    MPI_Request requests[PARTITIONS];
    int count = 0;
    for (int i = thread; i < PARTITIONS; i += THREADS)
        if (sends_messages)
            MPI_Isend(out + i * size, size, MPI_BYTE, 1, i, MPI_COMM_WORLD, &requests[count++]);
        else
            MPI_Pready(i, whole);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

static void *work(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_barrier_wait(&begin);
        if (is_over)
            return NULL;
        hand_over(1);
        pthread_barrier_wait(&end);
    }
}

static void hand_all_over(int messages)
{
    sends_messages = messages;
    pthread_barrier_wait(&begin);
    hand_over(0);
    pthread_barrier_wait(&end);
}

static void answer(void)
{
    char word = 0;
    if (rank == 0)
        MPI_Recv(&word, 1, MPI_BYTE, 1, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(&word, 1, MPI_BYTE, 0, 99, MPI_COMM_WORLD);
}

static void send_partitions(int bytes)
{
    (void)bytes;
    MPI_Start(&whole);
    if (rank == 0)
        hand_all_over(0);
    MPI_Wait(&whole, MPI_STATUS_IGNORE);
    answer();
}

static void send_messages(int bytes)
{
    MPI_Request requests[PARTITIONS];
    if (rank == 0) {
        hand_all_over(1);
    } else {
        for (int i = 0; i < PARTITIONS; i++)
            MPI_Irecv(into + i * bytes, bytes, MPI_BYTE, 0, i, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(PARTITIONS, requests, MPI_STATUSES_IGNORE);
    }
    answer();
}

static void run_partitions(void)
{
    pthread_t thread;
    size = 4 << 10;
    pthread_barrier_init(&begin, NULL, THREADS);
    pthread_barrier_init(&end, NULL, THREADS);
    if (rank == 0)
        MPI_Psend_init(out, PARTITIONS, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &whole);
    else
        MPI_Precv_init(into, PARTITIONS, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &whole);
    if (rank == 0)
        pthread_create(&thread, NULL, work, NULL);
    measure(send_partitions, send_messages, size, 50);
    if (rank == 0) {
        is_over = 1;
        pthread_barrier_wait(&begin);
        pthread_join(thread, NULL);
    }
    MPI_Request_free(&whole);
}

int main(int argc, char **argv)
{
    int provided, ranks;
    int partitions = argc > 1 && strcmp(argv[1], "partitions") == 0;
    MPI_Init_thread(&argc, &argv, partitions ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != (partitions ? 2 : 8)) {
        fprintf(stderr, "byhand: %d ranks are needed\n", partitions ? 2 : 8);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    out = calloc(NEIGHBOURS + PARTITIONS, 64 << 10);
    into = calloc(NEIGHBOURS + PARTITIONS, 64 << 10);
    partitions ? run_partitions() : run_neighbours();
    MPI_Finalize();
    return 0;
}
