/* test: ranks=1,2,3,4,5,8
   Collectives that move data: many sizes, in place or not, on several communicators. Any number of ranks. */
#include "../coll_check.h"

static const long counts[] = {0, 1, 3, 32, 257, 3000, 40000};
enum { COUNTS = sizeof counts / sizeof *counts };

static void test_bcast(MPI_Comm comm, long n, int root)
{
    int *p = ints(n, -1);
    if (me == root)
        fill(p, root, 0, n);
    MPI_Bcast(p, n, MPI_INT, root, comm);
    CHECK(holds(p, root, 0, n) && p[n] == -1);
    free(p);
}

/* The root sends every second int of a matrix, the others receive into a contiguous buffer. */
static void test_bcast_types(MPI_Comm comm, long n, int root)
{
    MPI_Datatype strided;
    MPI_Type_vector(n, 1, 2, MPI_INT, &strided);
    MPI_Type_commit(&strided);
    int *p = ints(2 * n, -1);
    if (me == root) {
        for (long i = 0; i < n; i++)
            p[2 * i] = word(root, 1, i);
        MPI_Bcast(p, 1, strided, root, comm);
        for (long i = 0; i < n; i++)
            CHECK(p[2 * i + 1] == -1);
    } else {
        MPI_Bcast(p, n, MPI_INT, root, comm);
        CHECK(holds(p, root, 1, n) && all_are(p + n, -1, n));
    }
    MPI_Type_free(&strided);
    free(p);
}

static void test_gather_scatter(MPI_Comm comm, long n, int root, int in_place)
{
    int *own = ints(n, -1), *all = ints(ranks * n, -1);
    int here = in_place && me == root;
    fill(own, me, 0, n);
    if (here)
        fill(all + me * n, me, 0, n);
    MPI_Gather(here ? MPI_IN_PLACE : own, n, MPI_INT, all, n, MPI_INT, root, comm);
    for (int r = 0; r < ranks; r++)
        CHECK(me == root ? holds(all + r * n, r, 0, n) : all_are(all + r * n, -1, n));
    CHECK(all[ranks * n] == -1);

    for (int r = 0; r < ranks; r++)
        fill(all + r * n, root, r, n);
    memset(own, 0xff, n * sizeof *own);
    MPI_Scatter(all, n, MPI_INT, here ? MPI_IN_PLACE : own, n, MPI_INT, root, comm);
    CHECK(here ? all_are(own, -1, n) : holds(own, root, me, n));
    free(own);
    free(all);
}

/* Rank r has n + r elements, rank 1 has none. The blocks are in descending order with a gap of one. */
static long length(int r, long n)
{
    return r == 1 ? 0 : n + r;
}

static long layout(long n, int *counts, int *displs)
{
    long end = 0;
    for (int r = ranks - 1; r >= 0; r--) {
        counts[r] = length(r, n);
        displs[r] = end;
        end += counts[r] + 1;
    }
    return end;
}

static void check_blocks(const int *all, const int *displs, long n)
{
    for (int r = 0; r < ranks; r++) {
        CHECK(holds(all + displs[r], r, 0, length(r, n)));
        CHECK(all[displs[r] + length(r, n)] == -1);
    }
}

static void test_vectors(MPI_Comm comm, long n, int root, int in_place)
{
    int counts[64], displs[64];
    long end = layout(n, counts, displs), mine = length(me, n);
    int *own = ints(mine, -1), *all = ints(end, -1);
    int here = in_place && me == root;

    fill(own, me, 0, mine);
    if (here)
        fill(all + displs[me], me, 0, mine);
    MPI_Gatherv(here ? MPI_IN_PLACE : own, mine, MPI_INT, all, counts, displs, MPI_INT, root, comm);
    if (me == root)
        check_blocks(all, displs, n);
    else
        CHECK(all_are(all, -1, end));

    memset(own, 0xff, mine * sizeof *own);
    MPI_Scatterv(all, counts, displs, MPI_INT, here ? MPI_IN_PLACE : own, mine, MPI_INT, root, comm);
    CHECK(here ? all_are(own, -1, mine) : holds(own, me, 0, mine));

    fill(own, me, 0, mine);
    memset(all, 0xff, end * sizeof *all);
    if (in_place)
        fill(all + displs[me], me, 0, mine);
    MPI_Allgatherv(in_place ? MPI_IN_PLACE : own, mine, MPI_INT, all, counts, displs, MPI_INT, comm);
    check_blocks(all, displs, n);
    free(own);
    free(all);
}

