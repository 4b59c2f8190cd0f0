/* test: ranks=3,4,5,8 timeout=120
   test: env=FASTPATH_COLL=barrier:lines,bcast:lines,allreduce:lines,allgather:lines,gather:lines,scan:lines,exscan:lines
   Persistent collective calls through shared lines: started and completed in different orders on each rank, more calls
   than have lines, some freed and made again, beside blocking and nonblocking calls, with ranks that are late, and on a
   communicator that is freed before its requests. The argument is the number of rounds (default 60); with it, the other
   communicators have one round. */
enum { CALLS = 12, KINDS = 6 };
#include "../coll_lines_check.h"

/* Makes call `at` of the communicator. */
static void make(MPI_Comm comm, int at)
{
    MPI_Info none = MPI_INFO_NULL;
    int kind = at % KINDS, n = 1 + (at * 5 + (at / KINDS) * 7) % 14, root = at % ranks;
    if (kind == 1 && at >= KINDS)
        n = LONGEST;
    lengths[at] = n, roots[at] = root;
    switch (kind) {
    case 0:
        MPI_Barrier_init(comm, none, &requests[at]);
        break;
    case 1:
        MPI_Bcast_init(in[at], n, MPI_INT, root, comm, none, &requests[at]);
        break;
    case 2:
        MPI_Allreduce_init(in[at], out[at], n, MPI_INT, MPI_SUM, comm, none, &requests[at]);
        break;
    case 3:
        MPI_Allgather_init(in[at], n, MPI_INT, out[at], n, MPI_INT, comm, none, &requests[at]);
        break;
    case 4:
        MPI_Gather_init(in[at], n, MPI_INT, out[at], n, MPI_INT, root, comm, none, &requests[at]);
        break;
    default:
        MPI_Scan_init(in[at], out[at], n, MPI_INT, MPI_SUM, comm, none, &requests[at]);
    }
}

static void start(int at, int seed)
{
    for (int i = 0; i < lengths[at]; i++)
        in[at][i] = at % KINDS == 1 && me != roots[at] ? -1 : me + i + seed;
    MPI_Start(&requests[at]);
}

/* Starts all calls, in an order that differs between ranks, and completes them in another one. */
static void run(int seed)
{
    static const int steps[] = {1, 5, 7, 11};
    int step = steps[(seed + me) % 4], flag, index;
    for (int k = 0; k < CALLS; k++)
        start((k * step + me * 3 + seed) % CALLS, seed);
    switch ((seed + me) % 3) {
    case 0:
        MPI_Waitall(CALLS, requests, MPI_STATUSES_IGNORE);
        break;
    case 1:
        for (int k = 0; k < CALLS; k++)
            for (flag = 0; !flag;)
                MPI_Test(&requests[(k * step + seed) % CALLS], &flag, MPI_STATUS_IGNORE);
        break;
    default:
        for (int k = 0; k < CALLS; k++)
            MPI_Waitany(CALLS, requests, &index, MPI_STATUS_IGNORE);
    }
    for (int at = 0; at < CALLS; at++)
        check(at, at % KINDS, seed);
}

static void test(MPI_Comm comm, int rounds)
{
    MPI_Request others[2];
    int word = 0, left = -1;
    for (int i = 0; i < 8; i++)
        MPI_Allgather(&me, 1, MPI_INT, out[0], 1, MPI_INT, comm);
    for (int at = 0; at < CALLS; at++)
        make(comm, at);
    for (int seed = 0; seed < rounds; seed++) {
        int value = me, sum;
        MPI_Ibarrier(comm, &others[0]);
        MPI_Iallreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm, &others[1]);
        if (seed % 4 == 1)
            MPI_Barrier(comm);
        run(seed);
        MPI_Waitall(2, others, MPI_STATUSES_IGNORE);
        CHECK(sum == ranks * (ranks - 1) / 2);
        /* A started call makes progress in a receive, too. */
        start(0, seed);
        if (seed % 3 == 0)
            MPI_Sendrecv(&word, 1, MPI_INT, (me + 1) % ranks, 0, &left, 1, MPI_INT, (me + ranks - 1) % ranks, 0, comm,
                         MPI_STATUS_IGNORE);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        if (seed == rounds / 2) {
            MPI_Request_free(&requests[2]);
            make(comm, 2);
        }
    }
}

static void free_requests(void)
{
    for (int at = 0; at < CALLS; at++)
        MPI_Request_free(&requests[at]);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    make_memory();
    test(MPI_COMM_WORLD, argc > 1 ? atoi(argv[1]) : 60);
    free_requests();
    for (int turn = 0; turn < (argc > 1 ? 1 : 3); turn++) {
        MPI_Comm dup;
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        test(dup, argc > 1 ? 1 : 4);
        if (turn == 1)
            free_requests();
        MPI_Comm_free(&dup);
        if (turn != 1) {
            run(turn);
            free_requests();
        }
    }
    return finish();
}
