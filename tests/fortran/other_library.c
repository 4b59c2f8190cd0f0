/* Preloaded, makes the C library look like that of another MPI to the Fortran library, which then converts handles by
 * MPI_X_fromint and MPI_X_toint and calls operators and error handlers through its own functions. */
#include <mpi.h>
#include <string.h>

int PMPI_Get_library_version(char *version, int *length)
{
    strcpy(version, "Another MPI");
    *length = (int)strlen(version);
    return MPI_SUCCESS;
}
