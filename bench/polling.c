/* Times two kinds of programs that poll while their ranks share processors. Any MPI runs it; docs/performance.md has
 * figures.
 *
 * usage: polling work|ring [SECONDS]
 *   work   Each rank updates a table and sends buckets of updates to random ranks. It calls MPI_Testany once for each
 *          update, as RandomAccess of HPCC does. Prints ns for each update.
 *   ring   Each rank waits for its left neighbor by MPI_Test alone. Prints us for each step.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE = 1 << 16, BUCKET = 256, RECEIVES = 4, UPDATES = 200000, STEPS = 300, DATA = 1, END = 2 };

static int rank, ranks;
static unsigned long table[TABLE], in[RECEIVES][BUCKET];
static MPI_Request receives[RECEIVES];

static unsigned long next(unsigned long word)
{
    word ^= word << 13;
    word ^= word >> 7;
    return word ^ word << 17;
}

/* Takes at most one bucket. Returns whether it was the last one of a rank. */
static int take(void)
{
    int index, found, count;
    MPI_Status status;
    MPI_Testany(RECEIVES, receives, &index, &found, &status);
    if (!found || index == MPI_UNDEFINED)
        return 0;
    MPI_Get_count(&status, MPI_UNSIGNED_LONG, &count);
    for (int i = 0; i < count; i++)
        table[in[index][i] % TABLE] ^= in[index][i];
    MPI_Irecv(in[index], BUCKET, MPI_UNSIGNED_LONG, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &receives[index]);
    return status.MPI_TAG == END;
}

static double work(void)
{
    static unsigned long buckets[64][BUCKET], out[BUCKET];
    int filled[64] = {0}, ended = 0, is_sent = 1;
    unsigned long word = 88172645463325252ul + (unsigned long)rank;
    MPI_Request request = MPI_REQUEST_NULL;
    for (int i = 0; i < RECEIVES; i++)
        MPI_Irecv(in[i], BUCKET, MPI_UNSIGNED_LONG, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &receives[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int update = 0; update < UPDATES;) {
        ended += take();
        int to = (int)(word >> 40) % ranks;
        if (to == rank) {
            table[word % TABLE] ^= word;
        } else if (filled[to] < BUCKET) {
            buckets[to][filled[to]++] = word;
        } else {
            MPI_Test(&request, &is_sent, MPI_STATUS_IGNORE);
            if (is_sent) {
                memcpy(out, buckets[to], sizeof out);
                MPI_Isend(out, BUCKET, MPI_UNSIGNED_LONG, to, DATA, MPI_COMM_WORLD, &request);
                filled[to] = 0;
            }
            continue;
        }
        word = next(word);
        update++;
    }
    for (int to = 0; to < ranks; to++) {
        for (is_sent = 0; !is_sent; ended += take())
            MPI_Test(&request, &is_sent, MPI_STATUS_IGNORE);
        if (to != rank)
            MPI_Isend(buckets[to], filled[to], MPI_UNSIGNED_LONG, to, END, MPI_COMM_WORLD, &request);
    }
    for (is_sent = 0; !is_sent; ended += take())
        MPI_Test(&request, &is_sent, MPI_STATUS_IGNORE);
    while (ended < ranks - 1)
        ended += take();
    MPI_Barrier(MPI_COMM_WORLD);
    double took = MPI_Wtime() - begun;
    for (int i = 0; i < RECEIVES; i++) {
        MPI_Cancel(&receives[i]);
        MPI_Wait(&receives[i], MPI_STATUS_IGNORE);
    }
    return took / UPDATES * 1e9;
}

static double ring(void)
{
    int out = 0, got = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int step = 0; step < STEPS; step++) {
        MPI_Request request;
        int found = 0;
        MPI_Irecv(&got, 1, MPI_INT, (rank + ranks - 1) % ranks, DATA, MPI_COMM_WORLD, &request);
        MPI_Send(&out, 1, MPI_INT, (rank + 1) % ranks, DATA, MPI_COMM_WORLD);
        while (!found)
            MPI_Test(&request, &found, MPI_STATUS_IGNORE);
    }
    return (MPI_Wtime() - begun) / STEPS * 1e6;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int works = argc > 1 && strcmp(argv[1], "work") == 0;
    double seconds = argc > 2 ? atof(argv[2]) : 1, begun = MPI_Wtime();
    if (ranks < 2 || ranks > 64) {
        fprintf(stderr, "polling: needs 2 to 64 ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int go = 1; go;) {
        double figure = works ? work() : ring();
        if (rank == 0)
            printf("%s %.1f %s\n", works ? "work" : "ring", figure, works ? "ns/update" : "us/step");
        go = MPI_Wtime() - begun < seconds;
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
