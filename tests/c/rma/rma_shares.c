/* test: ranks=2,3,4,8
   Every rank increments one counter of rank 0 as often as it can, under an exclusive lock and by MPI_Fetch_and_op. No
   increment is lost, and no rank starves. To measure fairness,

       mpiexec -n 8 rma_shares 5

   counts for 5 seconds, prints the turns of each rank, and fails if a rank has less than half of its share. */
#include "rma_check.h"

enum { BY_LOCK, BY_FETCH_AND_OP, WAYS };
static const char *const names[WAYS] = {"exclusive lock", "fetch_and_op"};

static void increment(const struct window *w, int way)
{
    long one = 1, value = 0;
    if (way == BY_FETCH_AND_OP) {
        OK(MPI_Fetch_and_op(&one, &value, MPI_LONG, 0, 0, MPI_SUM, w->win));
        OK(MPI_Win_flush(0, w->win));
        return;
    }
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w->win));
    OK(MPI_Get(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, w->win));
    OK(MPI_Win_flush(0, w->win));
    value++;
    OK(MPI_Put(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, w->win));
    OK(MPI_Win_unlock(0, w->win));
}

/* Prints the share of each rank, and returns the smallest. */
static double show(int way, const long *turns, long total, double seconds)
{
    double least = ranks;
    printf("%s, %d ranks: %.0f increments a second; shares", names[way], ranks, (double)total / seconds);
    for (int i = 0; i < ranks; i++) {
        double share = (double)turns[i] * ranks / (double)total;
        least = share < least ? share : least;
        printf(" %.2f", share);
    }
    printf("; least %.2f\n", least);
    return least;
}

static void test(int way, double seconds, int shows)
{
    struct window w = make_window(ALLOCATED, sizeof(long), sizeof(long));
    long turns = 0, *all = allocate((size_t)ranks * sizeof *all), total = 0;
    if (way == BY_FETCH_AND_OP)
        OK(MPI_Win_lock_all(0, w.win));
    meet();
    for (double begin = MPI_Wtime(); turns == 0 || MPI_Wtime() - begin < seconds; turns++)
        increment(&w, way);
    if (way == BY_FETCH_AND_OP)
        OK(MPI_Win_unlock_all(w.win));
    OK(MPI_Gather(&turns, 1, MPI_LONG, all, 1, MPI_LONG, 0, MPI_COMM_WORLD));
    for (int i = 0; rank == 0 && i < ranks; i++)
        total += all[i];
    OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w.win));
    if (rank == 0)
        SAME(*(long *)w.base, total);
    OK(MPI_Win_unlock(rank, w.win));
    if (rank == 0 && shows)
        CHECK(show(way, all, total, seconds) >= 0.5);
    free(all);
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int way = 0; way < WAYS; way++)
        test(way, argc > 1 ? atof(argv[1]) : 0.1, argc > 1);
    return finish();
}
