/* test: ranks=2,3,4,8
   A target that computes without MPI calls does not delay access to its memory (docs/windows.md). It polls for a mark
   of each other rank, which is written when that rank has completed all operations. For mapped memory, or copies by the
   kernel, this holds for every operation; over an adapter's connection for puts and gets; with FASTPATH_PROGRESS=thread
   for every operation over any path. Argument: number of locks (100). */
#include "rma_check.h"

enum { MOST = 66000, ROUNDS = 2 };
static int locks = 100;

/* Operations that complete while the target computes. */
enum promise { NOTHING, MOVES, EVERYTHING };

static enum promise promised(int kind)
{
    const char *over = getenv("FASTPATH_TRANSPORTS"), *off = getenv("FASTPATH_DISABLE");
    const char *progress = getenv("FASTPATH_PROGRESS");
    int maps = !off || !strstr(off, "direct"), copies = !off || !strstr(off, "cma");
    if (progress && strcmp(progress, "thread") == 0)
        return EVERYTHING;
    if (over) /* over `ud` too, a pair starts without a connection */
        return strcmp(over, "rc") == 0 || (are_apart() && strcmp(over, "shm,rc") == 0) ? MOVES : NOTHING;
    if (are_apart() || (!copies && (!maps || (kind != ALLOCATED && kind != SHARED && kind != FROM_ALLOC_MEM))))
        return NOTHING;
    return maps ? EVERYTHING : MOVES;
}

static long read_long(const unsigned char *at)
{
    return __atomic_load_n((const long *)at, __ATOMIC_ACQUIRE);
}

/* Puts and gets of all sizes, each rank on its own part. A mark shows that the rank has finished. */
static void test_moves(int kind)
{
    static const size_t lengths[] = {1, 8, 48, 49, 4096, 4097, 65536, MOST};
    static unsigned char out[MOST], in[MOST];
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    const size_t marks = (size_t)ranks * MOST;
    struct window w = make_window(kind, marks + (size_t)ranks * sizeof(long), 1);
    long done = 1;
    OK(MPI_Win_lock_all(0, w.win));
    meet();
    for (int other = 1; rank == 0 && other < ranks; other++)
        /* The kernel's scheduler runs the others; no MPI call does. */
        while (read_long(w.base + marks + (size_t)other * sizeof(long)) == 0)
            ;
    for (unsigned round = 0; rank != 0 && round < ROUNDS * LENGTHS; round++) {
        size_t len = lengths[round % LENGTHS];
        MPI_Aint at = place(&w, 0, (size_t)rank * MOST, 1);
        fill(out, len, round + (unsigned)rank);
        memset(in, 0, len);
        OK(MPI_Put(out, (int)len, MPI_BYTE, 0, at, (int)len, MPI_BYTE, w.win));
        OK(MPI_Win_flush(0, w.win));
        OK(MPI_Get(in, (int)len, MPI_BYTE, 0, at, (int)len, MPI_BYTE, w.win));
        OK(MPI_Win_flush(0, w.win));
        HOLDS(in, len, round + (unsigned)rank);
    }
    if (rank != 0) {
        MPI_Aint at = place(&w, 0, marks + (size_t)rank * sizeof(long), 1);
        OK(MPI_Put(&done, 1, MPI_LONG, 0, at, 1, MPI_LONG, w.win));
        OK(MPI_Win_flush(0, w.win));
    }
    for (int other = 1; rank == 0 && other < ranks; other++)
        HOLDS(w.base + (size_t)other * MOST, MOST, ROUNDS * LENGTHS - 1 + (unsigned)other);
    meet();
    OK(MPI_Win_unlock_all(w.win));
    free_window(&w);
}

/* Shared and exclusive locks, and atomics. The first element counts the ranks that have finished. */
static void test_all(int kind)
{
    const int unit = sizeof(long);
    struct window w = make_window(kind, 4 * sizeof(long), unit);
    long one = 1, value, expected = (long)(ranks - 1) * locks;
    if (rank == 0) {
        while (read_long(w.base) != ranks - 1)
            ;
        SAME(((long *)w.base)[1], expected);
        SAME(((long *)w.base)[2], expected);
        CHECK(((long *)w.base)[3] > 0);
    } else {
        MPI_Aint first = place(&w, 0, 0, unit), counted = place(&w, 0, sizeof(long), unit);
        MPI_Aint summed = place(&w, 0, 2 * sizeof(long), unit), swapped = place(&w, 0, 3 * sizeof(long), unit);
        long zero = 0, self = rank;
        for (int i = 0; i < locks; i++) {
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w.win));
            OK(MPI_Get(&value, 1, MPI_LONG, 0, counted, 1, MPI_LONG, w.win));
            OK(MPI_Win_flush(0, w.win));
            value++;
            OK(MPI_Put(&value, 1, MPI_LONG, 0, counted, 1, MPI_LONG, w.win));
            OK(MPI_Win_unlock(0, w.win));
            OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
            OK(MPI_Accumulate(&one, 1, MPI_LONG, 0, summed, 1, MPI_LONG, MPI_SUM, w.win));
            OK(MPI_Compare_and_swap(&self, &zero, &value, MPI_LONG, 0, swapped, w.win));
            OK(MPI_Win_unlock(0, w.win));
            CHECK(value >= 0 && value < ranks);
        }
        OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w.win));
        OK(MPI_Fetch_and_op(&one, &value, MPI_LONG, 0, first, MPI_SUM, w.win));
        OK(MPI_Win_unlock(0, w.win));
    }
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    if (argc > 1)
        locks = atoi(argv[1]);
    for (int kind = 0; kind < KINDS; kind++) {
        if (has_kind(kind) && promised(kind) >= MOVES)
            test_moves(kind);
        if (has_kind(kind) && promised(kind) == EVERYTHING)
            test_all(kind);
    }
    return finish();
}
