/* Threads of MPI_THREAD_MULTIPLE, each with a communicator of its own, on which the threads of that number on all ranks
 * make calls of all kinds that a seed draws; on a common communicator each thread finds its messages by their tag.
 * Arguments: seed, threads of a rank (0: drawn, 2 to 16), rounds, `fatal` for nothing that sets an error handler.
 * tests/jobs/threads.py runs it and draws these.
 * test: only=build */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

enum { THREADS_MOST = 16, LARGEST = 1 << 20, KINDS = 17, BATCH = 6, BSEND_MOST = 4096 };

typedef struct {
    int number;
    MPI_Comm comm;
    unsigned long long plan; /* the same on all ranks */
    unsigned long long own;  /* of this thread of this rank */
    unsigned char *out, *in;
    unsigned stamp; /* of the next message */
    int kind, round;
} Thread;

static Thread threads[THREADS_MOST];
static MPI_Comm common;
static unsigned seed;
static int rounds, fatal;

static unsigned draw(unsigned long long *state, unsigned below)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((*state >> 33) % below);
}

/* Sizes of each order up to the largest, small ones more often. */
static int draw_size(Thread *t)
{
    unsigned order = draw(&t->plan, 21), most = draw(&t->plan, 4) ? 13 : 21;
    return (int)draw(&t->plan, (1u << (order % most)) + 1);
}

static int next(void)
{
    return (rank + 1) % ranks;
}

static int before(void)
{
    return (rank + ranks - 1) % ranks;
}

/* What rank `from` writes into its message of this stamp. */
static unsigned mark(const Thread *t, int from, unsigned stamp)
{
    return (unsigned)t->number * 7919u + (unsigned)from * 104729u + stamp;
}

static void fill_out(Thread *t, int bytes)
{
    fill(t->out, (size_t)bytes, mark(t, rank, t->stamp));
    memset(t->in, 0xa5, (size_t)bytes);
}

static void check_in(Thread *t, const MPI_Status *status, int tag, int bytes)
{
    STATUS(*status, before(), tag, bytes);
    HOLDS(t->in, (size_t)bytes, mark(t, before(), t->stamp));
    t->stamp++;
}

/* Ends a request by one of the calls that do. */
static void complete(Thread *t, MPI_Request *request, MPI_Status *status)
{
    int done = 0, index;
    switch (draw(&t->own, 6)) {
    case 0:
        OK(MPI_Wait(request, status));
        break;
    case 1:
        while (!done)
            OK(MPI_Test(request, &done, status));
        break;
    case 2:
        OK(MPI_Waitall(1, request, status));
        break;
    case 3:
        OK(MPI_Waitany(1, request, &index, status));
        break;
    case 4:
        while (!done)
            OK(MPI_Testany(1, request, &index, &done, status));
        break;
    default:
        OK(MPI_Waitsome(1, request, &done, &index, status));
        SAME(done, 1);
    }
}

/* Receives by a receive, a probe or a matched probe of any kind, what `before` sends. */
static void receive(Thread *t, int bytes, int tag, MPI_Comm comm, int wild)
{
    int from = wild && draw(&t->own, 2) ? MPI_ANY_SOURCE : before(), found = 0;
    int any = wild && draw(&t->own, 2) ? MPI_ANY_TAG : tag;
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    switch (draw(&t->own, 6)) {
    case 0:
        OK(MPI_Recv(t->in, bytes, MPI_BYTE, from, any, comm, &status));
        break;
    case 1:
        OK(MPI_Probe(from, any, comm, &status));
        STATUS(status, before(), tag, bytes);
        OK(MPI_Recv(t->in, bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm, &status));
        break;
    case 2:
        while (!found)
            OK(MPI_Iprobe(from, any, comm, &found, &status));
        OK(MPI_Recv(t->in, bytes, MPI_BYTE, before(), tag, comm, &status));
        break;
    case 3:
        OK(MPI_Mprobe(from, any, comm, &message, &status));
        OK(MPI_Mrecv(t->in, bytes, MPI_BYTE, &message, &status));
        break;
    case 4:
        while (!found)
            OK(MPI_Improbe(from, any, comm, &found, &message, &status));
        OK(MPI_Imrecv(t->in, bytes, MPI_BYTE, &message, &request));
        complete(t, &request, &status);
        break;
    default:
        OK(MPI_Irecv(t->in, bytes, MPI_BYTE, from, any, comm, &request));
        complete(t, &request, &status);
    }
    check_in(t, &status, tag, bytes);
}

