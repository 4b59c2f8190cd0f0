/* Communicators whose messages are spread over workers by tag, by peer or by both, since their members promise to use
 * no MPI_ANY_TAG or no MPI_ANY_SOURCE: threads with tags of their own exchange messages of all sizes and modes, whose
 * contents and order are checked; probes, persistent requests, cancelled ones, requests of several tags in one wait,
 * promises that not all make, that come later or are broken.
 * Arguments: threads, rounds of each.
 * test: ranks=1,2,3 args=4,60;16,20 timeout=120 env=FASTPATH_WORKERS=several */
#include "../check.h"
#include <pthread.h>

enum { BY_TAG = 1, BY_PEER = 2, MOST = 16, LANES = 7, LONG = 300000 };

static int threads = 4, rounds = 60;
static int several; /* whether there are workers to spread messages over */

static MPI_Comm make(int promises)
{
    MPI_Comm comm;
    MPI_Info info;
    OK(MPI_Info_create(&info));
    if (promises & BY_TAG)
        OK(MPI_Info_set(info, "mpi_assert_no_any_tag", "true"));
    if (promises & BY_PEER)
        OK(MPI_Info_set(info, "mpi_assert_no_any_source", "true"));
    OK(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm));
    OK(MPI_Info_free(&info));
    return comm;
}

static int next(void)
{
    return (rank + 1) % ranks;
}

static int before(void)
{
    return (rank + ranks - 1) % ranks;
}

typedef struct {
    MPI_Comm comm;
    int number, promises;
} Thread;

static unsigned seed_of(int sender, int thread, int i)
{
    return (unsigned)(sender * 10007 + thread * 1009 + i);
}

static const int SIZES[] = {0, 1, 8, 48, 49, 200, 3000, 9000, 70000, LONG};

/* A receive or a matched probe of a message; the source is a wildcard where that is allowed. */
static void take(const Thread *t, int i, int from, int tag, unsigned char *in, int bytes)
{
    MPI_Status status;
    MPI_Message message;
    int source = t->promises & BY_PEER || i % 2 ? from : MPI_ANY_SOURCE;
    if (i % 5 == 0) {
        OK(MPI_Mprobe(source, tag, t->comm, &message, &status));
        STATUS(status, from, tag, bytes);
        OK(MPI_Mrecv(in, bytes, MPI_BYTE, &message, &status));
    } else if (i % 5 == 1) {
        int flag = 0;
        while (!flag)
            OK(MPI_Iprobe(source, tag, t->comm, &flag, &status));
        STATUS(status, from, tag, bytes);
        OK(MPI_Recv(in, bytes, MPI_BYTE, source, tag, t->comm, &status));
    } else if (i % 5 == 2) {
        OK(MPI_Probe(source, tag, t->comm, &status));
        OK(MPI_Recv(in, bytes, MPI_BYTE, source, tag, t->comm, &status));
    } else
        OK(MPI_Recv(in, LONG, MPI_BYTE, source, tag, t->comm, &status));
    STATUS(status, from, tag, bytes);
}

