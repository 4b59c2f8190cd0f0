/* Counters of windows: operations, bytes, locks, waits for locks, flushes and epochs, in live and freed windows. Puts
 * and gets of the immediate path are not counted.
 * test: ranks=1,2,3 mistakes=yes */
#include "rma_check.h"
#include <unistd.h>

enum { PUTS, BYTES_PUT, GETS, BYTES_GOT, ACCUMULATES, ATOMICS, LOCKS, LOCK_WAITS, FLUSHES, EPOCHS, COUNTERS };
static const char *const names[COUNTERS] = {"rma_puts", "rma_bytes_put", "rma_gets", "rma_bytes_got", "rma_accumulates",
                                            "rma_atomics", "rma_locks", "rma_lock_waits", "rma_flushes", "rma_epochs"};
static MPI_T_pvar_session session;
static MPI_T_pvar_handle counters[COUNTERS];

/* Increase of one counter since the last call. */
static unsigned long long take(int counter)
{
    unsigned long long value = 0;
    OK(MPI_T_pvar_readreset(session, counters[counter], &value));
    return value;
}

static void begin(void)
{
    int provided, index, count;
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    OK(MPI_T_pvar_session_create(&session));
    for (int i = 0; i < COUNTERS; i++) {
        OK(MPI_T_pvar_get_index(names[i], MPI_T_PVAR_CLASS_COUNTER, &index));
        OK(MPI_T_pvar_handle_alloc(session, index, NULL, &counters[i], &count));
        OK(MPI_T_pvar_start(session, counters[i]));
    }
}

static void forget(void)
{
    for (int i = 0; i < COUNTERS; i++) take(i);
}

/* The counts are equal for every kind of window and do not depend on the path. */
static void test_operations(int kind)
{
    enum { LONG = 100, TURNS = 150 };
    struct window w = make_window(kind, 4096, 1);
    int to = (rank + 1) % ranks;
    static long long own, before, zero;
    static unsigned char bytes[4096];
    forget();
    OK(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, w.win));
    for (int i = 0; i < 3; i++) OK(MPI_Put(bytes, LONG, MPI_BYTE, to, place(&w, to, 8, 1), LONG, MPI_BYTE, w.win));
    for (int i = 0; i < 2; i++) OK(MPI_Get(bytes, LONG + i, MPI_BYTE, to, place(&w, to, 1000, 1), LONG + i, MPI_BYTE, w.win));
    for (int i = 0; i < TURNS; i++) OK(MPI_Win_flush(to, w.win));
    OK(MPI_Win_flush_all(w.win));
    OK(MPI_Win_flush_local(to, w.win));
    OK(MPI_Win_flush_local_all(w.win));
    for (int i = 0; i < 4; i++) {
        OK(MPI_Accumulate(&own, 1, MPI_LONG_LONG, to, place(&w, to, 0, 1), 1, MPI_LONG_LONG, MPI_SUM, w.win));
        OK(MPI_Get_accumulate(&own, 1, MPI_LONG_LONG, &before, 1, MPI_LONG_LONG, to, place(&w, to, 0, 1), 1, MPI_LONG_LONG,
                              MPI_SUM, w.win));
    }
    for (int i = 0; i < 5; i++) {
        OK(MPI_Fetch_and_op(&own, &before, MPI_LONG_LONG, to, place(&w, to, 0, 1), MPI_SUM, w.win));
        OK(MPI_Compare_and_swap(&own, &zero, &before, MPI_LONG_LONG, to, place(&w, to, 0, 1), w.win));
    }
    OK(MPI_Win_unlock(to, w.win));
    SAME(take(PUTS), 3);
    SAME(take(BYTES_PUT), 3 * LONG);
    SAME(take(GETS), 2);
    SAME(take(BYTES_GOT), 2 * LONG + 1);
    SAME(take(ACCUMULATES), 8);
    SAME(take(ATOMICS), 10);
    SAME(take(LOCKS), 1);
    SAME(take(FLUSHES), TURNS + 3);
    SAME(take(EPOCHS), 0);

    /* Requests. */
    MPI_Request requests[4];
    OK(MPI_Win_lock_all(0, w.win));
    OK(MPI_Rput(bytes, LONG, MPI_BYTE, to, place(&w, to, 8, 1), LONG, MPI_BYTE, w.win, &requests[0]));
    OK(MPI_Rget(bytes + 2000, LONG, MPI_BYTE, to, place(&w, to, 1000, 1), LONG, MPI_BYTE, w.win, &requests[1]));
    OK(MPI_Raccumulate(&own, 1, MPI_LONG_LONG, to, place(&w, to, 0, 1), 1, MPI_LONG_LONG, MPI_SUM, w.win, &requests[2]));
    OK(MPI_Rget_accumulate(&own, 1, MPI_LONG_LONG, &before, 1, MPI_LONG_LONG, to, place(&w, to, 0, 1), 1, MPI_LONG_LONG,
                           MPI_SUM, w.win, &requests[3]));
    OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Win_unlock_all(w.win));
    SAME(take(PUTS), 1);
    SAME(take(GETS), 1);
    SAME(take(ACCUMULATES), 2);
    SAME(take(EPOCHS), 1);

    /* Calls with MPI_PROC_NULL and calls with errors are not counted. */
    OK(MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, w.win));
    OK(MPI_Put(bytes, LONG, MPI_BYTE, MPI_PROC_NULL, 0, LONG, MPI_BYTE, w.win));
    OK(MPI_Win_unlock(MPI_PROC_NULL, w.win));
    MPI_Win_set_errhandler(w.win, MPI_ERRORS_RETURN);
    CHECK(MPI_Put(bytes, LONG, MPI_BYTE, to, place(&w, to, 8, 1), LONG, MPI_BYTE, w.win) != MPI_SUCCESS);
    CHECK(MPI_Win_flush(to, w.win) != MPI_SUCCESS);
    SAME(take(PUTS) + take(FLUSHES) + take(LOCKS), 0);
    free_window(&w);
}

