/* Two ranks pass messages to each other until that fails, ask for errors to be returned, and leave as usual. To a fifo rank 0
 * says that they have begun.
 * test: only=build */
#include "check.h"

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    unsigned char *data = allocate(1000);
    int code = MPI_SUCCESS;
    for (int round = 0; code == MPI_SUCCESS; round++) {
        code = MPI_Sendrecv_replace(data, 1000, MPI_BYTE, 1 - rank, 0, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        FILE *begun = round == 20 && rank == 0 && argc > 1 ? fopen(argv[1], "w") : NULL;
        if (begun) {
            fputs("begun\n", begun);
            fclose(begun);
        }
    }
    SAME(class_of(code), MPI_ERR_OTHER);
    int result = finish();
    printf("rank %d has left\n", rank);
    return result;
}
