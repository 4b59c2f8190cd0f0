/* test: ranks=1,2,3,4,5,8 mistakes=yes
   Wrong arguments to collective calls give the right error class, and the ranks stay in step. Any number of ranks. */
#include "../coll_check.h"

static void expect(int line, int code, int expected)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    if (class != expected && failures++ < 10)
        fprintf(stderr, "rank %d: %s:%d: class %d instead of %d\n", me, __FILE__, line, class, expected);
}

#define EXPECT(class, call) expect(__LINE__, call, class)

/* Two ranks pass different counts. The rank with the larger count receives less than it expects, the other may
 * receive more. Both report the same class, and the next call is in step. */
static void test_counts(int few, int many)
{
    int count = me == 0 ? many : few, twice = 2 * many, one = 1, sum = 0;
    int *a = ints(twice, 1), *b = ints(twice, 2);
    MPI_Comm world = MPI_COMM_WORLD;
    int lacks = me == 0 ? MPI_ERR_TRUNCATE : MPI_SUCCESS, both = MPI_ERR_TRUNCATE;
    EXPECT(lacks, MPI_Bcast(a, count, MPI_INT, 1, world));
    EXPECT(me == 0 ? MPI_SUCCESS : MPI_ERR_TRUNCATE, MPI_Bcast(a, count, MPI_INT, 0, world));
    EXPECT(lacks, MPI_Gather(a, count, MPI_INT, b, count, MPI_INT, 0, world));
    EXPECT(lacks, MPI_Scatter(a, count, MPI_INT, b, count, MPI_INT, 1, world));
    EXPECT(both, MPI_Alltoall(a, count, MPI_INT, b, count, MPI_INT, world));
    EXPECT(both, MPI_Allreduce(a, b, count, MPI_INT, MPI_SUM, world));
    EXPECT(lacks, MPI_Reduce(a, b, count, MPI_INT, MPI_SUM, 0, world));
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (me == 0 && MPI_Bcast(a, count, MPI_INT, 1, world) != MPI_SUCCESS) {
        char wanted[100];
        snprintf(wanted, sizeof wanted, "rank 1 passes %d bytes to this collective call, but this rank expects %d", 4 * few,
                 4 * many);
        MPI_Error_string(MPI_ERR_TRUNCATE, text, &length);
        CHECK(strstr(text, wanted));
    } else if (me == 1) {
        EXPECT(MPI_SUCCESS, MPI_Bcast(a, count, MPI_INT, 1, world));
    }
    EXPECT(MPI_SUCCESS, MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, world));
    CHECK(sum == ranks);
    free(a);
    free(b);
}

/* One rank passes a different count than all others. At least one rank reports the error, all reports have the same
 * class, no rank hangs, and the next call is in step. */
static void test_one_count(int odd, int few, int many)
{
    enum { CALLS = 15 };
    MPI_Comm world = MPI_COMM_WORLD;
    int count = me == odd ? many : few, largest = few > many ? few : many, codes[CALLS], classes[CALLS], worst[CALLS];
    int *a = ints(2 * ranks * largest, 1), *b = ints(2 * ranks * largest, 2);
    int *counts = ints(ranks, count), *displs = ints(ranks, 0);
    for (int i = 0; i < ranks; i++)
        displs[i] = i * largest, counts[i] = count;
    codes[0] = MPI_Bcast(a, count, MPI_INT, 0, world);
    codes[1] = MPI_Bcast(a, count, MPI_INT, ranks - 1, world);
    codes[2] = MPI_Gather(a, count, MPI_INT, b, count, MPI_INT, 0, world);
    codes[3] = MPI_Gatherv(a, count, MPI_INT, b, counts, displs, MPI_INT, 1, world);
    codes[4] = MPI_Scatter(a, count, MPI_INT, b, count, MPI_INT, 0, world);
    codes[5] = MPI_Scatterv(a, counts, displs, MPI_INT, b, count, MPI_INT, 1, world);
    codes[6] = MPI_Allgather(a, count, MPI_INT, b, count, MPI_INT, world);
    codes[7] = MPI_Allgatherv(a, count, MPI_INT, b, counts, displs, MPI_INT, world);
    codes[8] = MPI_Alltoall(a, count, MPI_INT, b, count, MPI_INT, world);
    codes[9] = MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, b, count, MPI_INT, world);
    codes[10] = MPI_Alltoallv(a, counts, displs, MPI_INT, b, counts, displs, MPI_INT, world);
    codes[11] = MPI_Reduce(a, b, count, MPI_INT, MPI_SUM, 0, world);
    codes[12] = MPI_Allreduce(a, b, count, MPI_INT, MPI_SUM, world);
    codes[13] = MPI_Reduce_scatter_block(a, b, count, MPI_INT, MPI_SUM, world);
    codes[14] = MPI_Scan(a, b, count, MPI_INT, MPI_SUM, world);
    for (int i = 0; i < CALLS; i++) {
        MPI_Error_class(codes[i], &classes[i]);
        CHECK(classes[i] == MPI_SUCCESS || classes[i] == MPI_ERR_TRUNCATE);
    }
    EXPECT(MPI_SUCCESS, MPI_Allreduce(classes, worst, CALLS, MPI_INT, MPI_MAX, world));
    for (int i = 0; i < CALLS; i++)
        CHECK(worst[i] == MPI_ERR_TRUNCATE);
    free(a);
    free(b);
    free(counts);
    free(displs);
}

