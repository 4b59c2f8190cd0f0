/* Makes a message that has the name of the second argument in it, of the kind that the first one says.
 * test: only=build */
#include <mpi.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "", *name = argc > 2 ? argv[2] : "";
    int rank, value = 0, *memory;
    MPI_Comm named, other;
    MPI_Win win;
    MPI_File file;
    MPI_Info info;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &named);
    MPI_Comm_set_name(named, name);
    MPI_Info_create(&info);
    if (strcmp(how, "comm") == 0)
        MPI_Send(&value, 1, MPI_INT, 99, 3, named);
    if (strcmp(how, "abort") == 0)
        MPI_Abort(named, 3);
    if (strcmp(how, "hang") == 0)
        MPI_Recv(&value, 1, MPI_INT, rank, 3, named, MPI_STATUS_IGNORE);
    if (strcmp(how, "left") == 0 && rank == 0)
        MPI_Send(&value, 1, MPI_INT, 1, 3, named);
    if (strcmp(how, "file") == 0) {
        MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_ARE_FATAL);
        MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    }
    if (strcmp(how, "kept") == 0) {
        MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                      &file);
        MPI_File_close(&file);
    }
    if (strcmp(how, "spawn") == 0)
        MPI_Comm_spawn(name, MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
    if (strcmp(how, "info") == 0) {
        MPI_Info_set(info, "wdir", name);
        MPI_Comm_spawn("true", MPI_ARGV_NULL, 1, info, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
    }
    if (strcmp(how, "service") == 0) {
        char port[MPI_MAX_PORT_NAME];
        MPI_Lookup_name(name, MPI_INFO_NULL, port);
    }
    if (strcmp(how, "port") == 0)
        MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
    MPI_Win_allocate(64, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_set_name(win, name);
    MPI_Win_fence(0, win);
    if (strcmp(how, "win") == 0)
        MPI_Put(&value, 1, MPI_INT, 0, 99, 1, MPI_INT, win);
    MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    MPI_Info_free(&info);
    if (strcmp(how, "left") != 0)
        MPI_Comm_free(&named);
    MPI_Finalize();
    return 0;
}
