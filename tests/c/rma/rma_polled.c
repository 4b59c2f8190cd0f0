/* A rank that waits for others by polling its own window, in a loop of epochs, carries out their requests (MPI 5.0,
   section 12.7.3), over any path to its memory.
   test: ranks=2,3,4 env=FASTPATH_DISABLE=cma */
#include "rma_check.h"

enum { EXCLUSIVE, SHARING, UNCHECKED, BY_LOAD, TO_ALL, BY_REQUEST, WAYS };

/* Value of the rank's first element, read in an epoch of this kind. */
static int look(const struct window *w, int way)
{
    int got = -1;
    MPI_Aint at = place(w, rank, 0, sizeof(int));
    if (way == TO_ALL)
        OK(MPI_Win_lock_all(0, w->win));
    else if (way != BY_REQUEST)
        OK(MPI_Win_lock(way == EXCLUSIVE ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, rank,
                        way == UNCHECKED ? MPI_MODE_NOCHECK : 0, w->win));
    if (way == BY_LOAD) {
        got = *(volatile int *)w->base;
    } else if (way == BY_REQUEST) {
        MPI_Request request;
        OK(MPI_Rget(&got, 1, MPI_INT, rank, at, 1, MPI_INT, w->win, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
        OK(MPI_Get(&got, 1, MPI_INT, rank, at, 1, MPI_INT, w->win));
    }
    if (way == TO_ALL)
        OK(MPI_Win_unlock_all(w->win));
    else if (way != BY_REQUEST)
        OK(MPI_Win_unlock(rank, w->win));
    return got;
}

/* Every rank adds to the first element of the next one, after it has seen the addition of the previous one. */
static void pass_on(int kind, int way)
{
    struct window w = make_window(kind, sizeof(int), sizeof(int));
    int next = (rank + 1) % ranks, one = 1;
    if (way == BY_REQUEST)
        OK(MPI_Win_lock_all(0, w.win));
    for (int turn = 0; turn < 3; turn++) {
        if (rank != 0)
            while (look(&w, way) <= turn)
                ;
        if (way != BY_REQUEST)
            OK(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, w.win));
        OK(MPI_Accumulate(&one, 1, MPI_INT, next, place(&w, next, 0, sizeof(int)), 1, MPI_INT, MPI_SUM, w.win));
        if (way != BY_REQUEST)
            OK(MPI_Win_unlock(next, w.win));
        else
            OK(MPI_Win_flush(next, w.win));
        if (rank == 0)
            while (look(&w, way) <= turn)
                ;
    }
    if (way == BY_REQUEST)
        OK(MPI_Win_unlock_all(w.win));
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++)
        for (int way = 0; has_kind(kind) && way < WAYS; way++)
            pass_on(kind, way);
    return finish();
}
