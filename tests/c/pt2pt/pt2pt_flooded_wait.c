/* A rank with the maximum of unexpected messages that waits or probes sleeps only while its ring is empty. While it
 * waits for another rank, its unexpected messages grow only a little.
 * test: ranks=2,3 timeout=120 env=FASTPATH_UNEXPECTED_MAX=64K stderr=any */
#include "../check.h"

#include <time.h>

enum { FLOOD = 600, ROUNDS = 1500, AFTER = 20000 };

static void spin(long ns)
{
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < ns);
}

/* Answers are delayed by 0 to 120 us, around the time at which a rank falls asleep. */
static void probe_beyond_the_bound(void)
{
    unsigned seed = 12345;
    int value = 0;
    if (rank == 0)
        for (int i = 0; i < FLOOD; i++)
            OK(MPI_Send(&i, 1, MPI_INT, 1, 7, MPI_COMM_WORLD));
    for (int i = 0; i < ROUNDS && rank < 2; i++) {
        if (rank == 0) {
            OK(MPI_Recv(&value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            seed = seed * 1103515245 + 12345;
            spin((seed >> 8) % 120000);
            OK(MPI_Send(&i, 1, MPI_INT, 1, 8, MPI_COMM_WORLD));
        } else {
            OK(MPI_Send(&i, 1, MPI_INT, 0, 9, MPI_COMM_WORLD));
            OK(MPI_Probe(0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Recv(&value, 1, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            SAME(value, i);
        }
    }
    if (rank == 1)
        for (int i = 0; i < FLOOD; i++) {
            OK(MPI_Recv(&value, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            SAME(value, i);
        }
}

static long resident(void)
{
    long pages = 0, whole;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &whole, &pages) != 2)
        pages = 0;
    if (file)
        fclose(file);
    return pages * 4;
}

/* Rank 1 waits for rank 2, which waits until rank 0 has been blocked for a while. */
static void wait_for_a_third(int how)
{
    static int row[AFTER];
    MPI_Request sends[AFTER], request;
    int value = 0;
    if (rank == 0) {
        for (int i = 0; i < AFTER; i++) {
            row[i] = i;
            OK(MPI_Isend(&row[i], 1, MPI_INT, 1, 5, MPI_COMM_WORLD, &sends[i]));
        }
        OK(MPI_Waitall(AFTER, sends, MPI_STATUSES_IGNORE));
    } else if (rank == 1) {
        long before = resident();
        if (how == 0)
            OK(MPI_Probe(2, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        if (how == 1) {
            OK(MPI_Irecv(&value, 1, MPI_INT, 2, 6, MPI_COMM_WORLD, &request));
            OK(MPI_Waitall(1, &request, MPI_STATUSES_IGNORE));
        } else {
            OK(MPI_Recv(&value, 1, MPI_INT, 2, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        /* All messages together would take 2.5 MB. */
        CHECK(resident() - before < 1500);
        for (int i = 0; i < AFTER; i++) {
            OK(MPI_Recv(&value, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            SAME(value, i);
        }
    } else {
        spin(200000000);
        OK(MPI_Send(&value, 1, MPI_INT, 1, 6, MPI_COMM_WORLD));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    probe_beyond_the_bound();
    for (int how = 0; ranks == 3 && how < 3; how++)
        wait_for_a_third(how);
    return finish();
}
