/* test: ranks=1,4
   A window of 1 GiB on each rank takes memory only for touched pages: one page at its end, touched by its right
   neighbour. */
#include "rma_check.h"
#include <unistd.h>

/* Resident memory of this process, in bytes. */
static long resident(void)
{
    long pages = 0, all = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &pages) != 2)
        fail(__LINE__, "no /proc/self/statm");
    if (file)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    enum { GIB = 1 << 30 };
    char *base, value = 7;
    MPI_Win win;
    int right = (rank + 1) % ranks;
    /* Connections and tables are allocated before the measurement. */
    struct window warm = make_window(ALLOCATED, 1 << 17, 1);
    OK(MPI_Win_fence(0, warm.win));
    OK(MPI_Put(&value, 1, MPI_CHAR, right, 0, 1, MPI_CHAR, warm.win));
    OK(MPI_Win_fence(0, warm.win));
    long before = resident();
    int code = MPI_SUCCESS;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Win_allocate(GIB, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    if (class_of(code) == MPI_ERR_NO_MEM) { /* a machine with less memory must report it here, not later */
        free_window(&warm);
        return finish();
    }
    SAME(code, MPI_SUCCESS);
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&value, 1, MPI_CHAR, right, GIB - 1, 1, MPI_CHAR, win));
    OK(MPI_Win_fence(0, win));
    SAME(base[GIB - 1], 7);
    long grown = resident() - before;
    if (!getenv("FASTPATH_TRANSPORTS") && !are_apart() && grown >= 1 << 20)
        fail(__LINE__, "the window of 1 GiB takes %ld bytes of resident memory", grown);
    OK(MPI_Win_free(&win));
    free_window(&warm);
    return finish();
}
