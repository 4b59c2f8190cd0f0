/* test: ranks=1,2,3,4,8
   Accumulate functions: every predefined operation on several datatypes, derived datatypes and pairs; atomic by
   element with concurrent origins; operations of one origin in order; the request forms. */
#include "rma_check.h"
#include <complex.h>

#define EVERY_OP(X) X(MPI_MAX) X(MPI_MIN) X(MPI_SUM) X(MPI_PROD) X(MPI_LAND) X(MPI_BAND) X(MPI_LOR) X(MPI_BOR) X(MPI_LXOR) \
    X(MPI_BXOR) X(MPI_REPLACE) X(MPI_NO_OP)

/* Result of `op` on `old`, by the standard. */
static long long apply(MPI_Op op, long long value, long long old)
{
    if (op == MPI_MAX) return value > old ? value : old;
    if (op == MPI_MIN) return value < old ? value : old;
    if (op == MPI_SUM) return old + value;
    if (op == MPI_PROD) return old * value;
    if (op == MPI_LAND) return old && value;
    if (op == MPI_BAND) return old & value;
    if (op == MPI_LOR) return old || value;
    if (op == MPI_BOR) return old | value;
    if (op == MPI_LXOR) return !old != !value;
    if (op == MPI_BXOR) return old ^ value;
    if (op == MPI_REPLACE) return value;
    return old;
}

/* Each rank has its own column at its right neighbour, so that every result is known. */
#define TEST_TYPE(type, handle)                                                                              \
    static void test_##type(int kind)                                                                        \
    {                                                                                                        \
        enum { N = 37 };                                                                                     \
        struct window w = make_window(kind, N * sizeof(type), sizeof(type));                                 \
        int right = (rank + 1) % ranks;                                                                      \
        MPI_Op ops[] = {EVERY_OP(COMMA)};                                                                    \
        type value[N], result[N], expected[N] = {0};                                                         \
        OK(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, w.win));                                                  \
        for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)                                                \
            for (int round = 0; round < 4; round++) {                                                        \
                int n = round % 2 ? N : 1;                                                                   \
                for (int k = 0; k < n; k++)                                                                  \
                    value[k] = (type)((k * 7 + round * 3 + rank) % 5 - 1), result[k] = 99;                   \
                MPI_Aint at = place(&w, right, 0, sizeof(type));                                             \
                if (round < 2)                                                                               \
                    OK(MPI_Get_accumulate(value, n, handle, result, n, handle, right, at, n, handle, ops[i], w.win)); \
                else if (n == 1)                                                                             \
                    OK(MPI_Fetch_and_op(value, result, handle, right, at, ops[i], w.win));                   \
                else                                                                                         \
                    OK(MPI_Accumulate(value, n, handle, right, at, n, handle, ops[i], w.win));               \
                OK(MPI_Win_flush(right, w.win));                                                             \
                for (int k = 0; k < n; k++) {                                                                \
                    if (round != 3)                                                                          \
                        SAME(result[k], expected[k]);                                                        \
                    expected[k] = (type)apply(ops[i], (long long)value[k], (long long)expected[k]);          \
                }                                                                                            \
            }                                                                                                \
        OK(MPI_Get(result, N, handle, right, place(&w, right, 0, sizeof(type)), N, handle, w.win));          \
        OK(MPI_Win_unlock(right, w.win));                                                                    \
        for (int k = 0; k < N; k++)                                                                          \
            SAME(result[k], expected[k]);                                                                    \
        free_window(&w);                                                                                     \
    }
#define COMMA(op) op,
typedef signed char schar;
typedef long long llong;
TEST_TYPE(int, MPI_INT)
TEST_TYPE(schar, MPI_SIGNED_CHAR)
TEST_TYPE(short, MPI_SHORT)
TEST_TYPE(llong, MPI_LONG_LONG)