/* Once round the ring: a send that cannot wait for the receive, then any receive. */
static void send_round(Thread *t)
{
    int bytes = draw_size(t), tag = (int)draw(&t->plan, 3), way = (int)draw(&t->plan, 4);
    MPI_Request request;
    fill_out(t, bytes);
    if (way == 0)
        OK(MPI_Issend(t->out, bytes, MPI_BYTE, next(), tag, t->comm, &request));
    else
        OK(MPI_Isend(t->out, bytes, MPI_BYTE, next(), tag, t->comm, &request));
    receive(t, bytes, tag, t->comm, 1);
    complete(t, &request, MPI_STATUS_IGNORE);
}

/* Blocking calls: rank 0 sends first, so that nobody waits in a circle. */
static void send_blocking(Thread *t)
{
    int bytes = draw_size(t), synchronous = (int)draw(&t->plan, 2), tag = (int)draw(&t->plan, 3);
    int alone = ranks == 1;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    fill_out(t, bytes);
    if (alone)
        OK(MPI_Irecv(t->in, bytes, MPI_BYTE, rank, tag, t->comm, &request));
    else if (rank != 0)
        receive(t, bytes, tag, t->comm, 1);
    /* The stamp of what is sent is that of the round. */
    unsigned stamp = rank != 0 && !alone ? t->stamp - 1 : t->stamp;
    fill(t->out, (size_t)bytes, mark(t, rank, stamp));
    if (synchronous)
        OK(MPI_Ssend(t->out, bytes, MPI_BYTE, next(), tag, t->comm));
    else
        OK(MPI_Send(t->out, bytes, MPI_BYTE, next(), tag, t->comm));
    if (alone) {
        OK(MPI_Wait(&request, &status));
        check_in(t, &status, tag, bytes);
    } else if (rank == 0)
        receive(t, bytes, tag, t->comm, 1);
}

static void send_and_receive(Thread *t)
{
    int bytes = draw_size(t), tag = (int)draw(&t->plan, 3);
    MPI_Status status;
    fill_out(t, bytes);
    if (draw(&t->plan, 2)) {
        OK(MPI_Sendrecv(t->out, bytes, MPI_BYTE, next(), tag, t->in, bytes, MPI_BYTE, before(), tag, t->comm, &status));
    } else {
        memcpy(t->in, t->out, (size_t)bytes);
        OK(MPI_Sendrecv_replace(t->in, bytes, MPI_BYTE, next(), tag, before(), tag, t->comm, &status));
    }
    check_in(t, &status, tag, bytes);
}

/* Several messages under way in both directions; what ends them takes them in any order. */
static void send_batch(Thread *t)
{
    int bytes[BATCH], done[2 * BATCH], count, left = 2 * BATCH, all = 0;
    MPI_Request requests[2 * BATCH];
    unsigned long long *own = &t->own;
    unsigned char *in = t->in, *out = t->out;
    for (int i = 0; i < BATCH; i++)
        bytes[i] = (int)draw(&t->plan, 4) ? (int)draw(&t->plan, 200) : (int)draw(&t->plan, LARGEST / BATCH);
    for (int i = 0; i < BATCH; i++) {
        OK(MPI_Irecv(in, bytes[i], MPI_BYTE, before(), i, t->comm, &requests[i]));
        in += bytes[i];
    }
    for (int i = BATCH - 1; i >= 0; i--) {
        fill(out, (size_t)bytes[i], mark(t, rank, t->stamp + (unsigned)i));
        OK(MPI_Isend(out, bytes[i], MPI_BYTE, next(), i, t->comm, &requests[BATCH + i]));
        out += bytes[i];
    }
    unsigned way = draw(own, 4);
    if (way == 0)
        OK(MPI_Waitall(2 * BATCH, requests, MPI_STATUSES_IGNORE));
    else if (way == 1)
        while (!all)
            OK(MPI_Testall(2 * BATCH, requests, &all, MPI_STATUSES_IGNORE));
    else
        while (left > 0) {
            if (way == 2)
                OK(MPI_Waitsome(2 * BATCH, requests, &count, done, MPI_STATUSES_IGNORE));
            else
                OK(MPI_Testsome(2 * BATCH, requests, &count, done, MPI_STATUSES_IGNORE));
            left -= count;
        }
    in = t->in;
    for (int i = 0; i < BATCH; i++) {
        HOLDS(in, (size_t)bytes[i], mark(t, before(), t->stamp + (unsigned)i));
        in += bytes[i];
    }
    t->stamp += BATCH;
}

