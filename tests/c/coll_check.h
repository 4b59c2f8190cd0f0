/* Helpers of the collective tests. They print only failures. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures, me, ranks;

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition) && failures++ < 10)                                                 \
            fprintf(stderr, "rank %d of %d: %s:%d: %s\n", me, ranks, __FILE__, __LINE__, #condition); \
    } while (0)

/* Ends MPI and returns the exit code. */
static inline int finish(void)
{
    MPI_Finalize();
    return failures > 0;
}

/* Allocates n ints, at least one, all equal to `value`. */
static inline int *ints(long n, int value)
{
    int *p = malloc((n + 1) * sizeof *p);
    for (long i = 0; i <= n; i++)
        p[i] = value;
    return p;
}

/* Element `i` of the data that rank r sends to rank q. */
static inline int word(int r, int q, long i)
{
    return (r * 131 + q) * 65537 + (int)(i * 3) + 1;
}

static inline void fill(int *p, int r, int q, long n)
{
    for (long i = 0; i < n; i++)
        p[i] = word(r, q, i);
}

static inline int holds(const int *p, int r, int q, long n)
{
    for (long i = 0; i < n; i++)
        if (p[i] != word(r, q, i))
            return 0;
    return 1;
}

static inline int all_are(const int *p, int value, long n)
{
    for (long i = 0; i < n; i++)
        if (p[i] != value)
            return 0;
    return 1;
}
