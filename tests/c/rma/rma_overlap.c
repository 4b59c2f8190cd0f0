/* test: ranks=2,3,4
   Two windows with common memory: of the heap, of MPI_Win_allocate, attached to dynamic windows. Writes through one
   are read through the other. Concurrent operations through both access disjoint bytes or elements, because
   overlapping accesses would be undefined (MPI-5.0 12.2.1). The test orders operations on common bytes by flushes and
   messages, or by the lock of one window. */
#include "rma_check.h"

enum { N = 200, ROUNDS = 8 };
/* The first window covers elements [0, 2 N), the second one [N, 3 N). */
enum { HEAPS, ALLOCATED_AND_PART, PART_AND_ALLOC_MEM, DYNAMIC_AND_PART, BOTH_DYNAMIC, PAIRS };

struct side {
    MPI_Win win;
    MPI_Aint *at; /* of a dynamic window: address of each rank's elements; 0 for others */
    int first;
};

static long *base;
static struct side sides[2];

/* Displacement of an element of a rank. */
static MPI_Aint element(const struct side *side, int of, int i)
{
    return side->at ? side->at[of] + (MPI_Aint)(i * sizeof(long)) : (MPI_Aint)(i - side->first);
}

static void create(struct side *side, int first, int dynamic)
{
    long *begin = base + first;
    const MPI_Aint bytes = 2 * N * sizeof(long);
    *side = (struct side){.win = MPI_WIN_NULL, .first = first};
    if (!dynamic) {
        OK(MPI_Win_create(begin, bytes, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &side->win));
        return;
    }
    MPI_Aint own;
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &side->win));
    OK(MPI_Win_attach(side->win, begin, bytes));
    MPI_Get_address(base, &own);
    side->at = allocate((size_t)ranks * sizeof own);
    MPI_Allgather(&own, 1, MPI_AINT, side->at, 1, MPI_AINT, MPI_COMM_WORLD);
}

static void make(int pair)
{
    const MPI_Aint bytes = 3 * N * sizeof(long);
    if (pair == ALLOCATED_AND_PART) {
        sides[0] = (struct side){.win = MPI_WIN_NULL};
        OK(MPI_Win_allocate(bytes, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &sides[0].win));
    } else {
        if (pair == PART_AND_ALLOC_MEM)
            OK(MPI_Alloc_mem(bytes, MPI_INFO_NULL, &base));
        else
            base = allocate((size_t)bytes);
        create(&sides[0], 0, pair == DYNAMIC_AND_PART || pair == BOTH_DYNAMIC);
    }
    create(&sides[1], N, pair == BOTH_DYNAMIC);
    memset(base, 0, (size_t)bytes);
    for (int s = 0; s < 2; s++)
        OK(MPI_Win_lock_all(0, sides[s].win));
    meet();
}

static void drop(int pair)
{
    meet();
    for (int s = 1; s >= 0; s--) {
        OK(MPI_Win_unlock_all(sides[s].win));
        meet();
        if (sides[s].at)
            OK(MPI_Win_detach(sides[s].win, base + sides[s].first));
        free(sides[s].at);
        OK(MPI_Win_free(&sides[s].win));
    }
    if (pair == PART_AND_ALLOC_MEM)
        OK(MPI_Free_mem(base));
    else if (pair != ALLOCATED_AND_PART)
        free(base);
}

/* Completes all operations through both windows, on all ranks. */
static void settle(void)
{
    for (int s = 0; s < 2; s++) {
        OK(MPI_Win_flush_all(sides[s].win));
        OK(MPI_Win_sync(sides[s].win));
    }
    meet();
    for (int s = 0; s < 2; s++)
        OK(MPI_Win_sync(sides[s].win));
}

static long value_of(int round, int i) { return 1000003L * round + i; }

/* Every rank puts its own elements to all ranks, single ones and runs, through both windows in turn, concurrently. Then
 * each element is read through both windows. */
