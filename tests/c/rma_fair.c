/* test: ranks=2,3,4
   A rank that takes its own lock again and again does not keep others from it, however they reach it: it goes on until
   they have all had it, shared and alone, so many times. */
#include "rma_check.h"

static void test(int kind, int lock)
{
    enum { ROUNDS = 20 };
    struct window w = make_window(kind, 2 * sizeof(long), sizeof(long));
    long one = 1, before, had = 0;
    for (int round = 0; rank == 0 ? had < (ranks - 1) * ROUNDS : round < ROUNDS; round++) {
        OK(MPI_Win_lock(lock, 0, 0, w.win));
        if (rank == 0) {
            OK(MPI_Fetch_and_op(NULL, &had, MPI_LONG, 0, place(&w, 0, 0, sizeof(long)), MPI_NO_OP, w.win));
            OK(MPI_Win_flush(0, w.win));
        } else {
            OK(MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, place(&w, 0, 0, sizeof(long)), MPI_SUM, w.win));
        }
        OK(MPI_Win_unlock(0, w.win));
        /* The others' messages are looked at about so often; each of these rounds changes the lock. */
        if (rank == 0)
            OK(MPI_Win_sync(w.win));
    }
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    test(ALLOCATED, MPI_LOCK_SHARED);
    test(ALLOCATED, MPI_LOCK_EXCLUSIVE);
    test(FROM_HEAP, MPI_LOCK_SHARED);
    return finish();
}
