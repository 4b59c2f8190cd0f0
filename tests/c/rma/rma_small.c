/* test: ranks=2,3,4
   Small puts and gets on memory that is not mapped elsewhere: every size around the limit, in both directions at
   once, to a target that waits in MPI and to one that computes. Contents are verified. If each rank has a processor,
   a target inside MPI carries out some operations itself. */
#include "rma_check.h"
#include <unistd.h>

enum { BYTES_EACH = 5000, ROUNDS = 200 };

/* Operations that this process has carried out for others so far. */
static unsigned long long count_served(void)
{
    static MPI_T_pvar_session session;
    static MPI_T_pvar_handle handle;
    static int begun;
    unsigned long long served = 0;
    if (!begun) {
        int provided, index, count;
        OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
        OK(MPI_T_pvar_session_create(&session));
        OK(MPI_T_pvar_get_index("rma_operations_served", MPI_T_PVAR_CLASS_COUNTER, &index));
        OK(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count));
        OK(MPI_T_pvar_start(session, handle));
        begun = 1;
    }
    OK(MPI_T_pvar_read(session, handle, &served));
    return served;
}

/* One put and one get of `len` bytes, which no other rank accesses. */
static void move(struct window *w, int to, unsigned seed, size_t len)
{
    static unsigned char out[BYTES_EACH], in[BYTES_EACH];
    MPI_Aint at = place(w, to, (size_t)rank * BYTES_EACH, 1);
    fill(out, len, seed);
    memset(in, 0, len);
    OK(MPI_Put(out, (int)len, MPI_BYTE, to, at, (int)len, MPI_BYTE, w->win));
    OK(MPI_Win_flush(to, w->win));
    OK(MPI_Get(in, (int)len, MPI_BYTE, to, at, (int)len, MPI_BYTE, w->win));
    OK(MPI_Win_flush(to, w->win));
    HOLDS(in, len, seed);
}

/* Returns whether a rank that waits in MPI carries out operations of others: each rank has a processor, and no
 * setting prevents it. */
static int serves(void)
{
    return ranks == 2 && sysconf(_SC_NPROCESSORS_ONLN) >= 2 && !are_apart() && !getenv("FASTPATH_TRANSPORTS")
           && !getenv("FASTPATH_WAIT") && !getenv("FASTPATH_DISABLE");
}

static void test(int kind)
{
    static const size_t lengths[] = {1, 7, 8, 39, 40, 41, 64, 1000, 4095, 4096, 4097, BYTES_EACH};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    struct window w = make_window(kind, (size_t)ranks * BYTES_EACH, 1);
    OK(MPI_Win_lock_all(0, w.win));
    /* In a ring, all at once: each rank serves requests while its own are outstanding. */
    for (unsigned round = 0; round < ROUNDS; round++)
        move(&w, (rank + 1) % ranks, round, lengths[round % LENGTHS]);
    meet();
    /* To rank 0, which waits in MPI, until it has carried out an operation, or for at most 20 s. */
    double begin = MPI_Wtime();
    for (int enough = 0; !enough;) {
        for (unsigned round = 0; rank != 0 && round < ROUNDS; round++)
            move(&w, 0, round, lengths[round % LENGTHS]);
        meet();
        enough = !serves() || count_served() > 0 || MPI_Wtime() - begin > 20;
        OK(MPI_Bcast(&enough, 1, MPI_INT, 0, MPI_COMM_WORLD));
    }
    if (rank == 0 && serves())
        CHECK(count_served() > 0);
    /* To rank 0, which makes no MPI call until the others have ended: if the kernel copies, rank 0 has carried out
     * none. */
    if (!are_apart() && !getenv("FASTPATH_TRANSPORTS") && !getenv("FASTPATH_PROGRESS") && !getenv("FASTPATH_DISABLE")) {
        meet();
        volatile unsigned char *ended = w.base;
        memset(w.base, 0, (size_t)ranks * BYTES_EACH);
        OK(MPI_Win_sync(w.win));
        meet();
        unsigned long long before = count_served();
        for (unsigned round = 0; rank != 0 && round < ROUNDS; round++)
            move(&w, 0, round, lengths[round % LENGTHS]);
        unsigned char one = 1;
        if (rank != 0) {
            OK(MPI_Put(&one, 1, MPI_BYTE, 0, place(&w, 0, (size_t)rank, 1), 1, MPI_BYTE, w.win));
            OK(MPI_Win_flush(0, w.win));
        }
        for (int other = 1; rank == 0 && other < ranks; other++)
            while (!ended[other])
                ;
        if (rank == 0)
            SAME(count_served(), before);
        meet();
    }
    OK(MPI_Win_unlock_all(w.win));
    free_window(&w);
}

/* Accumulates of many elements are split: every rank adds to those of rank 0 concurrently, and each value fetched is
 * a valid intermediate sum. */
static void accumulate(int kind)
{
    static const int counts[] = {1, 2, 511, 512, 513, 3000, 16384, 20000};
    enum { COUNTS = sizeof counts / sizeof *counts, MOST = 20000 };
    struct window w = make_window(kind, MOST * sizeof(long), 1);
    long *values = allocate(MOST * sizeof(long)), *before = allocate(MOST * sizeof(long));
    long added = 0;
    for (int i = 0; i < MOST; i++)
        values[i] = i % 7 + 1;
    OK(MPI_Win_lock_all(0, w.win));
    for (int round = 0; round < 3 * COUNTS; round++) {
        int count = counts[round % COUNTS];
        MPI_Aint at = place(&w, 0, 0, 1);
        if (round % 3 == 0) {
            OK(MPI_Accumulate(values, count, MPI_LONG, 0, at, count, MPI_LONG, MPI_SUM, w.win));
        } else {
            memset(before, 0xff, (size_t)count * sizeof(long));
            OK(MPI_Get_accumulate(values, count, MPI_LONG, before, count, MPI_LONG, 0, at, count, MPI_LONG, MPI_SUM,
                                  w.win));
        }
        OK(MPI_Win_flush(0, w.win));
        for (int i = 0; round % 3 != 0 && i < count; i++)
            if (before[i] % values[i] != 0 || before[i] < 0 || before[i] > (long)ranks * 3 * COUNTS * values[i]) {
                fail(__LINE__, "element %d of %d was %ld", i, count, before[i]);
                break;
            }
        added++;
    }
    meet();
    OK(MPI_Win_unlock_all(w.win));
    meet();
    for (int i = 0; rank == 0 && i < MOST; i++) {
        long rounds = 0;
        for (int k = 0; k < COUNTS; k++)
            rounds += i < counts[k] ? 3 : 0;
        if (((long *)w.base)[i] != rounds * ranks * values[i]) {
            fail(__LINE__, "element %d is %ld instead of %ld", i, ((long *)w.base)[i], rounds * ranks * values[i]);
            break;
        }
    }
    SAME(added, 3 * COUNTS);
    free(values);
    free(before);
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    accumulate(FROM_HEAP);
    accumulate(DYNAMIC);
    test(FROM_HEAP);
    test(DYNAMIC);
    return finish();
}