static void send_persistent(Thread *t)
{
    int bytes = draw_size(t), times = 1 + (int)draw(&t->plan, 4), way = (int)draw(&t->plan, 2);
    MPI_Request both[2];
    MPI_Status statuses[2];
    OK(MPI_Recv_init(t->in, bytes, MPI_BYTE, before(), 1, t->comm, &both[0]));
    if (way)
        OK(MPI_Send_init(t->out, bytes, MPI_BYTE, next(), 1, t->comm, &both[1]));
    else
        OK(MPI_Ssend_init(t->out, bytes, MPI_BYTE, next(), 1, t->comm, &both[1]));
    for (int i = 0; i < times; i++) {
        fill_out(t, bytes);
        if (draw(&t->own, 2))
            OK(MPI_Startall(2, both));
        else
            for (int k = 0; k < 2; k++)
                OK(MPI_Start(&both[k]));
        OK(MPI_Waitall(2, both, statuses));
        check_in(t, &statuses[0], 1, bytes);
    }
    OK(MPI_Request_free(&both[0]));
    OK(MPI_Request_free(&both[1]));
}

/* The buffer is common to all threads; each round comes back before the next, so that it has room. */
static void send_buffered(Thread *t)
{
    int bytes = (int)draw(&t->plan, BSEND_MOST + 1);
    fill_out(t, bytes);
    OK(MPI_Bsend(t->out, bytes, MPI_BYTE, next(), 2, t->comm));
    receive(t, bytes, 2, t->comm, 1);
    OK(MPI_Barrier(t->comm));
}

/* Each thread takes its own messages from the communicator of all threads. */
static void send_common(Thread *t)
{
    int bytes = draw_size(t), tag = 100 + t->number;
    MPI_Request request;
    fill_out(t, bytes);
    OK(MPI_Isend(t->out, bytes, MPI_BYTE, next(), tag, common, &request));
    receive(t, bytes, tag, common, 0);
    complete(t, &request, MPI_STATUS_IGNORE);
}

/* Everybody to everybody, taken from anyone. */
static void send_to_all(Thread *t)
{
    int *in = (int *)(void *)t->in, tag = (int)draw(&t->plan, 5), seen = 0;
    MPI_Request requests[16];
    int value[2] = {rank, (int)t->stamp};
    OK(MPI_Barrier(t->comm)); /* what came before is taken from anyone as well */
    for (int to = 0; to < ranks; to++)
        OK(MPI_Isend(value, 2, MPI_INT, to, tag, t->comm, &requests[to]));
    for (int i = 0; i < ranks; i++) {
        MPI_Status status;
        OK(MPI_Recv(in, 2, MPI_INT, MPI_ANY_SOURCE, draw(&t->own, 2) ? tag : MPI_ANY_TAG, t->comm, &status));
        STATUS(status, in[0], tag, 8);
        SAME(in[1], t->stamp);
        seen |= 1 << in[0];
    }
    SAME(seen, (1 << ranks) - 1);
    OK(MPI_Waitall(ranks, requests, MPI_STATUSES_IGNORE));
    t->stamp++;
    OK(MPI_Barrier(t->comm)); /* what comes next is taken from anyone as well */
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((long *)inout)[i] += ((long *)in)[i];
}

