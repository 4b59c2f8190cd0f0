/* Threads that start and end: the lock of MPI_THREAD_MULTIPLE is biased to one thread at a time, and must not confuse a
 * new thread with an ended one that had the same id. Then 2 to 16 concurrent threads, each with its own tag on one
 * communicator, with all kinds of sends and receives.
 * test: ranks=1,2 timeout=240 */
#include "../check.h"
#include <pthread.h>
#include <string.h>

enum { PASSING = 3000, MOST = 16, ROUNDS = 60, BYTES = 20000 };

static int other(void)
{
    return ranks == 2 ? 1 - rank : rank;
}

/* Sends a message, and receives the message of the other rank. */
static void exchange(int number, int tag)
{
    int out = number * 10 + rank, in = -1;
    MPI_Status status;
    OK(MPI_Sendrecv(&out, 1, MPI_INT, other(), tag, &in, 1, MPI_INT, other(), tag, MPI_COMM_WORLD, &status));
    STATUS(status, other(), tag, (int)sizeof(int));
    SAME(in, number * 10 + other());
}

static void *pass(void *argument)
{
    exchange((int)(size_t)argument, 1);
    return NULL;
}

/* One thread after the other, each as the only caller. Now and then the first thread calls too, or so often that it
 * regains the bias. */
static void use_passing_threads(void)
{
    for (int number = 0; number < PASSING; number++) {
        pthread_t thread;
        SAME(pthread_create(&thread, NULL, pass, (void *)(size_t)number), 0);
        SAME(pthread_join(thread, NULL), 0);
        if (number % 7 == 0) exchange(number, 2);
        for (int i = 0; number % 1000 == 0 && i < 5000; i++) exchange(i, 3);
    }
}

/* Messages of the same thread of the other rank: blocking, nonblocking, tested, probed. */
static void *talk(void *argument)
{
    int tag = 10 + (int)(size_t)argument;
    unsigned char *out = allocate(BYTES), *in = allocate(BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        static const int sizes[] = {0, 8, 48, 700, BYTES};
        int bytes = sizes[round % 5], done = 0;
        MPI_Request requests[2];
        MPI_Status status;
        fill(out, (size_t)bytes, (unsigned)(tag * 1000 + round));
        memset(in, 0, BYTES);
        switch (round / 5 % 4) {
        case 0:
            OK(MPI_Isend(out, bytes, MPI_BYTE, other(), tag, MPI_COMM_WORLD, &requests[0]));
            OK(MPI_Recv(in, BYTES, MPI_BYTE, other(), tag, MPI_COMM_WORLD, &status));
            OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
            break;
        case 1:
            OK(MPI_Irecv(in, BYTES, MPI_BYTE, other(), tag, MPI_COMM_WORLD, &requests[0]));
            OK(MPI_Send(out, bytes, MPI_BYTE, other(), tag, MPI_COMM_WORLD));
            while (!done) OK(MPI_Test(&requests[0], &done, &status));
            break;
        case 2:
            OK(MPI_Irecv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &requests[0]));
            OK(MPI_Issend(out, bytes, MPI_BYTE, other(), tag, MPI_COMM_WORLD, &requests[1]));
            OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
            break;
        default:
            OK(MPI_Isend(out, bytes, MPI_BYTE, other(), tag, MPI_COMM_WORLD, &requests[0]));
            OK(MPI_Probe(other(), tag, MPI_COMM_WORLD, &status));
            STATUS(status, other(), tag, bytes);
            OK(MPI_Recv(in, bytes, MPI_BYTE, other(), tag, MPI_COMM_WORLD, &status));
            OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        }
        HOLDS(in, (size_t)bytes, (unsigned)(tag * 1000 + round));
    }
    free(out);
    free(in);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[MOST];
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    SAME(provided, MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    use_passing_threads();
    for (int count = 2; count <= MOST; count *= 2) {
        for (int i = 0; i < count; i++) SAME(pthread_create(&threads[i], NULL, talk, (void *)(size_t)i), 0);
        for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    }
    return finish();
}
