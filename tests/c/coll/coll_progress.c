/* FASTPATH_PROGRESS=thread: outstanding collectives progress while rank 0 computes. Rank 0 makes no MPI call until the
 * others have completed their calls, which need rank 0 in a later step. By then, the other ranks may have begun later
 * calls. Argument: rounds.
 * test: ranks=2,3,4 timeout=120 variants=none env=FASTPATH_PROGRESS=thread */
#define _GNU_SOURCE
#include "../coll_check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LONG = 1 << 16 };

/* Number of calls that the ranks other than 0 have completed together, in memory that all ranks map. */
static volatile int *over;

static void map_together(void)
{
    char name[256] = "";
    int file = -1;
    if (me == 0) {
        const char *folder = getenv("TMPDIR");
        snprintf(name, sizeof name, "%s/coll-progress-XXXXXX", folder ? folder : "/tmp");
        file = mkstemp(name);
        CHECK(file >= 0 && ftruncate(file, 4096) == 0);
    }
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (me != 0)
        file = open(name, O_RDWR);
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(at != MAP_FAILED);
    over = at;
    close(file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0)
        unlink(name);
}

static void complete(MPI_Request *request, int calls)
{
    if (me == 0) {
        while (*over < calls * (ranks - 1))
            for (volatile int work = 0; work < 1000; work++)
                continue;
    } else {
        MPI_Wait(request, MPI_STATUS_IGNORE);
        __atomic_add_fetch(over, 1, __ATOMIC_SEQ_CST);
    }
    MPI_Wait(request, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    int provided, calls = 0;
    MPI_Request request;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    map_together();
    double *in = malloc(LONG * sizeof *in), *out = malloc(LONG * sizeof *out);
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    for (int round = 0; round < rounds; round++) {
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        complete(&request, ++calls);
        for (int i = 0; i < LONG; i++)
            in[i] = i + me + round, out[i] = -1;
        MPI_Iallreduce(in, out, LONG, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
        complete(&request, ++calls);
        int right = 1;
        for (int i = 0; i < LONG; i++)
            right &= out[i] == ranks * (double)(i + round) + ranks * (ranks - 1) / 2;
        CHECK(right);
        int value = me == 1 ? round : -1;
        MPI_Ibcast(&value, 1, MPI_INT, 1, MPI_COMM_WORLD, &request);
        complete(&request, ++calls);
        CHECK(value == round);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free(in);
    free(out);
    return finish();
}
