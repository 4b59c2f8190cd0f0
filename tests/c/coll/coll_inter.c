/* Collectives on intercommunicators in their three forms: data from one group reaches the other. Covers every root,
 * groups of different sizes, short and long data, several calls at once, and rejected arguments.
 * test: ranks=2,3,4,5 mistakes=yes */
#include "../check.h"

enum { BLOCKING, NONBLOCKING, PERSISTENT };
static MPI_Comm inter;
static int near, far, own, low, form;

/* Makes a call in the selected form and completes it; a persistent request is started twice. */
#define CALL(blocking, other, persistent)                                                          \
    do {                                                                                           \
        MPI_Request request_;                                                                      \
        if (form == BLOCKING)                                                                      \
            OK(blocking);                                                                          \
        else if (form == NONBLOCKING) {                                                            \
            OK(other);                                                                             \
            OK(MPI_Wait(&request_, MPI_STATUS_IGNORE));                                            \
        } else {                                                                                   \
            OK(persistent);                                                                        \
            for (int twice_ = 0; twice_ < 2; twice_++) {                                           \
                OK(MPI_Start(&request_));                                                          \
                OK(MPI_Wait(&request_, MPI_STATUS_IGNORE));                                        \
            }                                                                                      \
            OK(MPI_Request_free(&request_));                                                       \
        }                                                                                          \
    } while (0)

