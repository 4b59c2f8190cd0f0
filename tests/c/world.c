/* Prints its host, which rank it is, of how many. What may be called before MPI_Init works in any environment.
 * test: only=build */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, flag, length;
    char version[MPI_MAX_LIBRARY_VERSION_STRING], host[MPI_MAX_PROCESSOR_NAME];
    MPI_Initialized(&flag);
    MPI_Get_library_version(version, &length);
    printf("initialized %d, %.8s\n", flag, version);
    fflush(stdout);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &length);
    printf("host %s\nrank %d of %d\n", host, rank, size);
    MPI_Finalize();
    return 0;
}
