/* test: ranks=3,4,5,8 timeout=120 mistakes=yes
   test: env=FASTPATH_COLL=barrier:lines,bcast:lines,allreduce:lines,allgather:lines,reduce:shared,alltoall:shared
   One rank refuses its arguments while the others enter the call through shared lines or buffers. No rank hangs, and
   the calls that follow move the right data. */
#include "../coll_check.h"

enum { LONG = 70000, KINDS = 8 };
static int *in, *out;

static int class_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class;
}

static void check_calls(MPI_Comm comm, int seed)
{
    int n = 1 + seed % 100, root = seed % ranks;
    fill(in, me == root ? root : -1, seed, n);
    MPI_Bcast(in, n, MPI_INT, root, comm);
    CHECK(holds(in, root, seed, n));
    for (int i = 0; i < n; i++)
        in[i] = me + i;
    MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < n; i++)
        CHECK(out[i] == ranks * (ranks - 1) / 2 + ranks * i);
    fill(in, me, seed, n);
    MPI_Allgather(in, n, MPI_INT, out, n, MPI_INT, comm);
    for (int r = 0; r < ranks; r++)
        CHECK(holds(out + r * n, r, seed, n));
    for (int r = 0; r < ranks; r++)
        fill(in + r * n, me, r + seed, n);
    MPI_Alltoall(in, n, MPI_INT, out, n, MPI_INT, comm);
    for (int r = 0; r < ranks; r++)
        CHECK(holds(out + r * n, r, me + seed, n));
    for (int i = 0; i < LONG; i++)
        in[i] = me + i + seed;
    MPI_Reduce(in, out, LONG, MPI_INT, MPI_SUM, root, comm);
    int bad = 0;
    for (int i = 0; me == root && i < LONG; i++)
        bad += out[i] != ranks * (ranks - 1) / 2 + ranks * (i + seed);
    CHECK(bad == 0);
    fill(in, me == root ? root : -1, seed, LONG);
    MPI_Bcast(in, LONG, MPI_INT, root, comm);
    CHECK(holds(in, root, seed, LONG));
    MPI_Barrier(comm);
}

/* Makes a call that rank `wrong` refuses. Returns its error class. */
static int call(MPI_Comm comm, int kind, int wrong)
{
    int is_wrong = me == wrong, root = (wrong + 1) % ranks;
    switch (kind) {
    case 0:
        return class_of(MPI_Bcast(in, 3, MPI_INT, is_wrong ? ranks : root, comm));
    case 1:
        return class_of(MPI_Bcast(in, is_wrong ? -1 : 3, MPI_INT, root, comm));
    case 2:
        return class_of(MPI_Bcast(in, is_wrong ? -1 : LONG, MPI_INT, root, comm));
    case 3:
        return class_of(MPI_Allreduce(in, out, is_wrong ? -1 : 3, MPI_INT, MPI_SUM, comm));
    case 4:
        return class_of(MPI_Allreduce(in, out, 3, is_wrong ? MPI_DATATYPE_NULL : MPI_INT, MPI_SUM, comm));
    case 5:
        return class_of(MPI_Allgather(in, 1, MPI_INT, out, is_wrong ? -1 : 1, MPI_INT, comm));
    case 6:
        return class_of(MPI_Alltoall(in, is_wrong ? -1 : 1, MPI_INT, out, 1, MPI_INT, comm));
    default:
        return class_of(MPI_Reduce(in, out, LONG, MPI_INT, MPI_SUM, is_wrong ? -5 : root, comm));
    }
}

static void test(MPI_Comm comm)
{
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < 6; i++)
        MPI_Barrier(comm);
    check_calls(comm, 1);
    for (int round = 0; round < 3; round++)
        for (int wrong = 0; wrong < ranks; wrong++)
            for (int kind = 0; kind < KINDS; kind++) {
                int class = call(comm, kind, wrong), is_bcast = kind < 3;
                CHECK((class == MPI_SUCCESS) <= (is_bcast && me != wrong));
                CHECK(me == wrong || class == MPI_SUCCESS || class == MPI_ERR_OTHER);
                /* Different numbers of calls between two mistakes, so that buffers change their turns. */
                for (int i = 0; i <= round; i++)
                    check_calls(comm, kind + wrong + i);
            }
    /* More refused calls than the lines of a root have sets. */
    for (int i = 0; i < 40; i++)
        call(comm, i % 3, ranks - 1);
    check_calls(comm, 5);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    in = ints(LONG + 200L * ranks, 0);
    out = ints(LONG + 200L * ranks, 0);
    test(MPI_COMM_WORLD);
    MPI_Comm dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    test(dup);
    MPI_Comm_free(&dup);
    return finish();
}
