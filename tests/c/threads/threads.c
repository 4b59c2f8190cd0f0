/* Threads of MPI_THREAD_MULTIPLE with concurrent calls of all kinds. Each pair of threads has its own communicator, and
 * all share a common one: sends and receives of all sizes, wildcards, probes, matched probes, collectives, requests
 * that another thread waits for.
 * test: ranks=1,2,3,4 timeout=120 */
#include "../check.h"
#include <pthread.h>
#include <unistd.h>

enum { PAIRS = 3, SIZES = 7, TAGS = 3 };

static const int sizes[SIZES] = {0, 8, 48, 300, 9000, 40000, 250000};
static MPI_Comm own[PAIRS], common, gathering;
static int rounds;
static pthread_barrier_t handover;
static MPI_Request handed[2 * PAIRS];

static unsigned draw(unsigned long long *state, unsigned below)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((*state >> 33) % below);
}

static int next(void)
{
    return (rank + 1) % ranks;
}

static int before(void)
{
    return (rank + ranks - 1) % ranks;
}

/* Messages to the next rank, drawn from a seed that the receiver knows. */
static void *sender(void *argument)
{
    int pair = (int)(size_t)argument;
    unsigned long long state = (unsigned long long)pair;
    unsigned char *data = allocate(250000);
    for (int i = 0; i < rounds * 10; i++) {
        int bytes = sizes[draw(&state, SIZES)], tag = (int)draw(&state, TAGS), way = (int)draw(&state, 4);
        MPI_Request request;
        fill(data, (size_t)bytes, (unsigned)(pair * 1000 + i));
        if (way == 0)
            OK(MPI_Ssend(data, bytes, MPI_BYTE, next(), tag, own[pair]));
        else if (way == 1)
            OK(MPI_Send(data, bytes, MPI_BYTE, next(), tag, own[pair]));
        else {
            OK(MPI_Isend(data, bytes, MPI_BYTE, next(), tag, own[pair], &request));
            for (int done = 0; way == 2 && !done;)
                OK(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
    }
    free(data);
    return NULL;
}

static void *receiver(void *argument)
{
    int pair = (int)(size_t)argument;
    unsigned long long state = (unsigned long long)pair, mine = (unsigned long long)(pair * 77 + rank);
    unsigned char *data = allocate(250000);
    for (int i = 0; i < rounds * 10; i++) {
        int bytes = sizes[draw(&state, SIZES)], tag = (int)draw(&state, TAGS), found = 0;
        int from = draw(&mine, 2) ? before() : MPI_ANY_SOURCE, any = draw(&mine, 2) ? tag : MPI_ANY_TAG;
        MPI_Request request;
        MPI_Message message;
        MPI_Status status;
        draw(&state, 4);
        memset(data, 0xee, (size_t)bytes);
        switch (draw(&mine, 5)) {
        case 0:
            OK(MPI_Recv(data, bytes, MPI_BYTE, from, any, own[pair], &status));
            break;
        case 1:
            OK(MPI_Probe(from, any, own[pair], &status));
            STATUS(status, before(), tag, bytes);
            OK(MPI_Recv(data, bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, own[pair], &status));
            break;
        case 2:
            OK(MPI_Mprobe(from, any, own[pair], &message, &status));
            STATUS(status, before(), tag, bytes);
            OK(MPI_Mrecv(data, bytes, MPI_BYTE, &message, &status));
            break;
        case 3:
            while (!found)
                OK(MPI_Improbe(from, any, own[pair], &found, &message, &status));
            OK(MPI_Imrecv(data, bytes, MPI_BYTE, &message, &request));
            OK(MPI_Wait(&request, &status));
            break;
        default:
            OK(MPI_Irecv(data, bytes, MPI_BYTE, from, any, own[pair], &request));
            while (!found)
                OK(MPI_Test(&request, &found, &status));
        }
        STATUS(status, before(), tag, bytes);
        HOLDS(data, (size_t)bytes, (unsigned)(pair * 1000 + i));
    }
    free(data);
    return NULL;
}

/* Calls collectives while the others exchange messages. */
static void *collector(void *argument)
{
    long *one = allocate(sizeof(long) * 5000), *sum = allocate(sizeof(long) * 5000);
    (void)argument;
    for (int i = 0; i < rounds * 4; i++) {
        int count = i % 3 == 2 ? 5000 : 1 + i % 7, root = i % ranks, token = rank == root ? i : -1;
        for (int k = 0; k < count; k++)
            one[k] = k + rank;
        OK(MPI_Allreduce(one, sum, count, MPI_LONG, MPI_SUM, gathering));
        SAME(sum[count - 1], (long)(count - 1) * ranks + (long)ranks * (ranks - 1) / 2);
        OK(MPI_Bcast(&token, 1, MPI_INT, root, gathering));
        SAME(token, i);
        OK(MPI_Barrier(gathering));
    }
    free(sum);
    free(one);
    return NULL;
}

/* All threads receive from any source on one communicator: each message is received once. */
static long long received_sum;
static int to_receive;
static void *taker(void *argument)
{
    (void)argument;
    while (__atomic_fetch_sub(&to_receive, 1, __ATOMIC_RELAXED) > 0) {
        int value[100];
        MPI_Status status;
        OK(MPI_Recv(value, 100, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, common, &status));
        SAME(value[0], status.MPI_TAG * 1000 + status.MPI_SOURCE);
        __atomic_add_fetch(&received_sum, value[0], __ATOMIC_RELAXED);
    }
    return NULL;
}

static void *giver(void *argument)
{
    int t = (int)(size_t)argument;
    for (int i = 0; i < rounds * 4; i++)
        for (int to = 0; to < ranks; to++) {
            int value[100] = {t * 1000 + rank};
            OK(MPI_Send(value, 1 + (i * 31 + to) % 100, MPI_INT, to, t, common));
        }
    return NULL;
}

/* Requests that one thread starts and another one waits for. */
static int handed_data[2 * PAIRS][2000];
static void *starter(void *argument)
{
    int t = (int)(size_t)argument;
    for (int i = 0; i < rounds; i++) {
        int count = i % 2 ? 2000 : 5;
        for (int k = 0; k < count; k++)
            handed_data[t][k] = t < PAIRS ? t * 10 + i : -1;
        if (t < PAIRS)
            OK(MPI_Isend(handed_data[t], count, MPI_INT, next(), 50 + t, common, &handed[t]));
        else
            OK(MPI_Irecv(handed_data[t], count, MPI_INT, before(), 50 + t - PAIRS, common, &handed[t]));
        pthread_barrier_wait(&handover);
        OK(MPI_Wait(&handed[(t + 1) % (2 * PAIRS)], MPI_STATUS_IGNORE));
        pthread_barrier_wait(&handover);
        if (t >= PAIRS)
            for (int k = 0; k < count; k++)
                if (handed_data[t][k] != (t - PAIRS) * 10 + i) {
                    fail(__LINE__, "thread %d, round %d, element %d is %d", t, i, k, handed_data[t][k]);
                    break;
                }
        pthread_barrier_wait(&handover);
    }
    return NULL;
}

static void run(int count, void *(*const bodies[])(void *), const int numbers[])
{
    pthread_t threads[2 * PAIRS + 2];
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, bodies[i], (void *)(size_t)numbers[i]))
            exit(4);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    int provided;
    rounds = argc > 1 ? atoi(argv[1]) : 10;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    SAME(provided, MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < PAIRS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &own[i]);
    MPI_Comm_dup(MPI_COMM_WORLD, &common);
    MPI_Comm_dup(MPI_COMM_WORLD, &gathering);

    run(2 * PAIRS + 1, (void *(*const[])(void *)){sender, receiver, sender, receiver, sender, receiver, collector},
        (const int[]){0, 0, 1, 1, 2, 2, 0});

    enum { GIVERS = 3, TAKERS = 3 };
    to_receive = GIVERS * rounds * 4 * ranks;
    run(GIVERS + TAKERS + 1, (void *(*const[])(void *)){giver, taker, giver, taker, giver, taker, collector},
        (const int[]){0, 0, 1, 1, 2, 2, 0});
    long long expected = 0;
    for (int t = 0; t < GIVERS; t++)
        for (int from = 0; from < ranks; from++)
            expected += (long long)(t * 1000 + from) * rounds * 4;
    SAME(received_sum, expected);

    pthread_barrier_init(&handover, NULL, 2 * PAIRS);
    run(2 * PAIRS + 1, (void *(*const[])(void *)){starter, starter, starter, starter, starter, starter, collector},
        (const int[]){0, 1, 2, 3, 4, 5, 0});

    for (int i = 0; i < PAIRS; i++)
        MPI_Comm_free(&own[i]);
    MPI_Comm_free(&common);
    MPI_Comm_free(&gathering);
    return finish();
}
