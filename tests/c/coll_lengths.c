/* One rank passes another length than the others to a collective call, so that ranks of several hosts choose different
 * algorithms; or passes the same, but late. Arguments: call, odd rank, its bytes, the bytes of the others.
 * test: only=build */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Longer than a rank waits before it asks whether the call can end. */
enum { LATE_SECONDS = 12 };

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    /* The handler does not matter: the call cannot return. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int odd = argc > 4 && rank == atoi(argv[2]);
    const char *call = argc > 4 ? argv[1] : "";
    int bytes = argc > 4 ? atoi(argv[odd ? 3 : 4]) : 0;
    char *in = calloc(ranks, 1 << 20), *out = calloc(ranks, 1 << 20);
    if (odd && strcmp(call, "late") == 0)
        sleep(LATE_SECONDS);
    if (strcmp(call, "bcast") == 0)
        MPI_Bcast(in, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    else if (strcmp(call, "reduce") == 0)
        MPI_Reduce(in, out, bytes, MPI_BYTE, MPI_BOR, 0, MPI_COMM_WORLD);
    else if (strcmp(call, "allreduce") == 0)
        MPI_Allreduce(in, out, bytes, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    else
        MPI_Allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d is through\n", rank);
    MPI_Finalize();
    return 0;
}
