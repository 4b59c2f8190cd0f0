/* A program that defines functions with names that MPI-3.0 removed, in addition to those of the header: one static,
 * and one global, as a profiling library does. */
#define MPI_NO_DEPRECATION_WARNINGS
#include <mpi.h>

#ifdef __cplusplus
extern "C" int MPI_Type_extent(MPI_Datatype datatype, MPI_Aint *extent);
#endif

int MPI_Type_extent(MPI_Datatype datatype, MPI_Aint *extent)
{
    int code = PMPI_Type_extent(datatype, extent);

    *extent += 1000;
    return code;
}

static int MPI_Address(void *location, MPI_Aint *address)
{
    int code = MPI_Get_address(location, address);

    *address += 1000;
    return code;
}

int main(int argc, char **argv)
{
    MPI_Aint address = 0, extent = 0;

    MPI_Init(&argc, &argv);
    MPI_Address(&argc, &address);
    MPI_Type_extent(MPI_INT, &extent);
    MPI_Finalize();
    return address != (MPI_Aint)&argc + 1000 || extent != (MPI_Aint)sizeof(int) + 1000;
}
