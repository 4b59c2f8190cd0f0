/* Read-only memory can be read by gets; operations that write it are rejected, whether the origin or the target carries
 * them out. tests/jobs/windows.py runs it on virtual hosts.
 * test: ranks=1,2,3 */
#include "rma_check.h"
#include <sys/mman.h>

/* An operation and the flush after it: the first error of the two has this class. */
#define FAILS(call, class)                                                                                   \
    do {                                                                                                     \
        int code_ = (call), after_ = MPI_Win_flush(last, win);                                               \
        CLASS(code_ != MPI_SUCCESS ? code_ : after_, class);                                                 \
    } while (0)

int main(int argc, char **argv)
{
    start(&argc, &argv);
    enum { ALL = 1 << 16 };
    static char bytes[ALL];
    static const int sizes[] = {1, 256, ALL};
    long one = 1, old = -1;
    int last = ranks - 1;
    MPI_Win win;
    void *memory = mmap(NULL, ALL, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(MPI_Win_create(memory, ALL, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    /* A store to the process's own read-only memory ends the process, as any store of the program would. */
    if (rank != last) {
        OK(MPI_Win_lock(MPI_LOCK_SHARED, last, 0, win));
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            FAILS(MPI_Put(bytes, sizes[i], MPI_CHAR, last, 0, sizes[i], MPI_CHAR, win), MPI_ERR_RMA_RANGE);
            memset(bytes, 1, ALL);
            OK(MPI_Get(bytes, sizes[i], MPI_CHAR, last, 0, sizes[i], MPI_CHAR, win));
            OK(MPI_Win_flush(last, win));
            SAME(bytes[sizes[i] - 1], 0);
        }
        FAILS(MPI_Accumulate(&one, 1, MPI_LONG, last, 0, 1, MPI_LONG, MPI_SUM, win), MPI_ERR_RMA_RANGE);
        FAILS(MPI_Fetch_and_op(&one, &old, MPI_LONG, last, 0, MPI_SUM, win), MPI_ERR_RMA_RANGE);
        OK(MPI_Fetch_and_op(&one, &old, MPI_LONG, last, 0, MPI_NO_OP, win));
        OK(MPI_Win_unlock(last, win));
        SAME(old, 0);
    }
    meet();
    OK(MPI_Win_free(&win));
    munmap(memory, ALL);
    return finish();
}
