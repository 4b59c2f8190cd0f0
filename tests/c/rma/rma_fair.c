/* test: ranks=2,3,4,8
   A rank that takes its own lock repeatedly does not starve others, over any path. It continues until the others
   have had the lock, shared and exclusive, half as often as they need. Then it stops locking and waits for them. A
   rank that has released the lock and computes does not delay others either. */
#include "rma_check.h"
#include <sched.h>

static void test(int kind, int lock)
{
    enum { ROUNDS = 20 };
    struct window w = make_window(kind, 2 * sizeof(long), sizeof(long));
    long one = 1, before, had = 0;
    for (int round = 0; rank == 0 ? had < (ranks - 1) * ROUNDS / 2 : round < ROUNDS; round++) {
        OK(MPI_Win_lock(lock, 0, 0, w.win));
        if (rank == 0) {
            OK(MPI_Fetch_and_op(NULL, &had, MPI_LONG, 0, place(&w, 0, 0, sizeof(long)), MPI_NO_OP, w.win));
            OK(MPI_Win_flush(0, w.win));
        } else {
            OK(MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, place(&w, 0, 0, sizeof(long)), MPI_SUM, w.win));
        }
        OK(MPI_Win_unlock(0, w.win));
        /* Rank 0 handles requests of other ranks, which may arrive as messages, once in each of its rounds. */
        if (rank == 0)
            OK(MPI_Win_sync(w.win));
    }
    free_window(&w);
}

/* All ranks take one lock in turn, exclusive and sometimes shared. Then one rank computes, whether or not it held
 * the lock last, until the others have finished. The computing rank changes each round. */
static void test_computing(void)
{
    enum { TURNS = 50 };
    struct window w = make_window(SHARED, sizeof(long), 1);
    const char *off = getenv("FASTPATH_DISABLE");
    int by_messages = getenv("FASTPATH_TRANSPORTS") || (off && strstr(off, "direct"));
    volatile long *count;
    MPI_Aint size;
    int unit;
    OK(MPI_Win_shared_query(w.win, 0, &size, &unit, (void *)&count));
    for (int computes = 0; computes < ranks; computes++) {
        long all = (long)ranks * TURNS * (computes + 1);
        for (int turn = 0; turn < TURNS; turn++) {
            if (turn % 10 == 9) {
                OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
                OK(MPI_Win_unlock(0, w.win));
            }
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
            *count = *count + 1;
            OK(MPI_Win_unlock(0, w.win));
        }
        while (rank == computes && *count < all) {
            sched_yield();
            if (by_messages) /* without direct access the lock needs calls of its owner */
                OK(MPI_Win_sync(w.win));
        }
        meet();
        SAME(*count, all);
        meet();
    }
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    test(ALLOCATED, MPI_LOCK_SHARED);
    test(ALLOCATED, MPI_LOCK_EXCLUSIVE);
    test(FROM_HEAP, MPI_LOCK_SHARED);
    if (has_kind(SHARED)) /* the test reads the memory directly */
        test_computing();
    return finish();
}
