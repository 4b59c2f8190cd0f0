/* test: ranks=1,2,3,4,5,8
   Many short collectives in a row, with late ranks, on two communicators in turn. Any number of ranks. */
#include "../coll_check.h"

/* Delays the rank by a time that depends on rank and round, so that the last rank to arrive changes. */
static unsigned dawdle(int round)
{
    volatile unsigned x = round;
    for (int i = 0; i < (round * 7919 + me * 104729) % 5000; i++)
        x = x * 1664525 + 1013904223;
    return x;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm both[2] = {MPI_COMM_WORLD};
    MPI_Comm_dup(MPI_COMM_WORLD, &both[1]);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int *all = ints(ranks, 0);
    for (int round = 0; round < 2000; round++) {
        MPI_Comm comm = both[round % 2];
        int root = round % ranks, value = me == root ? round : -1, mine = me * round, sum = -1, max = -1, before = -1;
        dawdle(round);
        MPI_Bcast(&value, 1, MPI_INT, root, comm);
        CHECK(value == round);
        MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, root, comm);
        CHECK(sum == (me == root ? round * (ranks * (ranks - 1) / 2) : -1));
        dawdle(round + 1);
        MPI_Allreduce(&mine, &max, 1, MPI_INT, MPI_MAX, both[(round + 1) % 2]);
        CHECK(max == round * (ranks - 1));
        MPI_Allgather(&mine, 1, MPI_INT, all, 1, MPI_INT, comm);
        for (int r = 0; r < ranks; r++)
            CHECK(all[r] == r * round);
        MPI_Scan(&mine, &before, 1, MPI_INT, MPI_SUM, comm);
        CHECK(before == round * (me * (me + 1) / 2));
        if (round % 8 == 0)
            MPI_Barrier(comm);
        MPI_Gather(&mine, 1, MPI_INT, all, 1, MPI_INT, root, comm);
        CHECK(me != root || all[ranks - 1] == round * (ranks - 1));
        /* A point-to-point message from the neighbour must not interfere with the collectives. */
        int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks, got = -1;
        MPI_Sendrecv(&round, 1, MPI_INT, right, 0, &got, 1, MPI_INT, left, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE);
        CHECK(got == round);
    }
    MPI_Comm_free(&both[1]);
    free(all);
    return finish();
}
