/* A program with macros that map names removed by MPI-3.0 to their replacements. */
#include <mpi.h>

#ifndef MPI_Address
#define MPI_Address MPI_Get_address
#endif
#define MPI_Errhandler_set MPI_Comm_set_errhandler
#define MPI_Handler_function MPI_Comm_errhandler_function
#define MPI_COMBINER_HVECTOR_INTEGER MPI_COMBINER_HVECTOR

int main(int argc, char **argv)
{
    MPI_Aint address;
    MPI_Handler_function *handler = 0;

    MPI_Init(&argc, &argv);
    MPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Address(&address, &address);
    MPI_Finalize();
    return handler || MPI_COMBINER_HVECTOR_INTEGER != MPI_COMBINER_HVECTOR || address != (MPI_Aint)&address;
}
