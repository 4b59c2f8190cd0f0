/* test: ranks=2,3 timeout=600 only=all variants=none stderr=any
   More than 2^31 elements and bytes. Needs 3 GiB for each rank; with less memory the test reports that and runs
   fewer cases. */
#include "../coll_check.h"
#include <unistd.h>

static signed char pattern(MPI_Count i)
{
    return (signed char)(i * 7 + i / 1000003);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double have = (double)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE), least;
    MPI_Allreduce(&have, &least, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    MPI_Count n = ((MPI_Count)1 << 31) + 12345;
    if (least < 3.0 * (1 << 30) * ranks) {
        n = ((MPI_Count)1 << 24) + 12345;
        if (me == 0)
            fprintf(stderr, "coll_large: only %lld elements: %.1f GiB of memory are free\n", (long long)n, least / (1 << 30));
    }
    signed char *p = malloc(n);
    long bad = 0;
    for (MPI_Count i = 0; i < n; i++)
        p[i] = me == 0 ? pattern(i) : 1;
    MPI_Bcast_c(p, n, MPI_SIGNED_CHAR, 0, MPI_COMM_WORLD);
    for (MPI_Count i = 0; i < n; i++)
        bad += p[i] != pattern(i);
    CHECK(bad == 0);
    for (MPI_Count i = 0; i < n; i++)
        p[i] = (signed char)(i % 5 + me);
    MPI_Allreduce_c(MPI_IN_PLACE, p, n, MPI_SIGNED_CHAR, MPI_SUM, MPI_COMM_WORLD);
    for (MPI_Count i = 0; i < n; i++)
        bad += p[i] != (signed char)(ranks * (i % 5) + ranks * (ranks - 1) / 2);
    CHECK(bad == 0);

    /* Equally many bytes, as a small count of a large type. */
    MPI_Datatype block;
    MPI_Count blocks = n >> 20;
    MPI_Type_contiguous(1 << 20, MPI_SIGNED_CHAR, &block);
    MPI_Type_commit(&block);
    for (MPI_Count i = 0; i < blocks << 20; i++)
        p[i] = me == ranks - 1 ? pattern(i) : 1;
    MPI_Bcast(p, (int)blocks, block, ranks - 1, MPI_COMM_WORLD);
    for (MPI_Count i = 0; i < blocks << 20; i++)
        bad += p[i] != pattern(i);
    CHECK(bad == 0);
    MPI_Type_free(&block);
    free(p);
    return finish();
}