static void collect(Thread *t)
{
    int count = 1 + (int)draw(&t->plan, draw(&t->plan, 3) ? 20 : 8000), root = (int)draw(&t->plan, (unsigned)ranks);
    int kind = (int)draw(&t->plan, 6);
    long *out = (long *)(void *)t->out, *in = (long *)(void *)t->in;
    MPI_Op op = MPI_SUM;
    for (int i = 0; i < count; i++)
        out[i] = i + 10 * rank + (long)t->stamp;
    if (kind == 0) {
        OK(MPI_Barrier(t->comm));
    } else if (kind == 1) {
        OK(MPI_Bcast(out, count, MPI_LONG, root, t->comm));
        for (int i = 0; i < count && out[i] == i + 10 * root + (long)t->stamp; i++)
            if (i == count - 1)
                in[0] = 1;
        SAME(out[count - 1], count - 1 + 10 * root + (long)t->stamp);
    } else if (kind == 2 || kind == 3) {
        if (kind == 3)
            OK(MPI_Op_create(add, 1, &op));
        OK(MPI_Allreduce(out, in, count, MPI_LONG, op, t->comm));
        for (int i = 0; i < count; i++)
            if (in[i] != ranks * (i + (long)t->stamp) + 10L * ranks * (ranks - 1) / 2) {
                fail(__LINE__, "element %d of a sum is %ld", i, in[i]);
                break;
            }
        if (kind == 3)
            OK(MPI_Op_free(&op));
    } else if (kind == 4) {
        count = (count - 1) % 2000 + 1;
        OK(MPI_Gather(out, count, MPI_LONG, in, count, MPI_LONG, root, t->comm));
        for (int from = 0; rank == root && from < ranks; from++)
            SAME(in[(from + 1) * count - 1], count - 1 + 10 * from + (long)t->stamp);
    } else {
        for (int to = 0; to < ranks; to++)
            out[to] = 100 * rank + to;
        OK(MPI_Alltoall(out, 1, MPI_LONG, in, 1, MPI_LONG, t->comm));
        for (int from = 0; from < ranks; from++)
            SAME(in[from], 100 * from + rank);
    }
    t->stamp++;
}

/* A communicator that lives for one message. */
static void make_comm(Thread *t)
{
    MPI_Comm made, kept = t->comm;
    int result, kind = (int)draw(&t->plan, 3), bytes = draw_size(t);
    if (kind == 0) {
        OK(MPI_Comm_dup(t->comm, &made));
    } else if (kind == 1) {
        OK(MPI_Comm_split(t->comm, 0, rank, &made));
    } else {
        MPI_Request request;
        OK(MPI_Comm_idup(t->comm, &made, &request));
        complete(t, &request, MPI_STATUS_IGNORE);
    }
    OK(MPI_Comm_compare(t->comm, made, &result));
    SAME(result, MPI_CONGRUENT);
    t->comm = made;
    MPI_Request request;
    fill_out(t, bytes);
    OK(MPI_Isend(t->out, bytes, MPI_BYTE, next(), 3, made, &request));
    receive(t, bytes, 3, made, 1);
    complete(t, &request, MPI_STATUS_IGNORE);
    t->comm = kept;
    OK(MPI_Comm_free(&made));
}

