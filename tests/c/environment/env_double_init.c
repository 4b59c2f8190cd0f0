/* A second MPI_Init or MPI_Finalize returns an error and does not abort.
 * test: ranks=1,2 */
#include "../check.h"

int main(int argc, char **argv)
{
    int provided = -1, flag = 0;
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CLASS(MPI_Init(&argc, &argv), MPI_ERR_OTHER);
    CLASS(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), MPI_ERR_OTHER);
    int other = -1;
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % ranks, 0, &other, 1, MPI_INT, (rank + ranks - 1) % ranks, 0,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    SAME(other, (rank + ranks - 1) % ranks);
    OK(MPI_Comm_free(&meeting));
    OK(MPI_Finalize());
    CLASS(MPI_Finalize(), MPI_ERR_OTHER);
    CLASS(MPI_Init(NULL, NULL), MPI_ERR_OTHER);
    OK(MPI_Finalized(&flag));
    SAME(flag, 1);
    return failures ? 1 : 0;
}
