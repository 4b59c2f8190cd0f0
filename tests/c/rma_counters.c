/* Counters at rank 0 that all ranks change at the same time in every way, short and long: nothing is lost, and no value
 * is fetched twice. tests/jobs/windows.py runs it on virtual hosts.
 * test: ranks=1,2,3,4 timeout=60 */
#include "rma_check.h"

enum { ROUNDS = 50, LONG = 1000 };

int main(int argc, char **argv)
{
    start(&argc, &argv);
    /* One that is fetched, one that is swapped, one that is added to, and the many that are added to together. */
    long long *counters;
    MPI_Win win;
    MPI_Win_allocate((3 + LONG) * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &counters, &win);
    for (int i = 0; i < 3 + LONG; i++) counters[i] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    static long long ones[LONG], before[LONG], fetched[ROUNDS];
    for (int i = 0; i < LONG; i++) ones[i] = 1;
    /* One that the program has asked for has a handle of its own. */
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
