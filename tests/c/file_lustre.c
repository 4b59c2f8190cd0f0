/* Files with stripes; tests/jobs/files.py puts a file system that answers as Lustre does between this program and the
 * system. Word: the folder. */
/* test: only=build */
#include "check.h"

static char path[300];

/* Opens the file with the hints, or none; it has these stripes then. */
static void open_file(int amode, const char *unit, const char *factor, const char *has_unit, const char *has_factor)
{
    MPI_File file;
    MPI_Info hints, told;
    MPI_Status status;
    char value[MPI_MAX_INFO_VAL + 1];
    int flag, length, out[4], in[4];
    MPI_Info_create(&hints);
    if (unit)
        MPI_Info_set(hints, "striping_unit", unit);
    if (factor)
        MPI_Info_set(hints, "striping_factor", factor);
    OK(MPI_File_open(MPI_COMM_WORLD, path, amode | MPI_MODE_RDWR, hints, &file));
    OK(MPI_File_get_info(file, &told));
    const char *names[] = {"striping_unit", "striping_factor"}, *has[] = {has_unit, has_factor};
    for (int i = 0; i < 2; i++) {
        length = sizeof value;
        MPI_Info_get_string(told, names[i], &length, value, &flag);
        if (!flag || strcmp(value, has[i]) != 0)
            fail(__LINE__, "%s is %s instead of %s", names[i], flag ? value : "not there", has[i]);
    }
    for (int i = 0; i < 4; i++)
        out[i] = rank * 10 + i;
    OK(MPI_File_write_at_all(file, (MPI_Offset)sizeof out * rank, out, 4, MPI_INT, &status));
    OK(MPI_File_read_at_all(file, (MPI_Offset)sizeof out * rank, in, 4, MPI_INT, &status));
    CHECK(memcmp(in, out, sizeof in) == 0);
    MPI_Info_free(&told);
    MPI_Info_free(&hints);
    OK(MPI_File_close(&file));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const char *folder = argc > 1 ? argv[1] : ".";
    snprintf(path, sizeof path, "%s/asked", folder);
    open_file(MPI_MODE_CREATE, "131072", "3", "131072", "3");
    open_file(0, NULL, NULL, "131072", "3");
    /* A file that is there keeps what it has. */
    open_file(MPI_MODE_CREATE, "65536", "2", "131072", "3");
    snprintf(path, sizeof path, "%s/factor", folder);
    open_file(MPI_MODE_CREATE, NULL, "2", "1048576", "2");
    /* Neither asked for, nor what Lustre takes: as the folder has it. */
    snprintf(path, sizeof path, "%s/default", folder);
    open_file(MPI_MODE_CREATE, NULL, NULL, "1048576", "1");
    snprintf(path, sizeof path, "%s/wrong", folder);
    open_file(MPI_MODE_CREATE, "1000", "3", "1048576", "1");
    return finish();
}
