/* test: ranks=3,4,5,8 timeout=120 mistakes=yes
   test: env=FASTPATH_COLL=barrier:lines,bcast:lines,allreduce:lines,allgather:lines,reduce:shared,alltoall:shared,gather:lines,scatter:shared,scan:lines,exscan:lines,reduce_scatter:shared,reduce_scatter_block:shared
   Collective calls through shared lines and, with longer data, through shared buffers: lengths around each limit,
   roots in turn, several communicators in turn, more calls than the memory has sets, different lengths. The argument
   is the number of rounds (default 20). */
#include "../coll_check.h"

enum { LONGEST = 300000 };
static double *in, *out;

static void broadcast(MPI_Comm comm, int n, int root, int seed)
{
    int rank;
    MPI_Comm_rank(comm, &rank);
    for (int i = 0; i <= n; i++)
        in[i] = rank == root && i < n ? seed + 3.0 * i : -1;
    MPI_Bcast(in, n, MPI_DOUBLE, root, comm);
    int bad = 0;
    for (int i = 0; i < n; i++)
        bad += in[i] != seed + 3.0 * i;
    CHECK(bad == 0 && in[n] == -1);
}

static void reduce_all(MPI_Comm comm, int n, int seed)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    double sum = size * (size - 1) / 2;
    for (int i = 0; i < n; i++)
        in[i] = rank + i % 1000 + seed;
    out[n] = -1;
    MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, comm);
    int bad = 0;
    for (int i = 0; i < n; i++)
        bad += out[i] != sum + (double)size * (i % 1000 + seed);
    MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_DOUBLE, MPI_MAX, comm);
    for (int i = 0; i < n; i++)
        bad += in[i] != size - 1 + i % 1000 + seed;
    CHECK(bad == 0 && out[n] == -1);
    unsigned mine = 1u << (rank % 32), all = 0, expected = 0;
    for (int r = 0; r < size; r++)
        expected |= 1u << (r % 32);
    MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED, MPI_BOR, comm);
    CHECK(all == expected);
}

/* 2x2 matrices: the product does not commute. */
static void multiply(void *left, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    unsigned *a = left, *b = inout;
    for (int i = 0; i < *count; i++, a += 4, b += 4) {
        unsigned c[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
                         a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]};
        memcpy(b, c, sizeof c);
    }
}

static void product_in_order(MPI_Comm comm)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Datatype matrix;
    MPI_Op op;
    MPI_Type_contiguous(4, MPI_UNSIGNED, &matrix);
    MPI_Type_commit(&matrix);
    MPI_Op_create(multiply, 0, &op);
    unsigned own[4] = {rank + 1, 2, 3, 2 * rank + 1}, result[4], expected[4] = {1, 0, 0, 1};
    for (int call = 0; call < 6; call++)
        MPI_Allreduce(own, result, 1, matrix, op, comm);
    for (int r = size - 1; r >= 0; r--) {
        unsigned factor[4] = {r + 1, 2, 3, 2 * r + 1};
        int one = 1;
        multiply(factor, expected, &one, &matrix);
    }
    CHECK(memcmp(result, expected, sizeof result) == 0);
    MPI_Op_free(&op);
    MPI_Type_free(&matrix);
}

static void gather_all(MPI_Comm comm, int n, int seed)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < n; i++)
        in[i] = rank * 1000 + i + seed;
    out[(long)n * size] = -1;
    MPI_Allgather(in, n, MPI_DOUBLE, out, n, MPI_DOUBLE, comm);
    int bad = 0;
    for (int r = 0; r < size; r++)
        for (int i = 0; i < n; i++)
            bad += out[r * n + i] != r * 1000 + i + seed;
    CHECK(bad == 0 && out[(long)n * size] == -1);
}

static void reduce_to(MPI_Comm comm, int n, int root, int seed)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < n; i++)
        in[i] = rank + i % 1000 + seed;
    for (int i = 0; i <= n; i++)
        out[i] = -1;
    MPI_Reduce(in, out, n, MPI_DOUBLE, MPI_SUM, root, comm);
    int bad = 0;
    for (int i = 0; i < n; i++)
        bad += out[i] != (rank == root ? size * (size - 1) / 2 + (double)size * (i % 1000 + seed) : -1);
    CHECK(bad == 0 && out[n] == -1);
}

static void all_to_all(MPI_Comm comm, int n, int seed, int in_place)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    double *sent = in_place ? out : in;
    for (int r = 0; r < size; r++)
        for (int i = 0; i < n; i++)
            sent[r * n + i] = rank * 1e6 + r * 1000 + i + seed;
    MPI_Alltoall(in_place ? MPI_IN_PLACE : in, n, MPI_DOUBLE, out, n, MPI_DOUBLE, comm);
    int bad = 0;
    for (int r = 0; r < size; r++)
        for (int i = 0; i < n; i++)
            bad += out[r * n + i] != r * 1e6 + rank * 1000 + i + seed;
    CHECK(bad == 0);
}

