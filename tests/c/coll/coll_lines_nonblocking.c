/* test: ranks=3,4,5,8 timeout=120
   test: env=FASTPATH_COLL=barrier:lines,bcast:lines,allreduce:lines,allgather:lines,gather:lines,scan:lines,exscan:lines
   Nonblocking collective calls through shared lines: several at once, completed in any order, beside blocking calls and
   messages, with ranks that are late, and on a communicator that is freed meanwhile. The argument is the number of
   rounds (default 60); with it, the other communicators have one round. */
enum { CALLS = 8 };
#include "../coll_lines_check.h"

/* Call `kind` of a round, with memory `at`. */
static void start(MPI_Comm comm, int at, int kind, int seed)
{
    int n = lengths[at] = 1 + (seed * 7 + at * 3) % (kind == 1 ? LONGEST : kind == 3 ? 40 : 14);
    int root = roots[at] = (seed + at) % ranks;
    for (int i = 0; i < n; i++)
        in[at][i] = kind == 1 && me != root ? -1 : me + i + seed;
    switch (kind) {
    case 0:
        MPI_Ibarrier(comm, &requests[at]);
        break;
    case 1:
        MPI_Ibcast(in[at], n, MPI_INT, root, comm, &requests[at]);
        break;
    case 2:
        MPI_Iallreduce(in[at], out[at], n, MPI_INT, MPI_SUM, comm, &requests[at]);
        break;
    case 3:
        MPI_Iallgather(in[at], n, MPI_INT, out[at], n, MPI_INT, comm, &requests[at]);
        break;
    case 4:
        MPI_Igather(in[at], n, MPI_INT, out[at], n, MPI_INT, root, comm, &requests[at]);
        break;
    default:
        MPI_Iscan(in[at], out[at], n, MPI_INT, MPI_SUM, comm, &requests[at]);
    }
}

static void wait_in_some_order(int how)
{
    int flag, index;
    switch (how) {
    case 0:
        MPI_Waitall(CALLS, requests, MPI_STATUSES_IGNORE);
        break;
    case 1:
        for (int at = CALLS - 1; at >= 0; at--)
            MPI_Wait(&requests[at], MPI_STATUS_IGNORE);
        break;
    case 2:
        for (int at = 0; at < CALLS; at++)
            for (flag = 0; !flag;)
                MPI_Test(&requests[at], &flag, MPI_STATUS_IGNORE);
        break;
    default:
        for (int at = 0; at < CALLS; at++)
            MPI_Waitany(CALLS, requests, &index, MPI_STATUS_IGNORE);
    }
}

static void test(MPI_Comm comm, int rounds)
{
    int word = me, left = -1;
    for (int i = 0; i < 8; i++)
        MPI_Allgather(&me, 1, MPI_INT, out[0], 1, MPI_INT, comm);
    for (int seed = 0; seed < rounds; seed++) {
        for (int at = 0; at < CALLS; at++) {
            start(comm, at, (seed + at) % 6, seed);
            if (seed % 5 == 4 && at == seed % CALLS)
                MPI_Barrier(comm);
        }
        /* The calls make progress in a receive, too. */
        if (seed % 3 == 0)
            MPI_Sendrecv(&word, 1, MPI_INT, (me + 1) % ranks, 0, &left, 1, MPI_INT, (me + ranks - 1) % ranks, 0, comm,
                         MPI_STATUS_IGNORE);
        wait_in_some_order((seed + me) % 4);
        for (int at = 0; at < CALLS; at++)
            check(at, (seed + at) % 6, seed);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    make_memory();
    test(MPI_COMM_WORLD, argc > 1 ? atoi(argv[1]) : 60);
    for (int turn = 0; turn < (argc > 1 ? 1 : 3); turn++) {
        MPI_Comm dup;
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        test(dup, argc > 1 ? 1 : 4);
        for (int at = 0; at < CALLS; at++)
            start(dup, at, at % 6, turn);
        MPI_Comm_free(&dup);
        wait_in_some_order(turn);
        for (int at = 0; at < CALLS; at++)
            check(at, at % 6, turn);
    }
    return finish();
}
