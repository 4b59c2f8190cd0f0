/* Ranks that wait for a late rank sleep if they share processors: processor time of each waiting rank, in a receive, a
 * wait for several requests, a barrier, an allreduce, and nonblocking and persistent barriers.
 * test: ranks=8 variants=none timeout=120 needs=0 env=FASTPATH_COLL=barrier:lines,allreduce:lines */
#include "../check.h"

#include <time.h>

enum { LATE_MS = 500, MOST_MS = LATE_MS / 50, CALLS = 6, TURNS = 5 };

static double processor_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static void wait_in(int call, MPI_Request persistent)
{
    int words[2] = {0, 0}, sum;
    MPI_Request requests[2];
    switch (call) {
    case 0:
        if (rank == 0)
            for (int to = 1; to < ranks; to++)
                OK(MPI_Send(words, 1, MPI_INT, to, 0, MPI_COMM_WORLD));
        else
            OK(MPI_Recv(words, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        break;
    case 1:
        for (int at = 0; at < 2; at++)
            OK(MPI_Irecv(&words[at], 1, MPI_INT, rank == 0 ? MPI_PROC_NULL : 0, at, MPI_COMM_WORLD, &requests[at]));
        for (int to = 1; rank == 0 && to < ranks; to++)
            for (int at = 0; at < 2; at++)
                OK(MPI_Send(words, 1, MPI_INT, to, at, MPI_COMM_WORLD));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        break;
    case 2:
        OK(MPI_Barrier(MPI_COMM_WORLD));
        break;
    case 3:
        OK(MPI_Allreduce(words, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        break;
    case 4:
        OK(MPI_Ibarrier(MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        break;
    default:
        OK(MPI_Start(&persistent));
        OK(MPI_Wait(&persistent, MPI_STATUS_IGNORE));
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Request persistent;
    for (int i = 0; i < 6; i++)
        OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &persistent));
    for (int call = 0; call < CALLS; call++) {
        double least = LATE_MS;
        wait_in(call, persistent);
        /* The least of several turns, because a busy machine wakes ranks without need. */
        for (int turn = 0; turn < TURNS && least > MOST_MS; turn++) {
            OK(MPI_Barrier(MPI_COMM_WORLD));
            double began = processor_ms();
            if (rank == 0)
                nanosleep(&(struct timespec){.tv_nsec = LATE_MS * 1000000L}, NULL);
            wait_in(call, persistent);
            double taken = processor_ms() - began, most;
            OK(MPI_Allreduce(&taken, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
            least = most < least ? most : least;
        }
        if (least > MOST_MS)
            fail(__LINE__, "call %d: a rank that waits %d ms takes %.0f ms of a processor", call, LATE_MS, least);
    }
    OK(MPI_Request_free(&persistent));
    return finish();
}
