/* test: ranks=1,2,3,4,8
   Buffers that alias without MPI_IN_PLACE are rejected with MPI_ERR_BUFFER. The call has not taken place, so the
   rank alone can repeat it with valid buffers. */
#include "../coll_check.h"

#define EXPECT(class, call) expect(__LINE__, call, class)

static void expect(int line, int code, int expected)
{
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    if (class != expected && failures++ < 10)
        fprintf(stderr, "rank %d: %s:%d: class %d instead of %d\n", me, __FILE__, line, class, expected);
}

/* Only the rank with the wrong argument gets the error; the next calls of all ranks match. */
static void test_one_rank(int n, int root)
{
    MPI_Comm world = MPI_COMM_WORLD;
    int *a = ints(n * ranks, 1), *b = ints(n * ranks, 2), *counts = ints(ranks, n), *displs = ints(ranks, 0);
    for (int i = 0; i < ranks; i++)
        displs[i] = (ranks - 1 - i) * n, counts[i] = n;
    if (me == root) {
        int *own = a + me * n, *own_v = a + displs[me];
        EXPECT(MPI_ERR_BUFFER, MPI_Gather(own, n, MPI_INT, a, n, MPI_INT, root, world));
        EXPECT(MPI_ERR_BUFFER, MPI_Gatherv(own_v, n, MPI_INT, a, counts, displs, MPI_INT, root, world));
        EXPECT(MPI_ERR_BUFFER, MPI_Scatter(a, n, MPI_INT, own, n, MPI_INT, root, world));
        EXPECT(MPI_ERR_BUFFER, MPI_Scatterv(a, counts, displs, MPI_INT, own_v, n, MPI_INT, root, world));
        EXPECT(MPI_ERR_BUFFER, MPI_Reduce(a, a, n, MPI_INT, MPI_SUM, root, world));
        EXPECT(MPI_ERR_BUFFER, MPI_Alltoall(a, n, MPI_INT, a, n, MPI_INT, world));
        EXPECT(MPI_ERR_BUFFER, MPI_Alltoallv(a, counts, displs, MPI_INT, a, counts, displs, MPI_INT, world));
    }
    for (int i = 0; i < n * ranks; i++)
        a[i] = 10 * me + i, b[i] = -1;
    EXPECT(MPI_SUCCESS, MPI_Alltoall(a, n, MPI_INT, b, n, MPI_INT, world));
    for (int i = 0; i < n * ranks; i++)
        CHECK(b[i] == 10 * (i / n) + me * n + i % n);
    /* Every rank has made equally many valid calls so far, so these calls match. */
    for (int i = 0; i < n; i++)
        a[i] = 10 * me + i, b[i] = -1;
    EXPECT(MPI_SUCCESS, MPI_Reduce(a, b, n, MPI_INT, MPI_SUM, root, world));
    for (int i = 0; me == root && i < n; i++)
        CHECK(b[i] == 10 * ranks * (ranks - 1) / 2 + ranks * i);
    /* These buffers are significant only at the root. */
    EXPECT(MPI_SUCCESS, MPI_Gather(a, n, MPI_INT, me == root ? b : a, n, MPI_INT, root, world));
    EXPECT(MPI_SUCCESS, MPI_Scatter(me == root ? b : a, n, MPI_INT, a, n, MPI_INT, root, world));
    EXPECT(MPI_SUCCESS, MPI_Reduce(me == root ? MPI_IN_PLACE : a, a, n, MPI_INT, MPI_SUM, root, world));
    free(a);
    free(b);
    free(counts);
    free(displs);
}

