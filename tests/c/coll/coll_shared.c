/* test: ranks=3,4,5,8 timeout=120 mistakes=yes
   Long allreduce and allgather calls of ranks that share processors use memory that all ranks map: lengths around
   its size, operands of any form, many communicators at once and in turn. */
#include "../coll_check.h"

enum { BUFFER = 256 << 10 };

/* Pairs a, b are maps x -> a x + b. The left operand is applied first; the operation does not commute. */
static void compose(void *left, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    unsigned *a = left, *b = inout;
    for (int i = 0; i < *count; i++, a += 2, b += 2) {
        b[1] = a[1] * b[0] + b[1];
        b[0] = a[0] * b[0];
    }
}

static void reduce_all(MPI_Comm comm, long n)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    double *in = malloc((n + 1) * sizeof *in), *out = malloc((n + 1) * sizeof *out);
    for (long i = 0; i < n; i++)
        in[i] = rank + i % 1000;
    out[n] = -1;
    MPI_Allreduce(in, out, (int)n, MPI_DOUBLE, MPI_SUM, comm);
    long bad = 0;
    for (long i = 0; i < n; i++)
        bad += out[i] != size * (double)(i % 1000) + size * (size - 1) / 2.0 || in[i] != rank + i % 1000;
    CHECK(bad == 0 && out[n] == -1);
    MPI_Allreduce(MPI_IN_PLACE, in, (int)n, MPI_DOUBLE, MPI_MAX, comm);
    for (long i = 0; i < n; i++)
        bad += in[i] != size - 1 + i % 1000;
    CHECK(bad == 0);
    free(in);
    free(out);
}

static void reduce_in_order(long n)
{
    MPI_Datatype pair;
    MPI_Op op;
    MPI_Type_contiguous(2, MPI_UNSIGNED, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(compose, 0, &op);
    unsigned *in = malloc(n * 8), *out = malloc(n * 8);
    for (long i = 0; i < 2 * n; i++)
        in[i] = me * 2654435761u + i;
    MPI_Allreduce(in, out, (int)n, pair, op, MPI_COMM_WORLD);
    long bad = 0;
    for (long i = 0; i < n; i++) {
        unsigned x = 2 * i, y = 2 * i + 1;
        for (unsigned r = 1; r < (unsigned)ranks; r++) {
            unsigned a = r * 2654435761u + 2 * i, b = r * 2654435761u + 2 * i + 1;
            y = y * a + b;
            x = x * a;
        }
        bad += out[2 * i] != x || out[2 * i + 1] != y;
    }
    CHECK(bad == 0);
    MPI_Op_free(&op);
    MPI_Type_free(&pair);
    free(in);
    free(out);
}

/* A type with gaps, and an operation on it. */
static void reduce_places(int n)
{
    struct place { double value; int rank; } *in = malloc(n * sizeof *in), *out = malloc(n * sizeof *out);
    for (int i = 0; i < n; i++)
        in[i] = (struct place){(me + i) % ranks, me};
    MPI_Allreduce(in, out, n, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    long bad = 0;
    for (int i = 0; i < n; i++)
        bad += out[i].value != ranks - 1 || (out[i].rank + i) % ranks != ranks - 1;
    CHECK(bad == 0);
    free(in);
    free(out);
}

static void gather_all(MPI_Comm comm, long n, int in_place)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int *in = malloc(n * 4 + 4), *out = ints(size * n, -1);
    fill(in, rank, 0, n);
    fill(out + rank * n, rank, 0, n);
    MPI_Allgather(in_place ? MPI_IN_PLACE : in, (int)n, MPI_INT, out, (int)n, MPI_INT, comm);
    long bad = out[size * n] != -1;
    for (int r = 0; r < size; r++)
        for (long i = 0; i < n; i++)
            bad += out[r * n + i] != word(r, 0, i);
    CHECK(bad == 0);
    free(in);
    free(out);
}

/* Gathers blocks of any length, one of them empty, from every third int into every second int. */
static void gather_uneven(int n)
{
    MPI_Datatype second, third;
    int counts[64], starts[64], all = 0;
    MPI_Type_create_resized(MPI_INT, 0, 8, &second);
    MPI_Type_create_resized(MPI_INT, 0, 12, &third);
    MPI_Type_commit(&second);
    MPI_Type_commit(&third);
    for (int r = 0; r < ranks; r++) {
        counts[r] = r == 1 ? 0 : n / (r + 1);
        starts[r] = all;
        all += counts[r] + 1;
    }
    int *in = ints(3L * n, -1), *out = ints(2L * all, -1);
    for (int i = 0; i < counts[me]; i++)
        in[3 * i] = word(me, 1, i);
    MPI_Allgatherv(in, counts[me], third, out, counts, starts, second, MPI_COMM_WORLD);
    long bad = 0;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i <= counts[r]; i++) {
            int at = 2 * (starts[r] + i);
            bad += out[at] != (i < counts[r] ? word(r, 1, i) : -1) || out[at + 1] != -1;
        }
    CHECK(bad == 0);
    MPI_Type_free(&second);
    MPI_Type_free(&third);
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long lengths[] = {BUFFER / 16, BUFFER / 8 - 1, BUFFER / 8, BUFFER / 8 + 1, BUFFER / 4 + 77, 3 * BUFFER / 8 + 5};
    for (int i = 0; i < 6; i++) {
        reduce_all(MPI_COMM_WORLD, lengths[i]);
        gather_all(MPI_COMM_WORLD, 2 * lengths[i] + i % 2, i % 2);
        gather_all(MPI_COMM_WORLD, 2 * lengths[i] / 50, i % 2);
    }
    reduce_in_order(BUFFER / 8 + 3);
    reduce_places(20000);
    gather_uneven(BUFFER / 4 + 1);

    /* Nonblocking calls of the same lengths at the same time, on the same communicator. */
    double *sums = malloc(BUFFER);
    for (int i = 0; i < BUFFER / 8; i++)
        sums[i] = i + me;
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, sums, BUFFER / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    reduce_all(MPI_COMM_WORLD, BUFFER / 8);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < BUFFER / 8; i++)
        if (sums[i] != ranks * (double)i + ranks * (ranks - 1) / 2)
            CHECK(!"sums of the nonblocking call");
    free(sums);

    /* Communicators of some of the ranks, in another order. Each has its own buffers, which are created and freed. */
    MPI_Comm some, copies[3];
    MPI_Comm_split(MPI_COMM_WORLD, me % 5 == 4, -me, &some);
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 3; i++)
            MPI_Comm_dup(some, &copies[i]);
        for (int i = 0; i < 3; i++) {
            reduce_all(copies[i], BUFFER / 32 + round);
            gather_all(copies[2 - i], BUFFER / 64 + round, round % 2);
        }
        for (int i = 0; i < 3; i++)
            MPI_Comm_free(&copies[i]);
    }
    MPI_Comm_free(&some);

    /* Ranks with different numbers of elements get an error and continue. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    double *wrong = calloc(BUFFER / 2, 1), *result = calloc(BUFFER / 2, 1);
    int code = MPI_Allreduce(wrong, result, BUFFER / 16 - (me == 1), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD), class = 0;
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_TRUNCATE);
    free(wrong);
    free(result);
    reduce_all(MPI_COMM_WORLD, BUFFER / 8);
    return finish();
}