static void test_allgather(MPI_Comm comm, long n, int in_place)
{
    int *own = ints(n, -1), *all = ints(ranks * n, -1);
    fill(in_place ? all + me * n : own, me, 0, n);
    MPI_Allgather(in_place ? MPI_IN_PLACE : own, n, MPI_INT, all, n, MPI_INT, comm);
    for (int r = 0; r < ranks; r++)
        CHECK(holds(all + r * n, r, 0, n));
    CHECK(all[ranks * n] == -1);
    free(own);
    free(all);
}

static void test_alltoall(MPI_Comm comm, long n, int in_place)
{
    int *out = ints(ranks * n, -1), *in = ints(ranks * n, -1);
    for (int r = 0; r < ranks; r++)
        fill((in_place ? in : out) + r * n, me, r, n);
    MPI_Alltoall(in_place ? MPI_IN_PLACE : out, n, MPI_INT, in, n, MPI_INT, comm);
    for (int r = 0; r < ranks; r++)
        CHECK(holds(in + r * n, r, me, n));
    CHECK(in[ranks * n] == -1);
    free(out);
    free(in);
}

/* Ranks r and q exchange n + r + q elements; pairs whose sum is 3 exchange none. */
static void test_alltoallv(MPI_Comm comm, long n, int in_place)
{
    int counts[64], displs[64], bytes[64];
    MPI_Datatype types[64];
    long end = 0;
    for (int r = 0; r < ranks; r++) {
        counts[r] = r + me == 3 ? 0 : n + r + me;
        displs[r] = end;
        bytes[r] = end * sizeof(int);
        types[r] = MPI_INT;
        end += counts[r] + 1;
    }
    int *out = ints(end, -1), *in = ints(end, -1), *typed = ints(end, -1);
    for (int r = 0; r < ranks; r++) {
        fill(out + displs[r], me, r, counts[r]);
        if (in_place) {
            fill(in + displs[r], me, r, counts[r]);
            fill(typed + displs[r], me, r, counts[r]);
        }
    }
    MPI_Alltoallv(in_place ? MPI_IN_PLACE : out, counts, displs, MPI_INT, in, counts, displs, MPI_INT, comm);
    MPI_Alltoallw(in_place ? MPI_IN_PLACE : out, counts, bytes, types, typed, counts, bytes, types, comm);
    for (int r = 0; r < ranks; r++) {
        CHECK(holds(in + displs[r], r, me, counts[r]) && in[displs[r] + counts[r]] == -1);
        CHECK(holds(typed + displs[r], r, me, counts[r]) && typed[displs[r] + counts[r]] == -1);
    }
    free(out);
    free(in);
    free(typed);
}

/* The large-count forms with 64-bit arrays. */
static void test_large_forms(MPI_Comm comm, long n)
{
    MPI_Count counts[64];
    MPI_Aint displs[64];
    long end = 0, mine = length(me, n);
    for (int r = 0; r < ranks; r++) {
        counts[r] = length(r, n);
        displs[r] = end;
        end += counts[r] + 1;
    }
    int *own = ints(mine, -1), *all = ints(end, -1);
    fill(own, me, 0, mine);
    MPI_Allgatherv_c(own, mine, MPI_INT, all, counts, displs, MPI_INT, comm);
    for (int r = 0; r < ranks; r++)
        CHECK(holds(all + displs[r], r, 0, length(r, n)) && all[displs[r] + length(r, n)] == -1);
    MPI_Bcast_c(own, mine, MPI_INT, 0, MPI_COMM_SELF);
    MPI_Scatterv_c(all, counts, displs, MPI_INT, own, mine, MPI_INT, 0, comm);
    CHECK(holds(own, me, 0, mine));
    free(own);
    free(all);
}

