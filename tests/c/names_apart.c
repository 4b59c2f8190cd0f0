/* The first rank publishes a name, and the last one looks for it: which ends a job on several hosts.
 * test: only=build */
#include "check.h"

int main(int argc, char **argv)
{
    char port[MPI_MAX_PORT_NAME] = "anywhere";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0)
        OK(MPI_Publish_name("apart", MPI_INFO_NULL, port));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == ranks - 1)
        OK(MPI_Lookup_name("apart", MPI_INFO_NULL, port));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return failures != 0;
}
