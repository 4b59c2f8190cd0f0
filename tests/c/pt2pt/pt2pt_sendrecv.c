/* Sendrecv: rings of all ranks at once with every size, rings with full queues on both sides, with self, with
 * MPI_PROC_NULL, in place, and different sizes and types in the two halves.
 * test: ranks=1,2,3,4,8 timeout=120 */
#include "../check.h"

#define LARGEST (1 << 20)
static const int sizes[] = {0, 1, 8, 48, 49, 4096, 8192, 8193, 32768, 65536, LARGEST};
static unsigned char *out, *in;

static void shift(int distance, int bytes, int times)
{
    int to = (rank + distance) % ranks, from = (rank + ranks - distance) % ranks;
    MPI_Status status;
    fill(out, (size_t)bytes, (unsigned)rank);
    for (int i = 0; i < times; i++) {
        OK(MPI_Sendrecv(out, bytes, MPI_BYTE, to, i, in, bytes, MPI_BYTE, from, i, MPI_COMM_WORLD, &status));
        STATUS(status, from, i, bytes);
    }
    HOLDS(in, (size_t)bytes, (unsigned)from);
}

/* Before the ring turns, each rank has filled the queue to its neighbour. */
static void shift_full(int bytes)
{
    enum { EXTRA = 400 };
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Request requests[EXTRA];
    MPI_Status status;
    unsigned char small[64], *extra = allocate(4096);
    fill(extra, 4096, (unsigned)rank + 7);
    for (int i = 0; i < EXTRA; i++)
        OK(MPI_Isend(extra, 4096, MPI_BYTE, to, 77, MPI_COMM_WORLD, &requests[i]));
    fill(out, (size_t)bytes, (unsigned)rank);
    for (int i = 0; i < 20; i++) {
        OK(MPI_Sendrecv(out, bytes, MPI_BYTE, to, 5, in, bytes, MPI_BYTE, from, 5, MPI_COMM_WORLD, &status));
        STATUS(status, from, 5, bytes);
        HOLDS(in, (size_t)bytes, (unsigned)from);
        OK(MPI_Sendrecv(out, 40, MPI_BYTE, from, 6, small, 64, MPI_BYTE, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &status));
        STATUS(status, to, 6, 40);
    }
    for (int i = 0; i < EXTRA; i++) {
        OK(MPI_Recv(in, 4096, MPI_BYTE, from, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        HOLDS(in, 4096, (unsigned)from + 7);
    }
    OK(MPI_Waitall(EXTRA, requests, MPI_STATUSES_IGNORE));
    free(extra);
}

static void replace(int bytes)
{
    MPI_Status status;
    int from = (rank + ranks - 1) % ranks;
    fill(in, (size_t)bytes, (unsigned)rank);
    OK(MPI_Sendrecv_replace(in, bytes, MPI_BYTE, (rank + 1) % ranks, 1, from, 1, MPI_COMM_WORLD, &status));
    STATUS(status, from, 1, bytes);
    HOLDS(in, (size_t)bytes, (unsigned)from);
}

/* In place with a gappy type: the gaps are unchanged. */
static void replace_strided(void)
{
    enum { N = 3000 };
    int values[2 * N], from = (rank + ranks - 1) % ranks;
    MPI_Datatype type;
    MPI_Status status;
    for (int i = 0; i < 2 * N; i++)
        values[i] = i % 2 ? -1 : rank * N + i / 2;
    OK(MPI_Type_vector(N, 1, 2, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Sendrecv_replace(values, 1, type, (rank + 1) % ranks, 2, from, 2, MPI_COMM_WORLD, &status));
    STATUS(status, from, 2, 4 * N);
    for (int i = 0; i < 2 * N; i++)
        if (values[i] != (i % 2 ? -1 : from * N + i / 2)) {
            fail(__LINE__, "value %d is %d", i, values[i]);
            break;
        }
    OK(MPI_Type_free(&type));
}

/* One half may be MPI_PROC_NULL. */
static void shift_open_chain(int bytes)
{
    int to = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL, from = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    MPI_Status status;
    fill(out, (size_t)bytes, (unsigned)rank);
    memset(in, 0x11, (size_t)bytes);
    OK(MPI_Sendrecv(out, bytes, MPI_BYTE, to, 3, in, bytes, MPI_BYTE, from, 3, MPI_COMM_WORLD, &status));
    if (from == MPI_PROC_NULL) {
        STATUS(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
        for (int i = 0; i < bytes; i++)
            if (in[i] != 0x11) {
                fail(__LINE__, "a receive from MPI_PROC_NULL writes");
                break;
            }
    } else {
        STATUS(status, from, 3, bytes);
        HOLDS(in, (size_t)bytes, (unsigned)from);
    }
}

/* The two halves differ in size, tag, type and peer. */
static void mix_halves(void)
{
    MPI_Status status;
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    int values[1000];
    double numbers[500];
    for (int i = 0; i < 500; i++)
        numbers[i] = rank * 1000 + i;
    if (ranks % 2 == 0) {
        /* Even ranks send doubles, odd ranks ints. */
        for (int i = 0; i < 1000; i++)
            values[i] = rank * 1000 + i;
        if (rank % 2) {
            OK(MPI_Sendrecv(values, 1000, MPI_INT, to, rank, numbers, 500, MPI_DOUBLE, from, from, MPI_COMM_WORLD, &status));
            STATUS(status, from, from, 8 * (from % 7 + 1));
            SAME(numbers[0], from * 1000);
        } else {
            OK(MPI_Sendrecv(numbers, rank % 7 + 1, MPI_DOUBLE, to, rank, values, 1000, MPI_INT, from, from, MPI_COMM_WORLD, &status));
            STATUS(status, from, from, 4000);
            SAME(values[999], from * 1000 + 999);
        }
    }
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, rank, 9, values, 10, MPI_INT, rank, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
    STATUS(status, rank, 9, 4);
    SAME(values[0], rank);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    out = allocate(LARGEST);
    in = allocate(LARGEST);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int distance = 0; distance < ranks; distance++)
            shift(distance, sizes[i], sizes[i] > 10000 ? 5 : 300);
        shift_full(sizes[i]);
        replace(sizes[i]);
        shift_open_chain(sizes[i]);
    }
    replace_strided();
    mix_halves();
    free(in);
    free(out);
    return finish();
}
