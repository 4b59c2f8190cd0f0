/* Calls a function of the standard that is not implemented. With an argument, errors are returned. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    char port[MPI_MAX_PORT_NAME];
    int code, class = MPI_SUCCESS;

    MPI_Init(&argc, &argv);
    if (argc > 1)
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    code = MPI_Lookup_name("service", MPI_INFO_NULL, port);
    MPI_Error_class(code, &class);
    printf("%s\n", class == MPI_ERR_UNSUPPORTED_OPERATION ? "unsupported" : "something else");
    MPI_Finalize();
    return 0;
}
