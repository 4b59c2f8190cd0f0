/* Rank 0 waits for a message that never comes: rank 1 says to a fifo which process it is, once both have talked, and does
 * nothing more. What happens then to their adapters, or to rank 1, must reach rank 0.
 * test: only=build */
#include "check.h"
#include <unistd.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    unsigned char *data = allocate(1000);
    for (int round = 0; round < 20; round++)
        MPI_Sendrecv_replace(data, 1000, MPI_BYTE, 1 - rank, 0, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0)
        MPI_Recv(data, 1000, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    FILE *begun = argc > 1 ? fopen(argv[1], "w") : NULL;
    if (begun) {
        fprintf(begun, "%d\n", (int)getpid());
        fclose(begun);
    }
    for (;;)
        pause();
}
