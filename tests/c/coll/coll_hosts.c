/* test: ranks=1,2,3,4,6 timeout=120
   Communicators of some of the ranks in various orders. Floating-point reductions give bits that depend only on
   ranks and count, not on hosts or algorithm. Moved data arrives. */
#include "../coll_check.h"

enum { MOST = 40000, LEAST_ROUND = 32768 };

static double operand(int r, int i)
{
    return (1.0 + i % 17) / (r + 0.3) * (i % 3 ? 1e-7 : 1e7);
}

/* Sum of element `i` over `size` ranks. Pairs of the first ranks are added until a power of two is left, then
 * neighbours. */
static double tree(int size, int i)
{
    static double sums[64];
    int power = 1, pairs, level = 0;
    while (2 * power <= size)
        power *= 2;
    pairs = size - power;
    for (int r = 0; r < size;) {
        int is_pair = r < 2 * pairs;
        sums[level++] = is_pair ? operand(r, i) + operand(r + 1, i) : operand(r, i);
        r += 1 + is_pair;
    }
    for (; level > 1; level /= 2)
        for (int k = 0; k < level / 2; k++)
            sums[k] = sums[2 * k] + sums[2 * k + 1];
    return sums[0];
}

static double in[MOST], out[MOST], other[MOST];

static void check_sums(MPI_Comm comm, int rank, int size, int count)
{
    /* If the number of ranks is no power of two, a ring combines in its own order. An algorithm that the user names may
     * do so too. */
    int is_round = (size & (size - 1)) && count >= LEAST_ROUND;
    const char *named = getenv("FASTPATH_COLL");
    int is_known = !is_round && !(named && strstr(named, "nodes"));
    MPI_Request request;
    for (int i = 0; i < count; i++)
        in[i] = operand(rank, i);
    memset(out, 0, sizeof out);
    MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < count && is_known; i++) {
        double expected = tree(size, i);
        CHECK(memcmp(&out[i], &expected, sizeof expected) == 0);
    }
    memcpy(other, in, sizeof in);
    MPI_Iallreduce(MPI_IN_PLACE, other, count, MPI_DOUBLE, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(memcmp(out, other, count * sizeof *out) == 0);
    /* All ranks have the same bits. */
    memcpy(other, out, sizeof out);
    MPI_Bcast(other, count, MPI_DOUBLE, size / 2, comm);
    CHECK(memcmp(out, other, count * sizeof *out) == 0);
    for (int root = 0; root < size; root++) {
        memcpy(other, in, sizeof in);
        const void *from = rank == root ? MPI_IN_PLACE : in;
        MPI_Reduce(from, other, count, MPI_DOUBLE, MPI_SUM, root, comm);
        for (int i = 0; i < count && rank == root && !(named && strstr(named, "nodes")); i++) {
            double expected = tree(size, i);
            CHECK(memcmp(&other[i], &expected, sizeof expected) == 0);
        }
    }
}

static void check_moves(MPI_Comm comm, int rank, int size)
{
    int counts[] = {0, 1, 700}, *all = malloc(700 * size * sizeof *all), own[700];
    for (int c = 0; c < 3; c++) {
        int count = counts[c];
        for (int i = 0; i < count; i++)
            own[i] = word(rank, 0, i);
        MPI_Allgather(own, count, MPI_INT, all, count, MPI_INT, comm);
        for (int i = 0; i < count * size; i++)
            CHECK(all[i] == word(i / count, 0, i % count));
        MPI_Barrier(comm);
        for (int root = 0; root < size; root++) {
            for (int i = 0; i < count; i++)
                own[i] = rank == root ? word(root, 9, i) : -1;
            MPI_Bcast(own, count, MPI_INT, root, comm);
            for (int i = 0; i < count; i++)
                CHECK(own[i] == word(root, 9, i));
        }
    }
    free(all);
}

static void check(MPI_Comm comm)
{
    static const int counts[] = {0, 1, 5, 3000, MOST};
    int rank, size;
    if (comm == MPI_COMM_NULL)
        return;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int c = 0; c < 5; c++)
        check_sums(comm, rank, size, counts[c]);
    check_moves(comm, rank, size);
}

/* Parents and children in one communicator. */
static void check_spawned(MPI_Comm inter)
{
    MPI_Comm all;
    MPI_Intercomm_merge(inter, 0, &all);
    check(all);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&inter);
}

int main(int argc, char **argv)
{
    MPI_Comm comm, parent;
    int together;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        check_spawned(parent);
        return finish();
    }
    check(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    check(comm);
    MPI_Comm_free(&comm);
    /* Communicators of all ranks reversed, so that ranks of a host may not be consecutive; of every second rank; of all
     * but the last rank; of each half. */
    for (int way = 0; way < 4; way++) {
        int colors[] = {0, me % 2, me + 1 == ranks ? MPI_UNDEFINED : 0, me < (ranks + 1) / 2};
        int keys[] = {-me, me, me, me * 7 % 5};
        MPI_Comm_split(MPI_COMM_WORLD, colors[way], keys[way], &comm);
        check(comm);
        if (comm != MPI_COMM_NULL)
            MPI_Comm_free(&comm);
    }
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
    check(comm);
    MPI_Comm_size(comm, &together);
    MPI_Comm_free(&comm);
    if (together == ranks) {
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &comm, MPI_ERRCODES_IGNORE);
        check_spawned(comm);
    }
    return finish();
}
