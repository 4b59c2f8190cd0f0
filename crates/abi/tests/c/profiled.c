/* Calls that a profiler counts, and calls to the other name that it must not see. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int version, subversion, received = 0, wrong = 0;
    MPI_Get_version(&version, &subversion);
    MPI_Init(&argc, &argv);
    for (int i = 1; i <= 5; i++) {
        MPI_Request request;
        MPI_Irecv(&received, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &request);
        if (i == 5)
            PMPI_Send(&i, 1, MPI_INT, 0, 3, MPI_COMM_SELF);
        else
            MPI_Send(&i, 1, MPI_INT, 0, 3, MPI_COMM_SELF);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong += received != i;
    }
    PMPI_Get_version(&version, &subversion);
    MPI_Finalize();
    return wrong;
}
