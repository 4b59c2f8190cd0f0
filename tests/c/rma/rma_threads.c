/* test: ranks=1,2,3,4
   Threads of every rank use one window concurrently at MPI_THREAD_MULTIPLE: atomics lose no update, puts and gets of
   different threads do not interfere, flushes of one thread complete its own operations. */
#include "rma_check.h"
#include <pthread.h>

enum { THREADS = 3 };
static struct window w;
static int rounds;

struct work {
    pthread_t thread;
    int number;
};

static void *run(void *of)
{
    struct work *own = of;
    int slot = rank * THREADS + own->number;
    long one = 1, before, last = -1;
    for (int i = 0; i < rounds; i++) {
        int to = (rank + i + own->number) % ranks;
        OK(MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, place(&w, 0, 0, sizeof(long)), MPI_SUM, w.win));
        OK(MPI_Win_flush(0, w.win));
        CHECK(before > last);
        last = before;
        OK(MPI_Accumulate(&one, 1, MPI_LONG, to, place(&w, to, sizeof(long), sizeof(long)), 1, MPI_LONG, MPI_SUM, w.win));
        /* Each thread has its own element at every rank. */
        long value[2] = {1000 * i + slot, i}, got[2] = {-1, -1};
        MPI_Aint at = place(&w, to, (size_t)(2 + 2 * slot) * sizeof(long), sizeof(long));
        OK(MPI_Put(value, 2, MPI_LONG, to, at, 2, MPI_LONG, w.win));
        OK(MPI_Win_flush(to, w.win));
        MPI_Request request;
        OK(MPI_Rget(got, 2, MPI_LONG, to, at, 2, MPI_LONG, w.win, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(got[0] == value[0] && got[1] == value[1]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &meeting);
    SAME(level, MPI_THREAD_MULTIPLE);
    rounds = are_apart() || getenv("FASTPATH_TRANSPORTS") ? 10 : 200;
    for (int kind = 0; kind < KINDS; kind++) {
        if (!has_kind(kind))
            continue;
        w = make_window(kind, (size_t)(2 + 2 * ranks * THREADS) * sizeof(long), sizeof(long));
        OK(MPI_Win_lock_all(0, w.win));
        struct work works[THREADS];
        for (int i = 0; i < THREADS; i++) {
            works[i].number = i;
            pthread_create(&works[i].thread, NULL, run, &works[i]);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(works[i].thread, NULL);
        OK(MPI_Win_flush_all(w.win));
        OK(MPI_Win_unlock_all(w.win));
        meet();
        long total, sum = 0;
        OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w.win));
        total = ((long *)w.base)[0];
        sum = ((long *)w.base)[1];
        OK(MPI_Win_unlock(rank, w.win));
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0)
            SAME(total, (long)ranks * THREADS * rounds);
        SAME(sum, (long)ranks * THREADS * rounds);
        free_window(&w);
    }
    return finish();
}
