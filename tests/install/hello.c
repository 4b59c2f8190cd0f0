/* Prints the version of the MPI library in use, without MPI_Init. */
#include <mpi.h>
#include <stdio.h>

int main(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(text, &length);
    printf("hello from C: %s\n", text);
    return 0;
}
