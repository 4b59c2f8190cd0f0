/* test: ranks=1,2,3,4,8
   Exclusive locks exclude, shared locks admit each other, flushes complete; all without calls of the target. */
#include "rma_check.h"
#include <sched.h>

/* A counter that is read and written by separate operations: it is right only if an exclusive lock excludes. */
static void test_exclusive(int kind, int rounds)
{
    struct window w = make_window(kind, 2 * sizeof(long), 1);
    int at = ranks - 1;
    for (int i = 0; i < rounds; i++) {
        long value[2], zero = 0;
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, at, 0, w.win));
        OK(MPI_Get(value, 2, MPI_LONG, at, place(&w, at, 0, 1), 2, MPI_LONG, w.win));
        OK(MPI_Win_flush(at, w.win));
        SAME(value[1], 0);
        value[0]++, value[1] = rank + 1;
        OK(MPI_Put(value, 2, MPI_LONG, at, place(&w, at, 0, 1), 2, MPI_LONG, w.win));
        OK(MPI_Win_flush_local(at, w.win));
        OK(MPI_Win_flush(at, w.win));
        OK(MPI_Put(&zero, 1, MPI_LONG, at, place(&w, at, sizeof(long), 1), 1, MPI_LONG, w.win));
        OK(MPI_Win_unlock(at, w.win));
    }
    meet();
    if (rank == at) {
        OK(MPI_Win_lock(MPI_LOCK_SHARED, at, 0, w.win));
        SAME(*(long *)w.base, (long)ranks * rounds);
        OK(MPI_Win_unlock(at, w.win));
    }
    free_window(&w);
}

/* Readers with shared locks on all ranks see complete updates of one writer with exclusive locks. */
static void test_readers(int kind, int rounds)
{
    enum { WORDS = 200 };
    struct window w = make_window(kind, WORDS * sizeof(long), sizeof(long));
    long words[WORDS];
    for (int i = 1; i <= rounds; i++) {
        for (int to = 0; to < ranks; to++) {
            if (rank == 0) {
                for (int k = 0; k < WORDS; k++)
                    words[k] = i;
                OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, w.win));
                OK(MPI_Put(words, WORDS / 2, MPI_LONG, to, place(&w, to, 0, sizeof(long)), WORDS / 2, MPI_LONG, w.win));
                OK(MPI_Put(words, WORDS / 2, MPI_LONG, to, place(&w, to, WORDS / 2 * sizeof(long), sizeof(long)),
                           WORDS / 2, MPI_LONG, w.win));
                OK(MPI_Win_unlock(to, w.win));
            } else {
                OK(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, w.win));
                OK(MPI_Get(words, WORDS, MPI_LONG, to, place(&w, to, 0, sizeof(long)), WORDS, MPI_LONG, w.win));
                OK(MPI_Win_unlock(to, w.win));
                for (int k = 1; k < WORDS; k++)
                    SAME(words[k], words[0]);
            }
        }
    }
    free_window(&w);
}

/* Several ranks locked at once, all ranks locked at once, and locks with MPI_MODE_NOCHECK. */
static void test_several(int kind)
{
    struct window w = make_window(kind, (size_t)ranks * sizeof(int), sizeof(int));
    int *values = allocate((size_t)ranks * sizeof(int)), *got = allocate((size_t)ranks * sizeof(int));
    for (int to = 0; to < ranks; to++)
        OK(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, w.win));
    for (int to = 0; to < ranks; to++) {
        values[to] = 100 * rank + to;
        OK(MPI_Put(values + to, 1, MPI_INT, to, place(&w, to, (size_t)rank * sizeof(int), sizeof(int)), 1, MPI_INT, w.win));
    }
    OK(MPI_Win_flush_all(w.win));
    for (int to = 0; to < ranks; to++)
        OK(MPI_Win_unlock(to, w.win));
    meet();
    OK(MPI_Win_lock_all(0, w.win));
    for (int from = 0; from < ranks; from++)
        OK(MPI_Get(got + from, 1, MPI_INT, from, place(&w, from, (size_t)rank * sizeof(int), sizeof(int)), 1, MPI_INT, w.win));
    OK(MPI_Win_flush_local_all(w.win));
    for (int from = 0; from < ranks; from++)
        SAME(got[from], 100 * rank + from);
    OK(MPI_Win_unlock_all(w.win));
    meet();
    OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, w.win));
    int right = (rank + 1) % ranks, minus = -rank;
    OK(MPI_Put(&minus, 1, MPI_INT, right, place(&w, right, 0, sizeof(int)), 1, MPI_INT, w.win));
    OK(MPI_Win_unlock_all(w.win));
    meet();
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, MPI_MODE_NOCHECK, w.win));
    OK(MPI_Get(got, 1, MPI_INT, right, place(&w, right, 0, sizeof(int)), 1, MPI_INT, w.win));
    OK(MPI_Win_unlock(right, w.win));
    SAME(got[0], -rank);
    free(values);
    free(got);
    free_window(&w);
}

/* Two ranks read each other's memory in MPI_Win_lock_all and already hold their own lock, when others wait for an
 * exclusive lock of each. No rank waits forever. */
