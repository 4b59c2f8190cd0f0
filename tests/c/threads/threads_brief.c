/* Short-lived threads, thousands in sequence and several at a time: the bias of the lock, trace rings and queue entries
 * must not outlive them. A new thread may have the identity of an ended one. The initialising thread calls MPI between
 * them, or never, or waits in a call meanwhile. An operation that one thread starts may be completed by the next.
 * test: ranks=1,2,3 timeout=120 args=300;1500 */
#include "../check.h"
#include <pthread.h>

enum { ATONCE = 4, SMALL = 16, LARGE = 30000 };

static MPI_Comm comms[ATONCE];
static int heritage[ATONCE][2][LARGE];
static MPI_Request inherited[ATONCE][2];

typedef struct {
    int lane, number;
} Brief;

static int next(void)
{
    return (rank + 1) % ranks;
}

static int before(void)
{
    return (rank + ranks - 1) % ranks;
}

/* A message round the ring. */
static void *exchange(void *argument)
{
    Brief *b = argument;
    int out = b->number, in = -1;
    MPI_Status status;
    OK(MPI_Sendrecv(&out, 1, MPI_INT, next(), b->lane, &in, 1, MPI_INT, before(), b->lane, comms[b->lane], &status));
    SAME(in, b->number);
    STATUS(status, before(), b->lane, 4);
    return NULL;
}

/* Completes the operation of the previous thread, and starts the next. */
static void *hand_on(void *argument)
{
    Brief *b = argument;
    int (*data)[LARGE] = heritage[b->lane], count = b->number % 5 ? SMALL : LARGE;
    MPI_Request *requests = inherited[b->lane];
    if (b->number != 0) {
        int earlier = (b->number - 1) % 5 ? SMALL : LARGE;
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        SAME(data[1][0], b->number - 1);
        SAME(data[1][earlier - 1], b->number - 1);
    }
    for (int i = 0; i < count; i++)
        data[0][i] = b->number;
    OK(MPI_Irecv(data[1], count, MPI_INT, before(), 7, comms[b->lane], &requests[1]));
    OK(MPI_Isend(data[0], count, MPI_INT, next(), 7, comms[b->lane], &requests[0]));
    return NULL;
}

/* Calls without a peer. After many of them a single thread holds the bias of the lock, and ends with it. */
static void *call_often(void *argument)
{
    int flag, times = ((Brief *)argument)->number % 7 ? 3 : 3000;
    for (int i = 0; i < times; i++)
        OK(MPI_Iprobe(MPI_ANY_SOURCE, 99, comms[((Brief *)argument)->lane], &flag, MPI_STATUS_IGNORE));
    return NULL;
}

/* Runs `count` threads on each lane; those of different lanes run concurrently. */
static void run(void *(*body)(void *), int count, int lanes, int main_calls)
{
    for (int i = 0; i < count; i++) {
        pthread_t threads[ATONCE];
        Brief briefs[ATONCE];
        for (int lane = 0; lane < lanes; lane++) {
            briefs[lane] = (Brief){lane, i};
            if (pthread_create(&threads[lane], NULL, body, &briefs[lane]))
                exit(4);
        }
        if (main_calls) {
            int flag;
            OK(MPI_Iprobe(MPI_ANY_SOURCE, 98, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        }
        for (int lane = 0; lane < lanes; lane++)
            pthread_join(threads[lane], NULL);
    }
}

static int many;

static void *run_beside(void *argument)
{
    (void)argument;
    int end = 1;
    run(exchange, many / 4, 2, 0);
    run(call_often, many / 8, 2, 0);
    OK(MPI_Send(&end, 1, MPI_INT, next(), 55, MPI_COMM_WORLD));
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, end = 0;
    pthread_t thread;
    many = argc > 1 ? atoi(argv[1]) : 300;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    SAME(provided, MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < ATONCE; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);

    run(exchange, many / 2, 1, 0); /* the initialising thread holds the bias and makes no call */
    run(exchange, many / 2, 1, 1);
    run(exchange, many / 4, ATONCE, 0);
    run(hand_on, many / 4, ATONCE, 0);
    for (int i = 0; i < ATONCE; i++)
        OK(MPI_Waitall(2, inherited[i], MPI_STATUSES_IGNORE));
    run(call_often, many / 8, ATONCE, 1);

    /* The initialising thread waits while others start and end. */
    if (pthread_create(&thread, NULL, run_beside, NULL))
        exit(4);
    OK(MPI_Recv(&end, 1, MPI_INT, before(), 55, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    SAME(end, 1);
    pthread_join(thread, NULL);

    for (int i = 0; i < ATONCE; i++)
        MPI_Comm_free(&comms[i]);
    return finish();
}
