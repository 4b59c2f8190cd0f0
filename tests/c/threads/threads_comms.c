/* Threads on several communicators at MPI_THREAD_MULTIPLE. Operations progress while their thread or another one is
 * blocked elsewhere, requests of several communicators are waited for together, contexts do not mix, and thousands of
 * communicators are created and freed while others are in use.
 * Argument: number of communicators created.
 * test: ranks=1,2,3 timeout=60 */
#include "../check.h"
#include <pthread.h>

enum { COMMS = 5, LONG = 600000, MANY = 40 };

static MPI_Comm comms[COMMS]; /* the first is MPI_COMM_WORLD */
static int passing;

static int next(void)
{
    return (rank + 1) % ranks;
}

static int before(void)
{
    return (rank + ranks - 1) % ranks;
}

static pthread_t begin(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument))
        exit(4);
    return thread;
}

typedef struct {
    MPI_Comm comm;
    int value;
} Wait;

static void *receive_value(void *argument)
{
    Wait *wait = argument;
    OK(MPI_Recv(&wait->value, 1, MPI_INT, 1, 3, wait->comm, MPI_STATUS_IGNORE));
    return NULL;
}

/* Rank 0 has a long send outstanding on one communicator and is blocked on another one, in a separate thread if
 * `apart`. Rank 1 ends that wait only after it has the long message. */
static void leave(MPI_Comm left, MPI_Comm blocked, int apart)
{
    unsigned char *data = allocate(LONG);
    MPI_Request request;
    if (rank == 0) {
        Wait wait = {blocked, 0};
        fill(data, LONG, 7);
        pthread_t thread = 0;
        if (apart)
            thread = begin(receive_value, &wait);
        OK(MPI_Isend(data, LONG, MPI_BYTE, 1, 2, left, &request));
        if (apart)
            pthread_join(thread, NULL); /* outside MPI */
        else
            receive_value(&wait);
        SAME(wait.value, 99);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else if (rank == 1) {
        int value = 99;
        OK(MPI_Recv(data, LONG, MPI_BYTE, 0, 2, left, MPI_STATUS_IGNORE));
        HOLDS(data, LONG, 7);
        OK(MPI_Send(&value, 1, MPI_INT, 0, 3, blocked));
    }
    free(data);
}

/* Like `leave`, with a receive: rank 1's synchronous send completes while rank 0 is blocked, or polls (`polls`),
 * elsewhere. */
static void leave_receive(MPI_Comm left, MPI_Comm blocked, int polls)
{
    unsigned char *data = allocate(LONG);
    MPI_Request requests[2];
    int value = 0, done = 0;
    if (rank == 0) {
        OK(MPI_Irecv(data, LONG, MPI_BYTE, 1, 4, left, &requests[0]));
        OK(MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 5, blocked, &requests[1]));
        while (polls && !done)
            OK(MPI_Test(&requests[1], &done, MPI_STATUS_IGNORE));
        if (!polls)
            OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
        SAME(value, 98);
        OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        HOLDS(data, LONG, 9);
    } else if (rank == 1) {
        value = 98;
        fill(data, LONG, 9);
        OK(MPI_Ssend(data, LONG, MPI_BYTE, 0, 4, left));
        OK(MPI_Send(&value, 1, MPI_INT, 0, 5, blocked));
    }
    free(data);
}

