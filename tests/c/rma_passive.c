/* test: ranks=2,3,4,8
   A target that computes and calls nothing of MPI delays no lock, put, get or atomic on memory that the ranks share: it
   waits in a loop for what the others write, and they end only when they have done all their operations. */
#include "rma_check.h"

static void test(int kind, int rounds)
{
    struct window w = make_window(kind, 4 * sizeof(long), sizeof(long));
    long one = 1, value;
    if (rank == 0) {
        /* The kernel's scheduler lets the others run, not a call of MPI. */
        while (__atomic_load_n((long *)w.base, __ATOMIC_ACQUIRE) != ranks - 1)
            ;
        SAME(((long *)w.base)[1], (long)(ranks - 1) * rounds);
        SAME(((long *)w.base)[2], (long)(ranks - 1) * rounds);
    } else {
        for (int i = 0; i < rounds; i++) {
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
            OK(MPI_Get(&value, 1, MPI_LONG, 0, 1, 1, MPI_LONG, w.win));
            OK(MPI_Win_flush(0, w.win));
            value++;
            OK(MPI_Put(&value, 1, MPI_LONG, 0, 1, 1, MPI_LONG, w.win));
            OK(MPI_Win_unlock(0, w.win));
            OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
            OK(MPI_Accumulate(&one, 1, MPI_LONG, 0, 2, 1, MPI_LONG, MPI_SUM, w.win));
            OK(MPI_Win_unlock(0, w.win));
        }
        OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
        OK(MPI_Fetch_and_op(&one, &value, MPI_LONG, 0, 0, MPI_SUM, w.win));
        OK(MPI_Win_unlock(0, w.win));
    }
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const char *off = getenv("FASTPATH_DISABLE");
    /* Where memory is not shared, the target has to take part. */
    if (are_apart() || getenv("FASTPATH_TRANSPORTS") || (off && strstr(off, "direct")))
        return finish();
    test(ALLOCATED, 300);
    test(SHARED, 300);
    test(FROM_ALLOC_MEM, 300);
    return finish();
}