static void test_puts(int round)
{
    static long out[N], in[2][N];
    int run = 1 + round * 7 % 60;
    for (int i = 0; i < N; i++)
        out[i] = value_of(round, i);
    for (int i = 0, turn = 0; i < N; i += run, turn++)
        for (int to = 0; to < ranks; to++) {
            const struct side *side = &sides[(turn / ranks + to) % 2];
            int count = i + run < N ? run : N - i;
            if (turn % ranks == rank)
                OK(MPI_Put(out + i, count, MPI_LONG, to, element(side, to, N + i), count, MPI_LONG, side->win));
        }
    settle();
    for (int i = 0; i < N; i++)
        SAME(base[N + i], value_of(round, i));
    int from = (rank + round) % ranks;
    for (int s = 0; s < 2; s++)
        OK(MPI_Get(in[s], N, MPI_LONG, from, element(&sides[s], from, N), N, MPI_LONG, sides[s].win));
    settle();
    for (int i = 0; i < N; i++) {
        SAME(in[0][i], value_of(round, i));
        SAME(in[1][i], value_of(round, i));
    }
}

/* Every rank adds to all elements of a rank concurrently: to the even ones through the first window and to the odd
 * ones through the second, or to all through one window, and then through the other. */
static void test_accumulates(int to)
{
    static long ones[N];
    MPI_Datatype every_second;
    MPI_Type_vector(N / 2, 1, 2, MPI_LONG, &every_second);
    MPI_Type_commit(&every_second);
    memset(base, 0, 3 * N * sizeof(long));
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    settle();
    for (int round = 0; round < ROUNDS; round++)
        for (int s = 0; s < 2; s++)
            OK(MPI_Accumulate(ones, N / 2, MPI_LONG, to, element(&sides[s], to, N + s), 1, every_second, MPI_SUM,
                              sides[s].win));
    settle();
    for (int i = 0; rank == to && i < N; i++)
        SAME(base[N + i], ROUNDS * ranks);
    settle();
    for (int round = 0; round < ROUNDS; round++) {
        const struct side *side = &sides[round % 2];
        long one = 1, before = -1;
        MPI_Aint first = element(side, to, N);
        if (round % 4 < 2) {
            OK(MPI_Accumulate(ones, N, MPI_LONG, to, first, N, MPI_LONG, MPI_SUM, side->win));
        } else {
            OK(MPI_Fetch_and_op(&one, &before, MPI_LONG, to, first, MPI_SUM, side->win));
            OK(MPI_Accumulate(ones, N - 1, MPI_LONG, to, element(side, to, N + 1), N - 1, MPI_LONG, MPI_SUM, side->win));
            OK(MPI_Win_flush(to, side->win));
            CHECK(before >= (ROUNDS + round) * ranks && before < (ROUNDS + round + 1) * ranks);
        }
        settle();
    }
    for (int i = 0; rank == to && i < N; i++)
        SAME(base[N + i], 2 * ROUNDS * ranks);
    /* Elements of only one window are unchanged. */
    for (int i = 0; i < N; i++)
        SAME(base[i] | base[2 * N + i], 0);
    MPI_Type_free(&every_second);
    settle();
}

/* The lock of the first window guards a counter that is accessed through either window. */
static void test_locks(int to)
{
    for (int s = 0; s < 2; s++)
        OK(MPI_Win_unlock_all(sides[s].win));
    meet();
    base[N + 5] = 0;
    meet();
    for (int round = 0; round < ROUNDS; round++) {
        const struct side *side = &sides[(rank + round) % 2];
        MPI_Aint at = element(side, to, N + 5);
        long value = -1;
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, sides[0].win));
        OK(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, sides[1].win));
        OK(MPI_Get(&value, 1, MPI_LONG, to, at, 1, MPI_LONG, side->win));
        OK(MPI_Win_flush(to, side->win));
        value++;
        OK(MPI_Put(&value, 1, MPI_LONG, to, at, 1, MPI_LONG, side->win));
        OK(MPI_Win_unlock(to, sides[1].win));
        OK(MPI_Win_unlock(to, sides[0].win));
    }
    meet();
    OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, sides[1].win));
    if (rank == to)
        SAME(base[N + 5], ROUNDS * ranks);
    OK(MPI_Win_unlock(rank, sides[1].win));
    for (int s = 0; s < 2; s++)
        OK(MPI_Win_lock_all(0, sides[s].win));
    meet();
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int pair = 0; pair < PAIRS; pair++) {
        make(pair);
        for (int round = 1; round <= ROUNDS; round++)
            test_puts(round);
        for (int to = 0; to < ranks; to++) {
            test_accumulates(to);
            test_locks(to);
        }
        drop(pair);
    }
    return finish();
}