/* Messages to the next rank and from the one before, with tags of this thread alone. */
static void *talk(void *argument)
{
    const Thread *t = argument;
    unsigned char *out = allocate(LONG), *in = allocate(LONG);
    for (int i = 0; i < rounds; i++) {
        MPI_Request request;
        MPI_Status status;
        int bytes = SIZES[i % 10], tag = t->number + (i / 10 % 3) * MOST;
        fill(out, (size_t)bytes, seed_of(rank, t->number, i));
        memset(in, 0xee, (size_t)bytes);
        switch (i % 4) {
        case 0:
            OK(MPI_Isend(out, bytes, MPI_BYTE, next(), tag, t->comm, &request));
            break;
        case 1:
            OK(MPI_Issend(out, bytes, MPI_BYTE, next(), tag, t->comm, &request));
            break;
        case 2:
            OK(MPI_Ibsend(out, bytes, MPI_BYTE, next(), tag, t->comm, &request));
            break;
        default:
            OK(MPI_Sendrecv(out, bytes, MPI_BYTE, next(), tag, in, LONG, MPI_BYTE, before(), tag, t->comm, &status));
            STATUS(status, before(), tag, bytes);
        }
        if (i % 4 < 3) {
            take(t, i, before(), tag, in, bytes);
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
        HOLDS(in, (size_t)bytes, seed_of(before(), t->number, i));
    }
    free(out);
    free(in);
    return NULL;
}

/* Short messages of two tags in windows: the order within a tag is that of the sends, whatever is posted first. */
static void *keep_order(void *argument)
{
    enum { WINDOW = 24 };
    const Thread *t = argument;
    int out[WINDOW], in[WINDOW];
    MPI_Request requests[2 * WINDOW];
    for (int round = 0; round < rounds / 4; round++) {
        for (int i = 0; i < WINDOW; i++) {
            out[i] = (round * MOST + t->number) * 1000 + i, in[i] = -1;
            int tag = t->number + i % 2 * (MOST + 1);
            if (round % 2)
                OK(MPI_Irecv(&in[i], 1, MPI_INT, before(), tag, t->comm, &requests[WINDOW + i]));
        }
        for (int i = 0; i < WINDOW; i++) {
            int tag = t->number + i % 2 * (MOST + 1);
            OK((i % 6 == 5 ? MPI_Issend : MPI_Isend)(&out[i], 1, MPI_INT, next(), tag, t->comm, &requests[i]));
        }
        for (int k = 0; k < WINDOW && round % 2 == 0; k++) {
            int i = k < WINDOW / 2 ? 2 * k + 1 : 2 * (k - WINDOW / 2); /* the second tag first */
            int tag = t->number + i % 2 * (MOST + 1);
            if (k % 3)
                OK(MPI_Irecv(&in[i], 1, MPI_INT, before(), tag, t->comm, &requests[WINDOW + i]));
            else {
                OK(MPI_Recv(&in[i], 1, MPI_INT, before(), tag, t->comm, MPI_STATUS_IGNORE));
                requests[WINDOW + i] = MPI_REQUEST_NULL;
            }
        }
        OK(MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < WINDOW; i++)
            SAME(in[i], out[i]);
    }
    return NULL;
}

static void run(void *(*body)(void *), MPI_Comm comm, int promises)
{
    pthread_t running[MOST];
    Thread all[MOST];
    for (int i = 0; i < threads; i++) {
        all[i] = (Thread){comm, i, promises};
        if (pthread_create(&running[i], NULL, body, &all[i]))
            exit(4);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    OK(MPI_Barrier(comm));
}

/* One thread, messages of all tags at once: ready and persistent ones, waits for all and for any, one of each pair of
 * tags in one call, cancelled receives and sends. */
static void do_others(MPI_Comm comm)
{
    enum { MANY = 2 * LANES + 3 };
    static int out[MANY], in[MANY];
    MPI_Request sends[MANY], receives[MANY];
    MPI_Status status;
    for (int way = 0; way < 3; way++) {
        for (int i = 0; i < MANY; i++) {
            out[i] = rank * 1000 + i, in[i] = -1;
            OK(MPI_Recv_init(&in[i], 1, MPI_INT, before(), i, comm, &receives[i]));
            OK((i % 2 ? MPI_Send_init : MPI_Ssend_init)(&out[i], 1, MPI_INT, next(), i, comm, &sends[i]));
        }
        OK(MPI_Startall(MANY, receives));
        OK(MPI_Barrier(comm));
        OK(MPI_Startall(MANY, sends));
        for (int left = MANY; left > 0;) {
            int index = MPI_UNDEFINED, done;
            if (way == 0) {
                OK(MPI_Waitall(MANY, receives, MPI_STATUSES_IGNORE));
                left = 0;
            } else if (way == 1) {
                OK(MPI_Waitany(MANY, receives, &index, &status));
                STATUS(status, before(), index, 4);
                left--;
            } else {
                OK(MPI_Testall(MANY, receives, &done, MPI_STATUSES_IGNORE));
                left = done ? 0 : left;
            }
        }
        OK(MPI_Waitall(MANY, sends, MPI_STATUSES_IGNORE));
        for (int i = 0; i < MANY; i++) {
            SAME(in[i], before() * 1000 + i);
            OK(MPI_Request_free(&sends[i]));
            OK(MPI_Request_free(&receives[i]));
        }
    }
    for (int tag = 0; tag < MANY; tag++) {
        int got = -1, cancelled = 0, back = MANY - 1 - tag;
        OK(MPI_Irecv(&got, 1, MPI_INT, before(), tag, comm, &receives[0]));
        OK(MPI_Barrier(comm));
        OK(MPI_Rsend(&tag, 1, MPI_INT, next(), tag, comm));
        OK(MPI_Wait(&receives[0], MPI_STATUS_IGNORE));
        SAME(got, tag);
        /* The two halves have tags, and workers, of their own. */
        OK(MPI_Sendrecv(&tag, 1, MPI_INT, next(), 100 + tag, &got, 1, MPI_INT, before(), 100 + tag, comm, &status));
        SAME(got, tag);
        if (rank == 0 && ranks > 1) {
            OK(MPI_Sendrecv(&tag, 1, MPI_INT, 1, 200 + tag, &got, 1, MPI_INT, 1, 300 + back, comm, &status));
            SAME(got, back);
            OK(MPI_Isendrecv(&tag, 1, MPI_INT, 1, 400 + tag, &got, 1, MPI_INT, 1, 500 + back, comm, &receives[0]));
            OK(MPI_Wait(&receives[0], &status));
            SAME(got, back);
        } else if (rank == 1) {
            OK(MPI_Sendrecv(&back, 1, MPI_INT, 0, 300 + back, &got, 1, MPI_INT, 0, 200 + tag, comm, &status));
            SAME(got, tag);
            OK(MPI_Isendrecv(&back, 1, MPI_INT, 0, 500 + back, &got, 1, MPI_INT, 0, 400 + tag, comm, &receives[0]));
            OK(MPI_Wait(&receives[0], &status));
            SAME(got, tag);
        }
        OK(MPI_Irecv(&got, 1, MPI_INT, before(), 600 + tag, comm, &receives[0]));
        OK(MPI_Cancel(&receives[0]));
        OK(MPI_Wait(&receives[0], &status));
        OK(MPI_Test_cancelled(&status, &cancelled));
        SAME(cancelled, 1);
        /* A tag that the receiver never asks for. */
        OK(MPI_Issend(&tag, 1, MPI_INT, next(), 700 + tag, comm, &sends[0]));
        OK(MPI_Cancel(&sends[0]));
        OK(MPI_Wait(&sends[0], &status));
        OK(MPI_Test_cancelled(&status, &cancelled));
        SAME(cancelled, 1);
        got = -7;
        OK(MPI_Send(&tag, 1, MPI_INT, MPI_PROC_NULL, tag, comm));
        OK(MPI_Recv(&got, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, comm, &status));
        STATUS(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
        SAME(got, -7);
    }
    OK(MPI_Barrier(comm));
}

/* What breaks a promise is an error, which leaves no trace; what was not promised works. A wildcard is allowed too where
 * nothing was spread. */
static void use_wildcards(MPI_Comm comm, int promises)
{
    int got = -1, flag, spread = several && ranks > 1 ? promises : 0;
    int no_tag = spread & BY_TAG ? MPI_ERR_TAG : MPI_SUCCESS, no_source = spread & BY_PEER ? MPI_ERR_RANK : MPI_SUCCESS;
    MPI_Request request;
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    CLASS(MPI_Iprobe(before(), MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE), no_tag);
    CLASS(MPI_Iprobe(MPI_ANY_SOURCE, 1, comm, &flag, MPI_STATUS_IGNORE), no_source);
    OK(MPI_Isend(&rank, 1, MPI_INT, next(), 5, comm, &request));
    CLASS(MPI_Recv(&got, 1, MPI_INT, before(), MPI_ANY_TAG, comm, MPI_STATUS_IGNORE), no_tag);
    if (no_tag != MPI_SUCCESS)
        OK(MPI_Recv(&got, 1, MPI_INT, before(), 5, comm, MPI_STATUS_IGNORE));
    SAME(got, before());
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Isend(&rank, 1, MPI_INT, next(), 6, comm, &request));
    CLASS(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 6, comm, MPI_STATUS_IGNORE), no_source);
    if (no_source != MPI_SUCCESS)
        OK(MPI_Recv(&got, 1, MPI_INT, before(), 6, comm, MPI_STATUS_IGNORE));
    SAME(got, before());
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CLASS(MPI_Send(&got, 1, MPI_INT, ranks, 0, comm), MPI_ERR_RANK);
    CLASS(MPI_Send(&got, 1, MPI_INT, 0, -3, comm), MPI_ERR_TAG);
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL));
    OK(MPI_Barrier(comm));
}

