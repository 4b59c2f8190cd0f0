/* A program with its own conversions and its own versions of names removed by MPI-3.0. */
#define MPI_NO_F2C
#define MPI_NO_REMOVED_NAMES
#include <mpi.h>

typedef long MPI_Fint;

static MPI_Fint MPI_Comm_c2f(MPI_Comm comm)
{
    return MPI_Comm_toint(comm);
}

static MPI_Comm MPI_Comm_f2c(MPI_Fint comm)
{
    return MPI_Comm_fromint((int)comm);
}

static int MPI_Address(void *location, MPI_Aint *address)
{
    return MPI_Get_address(location, address);
}

typedef MPI_Comm_errhandler_function MPI_Handler_function;

static const MPI_Datatype MPI_UB = MPI_DATATYPE_NULL;

int main(void)
{
    MPI_Aint address;
    MPI_Handler_function *handler = 0;

    return MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_SELF)) != MPI_COMM_SELF || handler || MPI_UB != MPI_DATATYPE_NULL ||
           MPI_Address(&address, &address) != MPI_SUCCESS;
}
