/* test: ranks=1,2,3,4,8
   Post, start, complete, wait and test: after the epoch a target sees the data of its origins, and origins see the
   data that the target wrote before. */
#include "rma_check.h"
#include <unistd.h>

static MPI_Group world;

static MPI_Group group_of(int n, const int *members)
{
    MPI_Group group;
    MPI_Group_incl(world, n, members, &group);
    return group;
}

/* A ring, many times: each rank is a target of its left neighbour and an origin of its right one. */
static void test_ring(int kind, int rounds)
{
    struct window w = make_window(kind, sizeof(int) * 2, sizeof(int));
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks, got;
    MPI_Group from = group_of(1, &left), to = group_of(1, &right);
    for (int i = 0; i < rounds; i++) {
        int value = 1000 * rank + i;
        ((int *)w.base)[1] = -value;
        OK(MPI_Win_post(from, i % 3 == 0 ? MPI_MODE_NOSTORE : 0, w.win));
        OK(MPI_Win_start(to, 0, w.win));
        OK(MPI_Put(&value, 1, MPI_INT, right, place(&w, right, 0, sizeof(int)), 1, MPI_INT, w.win));
        OK(MPI_Get(&got, 1, MPI_INT, right, place(&w, right, sizeof(int), sizeof(int)), 1, MPI_INT, w.win));
        OK(MPI_Win_complete(w.win));
        SAME(got, -(1000 * right + i));
        if (i % 2) {
            OK(MPI_Win_wait(w.win));
        } else {
            int flag = 0;
            while (!flag)
                OK(MPI_Win_test(w.win, &flag));
        }
        SAME(*(int *)w.base, 1000 * left + i);
    }
    MPI_Group_free(&from);
    MPI_Group_free(&to);
    free_window(&w);
}

/* Rank 0 is the target of all others, then all others are its targets. Groups without members have no effect. */
static void test_star(int kind)
{
    struct window w = make_window(kind, (size_t)ranks * sizeof(int), sizeof(int));
    int zero = 0, *others = allocate((size_t)ranks * sizeof(int));
    for (int i = 1; i < ranks; i++)
        others[i - 1] = i;
    MPI_Group hub = group_of(1, &zero), rest = group_of(ranks - 1, others);
    for (int i = 0; i < 20; i++) {
        int value = 100 * rank + i;
        if (rank == 0) {
            OK(MPI_Win_post(rest, 0, w.win));
            OK(MPI_Win_wait(w.win));
            for (int k = 1; k < ranks; k++)
                SAME(((int *)w.base)[k], 100 * k + i);
            OK(MPI_Win_start(rest, 0, w.win));
            for (int k = 1; k < ranks; k++)
                OK(MPI_Put(&value, 1, MPI_INT, k, place(&w, k, 0, sizeof(int)), 1, MPI_INT, w.win));
            OK(MPI_Win_complete(w.win));
        } else {
            OK(MPI_Win_start(hub, 0, w.win));
            OK(MPI_Put(&value, 1, MPI_INT, 0, place(&w, 0, (size_t)rank * sizeof(int), sizeof(int)), 1, MPI_INT, w.win));
            OK(MPI_Win_complete(w.win));
            OK(MPI_Win_post(hub, 0, w.win));
            OK(MPI_Win_wait(w.win));
            SAME(*(int *)w.base, i);
        }
    }
    OK(MPI_Win_post(MPI_GROUP_EMPTY, 0, w.win));
    OK(MPI_Win_start(MPI_GROUP_EMPTY, 0, w.win));
    OK(MPI_Win_complete(w.win));
    OK(MPI_Win_wait(w.win));
    /* MPI_MODE_NOCHECK on both sides, after the program has synchronized. */
    meet();
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks, value = 7 + rank;
    MPI_Group from = group_of(1, &left), to = group_of(1, &right);
    OK(MPI_Win_post(from, MPI_MODE_NOCHECK, w.win));
    meet();
    OK(MPI_Win_start(to, MPI_MODE_NOCHECK, w.win));
    OK(MPI_Put(&value, 1, MPI_INT, right, place(&w, right, 0, sizeof(int)), 1, MPI_INT, w.win));
    OK(MPI_Win_complete(w.win));
    OK(MPI_Win_wait(w.win));
    SAME(*(int *)w.base, 7 + left);
    meet();
    /* Unchecked epochs do not count for checked ones: a start waits for its own post. */
    for (int i = 0; i < 3; i++) {
        if (rank % 2)
            usleep(1000);
        value = 20 + 10 * i + rank;
        ((int *)w.base)[0] = -1;
        OK(MPI_Win_post(i == 1 ? world : from, 0, w.win));
        OK(MPI_Win_start(i == 1 ? world : to, 0, w.win));
        OK(MPI_Put(&value, 1, MPI_INT, right, place(&w, right, 0, sizeof(int)), 1, MPI_INT, w.win));
        OK(MPI_Win_complete(w.win));
        OK(MPI_Win_wait(w.win));
        SAME(*(int *)w.base, 20 + 10 * i + left);
    }
    MPI_Group_free(&from);
    MPI_Group_free(&to);
    MPI_Group_free(&hub);
    MPI_Group_free(&rest);
    free(others);
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int kind = 0; kind < KINDS; kind++) {
        int before = failures;
        if (!has_kind(kind))
            continue;
        test_ring(kind, are_apart() || getenv("FASTPATH_TRANSPORTS") ? 20 : 200);
        test_star(kind);
        if (failures != before)
            fprintf(stderr, "rank %d: the window was of kind %s\n", rank, kind_names[kind]);
    }
    MPI_Group_free(&world);
    return finish();
}
