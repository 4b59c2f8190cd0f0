/* Threads sleep in MPI while other threads of their process send to their own rank, or receive messages for them: each
 * sleeper is woken. Every wait sleeps at once.
 * test: ranks=1,2,3 timeout=120 env=FASTPATH_WAIT=sleep */
#include "../check.h"
#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 300, WORDS = 50000 };

/* Short and long messages: eager and rendezvous. */
static int length(int round)
{
    return round % 10 == 0 ? WORDS : 1;
}

static void *send_to_self(void *argument)
{
    static int out[WORDS];
    (void)argument;
    for (int round = 0; round < ROUNDS; round++) {
        out[0] = round;
        if (round % 3 == 0)
            OK(MPI_Ssend(out, length(round), MPI_INT, rank, 1, MPI_COMM_WORLD));
        else
            OK(MPI_Send(out, length(round), MPI_INT, rank, 1, MPI_COMM_WORLD));
        OK(MPI_Recv(out, 0, MPI_INT, rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    return NULL;
}

/* One thread receives or probes messages that another thread sends to the same rank, and answers. */
static void meet_in_own_rank(void)
{
    static int in[WORDS];
    pthread_t thread;
    MPI_Status status;
    pthread_create(&thread, NULL, send_to_self, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        int source = round % 2 ? rank : MPI_ANY_SOURCE, n;
        if (round % 4 < 2) {
            OK(MPI_Probe(source, 1, MPI_COMM_WORLD, &status));
            STATUS(status, rank, 1, length(round) * (int)sizeof(int));
        }
        in[0] = -1;
        OK(MPI_Recv(in, WORDS, MPI_INT, source, 1, MPI_COMM_WORLD, &status));
        OK(MPI_Get_count(&status, MPI_INT, &n));
        SAME(n, length(round));
        SAME(in[0], round);
        OK(MPI_Send(in, 0, MPI_INT, rank, 2, MPI_COMM_WORLD));
    }
    pthread_join(thread, NULL);
}

static atomic_int polling;

static void *poll_for_nothing(void *argument)
{
    int flag;
    (void)argument;
    while (polling) {
        OK(MPI_Iprobe(MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        SAME(flag, 0);
    }
    return NULL;
}

/* One thread sleeps in a probe; another thread, which waits for another message, takes in the probed message. */
static void probe_while_others_poll(void)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, in;
    pthread_t thread;
    MPI_Status status;
    polling = 1;
    pthread_create(&thread, NULL, poll_for_nothing, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Message message;
        /* The rank that sends first alternates. */
        if (round % ranks == rank)
            OK(MPI_Send(&round, 1, MPI_INT, to, 3, MPI_COMM_WORLD));
        if (round % 2) {
            OK(MPI_Mprobe(from, 3, MPI_COMM_WORLD, &message, &status));
            OK(MPI_Mrecv(&in, 1, MPI_INT, &message, &status));
        } else {
            OK(MPI_Probe(from, 3, MPI_COMM_WORLD, &status));
            OK(MPI_Recv(&in, 1, MPI_INT, from, 3, MPI_COMM_WORLD, &status));
        }
        SAME(in, round);
        STATUS(status, from, 3, 4);
        if (round % ranks != rank)
            OK(MPI_Send(&round, 1, MPI_INT, to, 3, MPI_COMM_WORLD));
    }
    polling = 0;
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    SAME(provided, MPI_THREAD_MULTIPLE);
    meet_in_own_rank();
    probe_while_others_poll();
    return finish();
}