/* Requests of all communicators, completed by all calls; every second one is persistent. */
static void mix(int way)
{
    static int out[MANY], in[MANY];
    MPI_Request sends[MANY], receives[MANY];
    int left = MANY;
    for (int i = 0; i < MANY; i++) {
        out[i] = rank * 1000 + i, in[i] = -1;
        int from = i % 3 ? before() : MPI_ANY_SOURCE;
        if (i % 2) {
            OK(MPI_Recv_init(&in[i], 1, MPI_INT, from, i, comms[i % COMMS], &receives[i]));
            OK(MPI_Start(&receives[i]));
        } else
            OK(MPI_Irecv(&in[i], 1, MPI_INT, from, i, comms[i % COMMS], &receives[i]));
    }
    for (int i = MANY - 1; i >= 0; i--)
        OK((i % 4 ? MPI_Isend : MPI_Issend)(&out[i], 1, MPI_INT, next(), i, comms[i % COMMS], &sends[i]));
    while (left > 0) {
        int index = MPI_UNDEFINED, done = 0, indices[MANY], count = 0;
        if (way == 0) {
            OK(MPI_Waitany(MANY, receives, &index, MPI_STATUS_IGNORE));
            left -= index != MPI_UNDEFINED;
        } else if (way == 1) {
            OK(MPI_Waitsome(MANY, receives, &count, indices, MPI_STATUSES_IGNORE));
            left -= count;
        } else if (way == 2) {
            OK(MPI_Testany(MANY, receives, &index, &done, MPI_STATUS_IGNORE));
            left -= done && index != MPI_UNDEFINED;
        } else if (way == 3) {
            OK(MPI_Testall(MANY, receives, &done, MPI_STATUSES_IGNORE));
            left = done ? 0 : left;
        } else {
            OK(MPI_Waitall(MANY, receives, MPI_STATUSES_IGNORE));
            left = 0;
        }
    }
    OK(MPI_Waitall(MANY, sends, MPI_STATUSES_IGNORE));
    for (int i = 0; i < MANY; i++) {
        SAME(in[i], before() * 1000 + i);
        if (i % 2)
            OK(MPI_Request_free(&receives[i]));
    }
}

/* One tag and any source on each communicator: messages stay on their communicator, and in order. */
static void keep_order(void)
{
    static int values[MANY][COMMS];
    for (int i = 0; i < MANY; i++)
        for (int c = 0; c < COMMS; c++) {
            MPI_Request request;
            values[i][c] = c * 1000 + i;
            OK(MPI_Isend(&values[i][c], 1, MPI_INT, next(), i % 3, comms[c], &request));
            OK(MPI_Request_free(&request));
        }
    for (int c = COMMS - 1; c >= 0; c--)
        for (int i = 0; i < MANY; i++) {
            int value = -1, found = 0;
            MPI_Message message;
            MPI_Status status;
            while (!found)
                OK(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comms[c], &found, &message, &status));
            OK(MPI_Mrecv(&value, 1, MPI_INT, &message, &status));
            SAME(value, c * 1000 + i);
            STATUS(status, before(), i % 3, 4);
        }
}

/* Cancelled receives, buffered sends, names, errors. */
static void do_others(void)
{
    int value = rank, size = 4 * COMMS * (64 + MPI_BSEND_OVERHEAD), cancelled;
    char *buffer = allocate((size_t)size), name[MPI_MAX_OBJECT_NAME];
    OK(MPI_Buffer_attach(buffer, size));
    for (int c = 0; c < COMMS; c++) {
        MPI_Request request;
        MPI_Status status;
        OK(MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 77, comms[c], &request));
        OK(MPI_Cancel(&request));
        OK(MPI_Wait(&request, &status));
        OK(MPI_Test_cancelled(&status, &cancelled));
        SAME(cancelled, 1);
        OK(MPI_Bsend(&c, 1, MPI_INT, next(), 78, comms[c]));
        OK(MPI_Comm_set_name(comms[c], c ? "own" : "MPI_COMM_WORLD"));
        OK(MPI_Comm_get_name(comms[c], name, &size));
        OK(MPI_Sendrecv(&rank, 1, MPI_INT, before(), 79, &value, 1, MPI_INT, next(), 79, comms[c], &status));
        SAME(value, next());
        OK(MPI_Comm_set_errhandler(comms[c], MPI_ERRORS_RETURN));
        CLASS(MPI_Send(&value, 1, MPI_INT, ranks, 0, comms[c]), MPI_ERR_RANK);
        CLASS(MPI_Send(&value, 1, MPI_INT, 0, -5, comms[c]), MPI_ERR_TAG);
        OK(MPI_Comm_set_errhandler(comms[c], MPI_ERRORS_ARE_FATAL));
    }
    for (int c = 0; c < COMMS; c++) {
        OK(MPI_Recv(&value, 1, MPI_INT, before(), 78, comms[c], MPI_STATUS_IGNORE));
        SAME(value, c);
    }
    OK(MPI_Buffer_detach(&buffer, &size));
    free(buffer);
}

