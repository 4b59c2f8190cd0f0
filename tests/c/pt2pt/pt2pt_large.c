/* test: ranks=2 timeout=600 only=all variants=none stderr=any
   Messages of more than 2^31 bytes and elements, contiguous and with gaps, and their statuses. Needs 5 GiB for each
   rank; with less memory the test reports that and runs fewer cases. */
#include "../check.h"
#include <unistd.h>

static unsigned char *buffer;
static MPI_Count bytes;

/* Element `i` of message `seed`: cheap to compute, and different in every gigabyte. */
static unsigned char at(int seed, MPI_Count i)
{
    return (unsigned char)(i * 7 + i / 1000003 + seed);
}

static void prepare(int seed, int fill_it)
{
    for (MPI_Count i = 0; i < bytes; i++)
        buffer[i] = fill_it ? at(seed, i) : 0;
}

static void expect(int line, int seed, MPI_Count from, MPI_Count to, MPI_Count every, MPI_Count used)
{
    for (MPI_Count i = from; i < to; i++) {
        unsigned char wanted = i % every < used ? at(seed, i) : 0;
        if (buffer[i] != wanted) {
            fail(line, "byte %lld of %lld is %d instead of %d", (long long)i, (long long)bytes, buffer[i], wanted);
            return;
        }
    }
}

/* The number of elements exceeds an int: the small form must return MPI_UNDEFINED. */
static void check_counts(const MPI_Status *status, MPI_Datatype type, MPI_Count elements)
{
    MPI_Count count = -1;
    int small = -1;
    OK(MPI_Get_count_c(status, type, &count));
    SAME(count, elements);
    OK(MPI_Get_count(status, type, &small));
    SAME(small, elements > 2147483647 ? MPI_UNDEFINED : elements);
    OK(MPI_Get_elements_c(status, MPI_BYTE, &count));
    OK(MPI_Get_elements(status, MPI_BYTE, &small));
    SAME(small, count > 2147483647 ? MPI_UNDEFINED : count);
}

static void whole(void)
{
    MPI_Status status;
    int peer = 1 - rank;
    prepare(1, rank == 0);
    if (rank == 0) {
        OK(MPI_Send_c(buffer, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD));
        OK(MPI_Recv_c(buffer, bytes, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &status));
    } else {
        MPI_Message message;
        OK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status));
        check_counts(&status, MPI_BYTE, bytes);
        OK(MPI_Mrecv_c(buffer, bytes, MPI_BYTE, &message, &status));
        expect(__LINE__, 1, 0, bytes, 1, 1);
        prepare(2, 1);
        MPI_Request request;
        OK(MPI_Isend_c(buffer, bytes, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        return;
    }
    check_counts(&status, MPI_BYTE, bytes);
    expect(__LINE__, 2, 0, bytes, 1, 1);
}

/* Few elements of a large type, with a gap in each row. */
static void strided(void)
{
    enum { ROW = 1 << 20, USED = ROW - 4096 };
    MPI_Datatype rows;
    MPI_Status status;
    MPI_Count count = bytes / ROW;
    OK(MPI_Type_vector_c(count, USED, ROW, MPI_BYTE, &rows));
    OK(MPI_Type_commit(&rows));
    prepare(3, rank == 0);
    if (rank == 0) {
        OK(MPI_Ssend(buffer, 1, rows, 1, 3, MPI_COMM_WORLD));
    } else {
        OK(MPI_Recv(buffer, 1, rows, 0, 3, MPI_COMM_WORLD, &status));
        check_counts(&status, rows, 1);
        expect(__LINE__, 3, 0, (count - 1) * ROW + USED, ROW, USED);
    }
    OK(MPI_Type_free(&rows));
}

/* A message that exceeds the buffer by one byte, and by more than an int can hold. */
static void truncated(void)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    prepare(4, rank == 0);
    if (rank == 0) {
        OK(MPI_Send_c(buffer, bytes, MPI_BYTE, 1, 4, MPI_COMM_WORLD));
        OK(MPI_Send_c(buffer, bytes, MPI_BYTE, 1, 5, MPI_COMM_WORLD));
    } else {
        CLASS(MPI_Recv_c(buffer, bytes - 1, MPI_BYTE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
        SAME(buffer[bytes - 1], 0);
        CLASS(MPI_Recv_c(buffer, 16, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    }
    meet();
}

static void to_self(void)
{
    MPI_Request request;
    MPI_Count half = bytes / 2;
    prepare(5, 1);
    OK(MPI_Irecv_c(buffer + half, half, MPI_BYTE, rank, 6, MPI_COMM_WORLD, &request));
    OK(MPI_Send_c(buffer, half, MPI_BYTE, rank, 6, MPI_COMM_WORLD));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(!memcmp(buffer, buffer + half, (size_t)half));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    double have = (double)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE), least;
    MPI_Allreduce(&have, &least, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    int few = least < 5.0 * (1 << 30) * ranks;
    bytes = few ? ((MPI_Count)1 << 24) + 12345 : ((MPI_Count)1 << 32) + 12345;
    if (few && rank == 0)
        fprintf(stderr, "pt2pt_large: only %lld bytes: %.1f GiB of memory are free\n", (long long)bytes, least / (1 << 30));
    buffer = allocate((size_t)bytes);
    whole();
    strided();
    truncated();
    to_self();
    free(buffer);
    return finish();
}
