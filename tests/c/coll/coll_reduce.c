/* test: ranks=1,2,3,4,5,8
   Reductions of many sizes: in place and not, in rank order for noncommutative operations. Any number of ranks. */
#include "../coll_check.h"

static const long counts[] = {0, 1, 5, 40, 700, 5000, 60000};
enum { COUNTS = sizeof counts / sizeof *counts };

/* A matrix of two rows with a gap in the middle, modulo 2^32. */
typedef struct {
    uint32_t a, b;
    uint32_t gap;
    uint32_t c, d;
} matrix;

static MPI_Datatype matrix_type;
static MPI_Op product;
static long calls;

static matrix multiply(matrix x, matrix y)
{
    matrix z = {x.a * y.a + x.b * y.c, x.a * y.b + x.b * y.d, y.gap, x.c * y.a + x.d * y.c, x.c * y.b + x.d * y.d};
    return z;
}

static void multiply_all(void *in, void *inout, int *len, MPI_Datatype *type)
{
    matrix *x = in, *y = inout;
    calls++;
    if (*type != matrix_type)
        CHECK(!"the user function is given the call's datatype");
    for (int i = 0; i < *len; i++)
        y[i] = multiply(x[i], y[i]);
}

static void multiply_all_c(void *in, void *inout, MPI_Count *len, MPI_Datatype *type)
{
    int n = *len;
    multiply_all(in, inout, &n, type);
}

static matrix operand(int r, long i)
{
    matrix m = {2 * r + i + 1, r * i + 3, 77, 5 * i + r, 4 * r + 2 * i + 1};
    return m;
}

static matrix *operands(int r, long n)
{
    matrix *m = malloc((n + 1) * sizeof *m);
    for (long i = 0; i < n; i++)
        m[i] = operand(r, i);
    return m;
}

static matrix *blanks(long n)
{
    matrix *m = malloc((n + 1) * sizeof *m);
    memset(m, 0x4d, (n + 1) * sizeof *m);
    return m;
}

static int same(matrix x, matrix y)
{
    return x.a == y.a && x.b == y.b && x.c == y.c && x.d == y.d;
}

/* Returns whether m holds the products of the operands of ranks first..last, elements from..from + n. */
static int is_product(const matrix *m, int first, int last, long from, long n)
{
    for (long i = 0; i < n; i++) {
        matrix z = operand(first, from + i);
        for (int r = first + 1; r <= last; r++)
            z = multiply(z, operand(r, from + i));
        if (!same(m[i], z))
            return 0;
    }
    return 1;
}

static void test_order(MPI_Comm comm, long n, int in_place)
{
    matrix *own = operands(me, n * ranks), *res = blanks(n * ranks);
    int root = (int)(n % ranks), here = in_place && me == root;
    if (here || in_place)
        memcpy(res, own, n * ranks * sizeof *own);

    MPI_Reduce(here ? MPI_IN_PLACE : own, res, n, matrix_type, product, root, comm);
    if (me == root)
        CHECK(is_product(res, 0, ranks - 1, 0, n));

    memcpy(res, own, n * sizeof *own);
    MPI_Allreduce(in_place ? MPI_IN_PLACE : own, res, n, matrix_type, product, comm);
    CHECK(is_product(res, 0, ranks - 1, 0, n));

    memcpy(res, own, n * sizeof *own);
    MPI_Scan(in_place ? MPI_IN_PLACE : own, res, n, matrix_type, product, comm);
    CHECK(is_product(res, 0, me, 0, n));

    memcpy(res, own, n * sizeof *own);
    MPI_Exscan(in_place ? MPI_IN_PLACE : own, res, n, matrix_type, product, comm);
    CHECK(is_product(res, 0, me > 0 ? me - 1 : 0, 0, n));

    memcpy(res, own, n * ranks * sizeof *own);
    MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : own, res, n, matrix_type, product, comm);
    CHECK(is_product(res, 0, ranks - 1, n * me, n));
    for (long i = 0; i < n * ranks; i++)
        CHECK(same(own[i], operand(me, i)) && own[i].gap == 77);
    free(own);
    free(res);
}

