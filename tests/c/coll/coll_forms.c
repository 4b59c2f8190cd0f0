/* test: ranks=1,2,3,4,8 timeout=240
   Every collective call in its nonblocking and persistent form, compared with the blocking form. Calls are random in
   root, count (zero to large), types with gaps, in-place use and noncommutative operations. Many are outstanding at
   once and complete in a different order on each rank; types and operations are freed meanwhile. MPI_TEST_SEED=N
   repeats a failure. With an argument, one batch that has each call, with counts up to that number. */
#include "../coll_check.h"

enum { BATCH = 20, STARTS = 2, KINDS = 17, FORMS = 3 };

enum kind {
    BARRIER, BCAST, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW, REDUCE,
    ALLREDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN
};

static const char *const names[KINDS] = {
    "Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall", "Alltoallv",
    "Alltoallw", "Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan"
};

/* One collective call, with the same arguments on all ranks. */
struct call {
    enum kind kind;
    int count, root, in_place, large;
    MPI_Datatype type; /* type of calls that move data */
    MPI_Datatype pair; /* type of reductions */
    MPI_Op op;
    MPI_Datatype *types;
    int *counts, *displs, *bytes;
    MPI_Count *counts_c;
    MPI_Aint *displs_c, *bytes_c;
    long words; /* in each buffer */
    int *send, *recv[FORMS];
    MPI_Request request[FORMS];
};

static uint64_t shared_state, own_state;

static unsigned draw(uint64_t *state, unsigned below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % below;
}

/* Composition of x -> a x + b: associative and not commutative. It queries the type, which may have been freed. */
static void compose(void *in, void *inout, int *len, MPI_Datatype *type)
{
    unsigned *left = in, *right = inout;
    int size = -1;
    MPI_Type_size(*type, &size);
    CHECK(size == 2 * (int)sizeof(int));
    for (int i = 0; i < *len; i++, left += 2, right += 2) {
        unsigned a = left[0], b = left[1];
        right[1] = right[0] * b + right[1];
        right[0] = right[0] * a;
    }
}

/* Number of elements exchanged by two ranks. */
static int between(const struct call *c, int a, int b)
{
    int low = a < b ? a : b, high = a < b ? b : a;
    return (low * 3 + high * 5 + c->count) % 4 == 0 ? 0 : c->count + (low + high) % 3;
}

static MPI_Datatype make_gappy(void)
{
    MPI_Datatype vector, type;
    MPI_Type_vector(2, 1, 2, MPI_INT, &vector);
    MPI_Type_create_resized(vector, 0, 4 * sizeof(int), &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&vector);
    return type;
}

/* Largest count of a batch that has each call; 0 if calls are random. */
static int most;

static void set_up(struct call *c, int index)
{
    static const int sizes[] = { 0, 1, 3, 17, 200, 2500 };
    c->kind = draw(&shared_state, KINDS);
    c->count = sizes[draw(&shared_state, sizeof sizes / sizeof *sizes)];
    if (most) {
        c->kind = index % KINDS;
        c->count = 1 + c->count % most;
    }
    c->root = draw(&shared_state, ranks);
    c->in_place = draw(&shared_state, 2);
    c->large = draw(&shared_state, 2);
    int is_gappy = draw(&shared_state, 2), is_user = draw(&shared_state, 2), commutes = draw(&shared_state, 2);
    c->type = is_gappy ? make_gappy() : MPI_INT;
    if (is_user) {
        MPI_Type_contiguous(2, MPI_INT, &c->pair);
        MPI_Type_commit(&c->pair);
        MPI_Op_create(compose, 0, &c->op);
    } else {
        c->pair = MPI_INT;
        c->op = commutes ? MPI_SUM : MPI_BXOR;
    }
    c->words = 4L * (c->count + 4) * ranks + 16;
    c->counts = malloc(ranks * sizeof(int));
    c->displs = malloc(ranks * sizeof(int));
    c->bytes = malloc(ranks * sizeof(int));
    c->counts_c = malloc(ranks * sizeof(MPI_Count));
    c->displs_c = malloc(ranks * sizeof(MPI_Aint));
    c->bytes_c = malloc(ranks * sizeof(MPI_Aint));
    c->types = malloc(ranks * sizeof(MPI_Datatype));
    int of_all = c->kind == GATHERV || c->kind == SCATTERV || c->kind == ALLGATHERV || c->kind == REDUCE_SCATTER;
    for (int r = 0; r < ranks; r++) {
        c->counts_c[r] = c->counts[r] = of_all ? between(c, r, 0) : between(c, me, r);
        c->displs_c[r] = c->displs[r] = (ranks - 1 - r) * (c->count + 3);
        c->bytes_c[r] = c->bytes[r] = c->displs[r] * 4 * (int)sizeof(int);
        c->types[r] = (me + r) % 2 ? MPI_INT : c->type;
    }
    c->send = ints(c->words, 0);
    for (int form = 0; form < FORMS; form++)
        c->recv[form] = ints(c->words, 0);
}

