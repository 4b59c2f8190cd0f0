/* Two ranks pass messages to each other, each of which must be the next one, until somebody ends them. With the path of a fifo
 * rank 0 says there that they have begun; with a second path they end, and say so, once there is such a file.
 * test: only=build */
#include "check.h"
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *fifo = argc > 1 ? argv[1] : NULL, *end = argc > 2 ? argv[2] : NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    unsigned char *data = allocate(1000), *got = allocate(1000);
    int ends = 0;
    for (unsigned round = 0; !ends; round++) {
        if (round % 16 == 0 && rank == 0 && end)
            ends = access(end, F_OK) == 0;
        fill(data, 999, 2 * round + rank);
        data[999] = ends;
        MPI_Sendrecv(data, 1000, MPI_BYTE, 1 - rank, 0, got, 1000, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        HOLDS(got, 999, 2 * round + 1 - rank);
        if (rank == 1)
            ends = got[999];
        if (round == 20 && rank == 0 && fifo) {
            FILE *begun = fopen(fifo, "w");
            fputs("begun\n", begun);
            fclose(begun);
        }
    }
    if (rank == 0)
        printf("ended\n");
    return finish();
}