static void gather_scatter(MPI_Comm comm, int n, int root, int seed, int in_place)
{
    int rank, size, bad = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    double *own = rank == root && in_place ? out + (long)n * root : in;
    for (int i = 0; i < n; i++)
        own[i] = rank * 1000 + i + seed;
    out[(long)n * size] = -1;
    MPI_Gather(rank == root && in_place ? MPI_IN_PLACE : in, n, MPI_DOUBLE, out, n, MPI_DOUBLE, root, comm);
    for (int r = 0; rank == root && r < size; r++)
        for (int i = 0; i < n; i++)
            bad += out[r * n + i] != r * 1000 + i + seed;
    CHECK(bad == 0 && out[(long)n * size] == -1);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < n; i++)
            out[r * n + i] = rank == root ? r * 1000 - i - seed : -1;
    in[n] = -1;
    MPI_Scatter(out, n, MPI_DOUBLE, rank == root && in_place ? MPI_IN_PLACE : in, n, MPI_DOUBLE, root, comm);
    for (int i = 0; !(rank == root && in_place) && i < n; i++)
        bad += in[i] != rank * 1000 - i - seed;
    CHECK(bad == 0 && in[n] == -1);
}

static void prefixes(MPI_Comm comm, int n, int seed)
{
    int rank, size, bad = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < n; i++)
        in[i] = rank + i % 1000 + seed;
    out[n] = -1;
    MPI_Scan(in, out, n, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < n; i++)
        bad += out[i] != rank * (rank + 1) / 2 + (rank + 1.0) * (i % 1000 + seed);
    CHECK(bad == 0 && out[n] == -1);
    MPI_Exscan(MPI_IN_PLACE, in, n, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; rank > 0 && i < n; i++)
        bad += in[i] != rank * (rank - 1) / 2 + (double)rank * (i % 1000 + seed);
    CHECK(bad == 0);
}

static void reduce_scatter(MPI_Comm comm, int n, int seed, int in_place)
{
    int rank, size, bad = 0, first = 0, *counts;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    double ranks_sum = size * (size - 1) / 2;
    double *sent = in_place ? out : in;
    for (int i = 0; i < n * size; i++)
        sent[i] = rank + i % 1000 + seed;
    MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : in, out, n, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < n; i++)
        bad += out[i] != ranks_sum + (double)size * ((rank * n + i) % 1000 + seed);
    CHECK(bad == 0);
    /* Blocks of different lengths, one of them empty. */
    counts = ints(size, n);
    counts[0] = 0;
    counts[size - 1] = 2 * n;
    for (int r = 0; r < rank; r++)
        first += counts[r];
    for (int i = 0; i < n * size; i++)
        sent[i] = rank + i % 1000 + seed;
    MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : in, out, counts, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < counts[rank]; i++)
        bad += out[i] != ranks_sum + (double)size * ((first + i) % 1000 + seed);
    CHECK(bad == 0);
    free(counts);
}

static void test_all(MPI_Comm comm, int rounds)
{
    static const int shorts[] = {1, 2, 6, 7, 8, 64, 127, 128, 129, 255, 2046, 2047};
    static const int longs[] = {2048, 9000, 32768, 32769, 100000, LONGEST - 1};
    int size;
    MPI_Comm_size(comm, &size);
    for (int round = 0; round < rounds; round++) {
        MPI_Barrier(comm);
        for (unsigned i = 0; i < sizeof shorts / sizeof *shorts; i++)
            broadcast(comm, shorts[i], (round + i) % size, round);
        for (unsigned i = 0; i < sizeof shorts / sizeof *shorts; i++)
            reduce_all(comm, shorts[i], round);
        for (int n = 1; n <= 64; n *= 4) {
            gather_all(comm, n, round);
            reduce_to(comm, 10 * n, n % size, round);
            all_to_all(comm, n, round, n % 8 == 0);
            gather_scatter(comm, n, n % size, round, n % 8 == 0);
            prefixes(comm, 4 * n - 1, round);
            reduce_scatter(comm, n, round, n % 8 == 0);
        }
        if (round % 8 == 5)
            for (unsigned i = 0; i < sizeof longs / sizeof *longs; i++) {
                broadcast(comm, longs[i], (round + i) % size, round);
                reduce_all(comm, longs[i], round);
                broadcast(comm, longs[i], i % size, round + 1);
                gather_all(comm, longs[i] / size, round);
                reduce_to(comm, longs[i], i % size, round);
                all_to_all(comm, longs[i] / size, round, i % 2);
                gather_scatter(comm, longs[i] / size, i % size, round, i % 2);
                prefixes(comm, longs[i], round);
                reduce_scatter(comm, longs[i] / size, round, i % 2);
            }
    }
    /* Only the root sends: its memory must not be used again before the last reader has read it. */
    for (int call = 0; call < 100; call++)
        broadcast(comm, call % 3 ? 5 : 500, 0, call);
    product_in_order(comm);
}

/* Each rank but the root passes fewer bytes. The ranks that read the root's line get an error. */
static void test_different_lengths(MPI_Comm comm)
{
    int class = MPI_SUCCESS, refused, some;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int call = 0; call < 6; call++)
        MPI_Barrier(comm);
    int code = MPI_Bcast(in, me == 0 ? 4 : 3, MPI_INT, 0, comm);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_SUCCESS || (me > 0 && class == MPI_ERR_TRUNCATE));
    refused = class != MPI_SUCCESS;
    MPI_Allreduce(&refused, &some, 1, MPI_INT, MPI_SUM, comm);
    CHECK(some > 0);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    in = malloc((LONGEST + 1) * sizeof *in);
    out = malloc((LONGEST + 64L * ranks + 1) * sizeof *out);
    test_all(MPI_COMM_WORLD, rounds);
    for (int turn = 0; turn < 3; turn++) {
        MPI_Comm half, dup;
        MPI_Comm_split(MPI_COMM_WORLD, me % 2, -me, &half);
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        test_all(half, 1);
        test_all(dup, 1);
        test_different_lengths(dup);
        MPI_Comm_free(&half);
        MPI_Comm_free(&dup);
    }
    return finish();
}