/* The value that MPI_Comm_get_info gives. */
static int hint_of(MPI_Comm comm, const char *key)
{
    MPI_Info info;
    char value[8] = "";
    int length = sizeof value, flag = 0;
    OK(MPI_Comm_get_info(comm, &info));
    OK(MPI_Info_get_string(info, key, &length, value, &flag));
    OK(MPI_Info_free(&info));
    CHECK(flag);
    return !strcmp(value, "true");
}

static void set_hint(MPI_Comm comm, const char *value)
{
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_assert_no_any_tag", value));
    OK(MPI_Comm_set_info(comm, info));
    OK(MPI_Info_free(&info));
}

/* Promises of the last rank alone count nothing; one that comes later neither; one that is taken back stays. */
static void change_promises(void)
{
    MPI_Comm comm = make(rank == ranks - 1 ? BY_TAG | BY_PEER : 0);
    use_wildcards(comm, ranks == 1 ? BY_TAG | BY_PEER : 0);
    run(talk, comm, 0);
    OK(MPI_Comm_free(&comm));
    comm = make(0);
    set_hint(comm, "true");
    SAME(hint_of(comm, "mpi_assert_no_any_tag"), 1);
    use_wildcards(comm, 0);
    OK(MPI_Comm_free(&comm));
    comm = make(BY_TAG);
    set_hint(comm, "false");
    SAME(hint_of(comm, "mpi_assert_no_any_tag"), several && ranks > 1);
    use_wildcards(comm, BY_TAG);
    OK(MPI_Comm_free(&comm));
}

