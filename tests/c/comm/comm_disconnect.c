/* MPI_Comm_disconnect returns after all communication on the communicator is complete: kept and freed receives,
 * receives from any source, sends, nonblocking collective calls. Inactive requests do not delay it.
 * test: ranks=1,2,3,4 */
#include "../check.h"

enum { ROUNDS = 60, LARGE = 1 << 20 };

static const int sizes[] = {8, 5000, LARGE};

/* Every other rank sends to rank 0, which calls only MPI_Comm_disconnect. */
static void test_receives(int round, int is_freed, int is_any)
{
    static char in[4][LARGE], out[LARGE];
    int size = sizes[round % 3], made = 0;
    MPI_Comm dup;
    MPI_Request requests[4];
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    if (rank) {
        memset(out, rank, (size_t)size);
        for (volatile int i = 0; i < rank * round * 500; i++)
            ;
        OK(MPI_Send(out, size, MPI_CHAR, 0, 0, dup));
        OK(MPI_Comm_disconnect(&dup));
        return;
    }
    for (int peer = 1; peer < ranks; peer++) {
        memset(in[made], 0, (size_t)size);
        OK(MPI_Irecv(in[made], size, MPI_CHAR, is_any ? MPI_ANY_SOURCE : peer, 0, dup, &requests[made]));
        if (is_freed)
            OK(MPI_Request_free(&requests[made]));
        made++;
    }
    OK(MPI_Comm_disconnect(&dup));
    for (int i = 0, sum = 0; i < made; i++) {
        CHECK(in[i][0] != 0);
        SAME(in[i][size - 1], in[i][0]);
        sum += in[i][0];
        if (i == made - 1)
            SAME(sum, ranks * (ranks - 1) / 2);
    }
    if (!is_freed)
        OK(MPI_Waitall(made, requests, MPI_STATUSES_IGNORE));
}

static void test_sends(void)
{
    static char out[LARGE], in[LARGE];
    MPI_Comm dup;
    MPI_Request request;
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    memset(out, rank + 1, LARGE);
    OK(MPI_Issend(out, LARGE, MPI_CHAR, to, 0, dup, &request));
    OK(MPI_Request_free(&request));
    OK(MPI_Irecv(in, LARGE, MPI_CHAR, from, 0, dup, &request));
    OK(MPI_Comm_disconnect(&dup));
    memset(out, 0, LARGE);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    SAME(in[0], from + 1);
    SAME(in[LARGE - 1], from + 1);
}

static void test_collectives(void)
{
    MPI_Comm dup;
    MPI_Request requests[3], inactive;
    int one = 1, sum = 0, word = rank ? 0 : 17, all[4];
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    OK(MPI_Recv_init(&word, 1, MPI_INT, MPI_ANY_SOURCE, 3, dup, &inactive));
    OK(MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, dup, &requests[0]));
    OK(MPI_Ibcast(&word, 1, MPI_INT, 0, dup, &requests[1]));
    OK(MPI_Iallgather(&rank, 1, MPI_INT, all, 1, MPI_INT, dup, &requests[2]));
    OK(MPI_Comm_disconnect(&dup));
    SAME(sum, ranks);
    SAME(word, 17);
    SAME(all[ranks - 1], ranks - 1);
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Request_free(&inactive));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int round = 0; round < ROUNDS; round++) {
        for (int kind = 0; kind < 4; kind++)
            test_receives(round, kind & 1, kind & 2);
        test_sends();
        test_collectives();
    }
    return finish();
}