static void test_all_ranks(int n)
{
    MPI_Comm world = MPI_COMM_WORLD;
    int *a = ints(n * ranks, 1), *b = ints(n * ranks, 2), *counts = ints(ranks, n), *displs = ints(ranks, 0);
    int *bytes = ints(ranks, 0), one = 1, sum = 0;
    MPI_Datatype types[ranks];
    for (int i = 0; i < ranks; i++) {
        displs[i] = i * n, bytes[i] = 4 * i * n;
        counts[i] = n;
        types[i] = MPI_INT;
    }
    EXPECT(MPI_ERR_BUFFER, MPI_Allgather(a + me * n, n, MPI_INT, a, n, MPI_INT, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Allgatherv(a + me * n, n, MPI_INT, a, counts, displs, MPI_INT, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Alltoall(a, n, MPI_INT, a, n, MPI_INT, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Alltoallv(a, counts, displs, MPI_INT, a, counts, displs, MPI_INT, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Alltoallw(a, counts, bytes, types, a, counts, bytes, types, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Allreduce(a, a, n, MPI_INT, MPI_SUM, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Allreduce(a, a, n, MPI_INT, MPI_SUM, MPI_COMM_SELF));
    EXPECT(MPI_ERR_BUFFER, MPI_Reduce_scatter(a, a, counts, MPI_INT, MPI_SUM, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Reduce_scatter_block(a, a, n, MPI_INT, MPI_SUM, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Scan(a, a, n, MPI_INT, MPI_SUM, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Exscan(a, a, n, MPI_INT, MPI_SUM, world));
    EXPECT(MPI_ERR_BUFFER, MPI_Reduce_local(a, a, n, MPI_INT, MPI_SUM));
    if (me == 0)
        EXPECT(MPI_ERR_BUFFER, MPI_Allreduce(a, a, n, MPI_INT, MPI_SUM, world));
    /* The ranks are still in step. */
    EXPECT(MPI_SUCCESS, MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, world));
    CHECK(sum == ranks);
    /* Valid although the address is the same: no data is sent, or the two buffers are separate parts of one array. */
    EXPECT(MPI_SUCCESS, MPI_Allreduce(a, a, 0, MPI_INT, MPI_SUM, world));
    EXPECT(MPI_SUCCESS, MPI_Alltoall(a, 0, MPI_INT, a, 0, MPI_INT, world));
    EXPECT(MPI_SUCCESS, MPI_Allreduce(MPI_IN_PLACE, a, n, MPI_INT, MPI_SUM, world));
    int *both = ints(2 * n * ranks, 3), *behind = ints(ranks, 0);
    for (int i = 0; i < ranks; i++)
        behind[i] = (ranks + i) * n;
    EXPECT(MPI_SUCCESS, MPI_Alltoallv(both, counts, displs, MPI_INT, both, counts, behind, MPI_INT, world));
    free(a);
    free(b);
    free(both);
    free(counts);
    free(displs);
    free(behind);
    free(bytes);
}

/* One address with two types that select different parts: a column of a grid and its halo. */
static void test_disjoint(void)
{
    int sizes[] = {4, 6}, part[] = {4, 1}, from[] = {0, 4}, to[] = {0, 0}, one = 1, *counts = ints(ranks, 0);
    int *displs = ints(ranks, 0), right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    double grid[4][6];
    MPI_Aint at = 10 * sizeof(double);
    MPI_Datatype column, halo, piece, columns[ranks], halos[ranks];
    MPI_Type_create_subarray(2, sizes, part, from, MPI_ORDER_C, MPI_DOUBLE, &column);
    MPI_Type_create_subarray(2, sizes, part, to, MPI_ORDER_C, MPI_DOUBLE, &halo);
    MPI_Type_create_hindexed(1, &one, &at, MPI_DOUBLE, &piece);
    MPI_Type_commit(&column);
    MPI_Type_commit(&halo);
    MPI_Type_commit(&piece);
    for (int i = 0; i < 24; i++)
        grid[i / 6][i % 6] = 100 * me + i;
    EXPECT(MPI_SUCCESS, MPI_Sendrecv(grid, 1, column, right, 3, grid, 1, halo, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < 4; i++)
        CHECK(grid[i][0] == 100 * left + 6 * i + 4);
    for (int i = 0; i < ranks; i++)
        columns[i] = column, halos[i] = halo, counts[i] = i == me;
    EXPECT(MPI_SUCCESS, MPI_Alltoallw(grid, counts, displs, columns, grid, counts, displs, halos, MPI_COMM_WORLD));
    for (int i = 0; i < 4; i++)
        CHECK(grid[i][0] == 100 * me + 6 * i + 4);
    EXPECT(MPI_SUCCESS, MPI_Gather(grid, 1, piece, grid, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD));
    for (int i = 0; me == 0 && i < ranks; i++)
        CHECK(grid[i / 6][i % 6] == 100 * i + 10);
    MPI_Type_free(&column);
    MPI_Type_free(&halo);
    MPI_Type_free(&piece);
    free(counts);
    free(displs);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    static const int lengths[] = {1, 3, 1000, 50000};
    for (int i = 0; i < 4; i++) {
        test_one_rank(lengths[i], 0);
        test_one_rank(lengths[i], ranks - 1);
        test_all_ranks(lengths[i]);
    }
    test_disjoint();
    return finish();
}