/* Floating point, pairs with a gap, and datatypes with gaps on one side. */
static void test_others(int kind)
{
    struct pair { double value; int index; };
    enum { N = 20 };
    struct window w = make_window(kind, N * sizeof(struct pair), 1);
    int right = (rank + 1) % ranks;
    MPI_Aint at = place(&w, right, 0, 1);
    OK(MPI_Win_lock_all(0, w.win));
    struct pair mine[N], old[N];
    for (int i = 0; i < N; i++)
        mine[i].value = i % 2 ? 1.5 * i : -2.5, mine[i].index = i;
    OK(MPI_Get_accumulate(mine, N, MPI_DOUBLE_INT, old, N, MPI_DOUBLE_INT, right, at, N, MPI_DOUBLE_INT, MPI_MAXLOC, w.win));
    OK(MPI_Win_flush(right, w.win));
    for (int i = 0; i < N; i++)
        CHECK(old[i].value == 0 && old[i].index == 0);
    OK(MPI_Get_accumulate(NULL, 0, MPI_DOUBLE_INT, old, N, MPI_DOUBLE_INT, right, at, N, MPI_DOUBLE_INT, MPI_NO_OP, w.win));
    OK(MPI_Win_flush(right, w.win));
    for (int i = 0; i < N; i++)
        CHECK(i % 2 ? old[i].value == 1.5 * i && old[i].index == i : old[i].value == 0 && old[i].index == 0);
    OK(MPI_Accumulate(mine, N, MPI_DOUBLE_INT, right, at, N, MPI_DOUBLE_INT, MPI_REPLACE, w.win));
    OK(MPI_Win_flush(right, w.win));
    OK(MPI_Get(old, N, MPI_DOUBLE_INT, right, at, N, MPI_DOUBLE_INT, w.win));
    OK(MPI_Win_flush(right, w.win));
    for (int i = 0; i < N; i++)
        CHECK(old[i].value == mine[i].value && old[i].index == i);
    /* Every second double at the target, every third at the origin. */
    double zeros[2 * N] = {0}, doubles[3 * N], back[2 * N];
    MPI_Datatype second, third;
    MPI_Type_vector(N, 1, 2, MPI_DOUBLE, &second);
    MPI_Type_vector(N, 1, 3, MPI_DOUBLE, &third);
    MPI_Type_commit(&second);
    MPI_Type_commit(&third);
    OK(MPI_Put(zeros, 2 * N, MPI_DOUBLE, right, at, 2 * N, MPI_DOUBLE, w.win));
    OK(MPI_Win_flush(right, w.win));
    for (int i = 0; i < 3 * N; i++)
        doubles[i] = i + 0.25;
    for (int i = 0; i < 3; i++)
        OK(MPI_Accumulate(doubles, 1, third, right, at, 1, second, MPI_SUM, w.win));
    OK(MPI_Win_flush(right, w.win));
    OK(MPI_Get_accumulate(doubles, 1, third, back, N, MPI_DOUBLE, right, at, 1, second, MPI_SUM, w.win));
    OK(MPI_Win_flush(right, w.win));
    for (int i = 0; i < N; i++)
        CHECK(back[i] == 3 * (3 * i + 0.25));
    OK(MPI_Get(back, 2 * N, MPI_DOUBLE, right, at, 2 * N, MPI_DOUBLE, w.win));
    OK(MPI_Win_flush(right, w.win));
    for (int i = 0; i < 2 * N; i++)
        CHECK(back[i] == (i % 2 ? 0 : 4 * (3 * (i / 2) + 0.25)));
    /* Operations of one origin on one location are carried out in call order. */
    double steps[3] = {8, 3, 5}, last;
    for (int i = 0; i < 50; i++) {
        steps[1] = i;
        OK(MPI_Accumulate(&steps[0], 1, MPI_DOUBLE, right, at, 1, MPI_DOUBLE, MPI_REPLACE, w.win));
        OK(MPI_Accumulate(&steps[1], 1, MPI_DOUBLE, right, at, 1, MPI_DOUBLE, MPI_PROD, w.win));
        OK(MPI_Accumulate(&steps[2], 1, MPI_DOUBLE, right, at, 1, MPI_DOUBLE, MPI_SUM, w.win));
        OK(MPI_Fetch_and_op(NULL, &last, MPI_DOUBLE, right, at, MPI_NO_OP, w.win));
        OK(MPI_Win_flush(right, w.win));
        CHECK(last == 8.0 * i + 5);
    }
    OK(MPI_Win_unlock_all(w.win));
    MPI_Type_free(&second);
    MPI_Type_free(&third);
    free_window(&w);
}