/* Messages on one communicator until the neighbour has sent its last message. */
static void *chat(void *argument)
{
    MPI_Comm comm = *(MPI_Comm *)argument;
    unsigned char data[3000];
    for (int i = 0, go = 1; go; i++) {
        int bytes = 1 + i * 37 % 2999;
        go = __atomic_load_n(&passing, __ATOMIC_RELAXED);
        MPI_Allreduce(MPI_IN_PLACE, &go, 1, MPI_INT, MPI_MIN, comm);
        fill(data, (size_t)bytes, (unsigned)i);
        OK(MPI_Sendrecv_replace(data, bytes, MPI_BYTE, next(), i, before(), i, comm, MPI_STATUS_IGNORE));
        HOLDS(data, (size_t)bytes, (unsigned)i);
    }
    return NULL;
}

/* Creates and frees communicators of all kinds while two threads use others. */
static void pass(int count)
{
    MPI_Comm kept[MANY];
    passing = 1;
    pthread_t threads[2] = {begin(chat, &comms[1]), begin(chat, &comms[2])};
    for (int i = 0; i < MANY; i++)
        kept[i] = MPI_COMM_NULL;
    for (int i = 0; i < count; i++) {
        MPI_Comm *comm = &kept[i % MANY];
        int value = i, got = -1;
        if (*comm != MPI_COMM_NULL)
            OK(MPI_Comm_free(comm));
        if (i % 7 == 3)
            OK(MPI_Comm_split(comms[3], 0, -rank, comm));
        else
            OK(MPI_Comm_dup(i % 2 ? comms[3] : comms[4], comm));
        int to = i % 7 == 3 ? ranks - 1 - next() : next(), from = i % 7 == 3 ? ranks - 1 - before() : before();
        MPI_Request request;
        OK(MPI_Isend(&value, 1, MPI_INT, to, i % 100, *comm, &request));
        OK(MPI_Recv(&got, 1, MPI_INT, from, MPI_ANY_TAG, *comm, MPI_STATUS_IGNORE));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        SAME(got, i);
    }
    for (int i = 0; i < MANY; i++)
        if (kept[i] != MPI_COMM_NULL)
            OK(MPI_Comm_free(&kept[i]));
    __atomic_store_n(&passing, 0, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* A thread waits for a request that another thread has created. */
static MPI_Request handed;
static void *wait_handed(void *argument)
{
    (void)argument;
    OK(MPI_Wait(&handed, MPI_STATUS_IGNORE));
    return NULL;
}

static void hand_over(MPI_Comm comm, int bytes)
{
    unsigned char *data = allocate((size_t)bytes), *out = allocate((size_t)bytes);
    fill(out, (size_t)bytes, (unsigned)bytes);
    OK(MPI_Irecv(data, bytes, MPI_BYTE, before(), 6, comm, &handed));
    pthread_t thread = begin(wait_handed, NULL);
    OK(MPI_Send(out, bytes, MPI_BYTE, next(), 6, comm));
    pthread_join(thread, NULL);
    HOLDS(data, (size_t)bytes, (unsigned)bytes);
    free(out);
    free(data);
}

int main(int argc, char **argv)
{
    int provided, count = argc > 1 ? atoi(argv[1]) : 2000;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    SAME(provided, MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    comms[0] = MPI_COMM_WORLD;
    for (int i = 1; i < COMMS; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    if (ranks > 1)
        for (int i = 0; i < COMMS; i++)
            for (int k = 0; k < COMMS; k++) {
                leave(comms[i], comms[k], (i + k) % 2);
                leave_receive(comms[i], comms[k], (i + k) % 2);
                OK(MPI_Barrier(comms[i]));
            }
    for (int way = 0; way < 5; way++)
        mix(way);
    keep_order();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    do_others();
    for (int i = 0; i < COMMS; i++) {
        hand_over(comms[i], 8);
        hand_over(comms[i], 20000);
        hand_over(comms[i], LONG);
    }
    pass(count);
    for (int i = 1; i < COMMS; i++)
        OK(MPI_Comm_free(&comms[i]));
    return finish();
}