static void test_epochs(void)
{
    enum { ROUNDS = 10 };
    struct window w = make_window(ALLOCATED, 64, 1);
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    forget();
    for (int i = 0; i < ROUNDS; i++) {
        OK(MPI_Win_lock_all(0, w.win));
        OK(MPI_Win_unlock_all(w.win));
    }
    SAME(take(EPOCHS), ROUNDS);
    meet();
    forget();
    for (int i = 0; i < ROUNDS; i++) {
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, w.win));
        OK(MPI_Win_unlock(rank, w.win));
    }
    SAME(take(LOCKS), ROUNDS);
    SAME(take(LOCK_WAITS), 0);
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    OK(MPI_Win_post(all, 0, w.win));
    OK(MPI_Win_start(all, 0, w.win));
    OK(MPI_Win_complete(w.win));
    OK(MPI_Win_wait(w.win));
    SAME(take(EPOCHS), 4);
    MPI_Group_free(&all);
    free_window(&w);
    SAME(take(EPOCHS), 0);
}

/* Rank 1 locks while rank 0 holds the lock, until it has had to wait. */
static void test_wait(void)
{
    enum { ROUNDS = 200 };
    struct window w = make_window(ALLOCATED, 64, 1);
    forget();
    int waited = 0;
    for (int round = 0; round < ROUNDS && !waited; round++) {
        if (rank == 0) OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
        meet();
        if (rank == 1) {
            OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
            OK(MPI_Win_unlock(0, w.win));
        } else if (rank == 0) {
            /* If locks are requested by messages, this rank must answer. */
            for (int i = 0; i < 1 << (round < 6 ? round : 6); i++) {
                usleep(1000);
                OK(MPI_Win_sync(w.win));
            }
            OK(MPI_Win_unlock(0, w.win));
        }
        unsigned long long waits = take(LOCK_WAITS);
        CHECK(waits <= (rank == 1));
        waited = (int)waits;
        MPI_Bcast(&waited, 1, MPI_INT, 1, MPI_COMM_WORLD);
    }
    CHECK(waited);
    free_window(&w);
}

/* Up to 48 bytes by load and store: the immediate path, which counts nothing unless that path is disabled. */
static void test_quick(void)
{
    struct window w = make_window(ALLOCATED, 64, 1);
    unsigned char bytes[48] = {0};
    OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w.win));
    OK(MPI_Put(bytes, 48, MPI_BYTE, rank, 0, 48, MPI_BYTE, w.win));
    forget();
    OK(MPI_Put(bytes, 48, MPI_BYTE, rank, 0, 48, MPI_BYTE, w.win));
    OK(MPI_Get(bytes, 8, MPI_BYTE, rank, 0, 8, MPI_BYTE, w.win));
    unsigned long long puts = take(PUTS), gets = take(GETS);
    CHECK(puts == gets && puts <= 1);
    OK(MPI_Win_unlock(rank, w.win));
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    begin();
    for (int kind = 0; kind < KINDS; kind++)
        if (has_kind(kind)) test_operations(kind);
    test_epochs();
    if (ranks > 1) test_wait();
    test_quick();
    OK(MPI_T_finalize());
    return finish();
}
