/* One process with a connection to each other rank: first messages from either side, and then one pair that
 * communicates while the others are idle. With the argument `figures` rank 0 prints the cost of a connection, the
 * latency of a pair with and without the other connections, and the cost of a wait:
 *     mpiexec -x FASTPATH_TRANSPORTS=tcp -n 1001 build/tests/many_connections figures
 * test: ranks=2,8 variants=none timeout=120 */
#include "../check.h"

#include <time.h>
#include <unistd.h>

enum { TRIPS = 2000, WAIT_S = 5, START_S = 10 };

static double clock_s(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Resident memory of this process that is not shared, in bytes. */
static long own_bytes(void)
{
    long whole = 0, resident = 0, shared = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld %ld", &whole, &resident, &shared) != 3)
        fail(__LINE__, "/proc/self/statm cannot be read");
    if (file)
        fclose(file);
    return (resident - shared) * sysconf(_SC_PAGESIZE);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of rank 0's half round trip of 8 bytes with `peer`, in microseconds. */
static double trips(int peer)
{
    static double times[TRIPS];
    for (int i = 0; i < TRIPS; i++) {
        long word = i;
        double began = clock_s(CLOCK_MONOTONIC);
        if (rank == 0)
            OK(MPI_Send(&word, 1, MPI_LONG, peer, 1, MPI_COMM_WORLD));
        OK(MPI_Recv(&word, 1, MPI_LONG, rank == 0 ? peer : 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        if (rank != 0)
            OK(MPI_Send(&word, 1, MPI_LONG, 0, 1, MPI_COMM_WORLD));
        if (word != i)
            fail(__LINE__, "trip %d brought %ld", i, word);
        times[i] = (clock_s(CLOCK_MONOTONIC) - began) * 5e5;
    }
    qsort(times, TRIPS, sizeof *times, compare);
    return times[TRIPS / 2];
}

/* First messages between rank 0 and `peer`. Every other peer sends first. */
static void talk(int peer)
{
    long mine = rank, theirs = -1;
    if (rank == 0 && peer % 2)
        OK(MPI_Send(&mine, 1, MPI_LONG, peer, 2, MPI_COMM_WORLD));
    if (rank == 0) {
        OK(MPI_Recv(&theirs, 1, MPI_LONG, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        if (theirs != peer)
            fail(__LINE__, "rank %d says that it is %ld", peer, theirs);
    } else {
        if (peer % 2)
            OK(MPI_Recv(&theirs, 1, MPI_LONG, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Send(&mine, 1, MPI_LONG, 0, 2, MPI_COMM_WORLD));
    }
}

int main(int argc, char **argv)
{
    int figures = argc > 1 && !strcmp(argv[1], "figures");
    double alone = 0, among = 0, each = 0;
    long bytes = 0, word = 0;
    /* `start` is not called, because it exchanges messages. */
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    /* Waits until all ranks are there and asleep: a barrier would connect them. */
    if (rank == 0 && figures)
        sleep(START_S);
    if (rank == 0) {
        talk(1);
        alone = trips(1);
        long before = own_bytes();
        double began = clock_s(CLOCK_MONOTONIC);
        for (int peer = 2; peer < ranks; peer++)
            talk(peer);
        each = (clock_s(CLOCK_MONOTONIC) - began) * 1e6 / (ranks > 2 ? ranks - 2 : 1);
        bytes = (own_bytes() - before) / (ranks > 2 ? ranks - 2 : 1);
        among = trips(1);
        double used = clock_s(CLOCK_PROCESS_CPUTIME_ID), slept = clock_s(CLOCK_MONOTONIC);
        OK(MPI_Recv(&word, 1, MPI_LONG, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        used = (clock_s(CLOCK_PROCESS_CPUTIME_ID) - used) / (clock_s(CLOCK_MONOTONIC) - slept);
        if (figures)
            printf("%d connections: %.0f us and %ld bytes each; 8 bytes take %.2f us, with one %.2f us; "
                   "blocked %.3f %% of a processor\n", ranks - 1, each, bytes, among, alone, 100 * used);
        /* Ends the wait of the other ranks. */
        for (int peer = 1; peer < ranks; peer++)
            OK(MPI_Send(&word, 1, MPI_LONG, peer, 4, MPI_COMM_WORLD));
    } else {
        talk(rank);
        if (rank == 1) {
            trips(1);
            trips(1);
            if (figures)
                sleep(WAIT_S);
            OK(MPI_Send(&word, 1, MPI_LONG, 0, 3, MPI_COMM_WORLD));
        }
        OK(MPI_Recv(&word, 1, MPI_LONG, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    OK(MPI_Finalize());
    return failures != 0;
}
