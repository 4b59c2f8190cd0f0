/* Counters at rank 0 that all ranks change concurrently by all operations, short and long. No update is lost, and no
 * value is fetched twice. tests/jobs/windows.py runs it on virtual hosts.
 * test: ranks=1,2,3,4 timeout=60 */
#include "rma_check.h"
#include <stddef.h>
#include <stdint.h>

enum { ROUNDS = 50, LONG = 1000 };

/* Elements of 1 and 2 bytes that share one word: an update changes no other element. Between the updates each rank also
 * reads an element by MPI_NO_OP, without an operand. */
static void test_short(void)
{
    struct word { uint8_t fetched, swapped, added, untouched; uint16_t fetched2, swapped2; } *word;
    MPI_Win win;
    MPI_Win_allocate(sizeof *word, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &word, &win);
    memset(word, 0, sizeof *word);
    word->untouched = 77;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    const uint8_t one = 1;
    const uint16_t one2 = 1;
    for (int round = 0; round < ROUNDS; round++) {
        uint8_t before = 0;
        uint16_t before2 = 0;
        MPI_Fetch_and_op(&one, &before, MPI_UINT8_T, 0, offsetof(struct word, fetched), MPI_SUM, win);
        MPI_Fetch_and_op(&one2, &before2, MPI_UINT16_T, 0, offsetof(struct word, fetched2), MPI_SUM, win);
        MPI_Accumulate(&one, 1, MPI_UINT8_T, 0, offsetof(struct word, added), 1, MPI_UINT8_T, MPI_SUM, win);
        for (uint8_t seen = 0, next, found;; seen = found) {
            next = (uint8_t)(seen + 1);
            MPI_Compare_and_swap(&next, &seen, &found, MPI_UINT8_T, 0, offsetof(struct word, swapped), win);
            MPI_Win_flush(0, win);
            if (found == seen) break;
        }
        for (uint16_t seen = 0, next, found;; seen = found) {
            next = (uint16_t)(seen + 1);
            MPI_Compare_and_swap(&next, &seen, &found, MPI_UINT16_T, 0, offsetof(struct word, swapped2), win);
            MPI_Win_flush(0, win);
            if (found == seen) break;
        }
        uint8_t read = 0;
        MPI_Fetch_and_op(NULL, &read, MPI_UINT8_T, 0, offsetof(struct word, untouched), MPI_NO_OP, win);
        MPI_Win_flush_local(0, win);
        SAME(read, 77);
        CHECK(before + 1 <= ranks * ROUNDS && before2 + 1 <= ranks * ROUNDS);
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        int total = ranks * ROUNDS;
        SAME(word->fetched, total);
        SAME(word->fetched2, total);
        SAME(word->added, total);
        SAME(word->swapped, total);
        SAME(word->swapped2, total);
        SAME(word->untouched, 77);
    }
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    test_short();
    /* One counter is fetched, one is swapped, one is added to, and many are added to in one call. */
    long long *counters;
    MPI_Win win;
    MPI_Win_allocate((3 + LONG) * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &counters, &win);
    for (int i = 0; i < 3 + LONG; i++) counters[i] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    static long long ones[LONG], before[LONG], fetched[ROUNDS];
    for (int i = 0; i < LONG; i++) ones[i] = 1;
    /* A request-based operation has its own handle. */
    MPI_Datatype wide;
    MPI_Type_create_f90_integer(18, &wide);
    MPI_Win_lock_all(0, win);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Fetch_and_op(ones, &fetched[round], MPI_LONG_LONG, 0, 0, MPI_SUM, win);
        MPI_Win_flush(0, win);
        for (long long seen = 0, found; ; seen = found) {
            long long next = seen + 1;
            MPI_Compare_and_swap(&next, &seen, &found, round % 2 ? wide : MPI_LONG_LONG, 0, 1, win);
            MPI_Win_flush(0, win);
            if (found == seen) break;
        }
        for (int i = 0; i < 5; i++) MPI_Accumulate(ones, 1, MPI_LONG_LONG, 0, 2, 1, MPI_LONG_LONG, MPI_SUM, win);
        MPI_Accumulate(ones, LONG, MPI_LONG_LONG, 0, 3, LONG, MPI_LONG_LONG, MPI_SUM, win);
        MPI_Get_accumulate(ones, 3, MPI_LONG_LONG, before, 3, MPI_LONG_LONG, 0, 3, 3, MPI_LONG_LONG, MPI_SUM, win);
        MPI_Win_flush(0, win);
        CHECK(round == 0 || fetched[round] > fetched[round - 1]);
    }
    MPI_Win_unlock_all(win);
    long long *all = malloc(sizeof fetched * (size_t)ranks);
    MPI_Gather(fetched, ROUNDS, MPI_LONG_LONG, all, ROUNDS, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        long long total = (long long)ranks * ROUNDS;
        char *seen = calloc((size_t)total, 1);
        for (long long i = 0; i < total; i++) {
            CHECK(all[i] >= 0 && all[i] < total && !seen[all[i]]);
            seen[all[i]] = 1;
        }
        CHECK(counters[0] == total && counters[1] == total && counters[2] == 5 * total);
        for (int i = 0; i < LONG; i++) CHECK(counters[3 + i] == total * (i < 3 ? 2 : 1));
        free(seen);
    }
    free(all);
    MPI_Win_free(&win);
    return finish();
}
