/* Messages of 8 to 32 KiB by blocking calls, often enough that the protocol changes. Buffers are rewritten or not;
 * receivers wait, are late, use wildcards, receive less, or probe; both ranks send at once.
 * test: ranks=2,3,4,8 timeout=120 */
#include "../check.h"

enum { MOST = 32768, ROUNDS = 300 };
static const int sizes[] = {8192, 12288, 16384, 24576, 32767, 32768};
static unsigned char *out, *in;

/* Rank pairs 0-1, 2-3, ...; the last rank of an odd number has no partner. */
static int partner(void)
{
    int other = rank ^ 1;
    return other < ranks ? other : -1;
}

/* A ping-pong. The buffer is written every `every` rounds, 0 for once. */
static void ping_pong(int n, int every)
{
    int other = partner(), first = rank < other;
    unsigned mine = 0, theirs = 0;
    for (int i = 0; i < ROUNDS; i++) {
        if (i == 0 || (every && i % every == 0)) {
            mine = (unsigned)(n + i * 2 + rank), theirs = (unsigned)(n + i * 2 + other);
            fill(out, (size_t)n, mine);
        }
        if (first)
            OK(MPI_Send(out, n, MPI_BYTE, other, 1, MPI_COMM_WORLD));
        memset(in, 0xee, 64);
        OK(MPI_Recv(in, n, MPI_BYTE, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        HOLDS(in, (size_t)n, theirs);
        if (!first)
            OK(MPI_Send(out, n, MPI_BYTE, other, 1, MPI_COMM_WORLD));
    }
}

/* Both ranks send several messages before either receives: no send may wait for its receive. */
static void at_once(int n)
{
    int other = partner();
    for (int i = 0; i < ROUNDS; i++) {
        int several = 1 + i % 3;
        for (int k = 0; k < several; k++) {
            fill(out, (size_t)n, (unsigned)(i + k + rank));
            OK(MPI_Send(out, n, MPI_BYTE, other, k, MPI_COMM_WORLD));
        }
        for (int k = several - 1; k >= 0; k--) { /* not in the order of the sends */
            OK(MPI_Recv(in, n, MPI_BYTE, other, k, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            HOLDS(in, (size_t)n, (unsigned)(i + k + other));
        }
    }
}

/* One-way messages to a receiver that is sometimes late, by every kind of receive. */
static void one_way(int n)
{
    int other = partner();
    for (int i = 0; i < ROUNDS; i++) {
        unsigned seed = (unsigned)(i / 7);
        if (rank < other) {
            if (i % 7 == 0)
                fill(out, (size_t)n, seed);
            OK(MPI_Send(out, n, MPI_BYTE, other, 3, MPI_COMM_WORLD));
            if (i % 50 == 49)
                OK(MPI_Recv(in, 0, MPI_BYTE, other, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            continue;
        }
        MPI_Status status;
        MPI_Message message;
        MPI_Request request;
        int count = -1;
        memset(in, 0xee, (size_t)n);
        switch (i % 6) {
        case 0:
            OK(MPI_Recv(in, n, MPI_BYTE, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &status));
            break;
        case 1:
            OK(MPI_Mprobe(other, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status));
            OK(MPI_Mrecv(in, n, MPI_BYTE, &message, &status));
            break;
        case 2:
            OK(MPI_Irecv(in, n, MPI_BYTE, other, 3, MPI_COMM_WORLD, &request));
            OK(MPI_Wait(&request, &status));
            break;
        case 3:
            for (volatile int spin = 0; spin < 20000; spin++)
                ;
            OK(MPI_Recv(in, n, MPI_BYTE, other, 3, MPI_COMM_WORLD, &status));
            break;
        default:
            OK(MPI_Recv(in, MOST, MPI_BYTE, other, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        }
        SAME(status.MPI_SOURCE, other);
        SAME(status.MPI_TAG, 3);
        OK(MPI_Get_count(&status, MPI_BYTE, &count));
        SAME(count, n);
        HOLDS(in, (size_t)n, seed);
        if (i % 50 == 49)
            OK(MPI_Send(in, 0, MPI_BYTE, other, 4, MPI_COMM_WORLD));
    }
}

/* Receives with too small buffers report truncation and write nothing beyond them. */
static void truncated(int n)
{
    int other = partner();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < ROUNDS; i++) {
        if (rank < other) {
            fill(out, (size_t)n, 5);
            OK(MPI_Send(out, n, MPI_BYTE, other, 5, MPI_COMM_WORLD));
            OK(MPI_Recv(in, 0, MPI_BYTE, other, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            continue;
        }
        int room = i % 4 == 0 ? n - 100 : n;
        memset(in, 0xee, MOST);
        CLASS(MPI_Recv(in, room, MPI_BYTE, other, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE), room < n ? MPI_ERR_TRUNCATE : MPI_SUCCESS);
        HOLDS(in, (size_t)room, 5);
        if (room < n)
            SAME(in[room], 0xee);
        OK(MPI_Send(in, 0, MPI_BYTE, other, 6, MPI_COMM_WORLD));
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    out = allocate(MOST);
    in = allocate(MOST);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes && partner() >= 0; k++) {
        ping_pong(sizes[k], 0);
        ping_pong(sizes[k], 1);
        ping_pong(sizes[k], 3);
        if (sizes[k] <= 24576) /* eager under every setting; MPI guarantees less */
            at_once(sizes[k]);
        one_way(sizes[k]);
        truncated(sizes[k]);
    }
    free(out);
    free(in);
    return finish();
}