/* Send and receive sides use different types of one signature. */
static void test_types(MPI_Comm comm, long n)
{
    MPI_Datatype pairs, spread;
    MPI_Type_contiguous(2, MPI_INT, &pairs);
    MPI_Type_create_resized(MPI_INT, 0, 3 * sizeof(int), &spread);
    MPI_Type_commit(&pairs);
    MPI_Type_commit(&spread);
    int *out = ints(2 * n * ranks, -1), *in = ints(6 * n * ranks, -1), *back = ints(2 * n * ranks, -1);
    for (int r = 0; r < ranks; r++)
        fill(out + 2 * n * r, me, r, 2 * n);
    MPI_Alltoall(out, n, pairs, in, 2 * n, spread, comm);
    for (int r = 0; r < ranks; r++)
        for (long i = 0; i < 2 * n; i++) {
            long at = 3 * (2 * n * r + i);
            CHECK(in[at] == word(r, me, i) && in[at + 1] == -1 && in[at + 2] == -1);
        }
    MPI_Alltoall(in, 2 * n, spread, back, n, pairs, comm);
    CHECK(memcmp(back, out, 2 * n * ranks * sizeof(int)) == 0);
    MPI_Allgather(out, n, pairs, in, 2 * n, spread, comm);
    for (int r = 0; r < ranks; r++)
        for (long i = 0; i < 2 * n; i++)
            CHECK(in[3 * (2 * n * r + i)] == word(r, 0, i));
    MPI_Type_free(&pairs);
    MPI_Type_free(&spread);
    free(out);
    free(in);
    free(back);
}

/* Calls that move no data keep the ranks in step: with a type that the library looks up, and with MPI_INT. */
static void test_nothing(MPI_Comm comm)
{
    MPI_Datatype gaps;
    MPI_Type_create_resized(MPI_INT, 0, 3 * sizeof(int), &gaps);
    MPI_Type_commit(&gaps);
    for (int i = 0; i < 9; i++) {
        MPI_Datatype type = (me + i) % 2 ? gaps : MPI_INT;
        CHECK(MPI_Bcast(NULL, 0, type, i % ranks, comm) == MPI_SUCCESS);
        CHECK(MPI_Allgather(NULL, 0, type, NULL, 0, MPI_INT, comm) == MPI_SUCCESS);
        CHECK(MPI_Alltoall(NULL, 0, MPI_INT, NULL, 0, type, comm) == MPI_SUCCESS);
        test_bcast(comm, 3, i % ranks);
    }
    MPI_Type_free(&gaps);
}

static void test_all(MPI_Comm comm)
{
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &ranks);
    MPI_Barrier(comm);
    test_nothing(comm);
    for (int i = 0; i < COUNTS; i++) {
        long n = counts[i];
        for (int root = 0; root < ranks; root += n > 300 ? 3 : 1) {
            test_bcast(comm, n, root);
            test_bcast_types(comm, n, root);
            test_gather_scatter(comm, n, root, root % 2);
            test_vectors(comm, n, root, root % 2);
        }
        for (int in_place = 0; in_place < 2; in_place++) {
            test_allgather(comm, n, in_place);
            test_alltoall(comm, n, in_place);
            test_alltoallv(comm, n, in_place);
        }
        test_large_forms(comm, n);
        test_types(comm, n);
        MPI_Barrier(comm);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm reversed, half;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    test_all(MPI_COMM_WORLD);
    test_all(MPI_COMM_SELF);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    test_all(reversed);
    test_all(half);
    MPI_Comm_free(&reversed);
    MPI_Comm_free(&half);
    return finish();
}