/* Pairs of all C types, with both operations: equal values yield the lower index. */
#define TEST_PAIR(type, handle)                                                                                        \
    static void test_##handle(int kind)                                                                                \
    {                                                                                                                  \
        enum { N = 9 };                                                                                                \
        struct pair { type value; int index; } there[N], mine[N], old[N];                                              \
        struct window w = make_window(kind, sizeof there, 1);                                                          \
        int right = (rank + 1) % ranks;                                                                                \
        MPI_Aint at = place(&w, right, 0, 1);                                                                          \
        for (int i = 0; i < N; i++) {                                                                                  \
            there[i].value = (type)(i % 3), there[i].index = 50;                                                       \
            mine[i].value = (type)1, mine[i].index = i;                                                                \
        }                                                                                                              \
        OK(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, w.win));                                                            \
        for (int round = 0; round < 2; round++) {                                                                      \
            OK(MPI_Accumulate(there, N, handle, right, at, N, handle, MPI_REPLACE, w.win));                            \
            OK(MPI_Accumulate(mine, N, handle, right, at, N, handle, round ? MPI_MINLOC : MPI_MAXLOC, w.win));         \
            OK(MPI_Get_accumulate(NULL, 0, handle, old, N, handle, right, at, N, handle, MPI_NO_OP, w.win));           \
            OK(MPI_Win_flush(right, w.win));                                                                           \
            for (int i = 0; i < N; i++) {                                                                              \
                int keeps = round ? i % 3 == 0 : i % 3 == 2;                                                           \
                CHECK(old[i].value == (keeps ? (type)(i % 3) : (type)1) && old[i].index == (keeps ? 50 : i));          \
            }                                                                                                          \
        }                                                                                                              \
        OK(MPI_Win_unlock(right, w.win));                                                                              \
        free_window(&w);                                                                                               \
    }
TEST_PAIR(int, MPI_2INT)
TEST_PAIR(short, MPI_SHORT_INT)
TEST_PAIR(long, MPI_LONG_INT)
TEST_PAIR(float, MPI_FLOAT_INT)
TEST_PAIR(double, MPI_DOUBLE_INT)
TEST_PAIR(long double, MPI_LONG_DOUBLE_INT)

/* Types for which no single store exists. */
static void test_wide(int kind)
{
    struct { double _Complex product; long double most, sum; _Bool either; } there, *at_home;
    struct window w = make_window(kind, sizeof there, 1);
    int right = (rank + 1) % ranks;
    double _Complex factor = 1 + 2 * _Complex_I;
    long double value = 1.5L + 0x1p-60L;
    _Bool yes = 1;
    there.product = 3, there.most = -4, there.sum = 2, there.either = 0;
    const MPI_Aint product = place(&w, right, (char *)&there.product - (char *)&there, 1),
                   most = place(&w, right, (char *)&there.most - (char *)&there, 1),
                   sum = place(&w, right, (char *)&there.sum - (char *)&there, 1),
                   either = place(&w, right, (char *)&there.either - (char *)&there, 1);
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, w.win));
    OK(MPI_Put(&there, sizeof there, MPI_BYTE, right, place(&w, right, 0, 1), sizeof there, MPI_BYTE, w.win));
    OK(MPI_Win_flush(right, w.win));
    OK(MPI_Accumulate(&factor, 1, MPI_C_DOUBLE_COMPLEX, right, product, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, w.win));
    OK(MPI_Accumulate(&value, 1, MPI_LONG_DOUBLE, right, most, 1, MPI_LONG_DOUBLE, MPI_MAX, w.win));
    OK(MPI_Accumulate(&value, 1, MPI_LONG_DOUBLE, right, sum, 1, MPI_LONG_DOUBLE, MPI_SUM, w.win));
    OK(MPI_Accumulate(&yes, 1, MPI_C_BOOL, right, either, 1, MPI_C_BOOL, MPI_LOR, w.win));
    OK(MPI_Win_unlock(right, w.win));
    meet();
    OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w.win));
    at_home = (void *)w.base;
    CHECK(at_home->product == 3 + 6 * _Complex_I);
    CHECK(at_home->most == value && at_home->sum == 2 + value && at_home->either);
    OK(MPI_Win_unlock(rank, w.win));
    free_window(&w);
}

