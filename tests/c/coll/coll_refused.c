/* test: ranks=1,2,3,4,8 mistakes=yes
   Errors of nonblocking and persistent collectives: wrong arguments are rejected by the call; active requests cannot
   be freed, cancelled or started; mismatched lengths are reported by the request. Any number of ranks. */
#include "../coll_check.h"

static int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

/* The calls reject these arguments and create no request. */
#define REFUSED(class, call)                                                             \
    do {                                                                                 \
        request = MPI_REQUEST_NULL;                                                      \
        CHECK(class_of(call) == class);                                                  \
        CHECK(request == MPI_REQUEST_NULL);                                              \
    } while (0)

/* Both forms of a call, by its name with and without a capital; `...` are the arguments before the communicator. */
#define BOTH(class, small, large, ...)                                          \
    do {                                                                                 \
        REFUSED(class, MPI_I##small(__VA_ARGS__, comm, &request));                       \
        REFUSED(class, MPI_##large##_init(__VA_ARGS__, comm, MPI_INFO_NULL, &request));  \
    } while (0)

/* Wrong arguments of each call, nonblocking and persistent, on an intracommunicator. */
static void check_arguments(MPI_Comm comm)
{
    MPI_Request request;
    int *a = ints(2 * ranks, 1), *b = ints(2 * ranks, 2), *ones = ints(ranks, 1), *at = ints(ranks, 0);
    double x = 1, y;
    for (int i = 0; i < ranks; i++)
        at[i] = i;
    ones[0] = -1;
    MPI_Datatype raw, *types = malloc(ranks * sizeof *types);
    MPI_Type_contiguous(2, MPI_INT, &raw);
    for (int i = 0; i < ranks; i++)
        types[i] = raw;
    BOTH(MPI_ERR_ROOT, bcast, Bcast, a, 1, MPI_INT, ranks);
    BOTH(MPI_ERR_COUNT, bcast, Bcast, a, -1, MPI_INT, 0);
    BOTH(MPI_ERR_BUFFER, bcast, Bcast, NULL, 1, MPI_INT, 0);
    BOTH(MPI_ERR_TYPE, bcast, Bcast, a, 1, raw, 0);
    BOTH(MPI_ERR_TYPE, bcast, Bcast, a, 1, MPI_DATATYPE_NULL, 0);
    BOTH(MPI_ERR_ROOT, gather, Gather, a, 1, MPI_INT, b, 1, MPI_INT, -1);
    BOTH(MPI_ERR_COUNT, gather, Gather, a, -1, MPI_INT, b, -1, MPI_INT, 0);
    BOTH(MPI_ERR_ROOT, scatter, Scatter, a, 1, MPI_INT, b, 1, MPI_INT, ranks);
    BOTH(MPI_ERR_TYPE, scatter, Scatter, a, 1, raw, b, 1, raw, 0);
    BOTH(MPI_ERR_ROOT, gatherv, Gatherv, a, 1, MPI_INT, b, ones, at, MPI_INT, ranks);
    BOTH(MPI_ERR_ROOT, scatterv, Scatterv, a, ones, at, MPI_INT, b, 1, MPI_INT, ranks);
    BOTH(MPI_ERR_COUNT, allgather, Allgather, a, 1, MPI_INT, b, -1, MPI_INT);
    BOTH(MPI_ERR_BUFFER, allgather, Allgather, b + me, 1, MPI_INT, b, 1, MPI_INT);
    BOTH(MPI_ERR_COUNT, allgatherv, Allgatherv, a, 1, MPI_INT, b, ones, at, MPI_INT);
    BOTH(MPI_ERR_TYPE, alltoall, Alltoall, a, 1, raw, b, 1, MPI_INT);
    BOTH(MPI_ERR_COUNT, alltoallv, Alltoallv, a, ones, at, MPI_INT, b, ones, at, MPI_INT);
    BOTH(MPI_ERR_TYPE, alltoallw, Alltoallw, a, at, at, types, b, at, at, types);
    BOTH(MPI_ERR_OP, reduce, Reduce, &x, &y, 1, MPI_DOUBLE, MPI_BAND, 0);
    BOTH(MPI_ERR_ROOT, reduce, Reduce, a, b, 1, MPI_INT, MPI_SUM, ranks);
    BOTH(MPI_ERR_OP, allreduce, Allreduce, &x, &y, 1, MPI_DOUBLE, MPI_BAND);
    BOTH(MPI_ERR_OP, allreduce, Allreduce, a, b, 1, MPI_INT, MPI_OP_NULL);
    BOTH(MPI_ERR_BUFFER, allreduce, Allreduce, a, a, 1, MPI_INT, MPI_SUM);
    BOTH(MPI_ERR_BUFFER, allreduce, Allreduce, MPI_IN_PLACE, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM);
    BOTH(MPI_ERR_COUNT, reduce_scatter, Reduce_scatter, a, b, ones, MPI_INT, MPI_SUM);
    BOTH(MPI_ERR_COUNT, reduce_scatter_block, Reduce_scatter_block, a, b, -1, MPI_INT, MPI_SUM);
    BOTH(MPI_ERR_BUFFER, scan, Scan, a, a, 1, MPI_INT, MPI_SUM);
    BOTH(MPI_ERR_COUNT, exscan, Exscan, a, b, -1, MPI_INT, MPI_SUM);
    BOTH(MPI_ERR_TOPOLOGY, neighbor_allgather, Neighbor_allgather, a, 1, MPI_INT, b, 1, MPI_INT);
    REFUSED(MPI_ERR_ARG, MPI_Barrier_init(comm, MPI_INFO_NULL, NULL));
    REFUSED(MPI_ERR_COMM, MPI_Barrier_init(MPI_COMM_NULL, MPI_INFO_NULL, &request));
    REFUSED(MPI_ERR_INFO, MPI_Barrier_init(comm, (MPI_Info)0x12345, &request));
    MPI_Comm ring, flat = comm;
    int size = ranks, periodic = 1;
    MPI_Cart_create(flat, 1, &size, &periodic, 0, &ring);
    comm = ring;
    BOTH(MPI_ERR_COUNT, neighbor_allgather, Neighbor_allgather, a, -1, MPI_INT, b, 1, MPI_INT);
    BOTH(MPI_ERR_TYPE, neighbor_alltoall, Neighbor_alltoall, a, 1, raw, b, 1, MPI_INT);
    MPI_Comm_free(&ring);
    comm = flat;
    /* A call that only one rank rejects has not taken place: that rank repeats it with valid arguments. */
    int value = me, sum = 0;
    if (me == 0)
        REFUSED(MPI_ERR_BUFFER, MPI_Allreduce_init(&value, &value, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request));
    MPI_Allreduce_init(&value, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    for (int i = 0; i < 3; i++) {
        sum = 0;
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum == ranks * (ranks - 1) / 2);
    }
    MPI_Request_free(&request);
    MPI_Type_free(&raw);
    free(a), free(b), free(ones), free(at), free(types);
}

/* Wrong arguments on an intercommunicator, where the checks of a rank depend on its group. */
static void check_between(void)
{
    if (ranks < 2)
        return;
    MPI_Comm half, comm;
    MPI_Comm_split(MPI_COMM_WORLD, me % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - me % 2, 0, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Request request;
    int a[2 * 8] = {0}, b[2 * 8];
    double x = 1, y;
    BOTH(MPI_ERR_ROOT, bcast, Bcast, a, 1, MPI_INT, ranks);
    BOTH(MPI_ERR_COUNT, bcast, Bcast, a, -1, MPI_INT, 0);
    BOTH(MPI_ERR_COUNT, gather, Gather, a, -1, MPI_INT, b, 1, MPI_INT, 0);
    BOTH(MPI_ERR_COUNT, scatter, Scatter, a, 1, MPI_INT, b, -1, MPI_INT, 0);
    BOTH(MPI_ERR_BUFFER, allgather, Allgather, MPI_IN_PLACE, 1, MPI_INT, b, 1, MPI_INT);
    BOTH(MPI_ERR_COUNT, alltoall, Alltoall, a, 1, MPI_INT, b, -1, MPI_INT);
    BOTH(MPI_ERR_OP, allreduce, Allreduce, &x, &y, 1, MPI_DOUBLE, MPI_BAND);
    BOTH(MPI_ERR_COUNT, reduce, Reduce, a, b, -1, MPI_INT, MPI_SUM, 0);
    BOTH(MPI_ERR_COUNT, reduce_scatter_block, Reduce_scatter_block, a, b, -1, MPI_INT, MPI_SUM);
    BOTH(MPI_ERR_COMM, scan, Scan, a, b, 1, MPI_INT, MPI_SUM);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&half);
}

static void check_refused(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Request request = MPI_REQUEST_NULL;
    int value = 1, other = 0;
    CHECK(class_of(MPI_Ibcast(&value, 1, MPI_INT, ranks, comm, &request)) == MPI_ERR_ROOT);
    CHECK(request == MPI_REQUEST_NULL);
    CHECK(class_of(MPI_Ibcast(&value, -1, MPI_INT, 0, comm, &request)) == MPI_ERR_COUNT);
    CHECK(class_of(MPI_Iallreduce(&value, &other, 1, MPI_INT, MPI_OP_NULL, comm, &request)) == MPI_ERR_OP);
    CHECK(class_of(MPI_Iallreduce(&value, &other, 1, MPI_DATATYPE_NULL, MPI_SUM, comm, &request)) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Ibarrier(comm, NULL)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Ibarrier(MPI_COMM_NULL, &request)) == MPI_ERR_COMM);
    check_arguments(comm);
    check_between();
    MPI_Barrier(comm);
    /* An active request cannot be freed or cancelled. Rank 0 starts last, so the requests of others are surely
     * active. */
    if (ranks > 1) {
        if (me != 0) {
            MPI_Ibarrier(comm, &request);
            CHECK(class_of(MPI_Cancel(&request)) == MPI_ERR_REQUEST);
            CHECK(class_of(MPI_Request_free(&request)) == MPI_ERR_REQUEST);
            CHECK(request != MPI_REQUEST_NULL);
            MPI_Barrier(MPI_COMM_WORLD);
        } else {
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Ibarrier(comm, &request);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(request == MPI_REQUEST_NULL);
    }
    /* An inactive request may be freed; an active one cannot be started again. */
    MPI_Barrier_init(comm, MPI_INFO_NULL, &request);
    int flag = 0;
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    CHECK(flag && request != MPI_REQUEST_NULL);
    if (ranks > 1 && me != 0) {
        MPI_Start(&request);
        CHECK(class_of(MPI_Start(&request)) == MPI_ERR_REQUEST);
        CHECK(class_of(MPI_Request_free(&request)) == MPI_ERR_REQUEST);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (ranks == 1 || me == 0)
        MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
    /* Mismatched lengths: each rank that notices reports an error, from the call or from its request. */
    if (ranks > 1) {
        int out[4] = { 0 };
        int code = MPI_Ibcast(out, me == 0 ? 4 : 2, MPI_INT, 0, comm, &request);
        if (code == MPI_SUCCESS)
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(me == 0 || class_of(code) == MPI_ERR_TRUNCATE);
        CHECK(request == MPI_REQUEST_NULL);
    }
    if (ranks == 2) {
        int in[4] = { 1, 2, 3, 4 }, out[4];
        int code = MPI_Iallreduce(in, out, me == 0 ? 4 : 2, MPI_INT, MPI_SUM, comm, &request);
        if (code == MPI_SUCCESS)
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(class_of(code) == MPI_ERR_TRUNCATE);
        MPI_Allreduce_init(in, out, me == 0 ? 4 : 2, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
        for (int round = 0; round < 2; round++) {
            MPI_Start(&request);
            CHECK(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPI_ERR_TRUNCATE);
        }
        MPI_Request_free(&request);
        MPI_Allreduce(in, out, 2, MPI_INT, MPI_SUM, comm);
        CHECK(out[0] == 2 && out[1] == 4);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    check_refused();
    return finish();
}
