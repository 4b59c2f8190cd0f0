/* Thousands of windows at the same time take little memory each; the list of a dynamic window grows and shrinks.
   Argument: the kind of the windows, heap or dynamic.
   test: ranks=1,2,3 timeout=120 variants=none args=heap;dynamic */
#include "rma_check.h"

enum { WINDOWS = 3000, LIVE_KIB = 4, PIECES = 700 };

/* Memory in use by this process, in KiB: its own pages and those of shared files. */
static long used_kib(void)
{
    long kib = 0, part;
    char line[200];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %ld", &part) == 1 || sscanf(line, "RssShmem: %ld", &part) == 1)
            kib += part;
    if (file)
        fclose(file);
    return kib;
}

static void test_live(int kind)
{
    static MPI_Win windows[WINDOWS];
    static int memory[4];
    int value = rank, next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    long base = 0;
    for (int i = 0; i < WINDOWS; i++) {
        /* The first windows allocate memory that all windows share. */
        if (i == 100)
            base = used_kib();
        if (kind == DYNAMIC)
            OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &windows[i]));
        else
            OK(MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &windows[i]));
    }
    long each = (used_kib() - base) / (WINDOWS - 100);
    if (each >= LIVE_KIB)
        fail(__LINE__, "a window of kind %s takes %ld KiB", kind_names[kind], each);
    /* The last window works like the first. */
    MPI_Aint own, at;
    MPI_Win last = windows[WINDOWS - 1];
    if (kind == DYNAMIC)
        OK(MPI_Win_attach(last, memory, sizeof memory));
    MPI_Get_address(memory, &own);
    MPI_Sendrecv(&own, 1, MPI_AINT, before, 0, &at, 1, MPI_AINT, next, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    OK(MPI_Win_fence(0, last));
    OK(MPI_Put(&value, 1, MPI_INT, next, kind == DYNAMIC ? at : 0, 1, MPI_INT, last));
    OK(MPI_Win_fence(0, last));
    SAME(memory[0], before);
    for (int i = 0; i < WINDOWS; i++)
        OK(MPI_Win_free(&windows[i]));
}

/* Pieces are attached and detached while the next rank looks them up: the list grows, and shrinks again. */
static void test_list(void)
{
    static int memory[PIECES][16];
    MPI_Win win;
    MPI_Aint own, at;
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, got;
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI_Get_address(memory, &own);
    MPI_Sendrecv(&own, 1, MPI_AINT, before, 0, &at, 1, MPI_AINT, next, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < PIECES; i++)
        memory[i][0] = rank * 1000 + i;
    /* Number of pieces that were attached, and number of pieces that were detached again. */
    int steps[][2] = {{0, 0}, {1, 0}, {5, 0}, {6, 0}, {7, 0}, {7, 2}, {13, 2}, {101, 2}, {101, 96}, {300, 99}, {300, 297},
                      {PIECES, 298}, {PIECES, PIECES}};
    int end = 0, begin = 0;
    for (size_t step = 0; step < sizeof steps / sizeof *steps; step++) {
        for (; end < steps[step][0]; end++)
            OK(MPI_Win_attach(win, memory[end], sizeof memory[end]));
        for (; begin < steps[step][1]; begin++)
            OK(MPI_Win_detach(win, memory[begin]));
        meet();
        OK(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win));
        for (int i = begin; i < end; i += i < begin + 20 ? 1 : 37) {
            OK(MPI_Get(&got, 1, MPI_INT, next, at + (MPI_Aint)sizeof memory[0] * i, 1, MPI_INT, win));
            OK(MPI_Win_flush(next, win));
            SAME(got, next * 1000 + i);
        }
        OK(MPI_Win_unlock(next, win));
        meet();
    }
    OK(MPI_Win_free(&win));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int kind = argc > 1 && strcmp(argv[1], "heap") == 0 ? FROM_HEAP : DYNAMIC;
    test_live(kind);
    if (kind == DYNAMIC)
        test_list();
    return finish();
}
