/* Ranks on several hosts: shared-memory communicators match the hosts, and every rank exchanges messages of all sizes
 * with every other. The first argument gives the hosts of the ranks as letters, as passed to mpiexec. If the path of a
 * fifo follows, only ranks 0 and 1 communicate, and all wait for a writer of the fifo before they end. Without
 * arguments all are on one host, or each on its own (MPI_TEST_HOSTS).
 * test: ranks=1,2,3,4 */
#include "../check.h"

static const int sizes[] = {0, 8, 48, 49, 205, 4096, 8193, 32768, 40000, 300000};

static void check_hosts(const char *hosts)
{
    MPI_Comm near;
    int expected = 0, found, least = rank;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near));
    OK(MPI_Comm_size(near, &found));
    for (int other = 0; other < ranks; other++)
        expected += hosts[other] == hosts[rank];
    SAME(found, expected);
    OK(MPI_Bcast(&least, 1, MPI_INT, 0, near));
    SAME(least, (int)(strchr(hosts, hosts[rank]) - hosts));
    OK(MPI_Comm_free(&near));
}

static void exchange(int with)
{
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int bytes = sizes[i];
        unsigned char *out = allocate((size_t)bytes), *in = allocate((size_t)bytes);
        MPI_Status status;
        fill(out, (size_t)bytes, (unsigned)(rank * 100 + with + bytes));
        OK(MPI_Sendrecv(out, bytes, MPI_BYTE, with, 5, in, bytes, MPI_BYTE, with, 5, MPI_COMM_WORLD, &status));
        STATUS(status, with, 5, bytes);
        HOLDS(in, (size_t)bytes, (unsigned)(with * 100 + rank + bytes));
        free(out);
        free(in);
    }
}

/* Only ranks 0 and 1 exchange messages; the other ranks do not even create a communicator. */
static int talk_alone(int *argc, char ***argv)
{
    const char *fifo = (*argv)[2];
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank < 2)
        exchange(1 - rank);
    puts("ready");
    fflush(stdout);
    FILE *end = fopen(fifo, "r"); /* waits for a writer */
    CHECK(end != NULL);
    return finish();
}

int main(int argc, char **argv)
{
    if (argc > 2)
        return talk_alone(&argc, &argv);
    start(&argc, &argv);
    const char *hosts = argc > 1 ? argv[1] : are_apart() ? "ab" : "aaaaaaaa";
    for (int round = 0; round < ranks; round++) {
        int with = (ranks + round - rank) % ranks; /* each pair of ranks once */
        exchange(with);
    }
    check_hosts(hosts);
    meet();
    return finish();
}