/* A wrong block that a rank sends to itself is an error too. Other ranks still receive their data. */
static void test_own_count(void)
{
    int *a = ints(20 * ranks, 1), *b = ints(20 * ranks, 2), more = me == 0 ? 20 : 10;
    int expected = me == 0 ? MPI_ERR_TRUNCATE : MPI_SUCCESS, others = MPI_ERR_TRUNCATE;
    EXPECT(others, MPI_Alltoall(a, more, MPI_INT, b, 10, MPI_INT, MPI_COMM_WORLD));
    int class = MPI_SUCCESS, code = MPI_Allgather(a, more, MPI_INT, b, 10, MPI_INT, MPI_COMM_WORLD);
    MPI_Error_class(code, &class);
    /* The other ranks may get the blocks from rank 0, which has the right length for them. */
    CHECK(class == MPI_ERR_TRUNCATE || (me != 0 && class == MPI_SUCCESS));
    EXPECT(expected, MPI_Gather(a, more, MPI_INT, b, 10, MPI_INT, 0, MPI_COMM_WORLD));
    EXPECT(others, MPI_Scatter(a, 20, MPI_INT, b, 10, MPI_INT, 0, MPI_COMM_WORLD));
    free(a);
    free(b);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm world = MPI_COMM_WORLD;
    int *a = ints(2 * ranks, 1), *b = ints(2 * ranks, 2), *counts = ints(ranks, 1), *displs = ints(ranks, 0);
    int *minus = ints(ranks, -1), flag;
    MPI_Datatype raw, pair;
    MPI_Op op = MPI_SUM;
    MPI_Type_contiguous(2, MPI_INT, &raw);
    MPI_Type_dup(raw, &pair);
    MPI_Type_commit(&pair);

    EXPECT(MPI_ERR_COMM, MPI_Barrier(MPI_COMM_NULL));
    EXPECT(MPI_ERR_ROOT, MPI_Bcast(a, 1, MPI_INT, ranks, world));
    EXPECT(MPI_ERR_ROOT, MPI_Bcast(a, 1, MPI_INT, -1, world));
    EXPECT(MPI_ERR_ROOT, MPI_Gather(a, 1, MPI_INT, b, 1, MPI_INT, ranks, world));
    EXPECT(MPI_ERR_ROOT, MPI_Scatter(a, 1, MPI_INT, b, 1, MPI_INT, -5, world));
    EXPECT(MPI_ERR_ROOT, MPI_Reduce(a, b, 1, MPI_INT, MPI_SUM, ranks, world));
    EXPECT(MPI_ERR_COUNT, MPI_Bcast(a, -1, MPI_INT, 0, world));
    EXPECT(MPI_ERR_COUNT, MPI_Allreduce(a, b, -1, MPI_INT, MPI_SUM, world));
    EXPECT(MPI_ERR_COUNT, MPI_Allgatherv(a, 1, MPI_INT, b, minus, displs, MPI_INT, world));
    EXPECT(MPI_ERR_COUNT, MPI_Reduce_scatter(a, b, minus, MPI_INT, MPI_SUM, world));
    EXPECT(MPI_ERR_COUNT, MPI_Bcast_c(a, (MPI_Count)1 << 62, MPI_INT, 0, world));
    EXPECT(MPI_ERR_TYPE, MPI_Bcast(a, 1, MPI_DATATYPE_NULL, 0, world));
    EXPECT(MPI_ERR_TYPE, MPI_Bcast(a, 1, raw, 0, world));
    EXPECT(MPI_ERR_TYPE, MPI_Alltoall(a, 1, MPI_INT, b, 1, MPI_DATATYPE_NULL, world));
    EXPECT(MPI_ERR_OP, MPI_Allreduce(a, b, 1, MPI_INT, MPI_OP_NULL, world));
    EXPECT(MPI_ERR_OP, MPI_Allreduce(a, b, 1, pair, MPI_SUM, world));
    EXPECT(MPI_ERR_OP, MPI_Scan(a, b, 1, MPI_INT, MPI_REPLACE, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Bcast(NULL, 1, MPI_INT, 0, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Bcast(MPI_IN_PLACE, 1, MPI_INT, 0, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Allreduce(a, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, world));
    EXPECT(MPI_ERR_ARG, MPI_Allgatherv(a, 1, MPI_INT, b, NULL, displs, MPI_INT, world));
    EXPECT(MPI_ERR_ARG, MPI_Alltoallw(a, counts, displs, NULL, b, counts, displs, NULL, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Reduce_local(a, a, 1, MPI_INT, MPI_SUM));
    EXPECT(MPI_ERR_OP, MPI_Op_free(&op));
    EXPECT(MPI_ERR_ARG, MPI_Op_create(NULL, 1, &op));
    EXPECT(MPI_ERR_OP, MPI_Op_commutative(MPI_OP_NULL, &flag));
    op = MPI_OP_NULL;
    EXPECT(MPI_ERR_OP, MPI_Op_free(&op));
    CHECK(MPI_Op_commutative(MPI_MAXLOC, &flag) == MPI_SUCCESS && flag == 1);

    /* A root that rejects its own arguments does not put the ranks out of step. */
    EXPECT(me == 0 ? MPI_ERR_TYPE : MPI_SUCCESS,
           MPI_Gather(a, 1, MPI_INT, b, 1, me == 0 ? MPI_DATATYPE_NULL : MPI_INT, 0, world));
    /* Arguments that are significant only at the root may have any value on other ranks. */
    if (me == 0)
        EXPECT(MPI_SUCCESS, MPI_Gather(a, 1, MPI_INT, b, 1, MPI_INT, 0, world));
    else
        EXPECT(MPI_SUCCESS, MPI_Gather(a, 1, MPI_INT, NULL, -7, MPI_DATATYPE_NULL, 0, world));
    /* Null buffers are valid if there is no data. */
    EXPECT(MPI_SUCCESS, MPI_Bcast(NULL, 0, MPI_INT, 0, world));
    EXPECT(MPI_SUCCESS, MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, world));
    EXPECT(MPI_SUCCESS, MPI_Alltoall(NULL, 0, MPI_INT, NULL, 0, MPI_INT, world));

    int one = 1, sum = 0;
    EXPECT(MPI_SUCCESS, MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, world));
    CHECK(sum == ranks);
    if (ranks == 2) {
        test_counts(1, 2);
        test_counts(20, 21);
        test_counts(1000, 1001);
        test_counts(7000, 8000);
        test_counts(100000, 100001);
    }
    if (ranks >= 2) {
        static const int pairs[][2] = {{1, 2}, {20, 21}, {1000, 1001}, {7000, 8000}, {100000, 100001}};
        for (int i = 0; i < 5; i++)
            for (int odd = 0; odd < ranks; odd += ranks - 1) {
                test_one_count(odd, pairs[i][0], pairs[i][1]);
                test_one_count(odd, pairs[i][1], pairs[i][0]);
            }
        test_own_count();
    }
    MPI_Type_free(&raw);
    MPI_Type_free(&pair);
    free(a);
    free(b);
    free(counts);
    free(displs);
    free(minus);
    return finish();
}
