/* Large accesses with a request progress without MPI calls of the program. Memory with gaps, many requests at once,
 * the end of file, errors, freed requests. */
/* test: ranks=1,2,3,4 */
#include "file_check.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

enum { BYTES = 1 << 20, MANY = 20 };

static MPI_File file;
static MPI_Status status;
static char path[200];
static unsigned char out[BYTES], in[BYTES], spread[2 * BYTES];

/* The data reaches the file without an MPI call. */
static void test_alone(void)
{
    MPI_Request request;
    MPI_Offset at = (MPI_Offset)rank * BYTES;
    int got, flag = 0, fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    fill(out, BYTES, rank + 1);
    OK(MPI_File_iwrite_at(file, at, out, BYTES, MPI_BYTE, &request));
    while (pread(fd, in, BYTES, at) != BYTES || memcmp(in, out, BYTES) != 0)
        ;
    close(fd);
    while (!flag)
        OK(MPI_Test(&request, &flag, &status));
    MPI_Get_count(&status, MPI_BYTE, &got);
    SAME(got, BYTES);
    CHECK(request == MPI_REQUEST_NULL);
    memset(in, 0, BYTES);
    OK(MPI_File_iread_at(file, at, in, BYTES, MPI_BYTE, &request));
    OK(MPI_Wait(&request, &status));
    HOLDS(in, BYTES, rank + 1);
    meet();
}

/* One call waits for messages and accesses. */
static void test_many(void)
{
    MPI_Request requests[MANY + 2];
    MPI_Status statuses[MANY + 2];
    int part = BYTES / MANY / 8 * 8, token = rank, from = -1, got;
    fill(out, BYTES, rank + 50);
    OK(MPI_File_seek(file, (MPI_Offset)rank * part * MANY, MPI_SEEK_SET));
    OK(MPI_Irecv(&from, 1, MPI_INT, (rank + ranks - 1) % ranks, 3, MPI_COMM_WORLD, &requests[MANY]));
    for (int i = 0; i < MANY; i++)
        OK(MPI_File_iwrite(file, out + i * part, part, MPI_BYTE, &requests[i]));
    OK(MPI_Isend(&token, 1, MPI_INT, (rank + 1) % ranks, 3, MPI_COMM_WORLD, &requests[MANY + 1]));
    OK(MPI_Waitall(MANY + 2, requests, statuses));
    SAME(from, (rank + ranks - 1) % ranks);
    MPI_Get_count(&statuses[3], MPI_BYTE, &got);
    SAME(got, part);
    MPI_Offset position;
    OK(MPI_File_get_position(file, &position));
    SAME(position, (MPI_Offset)(rank + 1) * part * MANY);
    memset(in, 0, BYTES);
    for (int i = 0; i < MANY; i++)
        OK(MPI_File_iread_at(file, (MPI_Offset)rank * part * MANY + i * part, in + i * part, part, MPI_BYTE, &requests[i]));
    for (int i = 0; i < MANY; i++) {
        int index;
        OK(MPI_Waitany(MANY, requests, &index, &status));
        CHECK(index >= 0 && index < MANY);
    }
    HOLDS(in, part * MANY, rank + 50);
    meet();
}

/* Every second byte of memory, every n-th eight bytes of the file; in atomic mode too. */
static void test_gaps(int atomic)
{
    MPI_Datatype memory, tile, eight;
    MPI_Request request;
    int count = BYTES / 8, got;
    MPI_Type_create_resized(MPI_BYTE, 0, 2, &memory);
    MPI_Type_commit(&memory);
    MPI_Type_contiguous(8, MPI_BYTE, &eight);
    MPI_Type_create_resized(eight, 0, 8 * ranks, &tile);
    MPI_Type_commit(&tile);
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_set_atomicity(file, atomic));
    OK(MPI_File_set_view(file, 8 * rank, MPI_BYTE, tile, "native", MPI_INFO_NULL));
    fill(out, count, rank + 9);
    for (int i = 0; i < count; i++)
        spread[2 * i] = out[i];
    OK(MPI_File_iwrite_at(file, 0, spread, count, memory, &request));
    MPI_Type_free(&memory);
    OK(MPI_Wait(&request, &status));
    meet();
    /* Reads beyond the end of file. */
    OK(MPI_File_iread_at(file, 0, in, count + 100, MPI_BYTE, &request));
    OK(MPI_Wait(&request, &status));
    MPI_Get_count(&status, MPI_BYTE, &got);
    SAME(got, count);
    HOLDS(in, count, rank + 9);
    OK(MPI_File_set_atomicity(file, 0));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    MPI_Type_free(&tile);
    MPI_Type_free(&eight);
    meet();
}

/* An error that is found later goes to the error handler of the file. */
static int handled;
static void handle(MPI_File *of, int *code, ...)
{
    handled += *of == file && class_of(*code) != MPI_SUCCESS;
}

static void test_error(void)
{
    MPI_Errhandler handler;
    MPI_Request request;
    MPI_Offset far = ((MPI_Offset)1 << 62);
    /* Some file systems have space even at that offset, so limit the file size. */
    struct rlimit limit = {(rlim_t)1 << 40, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    SAME(setrlimit(RLIMIT_FSIZE, &limit), 0);
    OK(MPI_File_create_errhandler(handle, &handler));
    OK(MPI_File_set_errhandler(file, handler));
    int code = MPI_File_iwrite_at(file, far, out, BYTES, MPI_BYTE, &request);
    if (code == MPI_SUCCESS)
        code = MPI_Wait(&request, &status);
    CHECK(class_of(code) == MPI_ERR_IO || class_of(code) == MPI_ERR_NO_SPACE || class_of(code) == MPI_ERR_ARG);
    SAME(handled, 1);
    OK(MPI_File_set_errhandler(file, MPI_ERRORS_RETURN));
    MPI_Errhandler_free(&handler);
    meet();
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    name_file(path, sizeof path, "file_requests");
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                     &file));
    OK(MPI_File_set_size(file, 0));
    test_alone();
    test_many();
    test_gaps(0);
    test_gaps(1);
    test_error();
    MPI_Request request;
    OK(MPI_File_iwrite_at(file, 0, out, BYTES, MPI_BYTE, &request));
    OK(MPI_Request_free(&request));
    meet();
    OK(MPI_File_close(&file));
    return finish();
}
