/* Files of the names that it is given, whatever bytes these have. */
/* test: ranks=1 only=build */
#include "check.h"
#include <unistd.h>

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        MPI_File file;
        MPI_Info info;
        char told[MPI_MAX_INFO_VAL + 1] = "";
        int room = sizeof told, flag;
        OK(MPI_File_open(MPI_COMM_WORLD, argv[i], MPI_MODE_WRONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &file));
        OK(MPI_File_write(file, "abc", 3, MPI_BYTE, MPI_STATUS_IGNORE));
        OK(MPI_File_get_info(file, &info));
        MPI_Info_get_string(info, "filename", &room, told, &flag);
        CHECK(flag && strcmp(told, argv[i]) == 0);
        MPI_Info_free(&info);
        OK(MPI_File_close(&file));
        SAME(access(argv[i], W_OK), 0);
        OK(MPI_File_delete(argv[i], MPI_INFO_NULL));
        CHECK(access(argv[i], F_OK) != 0);
        CLASS(MPI_File_delete(argv[i], MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
    }
    return finish();
}