/* Types that are made, used for one message and freed. */
static void make_type(Thread *t)
{
    int blocks = 1 + (int)draw(&t->plan, 500), gap = 2 + (int)draw(&t->plan, 5), kind = (int)draw(&t->plan, 3);
    int *out = (int *)(void *)t->out, *in = (int *)(void *)t->in, lengths[500], places[500];
    MPI_Datatype type, other;
    MPI_Status status;
    MPI_Count size;
    for (int i = 0; i < blocks; i++) {
        lengths[i] = 1;
        places[i] = i * gap;
    }
    if (kind == 0) {
        OK(MPI_Type_vector(blocks, 1, gap, MPI_INT, &type));
    } else if (kind == 1) {
        OK(MPI_Type_indexed(blocks, lengths, places, MPI_INT, &type));
    } else {
        OK(MPI_Type_create_indexed_block(blocks, 1, places, MPI_INT, &other));
        OK(MPI_Type_dup(other, &type));
        OK(MPI_Type_free(&other));
    }
    OK(MPI_Type_commit(&type));
    OK(MPI_Type_size_c(type, &size));
    SAME(size, 4 * blocks);
    for (int i = 0; i < blocks * gap; i++) {
        out[i] = i + rank * 100000;
        in[i] = -1;
    }
    OK(MPI_Sendrecv(out, 1, type, next(), 4, in, 1, type, before(), 4, t->comm, &status));
    STATUS(status, before(), 4, 4 * blocks);
    for (int i = 0; i < blocks * gap - gap + 1; i++)
        if (in[i] != (i % gap ? -1 : i + before() * 100000)) {
            fail(__LINE__, "element %d of a type with gaps is %d", i, in[i]);
            break;
        }
    OK(MPI_Type_free(&type));
}

static int copies, deletions;

static int copy_attribute(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *flag)
{
    int size;
    (void)key;
    (void)extra;
    /* A call from within a call. */
    OK(MPI_Comm_size(comm, &size));
    SAME(size, ranks);
    __atomic_add_fetch(&copies, 1, __ATOMIC_RELAXED);
    *(void **)copy = (char *)value + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_attribute(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    __atomic_add_fetch(&deletions, 1, __ATOMIC_RELAXED);
    return MPI_SUCCESS;
}

static void use_attributes(Thread *t)
{
    int key, found;
    void *value;
    MPI_Comm copy;
    OK(MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, NULL));
    OK(MPI_Comm_set_attr(t->comm, key, t));
    OK(MPI_Comm_dup(t->comm, &copy));
    OK(MPI_Comm_get_attr(copy, key, &value, &found));
    SAME(found, 1);
    CHECK(found && value == (char *)t + 1);
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_delete_attr(t->comm, key));
    OK(MPI_Comm_get_attr(t->comm, key, &value, &found));
    SAME(found, 0);
    OK(MPI_Comm_free_keyval(&key));
}

static int handled;

static void handle(MPI_Comm *comm, int *code, ...)
{
    int size;
    (void)code;
    OK(MPI_Comm_size(*comm, &size));
    __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
}

static int errors_made;

static void make_errors(Thread *t)
{
    MPI_Errhandler own, old;
    int value = 0;
    OK(MPI_Comm_get_errhandler(t->comm, &old));
    OK(MPI_Comm_create_errhandler(handle, &own));
    OK(MPI_Comm_set_errhandler(t->comm, own));
    OK(MPI_Errhandler_free(&own));
    CLASS(MPI_Send(&value, 1, MPI_INT, ranks, 0, t->comm), MPI_ERR_RANK);
    CLASS(MPI_Recv(&value, 1, MPI_INT, 0, -77, t->comm, MPI_STATUS_IGNORE), MPI_ERR_TAG);
    __atomic_add_fetch(&errors_made, 2, __ATOMIC_RELAXED);
    OK(MPI_Comm_set_errhandler(t->comm, old));
    OK(MPI_Errhandler_free(&old));
}

static void make_objects(Thread *t)
{
    MPI_Group group, part;
    MPI_Info info, copy;
    int size, found, length = 20;
    char value[20] = "";
    OK(MPI_Comm_group(t->comm, &group));
    OK(MPI_Group_incl(group, 1, &rank, &part));
    OK(MPI_Group_size(part, &size));
    SAME(size, 1);
    OK(MPI_Group_free(&part));
    OK(MPI_Group_free(&group));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "key", "value"));
    OK(MPI_Info_dup(info, &copy));
    OK(MPI_Info_free(&info));
    OK(MPI_Info_get_string(copy, "key", &length, value, &found));
    SAME(found, 1);
    SAME(strcmp(value, "value"), 0);
    OK(MPI_Info_free(&copy));
    OK(MPI_Comm_set_name(t->comm, "own"));
}