/* Fills the buffers before a call. */
static void prepare(struct call *c, int form, int round)
{
    for (long i = 0; i < c->words; i++) {
        c->send[i] = word(me, round, i);
        c->recv[form][i] = word(me, round + 50, i);
    }
}

#define MAKE(x, i_x, large_x, ...)                                                                        \
    (form == 0 ? MPI_##x##large_x(__VA_ARGS__, comm)                                                      \
     : form == 1 ? MPI_##i_x##large_x(__VA_ARGS__, comm, request)                                         \
                 : MPI_##x##_init##large_x(__VA_ARGS__, comm, MPI_INFO_NULL, request))
#define CALL(x, i_x, ...) (c->large ? MAKE(x, i_x, _c, __VA_ARGS__) : MAKE(x, i_x, , __VA_ARGS__))
#define CALLV(x, i_x, one, other) (c->large ? MAKE(x, i_x, _c, other) : MAKE(x, i_x, , one))
#define ARGS(...) __VA_ARGS__

static int make(struct call *c, int form, MPI_Comm comm)
{
    int *recv = c->recv[form], is_root = me == c->root, n = c->count, root = c->root;
    MPI_Request *request = &c->request[form];
    MPI_Datatype t = c->type, p = c->pair;
    MPI_Op op = c->op;
    const void *send = c->in_place ? MPI_IN_PLACE : c->send;
    const void *at_root = c->in_place && is_root ? MPI_IN_PLACE : c->send;
    int *own = c->counts, mine = own[me];
    switch (c->kind) {
    case BARRIER:
        return form == 0 ? MPI_Barrier(comm)
             : form == 1 ? MPI_Ibarrier(comm, request) : MPI_Barrier_init(comm, MPI_INFO_NULL, request);
    case BCAST:
        return CALL(Bcast, Ibcast, recv, n, t, root);
    case GATHER:
        return CALL(Gather, Igather, at_root, n, t, recv, n, t, root);
    case GATHERV:
        return CALLV(Gatherv, Igatherv, ARGS(at_root, mine, t, recv, own, c->displs, t, root),
                     ARGS(at_root, mine, t, recv, c->counts_c, c->displs_c, t, root));
    case SCATTER:
        return CALL(Scatter, Iscatter, c->send, n, t, c->in_place && is_root ? MPI_IN_PLACE : recv, n, t, root);
    case SCATTERV: {
        void *into = c->in_place && is_root ? MPI_IN_PLACE : recv;
        return CALLV(Scatterv, Iscatterv, ARGS(c->send, own, c->displs, t, into, mine, t, root),
                     ARGS(c->send, c->counts_c, c->displs_c, t, into, mine, t, root));
    }
    case ALLGATHER:
        return CALL(Allgather, Iallgather, send, n, t, recv, n, t);
    case ALLGATHERV:
        return CALLV(Allgatherv, Iallgatherv, ARGS(send, mine, t, recv, own, c->displs, t),
                     ARGS(send, mine, t, recv, c->counts_c, c->displs_c, t));
    case ALLTOALL:
        return CALL(Alltoall, Ialltoall, send, n, t, recv, n, t);
    case ALLTOALLV:
        return CALLV(Alltoallv, Ialltoallv, ARGS(send, own, c->displs, t, recv, own, c->displs, t),
                     ARGS(send, c->counts_c, c->displs_c, t, recv, c->counts_c, c->displs_c, t));
    case ALLTOALLW:
        return CALLV(Alltoallw, Ialltoallw, ARGS(send, own, c->bytes, c->types, recv, own, c->bytes, c->types),
                     ARGS(send, c->counts_c, c->bytes_c, c->types, recv, c->counts_c, c->bytes_c, c->types));
    case REDUCE:
        return CALL(Reduce, Ireduce, at_root, recv, n, p, op, root);
    case ALLREDUCE:
        return CALL(Allreduce, Iallreduce, send, recv, n, p, op);
    case REDUCE_SCATTER:
        return CALLV(Reduce_scatter, Ireduce_scatter, ARGS(send, recv, own, p, op), ARGS(send, recv, c->counts_c, p, op));
    case REDUCE_SCATTER_BLOCK:
        return CALL(Reduce_scatter_block, Ireduce_scatter_block, send, recv, n, p, op);
    case SCAN:
        return CALL(Scan, Iscan, send, recv, n, p, op);
    case EXSCAN:
        return CALL(Exscan, Iexscan, send, recv, n, p, op);
    }
    return MPI_ERR_OTHER;
}

/* Completes all requests. Each rank uses its own order and its own completion calls. */
static void complete(int n, MPI_Request *requests)
{
    MPI_Status status, statuses[2 * BATCH];
    int left = n, flag, index, count, indices[2 * BATCH];
    while (left > 0) {
        int at = draw(&own_state, n);
        switch (draw(&own_state, 8)) {
        case 0:
            MPI_Wait(&requests[at], &status);
            break;
        case 1:
        case 2:
            MPI_Test(&requests[at], &flag, &status);
            break;
        case 3:
            MPI_Waitany(n, requests, &index, &status);
            break;
        case 4:
            MPI_Testany(n, requests, &index, &flag, &status);
            break;
        case 5:
            MPI_Waitsome(n, requests, &count, indices, statuses);
            break;
        case 6:
            MPI_Request_get_status(requests[at], &flag, &status);
            break;
        default:
            MPI_Testall(n, requests, &flag, statuses);
        }
        left = 0;
        for (int i = 0; i < n; i++) {
            int done = 1;
            if (requests[i] != MPI_REQUEST_NULL)
                MPI_Request_get_status(requests[i], &done, MPI_STATUS_IGNORE);
            left += !done;
        }
    }
    MPI_Waitall(n, requests, statuses);
    for (int i = 0; i < n; i++)
        CHECK(statuses[i].MPI_ERROR == MPI_SUCCESS);
}

static void compare(const struct call *c, int form, int round)
{
    if (memcmp(c->recv[0], c->recv[form], c->words * sizeof(int)) == 0)
        return;
    if (failures++ < 10)
        fprintf(stderr, "rank %d of %d: MPI_%s, form %d, round %d, count %d, root %d%s%s: not as the blocking call\n", me,
                ranks, names[c->kind], form, round, c->count, c->root, c->in_place ? ", in place" : "",
                c->large ? ", large" : "");
}

static void run_batch(MPI_Comm comm)
{
    static struct call calls[BATCH];
    MPI_Request requests[2 * BATCH];
    for (int i = 0; i < BATCH; i++) {
        set_up(&calls[i], i);
        prepare(&calls[i], 0, 0);
        CHECK(make(&calls[i], 0, comm) == MPI_SUCCESS);
    }
    for (int i = 0; i < BATCH; i++) {
        prepare(&calls[i], 2, 0);
        CHECK(make(&calls[i], 2, comm) == MPI_SUCCESS);
        prepare(&calls[i], 1, 0);
        CHECK(make(&calls[i], 1, comm) == MPI_SUCCESS);
        /* Each rank starts the requests in a different order. */
        requests[2 * i] = calls[i].request[1];
        requests[2 * i + 1] = calls[i].request[2];
    }
    for (int i = BATCH - 1; i > 0; i--) {
        int j = draw(&own_state, i + 1);
        MPI_Request swapped = requests[2 * i + 1];
        requests[2 * i + 1] = requests[2 * j + 1];
        requests[2 * j + 1] = swapped;
    }
    for (int i = 0; i < BATCH; i++)
        CHECK(MPI_Start(&requests[2 * i + 1]) == MPI_SUCCESS);
    complete(2 * BATCH, requests);
    for (int i = 0; i < BATCH; i++) {
        compare(&calls[i], 1, 0);
        compare(&calls[i], 2, 0);
        CHECK(requests[2 * i] == MPI_REQUEST_NULL);
        CHECK(requests[2 * i + 1] != MPI_REQUEST_NULL);
    }
    for (int round = 1; round <= STARTS; round++) {
        MPI_Request persistent[BATCH];
        for (int i = 0; i < BATCH; i++) {
            prepare(&calls[i], 0, round);
            make(&calls[i], 0, comm);
            prepare(&calls[i], 2, round);
            persistent[i] = requests[2 * i + 1];
            if (round == STARTS) {
                if (calls[i].op != MPI_SUM && calls[i].op != MPI_BXOR) {
                    MPI_Op_free(&calls[i].op);
                    MPI_Type_free(&calls[i].pair);
                }
                if (calls[i].type != MPI_INT)
                    MPI_Type_free(&calls[i].type);
            }
        }
        CHECK(MPI_Startall(BATCH, persistent) == MPI_SUCCESS);
        complete(BATCH, persistent);
        for (int i = 0; i < BATCH; i++)
            compare(&calls[i], 2, round);
    }
    for (int i = 0; i < BATCH; i++) {
        struct call *c = &calls[i];
        MPI_Request_free(&requests[2 * i + 1]);
        CHECK(requests[2 * i + 1] == MPI_REQUEST_NULL);
        int *kept[] = { c->counts, c->displs, c->bytes, c->send, c->recv[0], c->recv[1], c->recv[2] };
        for (unsigned k = 0; k < sizeof kept / sizeof *kept; k++)
            free(kept[k]);
        free(c->counts_c);
        free(c->displs_c);
        free(c->bytes_c);
        free(c->types);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *seed = getenv("MPI_TEST_SEED");
    shared_state = seed ? strtoull(seed, NULL, 10) : 20;
    own_state = shared_state + 1000 * (me + 1);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    most = argc > 1 ? atoi(argv[1]) : 0;
    for (int i = 0; i < (most ? 1 : 12); i++)
        run_batch(i % 3 ? comm : MPI_COMM_WORLD);
    MPI_Comm_free(&comm);
    return finish();
}
