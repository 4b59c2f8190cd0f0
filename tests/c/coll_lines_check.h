/* Collective calls under way at once, and the check of their results, for programs that test shared lines. CALLS, the
 * number of calls, is defined before. */
#include "coll_check.h"

enum { LONGEST = 4000 };
static int *in[CALLS], *out[CALLS];
static MPI_Request requests[CALLS];
static int lengths[CALLS], roots[CALLS];

static void make_memory(void)
{
    for (int at = 0; at < CALLS; at++) {
        in[at] = ints(LONGEST, 0);
        out[at] = ints(LONGEST + 40L * ranks, 0);
    }
}

/* Checks the result of call `at`: barrier, broadcast, allreduce, allgather, gather or scan, by `kind`. */
static void check(int at, int kind, int seed)
{
    int n = lengths[at], bad = 0, sum = ranks * (ranks - 1) / 2;
    for (int i = 0; i < n; i++)
        switch (kind) {
        case 1:
            bad += in[at][i] != roots[at] + i + seed;
            break;
        case 2:
            bad += out[at][i] != sum + ranks * (i + seed);
            break;
        case 3:
        case 4:
            for (int r = 0; r < ranks && (kind == 3 || me == roots[at]); r++)
                bad += out[at][r * n + i] != r + i + seed;
            break;
        case 5:
            bad += out[at][i] != me * (me + 1) / 2 + (me + 1) * (i + seed);
        }
    CHECK(bad == 0);
}
