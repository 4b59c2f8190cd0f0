/* test: ranks=2 timeout=600 only=all variants=none stderr=any
   Puts, gets and accumulates of more than 2^31 bytes and elements, contiguous and with gaps, in windows of mapped
   and unmapped memory. Needs 10 GiB; with less memory the test reports that and runs fewer cases. */
#include "rma_check.h"
#include <unistd.h>

static MPI_Count bytes;

/* Byte `i`: cheap to compute, and different in every gigabyte. */
static unsigned char at(int seed, MPI_Count i)
{
    return (unsigned char)(i * 7 + i / 1000003 + seed);
}

static void expect(int line, const unsigned char *buffer, int seed, MPI_Count every, MPI_Count used)
{
    for (MPI_Count i = 0; i < bytes; i++) {
        unsigned char wanted = i % every < used ? at(seed, i) : 0;
        if (buffer[i] != wanted) {
            fail(line, "byte %lld of %lld is %d instead of %d", (long long)i, (long long)bytes, buffer[i], wanted);
            return;
        }
    }
}

static void test(int kind)
{
    enum { ROW = 1 << 20, USED = ROW - 4096 };
    struct window w = make_window(kind, rank ? (size_t)bytes : 1, 1);
    MPI_Datatype rows;
    OK(MPI_Type_vector_c(bytes / ROW, USED, ROW, MPI_BYTE, &rows));
    OK(MPI_Type_commit(&rows));
    OK(MPI_Win_fence(0, w.win));
    if (rank == 0) {
        unsigned char *buffer = allocate((size_t)bytes);
        for (MPI_Count i = 0; i < bytes; i++)
            buffer[i] = at(1, i);
        OK(MPI_Put_c(buffer, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, w.win));
        OK(MPI_Win_fence(0, w.win));
        memset(buffer, 0, (size_t)bytes);
        OK(MPI_Get_c(buffer, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, w.win));
        OK(MPI_Win_fence(0, w.win));
        expect(__LINE__, buffer, 1, 1, 1);
        /* Bits that are complemented twice: more elements than an int counts, and few large elements. */
        memset(buffer, 0xff, (size_t)bytes);
        OK(MPI_Accumulate_c(buffer, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, MPI_BXOR, w.win));
        OK(MPI_Accumulate_c(buffer, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, MPI_BXOR, w.win));
        OK(MPI_Win_fence(0, w.win));
        memset(buffer, 0, (size_t)bytes);
        OK(MPI_Get(buffer, 1, rows, 1, 0, 1, rows, w.win));
        OK(MPI_Win_fence(0, w.win));
        for (MPI_Count i = bytes / ROW * ROW; i < bytes; i++)
            buffer[i] = i % ROW < USED ? at(1, i) : 0;
        expect(__LINE__, buffer, 1, ROW, USED);
        free(buffer);
    } else {
        for (int fences = 0; fences < 4; fences++) {
            if (fences == 1 || fences == 3)
                expect(__LINE__, w.base, 1, 1, 1);
            OK(MPI_Win_fence(0, w.win));
        }
    }
    OK(MPI_Type_free(&rows));
    free_window(&w);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    double have = (double)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE), least;
    MPI_Allreduce(&have, &least, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    int few = least < 10.0 * (1 << 30);
    bytes = few ? ((MPI_Count)1 << 24) + 12345 : ((MPI_Count)1 << 31) + 12345;
    if (few && rank == 0)
        fprintf(stderr, "rma_large: only %lld bytes: %.1f GiB of memory are free\n", (long long)bytes, least / (1 << 30));
    for (int kind = 0; kind < KINDS; kind++)
        if (kind == FROM_HEAP || kind == ALLOCATED)
            test(kind);
    return finish();
}
