/* Large numbers with little data: buffers without enough memory, ranks far apart in the file, accesses of more than
 * 2^31 elements. */
/* test: ranks=1,2,3 */
#define _GNU_SOURCE
#include "file_check.h"
#include <sys/mman.h>
#include <sys/resource.h>

static MPI_File file;
static MPI_Status status;
static char path[200];

static MPI_Info together(const char *buffer)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", "enable");
    MPI_Info_set(info, "romio_cb_read", "enable");
    if (buffer)
        MPI_Info_set(info, "cb_buffer_size", buffer);
    return info;
}

/* Each rank writes and reads eight bytes, `step` bytes from those of the next rank. */
static void write_apart(const char *buffer, MPI_Offset step)
{
    MPI_Info info = together(buffer);
    char out[8], in[8] = "";
    snprintf(out, sizeof out, "rank %d", rank);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info, &file));
    OK(MPI_File_write_at_all(file, rank * step, out, sizeof out, MPI_BYTE, &status));
    OK(MPI_File_read_at_all(file, rank * step, in, sizeof in, MPI_BYTE, &status));
    CHECK(memcmp(in, out, sizeof in) == 0);
    OK(MPI_File_close(&file));
    MPI_Info_free(&info);
}

/* One aggregator may lack the memory for its buffer. */
static void test_without_memory(void)
{
    struct rlimit before, limit;
    getrlimit(RLIMIT_DATA, &before);
    limit = before;
    limit.rlim_cur = (rlim_t)3 << 29;
    if (rank == 1)
        SAME(setrlimit(RLIMIT_DATA, &limit), 0);
    write_apart("2147483648", (MPI_Offset)1 << 33);
    SAME(setrlimit(RLIMIT_DATA, &before), 0);
}

/* Peak memory of the process, in KiB. */
static long most_memory(void)
{
    FILE *told = fopen("/proc/self/status", "r");
    char line[200];
    long most = 0;
    while (told && fgets(line, sizeof line, told) && sscanf(line, "VmHWM: %ld", &most) != 1)
        ;
    if (told)
        fclose(told);
    return most;
}

/* Zeros, which take no memory while they are only read. */
static void *zeros(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

/* One element is converted in parts. */
static void test_converted(void)
{
    enum { INTS = 1 << 24 };
    MPI_Datatype type;
    void *data = zeros(4L * INTS);
    MPI_Type_contiguous(INTS, MPI_INT, &type);
    MPI_Type_commit(&type);
    OK(MPI_File_open(MPI_COMM_SELF, "/dev/null", MPI_MODE_WRONLY, MPI_INFO_NULL, &file));
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL));
    long before = most_memory();
    OK(MPI_File_write_at(file, 0, data, 1, type, &status));
    CHECK(most_memory() - before < 8192);
    OK(MPI_File_close(&file));
    munmap(data, 4L * INTS);
    MPI_Type_free(&type);
}

/* Counts of more than 2^31 elements. Writes go to a file that discards them, reads end at the end of file. */
static void test_counts(void)
{
    const MPI_Count count = ((MPI_Count)1 << 31) + 8;
    const MPI_Offset end = (MPI_Offset)1 << 33;
    MPI_Count got;
    char last[16] = "the end of it", *data = zeros(count);
    OK(MPI_File_open(MPI_COMM_WORLD, "/dev/null", MPI_MODE_WRONLY, MPI_INFO_NULL, &file));
    for (int kind = 0; kind < 4; kind++) {
        MPI_Offset at = rank * (MPI_Offset)count;
        if (kind == 0)
            OK(MPI_File_write_at_c(file, at, data, count, MPI_BYTE, &status));
        else if (kind == 1)
            OK(MPI_File_write_at_all_c(file, at, data, count, MPI_BYTE, &status));
        else if (kind == 2)
            OK(MPI_File_write_c(file, data, count, MPI_BYTE, &status));
        else
            OK(MPI_File_write_all_c(file, data, count, MPI_BYTE, &status));
        MPI_Get_count_c(&status, MPI_BYTE, &got);
        SAME(got, count);
    }
    MPI_Offset position;
    OK(MPI_File_get_position(file, &position));
    SAME(position, 2 * count);
    OK(MPI_File_close(&file));

    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
    if (rank == 0)
        OK(MPI_File_write_at_c(file, end - sizeof last, last, sizeof last, MPI_BYTE, &status));
    meet();
    for (int kind = 0; kind < 4; kind++) {
        MPI_Offset at = end - 16 - rank;
        memset(data, 1, 64);
        OK(MPI_File_seek(file, at, MPI_SEEK_SET));
        if (kind == 0)
            OK(MPI_File_read_at_c(file, at, data, count, MPI_BYTE, &status));
        else if (kind == 1)
            OK(MPI_File_read_at_all_c(file, at, data, count, MPI_BYTE, &status));
        else if (kind == 2)
            OK(MPI_File_read_c(file, data, count, MPI_BYTE, &status));
        else
            OK(MPI_File_read_all_c(file, data, count, MPI_BYTE, &status));
        MPI_Get_count_c(&status, MPI_BYTE, &got);
        SAME(got, 16 + rank);
        CHECK(memcmp(data + rank, last, sizeof last) == 0 && data[16 + rank] == 1);
        for (int i = 0; i < rank; i++)
            SAME(data[i], 0);
    }
    OK(MPI_File_close(&file));
    munmap(data, count);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    name_file(path, sizeof path, "file_large");
    test_without_memory();
    write_apart(NULL, (MPI_Offset)1 << 40);
    test_converted();
    test_counts();
    return finish();
}
