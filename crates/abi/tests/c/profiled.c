/* Calls that a profiler counts, and calls to the other name that it must not see. */
#include <mpi.h>

int main(void)
{
    int version, subversion;
    for (int i = 0; i < 3; i++)
        MPI_Get_version(&version, &subversion);
    PMPI_Get_version(&version, &subversion);
    int world = MPI_Comm_toint(MPI_COMM_WORLD);
    MPI_Comm_toint(MPI_Comm_fromint(world));
    return version != 5 || world != 257;
}