/* Of other calls that make communicators: a duplicate has the promises of its parent, one by type those it is given,
 * one that is made at once none that count, nor has an intercommunicator. */
static void make_otherwise(void)
{
    MPI_Comm parent = make(BY_TAG), comm, half, inter;
    MPI_Info info;
    MPI_Request request;
    int value = -1;
    OK(MPI_Comm_dup(parent, &comm));
    use_wildcards(comm, BY_TAG);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_idup(parent, &comm, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    use_wildcards(comm, 0);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_assert_no_any_source", "true"));
    OK(MPI_Comm_split_type(parent, MPI_COMM_TYPE_SHARED, rank, info, &comm));
    use_wildcards(comm, BY_PEER);
    run(keep_order, comm, BY_PEER);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_split(parent, rank % 2, 0, &half));
    if (ranks > 1) {
        OK(MPI_Intercomm_create(half, 0, parent, 1 - rank % 2, 9, &inter));
        OK(MPI_Comm_dup_with_info(inter, info, &comm));
        if (rank < 2) {
            OK(MPI_Sendrecv(&rank, 1, MPI_INT, 0, 3, &value, 1, MPI_INT, MPI_ANY_SOURCE, 3, comm, MPI_STATUS_IGNORE));
            SAME(value, 1 - rank);
        }
        OK(MPI_Comm_free(&comm));
        OK(MPI_Comm_free(&inter));
    }
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_free(&half));
    OK(MPI_Comm_free(&parent));
}

/* Partitions beside messages of threads, and a collective call. */
static void do_beside(MPI_Comm comm, int promises)
{
    int out[4] = {rank, rank + 1, rank + 2, rank + 3}, in[4] = {0}, sum = 0;
    MPI_Request requests[2];
    OK(MPI_Psend_init(out, 4, 1, MPI_INT, next(), 3, comm, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Precv_init(in, 4, 1, MPI_INT, before(), 3, comm, MPI_INFO_NULL, &requests[1]));
    OK(MPI_Startall(2, requests));
    for (int i = 3; i >= 0; i--)
        OK(MPI_Pready(i, requests[0]));
    run(talk, comm, promises);
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < 4; i++)
        SAME(in[i], before() + i);
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    SAME(sum, ranks * (ranks - 1) / 2);
}

int main(int argc, char **argv)
{
    int provided, size = 64 << 20;
    const char *workers = getenv("FASTPATH_WORKERS");
    threads = argc > 1 ? atoi(argv[1]) : threads;
    rounds = argc > 2 ? atoi(argv[2]) : rounds;
    const char *transports = getenv("FASTPATH_TRANSPORTS");
    /* Checks, the progress thread and transports other than shared memory go with one worker. */
    several = workers && !strcmp(workers, "several") && !getenv("FASTPATH_CHECK") && !getenv("FASTPATH_PROGRESS")
        && !(transports && strstr(transports, "tcp"));
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    SAME(provided, MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    void *buffer = allocate((size_t)size);
    OK(MPI_Buffer_attach(buffer, size));
    for (int promises = 1; promises <= (BY_TAG | BY_PEER); promises++) {
        MPI_Comm comm = make(promises);
        run(talk, comm, promises);
        run(keep_order, comm, promises);
        do_others(comm);
        use_wildcards(comm, promises);
        do_beside(comm, promises);
        MPI_Request request;
        int value = -1;
        OK(MPI_Irecv(&value, 1, MPI_INT, before(), 11, comm, &request));
        OK(MPI_Send(&rank, 1, MPI_INT, next(), 11, comm));
        OK(MPI_Comm_free(&comm)); /* before its request has ended */
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        SAME(value, before());
    }
    change_promises();
    make_otherwise();
    OK(MPI_Buffer_detach(&buffer, &size));
    free(buffer);
    return finish();
}