/* A receive that is never met. */
static void cancel(Thread *t)
{
    MPI_Request request;
    MPI_Status status;
    int flag;
    OK(MPI_Irecv(t->in, 8, MPI_BYTE, before(), 9999, t->comm, &request));
    OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    SAME(flag, 1);
}

/* A message longer than its receive. */
static void truncate_message(Thread *t)
{
    int bytes = 2 + draw_size(t);
    MPI_Errhandler old;
    MPI_Request request;
    if (bytes > LARGEST)
        bytes = LARGEST;
    OK(MPI_Comm_get_errhandler(t->comm, &old));
    OK(MPI_Comm_set_errhandler(t->comm, MPI_ERRORS_RETURN));
    OK(MPI_Isend(t->out, bytes, MPI_BYTE, next(), 6, t->comm, &request));
    CLASS(MPI_Recv(t->in, bytes / 2, MPI_BYTE, before(), 6, t->comm, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Comm_set_errhandler(t->comm, old));
    OK(MPI_Errhandler_free(&old));
}

static void *work(void *argument)
{
    Thread *t = argument;
    static void (*const kinds[KINDS])(Thread *) = {
        send_round,    send_blocking, send_and_receive, send_batch, send_persistent, send_buffered,
        send_common,   send_to_all,   collect,          make_comm,  make_type,       use_attributes,
        make_objects,  cancel,        send_round,       make_errors, truncate_message,
    };
    for (t->round = 0; t->round < rounds; t->round++) {
        int known = __atomic_load_n(&failures, __ATOMIC_RELAXED);
        t->kind = (int)draw(&t->plan, fatal ? KINDS - 2 : KINDS);
        kinds[t->kind](t);
        if (__atomic_load_n(&failures, __ATOMIC_RELAXED) != known)
            fprintf(stderr, "rank %d: seen by thread %d, round %d, kind %d, seed %u\n", rank, t->number, t->round,
                    t->kind, seed);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, count, bytes;
    unsigned long long state;
    void *buffer;
    seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    count = argc > 2 ? atoi(argv[2]) : 0;
    rounds = argc > 3 ? atoi(argv[3]) : 30;
    fatal = argc > 4 && strcmp(argv[4], "fatal") == 0;
    state = seed;
    draw(&state, 2);
    if (count == 0)
        count = 2 + (int)draw(&state, THREADS_MOST - 1);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    SAME(provided, MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &common);
    bytes = THREADS_MOST * 4 * (BSEND_MOST + MPI_BSEND_OVERHEAD);
    buffer = allocate((size_t)bytes);
    OK(MPI_Buffer_attach(buffer, bytes));
    for (int i = 0; i < count; i++) {
        Thread *t = &threads[i];
        t->number = i;
        t->plan = seed * 1000003ull + (unsigned)i;
        t->own = t->plan * 31 + (unsigned)rank;
        t->out = allocate(LARGEST + 64);
        t->in = allocate(LARGEST + 64);
        MPI_Comm_dup(MPI_COMM_WORLD, &t->comm);
    }
    /* The thread that has initialised MPI works too, or waits for the others outside of it. */
    int works = (int)draw(&state, 2);
    pthread_t made[THREADS_MOST];
    for (int i = works; i < count; i++)
        if (pthread_create(&made[i], NULL, work, &threads[i]))
            exit(4);
    if (works)
        work(&threads[0]);
    for (int i = works; i < count; i++)
        pthread_join(made[i], NULL);
    SAME(handled, errors_made);
    SAME(deletions, 2 * copies);
    OK(MPI_Buffer_detach(&buffer, &bytes));
    free(buffer);
    for (int i = 0; i < count; i++) {
        MPI_Comm_free(&threads[i].comm);
        free(threads[i].out);
        free(threads[i].in);
    }
    MPI_Comm_free(&common);
    if (failures)
        fprintf(stderr, "rank %d: seed %u\n", rank, seed);
    return finish();
}
