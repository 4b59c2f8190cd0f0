/* Traffic without end of all kinds and sizes, for jobs that are killed: messages in slots, eager ones, ones in parts,
 * single copies, floods, collectives. All ranks draw the same things from the seed in the first argument. What arrives
 * is checked. With a second argument it ends after so many rounds.
 * test: only=build */
#include "check.h"

static unsigned long long state;

static unsigned draw(unsigned below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((state >> 33) % below);
}

static void exchange(int bytes, int distance, int way)
{
    int to = (rank + distance) % ranks, from = (rank + ranks - distance) % ranks;
    unsigned char *out = allocate((size_t)bytes), *in = allocate((size_t)bytes);
    MPI_Request requests[2];
    fill(out, (size_t)bytes, (unsigned)(rank + bytes));
    if (way == 0) {
        MPI_Sendrecv(out, bytes, MPI_BYTE, to, 1, in, bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Irecv(in, bytes, MPI_BYTE, way == 1 ? from : MPI_ANY_SOURCE, 2 + distance, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, bytes, MPI_BYTE, to, 2 + distance, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    HOLDS(in, (size_t)bytes, (unsigned)(from + bytes));
    free(in);
    free(out);
}

static void flood(int count, int distance)
{
    int to = (rank + distance) % ranks, from = (rank + ranks - distance) % ranks, value;
    MPI_Request *requests = allocate(sizeof(MPI_Request) * (size_t)count);
    for (int i = 0; i < count; i++)
        MPI_Isend(&count, 1, MPI_INT, to, 90, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < count; i++)
        MPI_Recv(&value, 1, MPI_INT, from, 90, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    free(requests);
}

static void collect(int count, int which)
{
    int all = count * ranks;
    int *one = allocate(sizeof(int) * (size_t)all), *many = allocate(sizeof(int) * (size_t)all);
    for (int i = 0; i < all; i++)
        one[i] = i;
    if (which == 0) {
        MPI_Allreduce(one, many, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        SAME(many[count - 1], (count - 1) * ranks);
    } else if (which == 1) {
        MPI_Alltoall(one, count, MPI_INT, many, count, MPI_INT, MPI_COMM_WORLD);
        SAME(many[all - 1], rank * count + count - 1);
    } else {
        MPI_Bcast(one, count, MPI_INT, (int)draw((unsigned)ranks), MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(many);
    free(one);
}

int main(int argc, char **argv)
{
    const int sizes[] = {0, 8, 48, 49, 600, 8000, 20000, 33000, 70000, 300000, 2000000};
    long rounds = argc > 2 ? atol(argv[2]) : -1;
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    start(&argc, &argv);
    for (long round = 0; round != rounds && !failures; round++) {
        int size = sizes[draw(11)], distance = 1 + (int)draw((unsigned)ranks), kind = (int)draw(8);
        if (kind < 5)
            exchange(size, distance, kind % 3);
        else if (kind == 5)
            flood(1 + (int)draw(2000), distance);
        else
            collect(1 + (int)draw(size > 70000 ? 30000 : 200), (int)draw(3));
    }
    if (failures)
        MPI_Abort(MPI_COMM_WORLD, 9);
    return finish();
}
