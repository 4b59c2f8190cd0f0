/* Two ranks pass messages to each other until somebody ends them. With the path of a fifo rank 0 says there that they have
 * begun.
 * test: only=build */
#include "check.h"

int main(int argc, char **argv)
{
    const char *fifo = argc > 1 ? argv[1] : NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    unsigned char *data = allocate(1000);
    for (long round = 0;; round++) {
        MPI_Sendrecv_replace(data, 1000, MPI_BYTE, 1 - rank, 0, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (round == 20 && rank == 0 && fifo) {
            FILE *begun = fopen(fifo, "w");
            fputs("begun\n", begun);
            fclose(begun);
        }
    }
}