static void test_crossing(int kind, int rounds)
{
    struct window w = make_window(kind, sizeof(int), 1);
    int got, flag, token = 0, to = rank % 2;
    for (int i = 0; i < rounds && ranks > 3; i++) {
        if (rank < 2) {
            OK(MPI_Win_lock_all(0, w.win));
            OK(MPI_Get(&got, 1, MPI_INT, rank, place(&w, rank, 0, 1), 1, MPI_INT, w.win));
            OK(MPI_Win_flush(rank, w.win));
            OK(MPI_Sendrecv(&token, 1, MPI_INT, 1 - rank, 2, &token, 1, MPI_INT, 1 - rank, 2, meeting, MPI_STATUS_IGNORE));
            for (int peer = 2 + rank; peer < ranks; peer += 2)
                OK(MPI_Send(&token, 1, MPI_INT, peer, 2, meeting));
            for (int look = 0; look < i % 4 * 10; look++) {
                OK(MPI_Iprobe(MPI_ANY_SOURCE, 3, meeting, &flag, MPI_STATUS_IGNORE));
                sched_yield();
            }
            OK(MPI_Get(&got, 1, MPI_INT, 1 - rank, place(&w, 1 - rank, 0, 1), 1, MPI_INT, w.win));
            OK(MPI_Win_unlock_all(w.win));
        } else {
            OK(MPI_Recv(&token, 1, MPI_INT, to, 2, meeting, MPI_STATUS_IGNORE));
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, w.win));
            OK(MPI_Win_unlock(to, w.win));
        }
        meet();
    }
    free_window(&w);
}

/* The last rank takes exclusive locks of two ranks, and one of a second window, in that order. The others are in
 * MPI_Win_lock_all of both windows, and access them in reverse order. No rank waits forever. */
static void test_ascending(int kind, int rounds)
{
    struct window w = make_window(kind, sizeof(int), 1), further = make_window(kind, sizeof(int), 1);
    int got, flag, token = 0, last = ranks - 1;
    for (int i = 0; i < rounds && ranks > 1; i++) {
        if (rank == last) {
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
            for (int peer = 0; peer < last; peer++)
                OK(MPI_Send(&token, 1, MPI_INT, peer, 2, meeting));
            for (int look = 0; look < i % 4 * 10; look++) {
                OK(MPI_Iprobe(MPI_ANY_SOURCE, 3, meeting, &flag, MPI_STATUS_IGNORE));
                sched_yield();
            }
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, w.win));
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, further.win));
            OK(MPI_Win_unlock(0, further.win));
            OK(MPI_Win_unlock(1, w.win));
            OK(MPI_Win_unlock(0, w.win));
        } else {
            OK(MPI_Recv(&token, 1, MPI_INT, last, 2, meeting, MPI_STATUS_IGNORE));
            OK(MPI_Win_lock_all(0, w.win));
            OK(MPI_Win_lock_all(0, further.win));
            OK(MPI_Get(&got, 1, MPI_INT, 0, place(&further, 0, 0, 1), 1, MPI_INT, further.win));
            OK(MPI_Win_flush(0, further.win));
            OK(MPI_Get(&got, 1, MPI_INT, 1, place(&w, 1, 0, 1), 1, MPI_INT, w.win));
            OK(MPI_Win_flush(1, w.win));
            OK(MPI_Get(&got, 1, MPI_INT, 0, place(&w, 0, 0, 1), 1, MPI_INT, w.win));
            OK(MPI_Win_unlock_all(further.win));
            OK(MPI_Win_unlock_all(w.win));
        }
        meet();
    }
    free_window(&further);
    free_window(&w);
}

/* Ranks in MPI_Win_lock_all exclude an exclusive lock, both the first such lock and later ones. */
static void test_lock_all_excludes(int kind, int rounds)
{
    struct window w = make_window(kind, 2 * sizeof(long), 1);
    int writer = ranks - 1;
    for (int i = 0; i < rounds; i++) {
        long value[2] = {i + 1, i + 1};
        if (rank == writer && i % 2) {
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
            OK(MPI_Put(value, 1, MPI_LONG, 0, place(&w, 0, 0, 1), 1, MPI_LONG, w.win));
            OK(MPI_Win_flush(0, w.win));
            sched_yield();
            OK(MPI_Put(value, 1, MPI_LONG, 0, place(&w, 0, sizeof(long), 1), 1, MPI_LONG, w.win));
            OK(MPI_Win_unlock(0, w.win));
        } else {
            long first[2], second[2];
            OK(MPI_Win_lock_all(0, w.win));
            OK(MPI_Get(first, 2, MPI_LONG, 0, place(&w, 0, 0, 1), 2, MPI_LONG, w.win));
            OK(MPI_Win_flush(0, w.win));
            sched_yield();
            OK(MPI_Get(second, 2, MPI_LONG, 0, place(&w, 0, 0, 1), 2, MPI_LONG, w.win));
            OK(MPI_Win_unlock_all(w.win));
            SAME(first[0], first[1]);
            CHECK(memcmp(first, second, sizeof first) == 0);
        }
    }
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int rounds = are_apart() || getenv("FASTPATH_TRANSPORTS") ? 20 : 500;
    for (int kind = 0; kind < KINDS; kind++) {
        int before = failures;
        if (!has_kind(kind))
            continue;
        test_exclusive(kind, rounds);
        test_readers(kind, rounds / 10);
        test_several(kind);
        test_crossing(kind, rounds / 25);
        test_ascending(kind, rounds / 25);
        test_lock_all_excludes(kind, rounds / 10);
        if (failures != before)
            fprintf(stderr, "rank %d: the window was of kind %s\n", rank, kind_names[kind]);
    }
    return finish();
}