static void test_sums(MPI_Comm comm, long n, int in_place)
{
    int counts[64], root = (int)(n % ranks);
    long total = 0, before = 0;
    for (int r = 0; r < ranks; r++) {
        counts[r] = r == 1 ? 0 : n + r;
        if (r < me)
            before += counts[r];
        total += counts[r];
    }
    long *own = malloc((total + 1) * sizeof *own), *res = malloc((total + 1) * sizeof *res);
    for (long i = 0; i < total; i++)
        own[i] = (me + 1) * (i + 1);
    long sum = (long)ranks * (ranks + 1) / 2;

    memcpy(res, own, total * sizeof *own);
    res[total] = -1;
    MPI_Reduce(in_place && me == root ? MPI_IN_PLACE : own, res, total, MPI_LONG, MPI_SUM, root, comm);
    if (me == root)
        for (long i = 0; i < total; i++)
            CHECK(res[i] == sum * (i + 1));
    memcpy(res, own, total * sizeof *own);
    MPI_Allreduce(in_place ? MPI_IN_PLACE : own, res, total, MPI_LONG, MPI_SUM, comm);
    for (long i = 0; i < total; i++)
        CHECK(res[i] == sum * (i + 1));
    CHECK(res[total] == -1);
    memcpy(res, own, total * sizeof *own);
    MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : own, res, counts, MPI_LONG, MPI_SUM, comm);
    for (long i = 0; i < counts[me]; i++)
        CHECK(res[i] == sum * (before + i + 1));
    memcpy(res, own, total * sizeof *own);
    MPI_Scan(in_place ? MPI_IN_PLACE : own, res, total, MPI_LONG, MPI_SUM, comm);
    for (long i = 0; i < total; i++)
        CHECK(res[i] == (long)(me + 1) * (me + 2) / 2 * (i + 1));
    memcpy(res, own, total * sizeof *own);
    MPI_Exscan(in_place ? MPI_IN_PLACE : own, res, total, MPI_LONG, MPI_SUM, comm);
    for (long i = 0; me > 0 && i < total; i++)
        CHECK(res[i] == (long)me * (me + 1) / 2 * (i + 1));
    free(own);
    free(res);
}

/* A floating-point sum has the same bits on all ranks and in every call. */
static void test_floats(MPI_Comm comm, long n)
{
    double *own = malloc((n + 1) * sizeof *own), *res = malloc((n + 1) * sizeof *res);
    double *again = malloc((n + 1) * sizeof *again), *others = malloc((n + 1) * sizeof *others);
    for (long i = 0; i < n; i++)
        own[i] = 1.0 / (1 + i + 7 * me) + 1e10 * (me % 3);
    MPI_Allreduce(own, res, n, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Allreduce(own, again, n, MPI_DOUBLE, MPI_SUM, comm);
    memcpy(others, res, n * sizeof *res);
    MPI_Bcast(others, n, MPI_DOUBLE, ranks - 1, comm);
    CHECK(memcmp(res, again, n * sizeof *res) == 0);
    CHECK(memcmp(res, others, n * sizeof *res) == 0);
    free(own);
    free(res);
    free(again);
    free(others);
}

/* Calls that reduce no data keep the ranks in step. Only rank 0 has used the operation before. */
static void test_nothing(MPI_Comm comm)
{
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &ranks);
    long own = 1L << me, res = -1;
    if (me == 0)
        MPI_Allreduce(&own, &res, 1, MPI_LONG, MPI_BXOR, MPI_COMM_SELF);
    for (int i = 0; i < 20; i++) {
        CHECK(MPI_Allreduce(NULL, NULL, 0, MPI_LONG, MPI_BXOR, comm) == MPI_SUCCESS);
        CHECK(MPI_Allreduce(MPI_IN_PLACE, &res, 0, MPI_LONG, MPI_BXOR, comm) == MPI_SUCCESS);
        own += 1L << ranks;
        MPI_Allreduce(&own, &res, 1, MPI_LONG, MPI_BXOR, comm);
        CHECK(res % (1L << ranks) == (1L << ranks) - 1);
    }
}

static void test_all(MPI_Comm comm)
{
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &ranks);
    for (int i = 0; i < COUNTS; i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            if (counts[i] <= 5000)
                test_order(comm, counts[i], in_place);
            test_sums(comm, counts[i], in_place);
            test_floats(comm, counts[i]);
        }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, commutes = -1, lengths[] = {2, 2};
    MPI_Aint displs[] = {0, 12};
    MPI_Datatype words[] = {MPI_UINT32_T, MPI_UINT32_T};
    MPI_Comm reversed;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Type_create_struct(2, lengths, displs, words, &matrix_type);
    MPI_Type_commit(&matrix_type);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);

    MPI_Op_create(multiply_all, 0, &product);
    MPI_Op_commutative(product, &commutes);
    CHECK(commutes == 0);
    test_nothing(MPI_COMM_WORLD);
    test_all(MPI_COMM_WORLD);
    test_all(reversed);
    test_all(MPI_COMM_SELF);
    MPI_Op_free(&product);
    CHECK(product == MPI_OP_NULL);

    MPI_Op_create_c(multiply_all_c, 0, &product);
    calls = 0;
    test_all(MPI_COMM_WORLD);
    CHECK(ranks == 1 || calls > 0);

    matrix x = operand(1, 2), y = operand(3, 4), z = multiply(x, y);
    MPI_Reduce_local(&x, &y, 1, matrix_type, product);
    CHECK(same(y, z));
    MPI_Op_free(&product);
    MPI_Comm_free(&reversed);
    MPI_Type_free(&matrix_type);
    return finish();
}
