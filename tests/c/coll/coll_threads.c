/* test: ranks=1,2,3,4 timeout=120
   Threads of MPI_THREAD_MULTIPLE, each with collectives on its own communicator. Any number of ranks. */
#include "../coll_check.h"
#include <pthread.h>

enum { THREADS = 3, ROUNDS = 200 };

static MPI_Comm comms[THREADS];
static int wrong[THREADS];

static void *work(void *argument)
{
    int t = (int)(intptr_t)argument, bad = 0;
    MPI_Comm comm = comms[t];
    long many[600], sums[600];
    for (int round = 0; round < ROUNDS; round++) {
        int one = me + t + round, sum = -1, root = (round + t) % ranks, value = me == root ? round * 3 + t : -1;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        bad += sum != ranks * (ranks - 1) / 2 + ranks * (t + round);
        MPI_Bcast(&value, 1, MPI_INT, root, comm);
        bad += value != round * 3 + t;
        if (round % 16 == t)
            MPI_Barrier(comm);
        for (int i = 0; i < 600; i++)
            many[i] = i * (me + 1) + t;
        MPI_Allreduce(many, sums, 600, MPI_LONG, MPI_SUM, comm);
        for (int i = 0; i < 600; i++)
            bad += sums[i] != (long)i * ranks * (ranks + 1) / 2 + ranks * t;
    }
    wrong[t] = bad;
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    pthread_t threads[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]);
    for (int t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, work, (void *)(intptr_t)t);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        CHECK(wrong[t] == 0);
        MPI_Comm_free(&comms[t]);
    }
    return finish();
}