#define IN_COMM inter
#define FORMS(NAME, ...)                                                                           \
    CALL(MPI_##NAME(__VA_ARGS__, IN_COMM), MPI_I##NAME(__VA_ARGS__, IN_COMM, &request_),           \
         MPI_##NAME##_init(__VA_ARGS__, IN_COMM, MPI_INFO_NULL, &request_))
/* The names of nonblocking calls have a lowercase letter after the I. */
#define MPI_IBcast MPI_Ibcast
#define MPI_IGather MPI_Igather
#define MPI_IGatherv MPI_Igatherv
#define MPI_IScatter MPI_Iscatter
#define MPI_IScatterv MPI_Iscatterv
#define MPI_IAllgather MPI_Iallgather
#define MPI_IAllgatherv MPI_Iallgatherv
#define MPI_IAlltoall MPI_Ialltoall
#define MPI_IAlltoallv MPI_Ialltoallv
#define MPI_IAlltoallw MPI_Ialltoallw
#define MPI_IReduce MPI_Ireduce
#define MPI_IAllreduce MPI_Iallreduce
#define MPI_IReduce_scatter MPI_Ireduce_scatter
#define MPI_IReduce_scatter_block MPI_Ireduce_scatter_block

/* Element `i` of the data of rank `r` of a side. */
static int value(int side, int r, int i)
{
    return side * 1000000 + r * 10000 + i % 9973;
}

/* Root argument of this process if rank `r` of side `side` is the root. */
static int root_of(int side, int r)
{
    return side != low ? r : r == own ? MPI_ROOT : MPI_PROC_NULL;
}

static void check_rooted(int count)
{
    int sides[2] = {low ? far : near, low ? near : far};
    int *one = allocate(count * sizeof(int)), *all = allocate((size_t)far * count * sizeof(int));
    int *counts = allocate(far * sizeof(int)), *places = allocate(far * sizeof(int));
    for (int side = 0; side < 2; side++)
        for (int r = 0; r < sides[side]; r++) {
            int root = root_of(side, r), is_root = root == MPI_ROOT, idle = root == MPI_PROC_NULL;
            MPI_Datatype type = idle ? MPI_DATATYPE_NULL : MPI_INT;
            for (int i = 0; i < count; i++)
                one[i] = is_root ? value(low, own, i) : -1;
            FORMS(Bcast, one, count, type, root);
            for (int i = 0; i < count && root >= 0; i++)
                if (one[i] != value(!low, r, i)) {
                    fail(__LINE__, "bcast: element %d is %d", i, one[i]);
                    break;
                }
            /* Gather, with equal and unequal counts. */
            for (int i = 0; i < count; i++)
                one[i] = value(low, own, i);
            for (int i = 0; i < far; i++)
                counts[i] = i < count ? i : count, places[i] = (far - 1 - i) * count;
            for (int v = 0; v < 2; v++) {
                memset(all, 0xff, (size_t)far * count * sizeof(int));
                int mine = v ? (own < count ? own : count) : count;
                if (v)
                    FORMS(Gatherv, one, mine, type, all, counts, places, is_root ? MPI_INT : MPI_DATATYPE_NULL, root);
                else
                    FORMS(Gather, one, count, type, all, count, is_root ? MPI_INT : MPI_DATATYPE_NULL, root);
                for (int p = 0; p < far && is_root; p++)
                    for (int i = 0; i < (v ? counts[p] : count); i++)
                        if (all[(v ? places[p] : p * count) + i] != value(!low, p, i)) {
                            fail(__LINE__, "gather %d: block %d", v, p);
                            break;
                        }
            }
            /* Scatter. */
            for (int v = 0; v < 2; v++) {
                for (int p = 0; p < far; p++)
                    for (int i = 0; i < count; i++)
                        all[(v ? places[p] : p * count) + i] = value(low, own, i) + p;
                memset(one, 0xff, count * sizeof(int));
                int mine = v ? (own < count ? own : count) : count;
                if (v)
                    FORMS(Scatterv, all, counts, places, is_root ? MPI_INT : MPI_DATATYPE_NULL, one, mine, type, root);
                else
                    FORMS(Scatter, all, count, is_root ? MPI_INT : MPI_DATATYPE_NULL, one, count, type, root);
                for (int i = 0; i < mine && root >= 0; i++)
                    if (one[i] != value(!low, r, i) + own) {
                        fail(__LINE__, "scatter %d: element %d is %d", v, i, one[i]);
                        break;
                    }
            }
            /* Reduce: the operands are those of the other side. */
            for (int i = 0; i < count; i++)
                one[i] = value(low, own, i);
            memset(all, 0xff, (size_t)count * sizeof(int));
            FORMS(Reduce, one, all, count, type, idle ? MPI_OP_NULL : MPI_SUM, root);
            for (int i = 0; i < count && is_root; i++) {
                int sum = 0;
                for (int p = 0; p < far; p++)
                    sum += value(!low, p, i);
                if (all[i] != sum) {
                    fail(__LINE__, "reduce: element %d is %d instead of %d", i, all[i], sum);
                    break;
                }
            }
        }
    free(one), free(all), free(counts), free(places);
}

static void check_all(int count)
{
    int *one = allocate((size_t)far * count * sizeof(int)), *all = allocate((size_t)far * count * sizeof(int));
    int *counts = allocate(ranks * sizeof(int)), *places = allocate(ranks * sizeof(int));
    MPI_Datatype *types = allocate(ranks * sizeof *types);
    for (int i = 0; i < count; i++)
        one[i] = value(low, own, i);
    for (int i = 0; i < far; i++)
        counts[i] = count, places[i] = (far - 1 - i) * count;
    for (int v = 0; v < 2; v++) {
        memset(all, 0xff, (size_t)far * count * sizeof(int));
        if (v)
            FORMS(Allgatherv, one, count, MPI_INT, all, counts, places, MPI_INT);
        else
            FORMS(Allgather, one, count, MPI_INT, all, count, MPI_INT);
        for (int p = 0; p < far; p++)
            for (int i = 0; i < count; i++)
                if (all[(v ? places[p] : p * count) + i] != value(!low, p, i)) {
                    fail(__LINE__, "allgather %d: block %d", v, p);
                    break;
                }
    }
    for (int v = 0; v < 3; v++) {
        int bytes[64];
        for (int p = 0; p < far; p++) {
            types[p] = MPI_INT;
            bytes[p] = places[p] * (int)sizeof(int);
            for (int i = 0; i < count; i++)
                one[(v ? places[p] : p * count) + i] = value(low, own, i) + 100 * p;
        }
        memset(all, 0xff, (size_t)far * count * sizeof(int));
        if (v == 0)
            FORMS(Alltoall, one, count, MPI_INT, all, count, MPI_INT);
        else if (v == 1)
            FORMS(Alltoallv, one, counts, places, MPI_INT, all, counts, places, MPI_INT);
        else
            FORMS(Alltoallw, one, counts, bytes, types, all, counts, bytes, types);
        for (int p = 0; p < far; p++)
            for (int i = 0; i < count; i++)
                if (all[(v ? places[p] : p * count) + i] != value(!low, p, i) + 100 * own) {
                    fail(__LINE__, "alltoall %d: block %d", v, p);
                    break;
                }
    }
    for (int i = 0; i < count; i++)
        one[i] = value(low, own, i);
    FORMS(Allreduce, one, all, count, MPI_INT, MPI_SUM);
    for (int i = 0; i < count; i++) {
        int sum = 0;
        for (int p = 0; p < far; p++)
            sum += value(!low, p, i);
        if (all[i] != sum) {
            fail(__LINE__, "allreduce: element %d is %d instead of %d", i, all[i], sum);
            break;
        }
    }
    free(one), free(all), free(counts), free(places), free(types);
    /* Both sides have the same number of elements: a multiple of both sizes. */
    int total = near * far * (count % 50 + 1), here = total / near;
    int *many = allocate(total * sizeof(int)), *part = allocate(total * sizeof(int)), *parts = allocate(near * sizeof(int));
    for (int i = 0; i < total; i++)
        many[i] = value(low, own, i);
    for (int v = 0; v < 2; v++) {
        /* Unequal counts: the first rank gets one more, the last rank one less. */
        int at = own * here, mine = here;
        for (int p = 0; p < near; p++)
            parts[p] = here + (near > 1 && p == 0) - (near > 1 && p == near - 1);
        if (v)
            mine = parts[own], at = own ? own * here + 1 : 0;
        memset(part, 0xff, total * sizeof(int));
        if (v)
            FORMS(Reduce_scatter, many, part, parts, MPI_INT, MPI_SUM);
        else
            FORMS(Reduce_scatter_block, many, part, here, MPI_INT, MPI_SUM);
        for (int i = 0; i < mine; i++) {
            int sum = 0;
            for (int p = 0; p < far; p++)
                sum += value(!low, p, at + i);
            if (part[i] != sum) {
                fail(__LINE__, "reduce_scatter %d: element %d is %d instead of %d", v, i, part[i], sum);
                break;
            }
        }
    }
    free(many), free(part), free(parts);
}

/* No rank of one side leaves the barrier before all ranks of the other side have entered it. */
static void check_barrier(void)
{
    CALL(MPI_Barrier(inter), MPI_Ibarrier(inter, &request_), MPI_Barrier_init(inter, MPI_INFO_NULL, &request_));
    MPI_Request request;
    int flag = 0, token = 0;
    if (rank != 0) {
        MPI_Ibarrier(inter, &request);
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        if (!low)
            CHECK(!flag);
        MPI_Send(&token, 1, MPI_INT, 0, 1, meeting);
    } else {
        for (int i = 1; i < ranks; i++)
            MPI_Recv(&token, 1, MPI_INT, MPI_ANY_SOURCE, 1, meeting, MPI_STATUS_IGNORE);
        MPI_Ibarrier(inter, &request);
    }
    if (request != MPI_REQUEST_NULL)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* A noncommutative operation: operands are combined in rank order. */
static void concatenate(void *in, void *inout, int *length, MPI_Datatype *type)
{
    (void)type;
    long *left = in, *right = inout;
    for (int i = 0; i < *length; i++) {
        long scale = 1;
        while (scale <= right[i])
            scale *= 10;
        right[i] += left[i] * scale;
    }
}

static void check_order(void)
{
    MPI_Op op;
    long mine = own + 1, got = -1, expected = 0;
    MPI_Op_create(concatenate, 0, &op);
    for (int p = 0; p < far; p++)
        expected = expected * 10 + p + 1;
    FORMS(Allreduce, &mine, &got, 1, MPI_LONG, op);
    SAME(got, expected);
    MPI_Op_free(&op);
}

/* Several calls outstanding at once, and a duplicate created meanwhile. */
static void check_together(void)
{
    enum { MANY = 30 };
    MPI_Request requests[MANY];
    static int in[MANY][64], out[MANY];
    MPI_Comm dup;
    for (int i = 0; i < MANY; i++) {
        out[i] = 100 * own + i;
        if (i % 2)
            MPI_Iallgather(&out[i], 1, MPI_INT, in[i], 1, MPI_INT, inter, &requests[i]);
        else
            MPI_Iallreduce(&out[i], in[i], 1, MPI_INT, MPI_MAX, inter, &requests[i]);
        if (i == MANY / 2) {
            MPI_Comm_dup(inter, &dup);
            MPI_Barrier(dup);
        }
    }
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++)
        SAME(in[i][i % 2 ? far - 1 : 0], 100 * (far - 1) + i);
    MPI_Comm_free(&dup);
}

static void check_refused(void)
{
    int data = 0, other = 0;
    MPI_Request request;
    CLASS(MPI_Bcast(&data, 1, MPI_INT, far, inter), MPI_ERR_ROOT);
    CLASS(MPI_Ibcast(&data, 1, MPI_INT, -77, inter, &request), MPI_ERR_ROOT);
    CLASS(MPI_Scan(&data, &other, 1, MPI_INT, MPI_SUM, inter), MPI_ERR_COMM);
    CLASS(MPI_Exscan(&data, &other, 1, MPI_INT, MPI_SUM, inter), MPI_ERR_COMM);
    CLASS(MPI_Allreduce(MPI_IN_PLACE, &other, 1, MPI_INT, MPI_SUM, inter), MPI_ERR_BUFFER);
    CLASS(MPI_Allgather(MPI_IN_PLACE, 1, MPI_INT, &other, 1, MPI_INT, inter), MPI_ERR_BUFFER);
    CLASS(MPI_Alltoall(&data, -1, MPI_INT, &other, 1, MPI_INT, inter), MPI_ERR_COUNT);
    MPI_Barrier(inter);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int split = 1; split < ranks; split++) {
        MPI_Comm local;
        low = rank < split;
        near = low ? split : ranks - split;
        far = ranks - near;
        MPI_Comm_split(MPI_COMM_WORLD, low, 0, &local);
        MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, low ? split : 0, 1, &inter);
        MPI_Comm_free(&local);
        MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
        MPI_Comm_rank(inter, &own);
        for (form = BLOCKING; form <= PERSISTENT; form++) {
            check_barrier();
            check_order();
            for (int size = 0; size < 4; size++) {
                int count = (int[]){0, 1, 40, 30000}[size];
                check_rooted(count);
                check_all(count);
            }
        }
        check_together();
        check_refused();
        MPI_Comm_free(&inter);
    }
    return finish();
}
