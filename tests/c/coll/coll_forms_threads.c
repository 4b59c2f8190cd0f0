/* test: ranks=1,2,3,4 timeout=240
   Threads of MPI_THREAD_MULTIPLE. Each has many nonblocking collectives outstanding on its own communicator,
   completed in a different order on each rank. One request is completed by another thread. Any number of ranks. */
#include "../coll_check.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 40, AT_ONCE = 24, WORDS = 300 };

struct shared {
    MPI_Comm comm;
    int wrong;
    MPI_Request given; /* started by this thread, completed by the next thread */
    int given_in, given_out;
};

static struct shared all[THREADS];
static pthread_barrier_t both;

static unsigned draw(uint64_t *state, unsigned below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % below;
}

static void *work(void *argument)
{
    int t = (int)(intptr_t)argument, bad = 0;
    struct shared *own = &all[t];
    uint64_t state = me * 100 + t + 1;
    MPI_Request requests[AT_ONCE], persistent;
    static __thread int in[AT_ONCE][WORDS], out[AT_ONCE][WORDS];
    int mine = me, sum = 0;
    MPI_Allreduce_init(&mine, &sum, 1, MPI_INT, MPI_SUM, own->comm, MPI_INFO_NULL, &persistent);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Start(&persistent);
        for (int i = 0; i < AT_ONCE; i++) {
            int n = i % 4 ? 1 + i % 7 : WORDS, root = (i + round) % ranks;
            for (int k = 0; k < WORDS; k++)
                in[i][k] = me + i + round + k, out[i][k] = me == root ? i + round + k : -1;
            switch (i % 3) {
            case 0:
                MPI_Iallreduce(in[i], out[i], n, MPI_INT, MPI_SUM, own->comm, &requests[i]);
                break;
            case 1:
                MPI_Ibcast(out[i], n, MPI_INT, root, own->comm, &requests[i]);
                break;
            default:
                MPI_Ibarrier(own->comm, &requests[i]);
            }
        }
        own->given_in = me + t, own->given_out = -1;
        MPI_Iallreduce(&own->given_in, &own->given_out, 1, MPI_INT, MPI_SUM, own->comm, &own->given);
        pthread_barrier_wait(&both);
        int done = 0, flag;
        while (done < AT_ONCE) {
            int i = draw(&state, AT_ONCE);
            if (draw(&state, 2))
                MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
            else
                MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
            done = 0;
            for (int k = 0; k < AT_ONCE; k++)
                done += requests[k] == MPI_REQUEST_NULL;
        }
        struct shared *next = &all[(t + 1) % THREADS];
        MPI_Wait(&next->given, MPI_STATUS_IGNORE);
        bad += next->given_out != ranks * (ranks - 1) / 2 + ranks * ((t + 1) % THREADS);
        MPI_Wait(&persistent, MPI_STATUS_IGNORE);
        bad += sum != ranks * (ranks - 1) / 2;
        for (int i = 0; i < AT_ONCE; i++) {
            int n = i % 4 ? 1 + i % 7 : WORDS;
            for (int k = 0; k < n; k++) {
                if (i % 3 == 0)
                    bad += out[i][k] != ranks * (ranks - 1) / 2 + ranks * (i + round + k);
                if (i % 3 == 1)
                    bad += out[i][k] != i + round + k;
            }
        }
        pthread_barrier_wait(&both);
    }
    MPI_Request_free(&persistent);
    own->wrong = bad;
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
    pthread_barrier_init(&both, NULL, THREADS);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &all[t].comm);
    for (int t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, work, (void *)(intptr_t)t);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        CHECK(all[t].wrong == 0);
        MPI_Comm_free(&all[t].comm);
    }
    return finish();
}