/* No elements, for any datatype. */
static void test_nothing(int kind)
{
    struct window w = make_window(kind, sizeof(int), sizeof(int));
    MPI_Datatype none;
    int value = 5, result = 6, right = (rank + 1) % ranks;
    MPI_Aint at = place(&w, right, 0, sizeof(int));
    MPI_Type_contiguous(0, MPI_INT, &none);
    MPI_Type_commit(&none);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, w.win));
    OK(MPI_Accumulate(&value, 3, none, right, at, 0, MPI_INT, MPI_SUM, w.win));
    OK(MPI_Accumulate(&value, 0, MPI_INT, right, at, 3, none, MPI_SUM, w.win));
    OK(MPI_Get_accumulate(&value, 0, MPI_DOUBLE, &result, 2, none, right, at, 0, MPI_INT, MPI_SUM, w.win));
    OK(MPI_Win_unlock(right, w.win));
    SAME(result, 6);
    meet();
    SAME(*(int *)w.base, 0);
    MPI_Type_free(&none);
    free_window(&w);
}

/* All ranks update the same words: no update is lost, every ticket is unique, and arrays are atomic by element. */
static void test_together(int kind, int rounds)
{
    enum { N = 100 };
    struct window w = make_window(kind, (2 + N) * sizeof(long), sizeof(long));
    int at = ranks / 2;
    long one = 1, ticket, swapped = 0, ones[N];
    char *seen = calloc((size_t)ranks * (size_t)rounds, 1);
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    OK(MPI_Win_lock_all(0, w.win));
    for (int i = 0; i < rounds; i++) {
        OK(MPI_Fetch_and_op(&one, &ticket, MPI_LONG, at, place(&w, at, 0, sizeof(long)), MPI_SUM, w.win));
        OK(MPI_Win_flush(at, w.win));
        CHECK(ticket >= 0 && ticket < (long)ranks * rounds);
        if (ticket >= 0 && ticket < (long)ranks * rounds)
            seen[ticket]++;
        /* An increment by compare-and-swap. */
        for (long expected = swapped;; expected = swapped) {
            long next = expected + 1;
            OK(MPI_Compare_and_swap(&next, &expected, &swapped, MPI_LONG, at, place(&w, at, sizeof(long), sizeof(long)), w.win));
            OK(MPI_Win_flush(at, w.win));
            if (swapped == expected)
                break;
        }
        if (i % 10 == 0) {
            MPI_Request request;
            OK(MPI_Raccumulate(ones, N, MPI_LONG, at, place(&w, at, 2 * sizeof(long), sizeof(long)), N, MPI_LONG, MPI_SUM,
                               w.win, &request));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            long sums[N];
            OK(MPI_Rget_accumulate(NULL, 0, MPI_LONG, sums, N, MPI_LONG, at, place(&w, at, 2 * sizeof(long), sizeof(long)), N,
                                   MPI_LONG, MPI_NO_OP, w.win, &request));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            for (int k = 1; k < N; k++)
                CHECK(sums[k] >= 1 && sums[k] <= (long)ranks * rounds);
        }
    }
    OK(MPI_Win_unlock_all(w.win));
    MPI_Allreduce(MPI_IN_PLACE, seen, ranks * rounds, MPI_CHAR, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < ranks * rounds; i++)
        SAME(seen[i], 1);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, at, 0, w.win));
    long all[2 + N];
    OK(MPI_Get(all, 2 + N, MPI_LONG, at, place(&w, at, 0, sizeof(long)), 2 + N, MPI_LONG, w.win));
    OK(MPI_Win_unlock(at, w.win));
    SAME(all[0], (long)ranks * rounds);
    SAME(all[1], (long)ranks * rounds);
    for (int k = 0; k < N; k++)
        SAME(all[2 + k], (long)ranks * ((rounds + 9) / 10));
    free(seen);
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int rounds = are_apart() || getenv("FASTPATH_TRANSPORTS") ? 20 : 300;
    for (int kind = 0; kind < KINDS; kind++) {
        int before = failures;
        if (!has_kind(kind))
            continue;
        test_int(kind);
        if (rounds > 20) { /* beyond that, all datatypes share one path */
            test_schar(kind);
            test_short(kind);
            test_llong(kind);
        }
        if (rounds > 20) {
            test_MPI_2INT(kind);
            test_MPI_SHORT_INT(kind);
            test_MPI_LONG_INT(kind);
            test_MPI_FLOAT_INT(kind);
            test_MPI_DOUBLE_INT(kind);
            test_MPI_LONG_DOUBLE_INT(kind);
        }
        test_others(kind);
        test_wide(kind);
        test_nothing(kind);
        test_together(kind, rounds);
        if (failures != before)
            fprintf(stderr, "rank %d: the window was of kind %s\n", rank, kind_names[kind]);
    }
    return finish();
}
