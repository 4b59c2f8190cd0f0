/* Threads that make and free communicators at the same time, each from one of its own.
 * test: ranks=1,2,3,4 timeout=120 */
#include "comm_check.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 60 };

static void *work(void *argument)
{
    MPI_Comm own = *(MPI_Comm *)argument;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm dup, part, made;
        MPI_Group group;
        MPI_Comm_dup(own, &dup);
        MPI_Comm_split(dup, rank % 2, -rank, &part);
        RING(part, round);
        MPI_Comm_group(dup, &group);
        MPI_Comm_create_group(own, group, round, &made);
        RING(made, round + 1);
        MPI_Group_free(&group);
        MPI_Comm_free(&made);
        MPI_Comm_free(&part);
        MPI_Comm_free(&dup);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    pthread_t threads[THREADS];
    MPI_Comm comms[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, &comms[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        MPI_Comm_free(&comms[i]);
    }
    return finish();
}
