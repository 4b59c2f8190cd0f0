/* Calls a function of the standard that is not implemented. With an argument, errors are returned. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int code, class = MPI_SUCCESS;

    MPI_Init(&argc, &argv);
    if (argc == 1)
        MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_ARE_FATAL);
    code = MPI_Register_datarep("other", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, NULL, NULL);
    MPI_Error_class(code, &class);
    printf("%s\n", class == MPI_ERR_UNSUPPORTED_OPERATION ? "unsupported" : "something else");
    MPI_Finalize();
    return 0;
}
