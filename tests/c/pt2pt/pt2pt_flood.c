/* Many messages at once: floods of unexpected messages, ten thousand outstanding requests, out of order, all to all, so
 * that all rings are full on both sides.
 * test: ranks=1,2,3,4,8 timeout=120 */
#include "../check.h"

#define OUTSTANDING 10000

/* Ten thousand unexpected messages of many tags, received last first. */
static void flood_backwards(int from, int to)
{
    int value;
    MPI_Request *requests = allocate(sizeof(MPI_Request) * OUTSTANDING);
    int *values = allocate(sizeof(int) * OUTSTANDING);
    if (rank == from) {
        for (int i = 0; i < OUTSTANDING; i++) {
            values[i] = i;
            OK(MPI_Isend(&values[i], 1, MPI_INT, to, i, MPI_COMM_WORLD, &requests[i]));
        }
    }
    if (rank == to)
        for (int i = OUTSTANDING - 1; i >= 0; i--) {
            OK(MPI_Recv(&value, 1, MPI_INT, from, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            SAME(value, i);
        }
    if (rank == from)
        OK(MPI_Waitall(OUTSTANDING, requests, MPI_STATUSES_IGNORE));
    free(values);
    free(requests);
}

/* Ten thousand posted receives, matched in random order. */
static void post_many(int from, int to)
{
    MPI_Request *requests = allocate(sizeof(MPI_Request) * OUTSTANDING);
    int *values = allocate(sizeof(int) * OUTSTANDING), token = 0;
    if (rank == to)
        for (int i = 0; i < OUTSTANDING; i++) {
            values[i] = -1;
            OK(MPI_Irecv(&values[i], 1, MPI_INT, from, i, MPI_COMM_WORLD, &requests[i]));
        }
    if (rank == to && from != to)
        OK(MPI_Send(&token, 1, MPI_INT, from, 20000, MPI_COMM_WORLD));
    if (rank == from) {
        if (from != to)
            OK(MPI_Recv(&token, 1, MPI_INT, to, 20000, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; i < OUTSTANDING; i++) {
            int tag = (int)((long long)i * 7919 % OUTSTANDING);
            OK(MPI_Send(&tag, 1, MPI_INT, to, tag, MPI_COMM_WORLD));
        }
    }
    if (rank == to) {
        OK(MPI_Waitall(OUTSTANDING, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < OUTSTANDING; i++)
            SAME(values[i], i);
    }
    free(values);
    free(requests);
}

/* Each rank sends `count` messages of `bytes` to all ranks before any rank receives. */
static void flood_all(int count, int bytes)
{
    int total = count * ranks;
    MPI_Request *requests = allocate(sizeof(MPI_Request) * (size_t)total);
    unsigned char *out = allocate((size_t)bytes * (size_t)total), *in = allocate((size_t)bytes);
    for (int i = 0; i < total; i++) {
        fill(out + (size_t)i * (size_t)bytes, (size_t)bytes, (unsigned)(rank * 100 + i / ranks));
        OK(MPI_Isend(out + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, i % ranks, 6, MPI_COMM_WORLD, &requests[i]));
    }
    for (int from = ranks - 1; from >= 0; from--)
        for (int i = 0; i < count; i++) {
            OK(MPI_Recv(in, bytes, MPI_BYTE, from, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            HOLDS(in, (size_t)bytes, (unsigned)(from * 100 + i));
        }
    OK(MPI_Waitall(total, requests, MPI_STATUSES_IGNORE));
    free(in);
    free(out);
    free(requests);
}

/* A one-way stream of blocking sends: the sender must be throttled without loss. */
static void stream(int count, int bytes)
{
    unsigned char *buffer = allocate((size_t)bytes);
    int to = rank + 1, from = rank - 1;
    for (int i = 0; i < count; i++) {
        if (from >= 0) {
            OK(MPI_Recv(buffer, bytes, MPI_BYTE, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            HOLDS(buffer, (size_t)bytes, (unsigned)i);
        } else {
            fill(buffer, (size_t)bytes, (unsigned)i);
        }
        if (to < ranks)
            OK(MPI_Send(buffer, bytes, MPI_BYTE, to, 2, MPI_COMM_WORLD));
    }
    free(buffer);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    flood_backwards(ranks - 1, 0);
    meet();
    post_many(ranks - 1, 0);
    meet();
    flood_backwards(0, 0);
    post_many(0, 0);
    meet();
    int bytes[] = {1, 48, 200, 8192, 8193, 40000};
    for (int i = 0; i < 6; i++) {
        flood_all(bytes[i] > 8000 ? 20 : 500, bytes[i]);
        meet();
        stream(bytes[i] > 8000 ? 100 : 3000, bytes[i]);
        meet();
    }
    return finish();
}
