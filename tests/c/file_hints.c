/* Prints hints of a file of the given name that is opened twice; hints that have no effect are among those given. */
/* test: ranks=1 only=build */
#include "check.h"

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int i = 0; i < 2 && argc > 1; i++) {
        const char *keys[] = {"cb_nodes", "cb_buffer_size"};
        MPI_File file;
        MPI_Info info;
        OK(MPI_Info_create(&info));
        OK(MPI_Info_set(info, "cb_nodes", "3"));
        OK(MPI_Info_set(info, "direct_io", "true"));
        OK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file));
        OK(MPI_Info_free(&info));
        OK(MPI_File_get_info(file, &info));
        for (int k = 0; k < 2; k++) {
            char value[MPI_MAX_INFO_VAL + 1] = "";
            int room = sizeof value, flag;
            OK(MPI_Info_get_string(info, keys[k], &room, value, &flag));
            if (rank == 0)
                printf("%s %s\n", keys[k], value);
        }
        OK(MPI_Info_free(&info));
        OK(MPI_File_close(&file));
    }
    return finish();
}
