/* Progress: a rank that waits in any call progresses all its other operations.
 * test: ranks=2,3,4,8 */
#include "../check.h"

#define BIG (1 << 21)
static unsigned char *out, *in;

/* Rank 0 starts a long send to rank 1 and waits for a message of the last rank, which is sent after rank 1 has the
 * whole message. `way`: how rank 0 waits. */
static void wait_elsewhere(int way)
{
    int last = ranks - 1, word = 0, flag = 0;
    MPI_Request request, other;
    MPI_Status status;
    if (rank == 0) {
        fill(out, BIG, (unsigned)way);
        OK(MPI_Isend(out, BIG, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request));
        switch (way) {
        case 0:
            OK(MPI_Recv(&word, 1, MPI_INT, last, 2, MPI_COMM_WORLD, &status));
            break;
        case 1:
            OK(MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &status));
            break;
        case 2:
            OK(MPI_Probe(last, 2, MPI_COMM_WORLD, &status));
            OK(MPI_Recv(&word, 1, MPI_INT, last, 2, MPI_COMM_WORLD, &status));
            break;
        case 3:
            while (!flag)
                OK(MPI_Iprobe(last, 2, MPI_COMM_WORLD, &flag, &status));
            OK(MPI_Recv(&word, 1, MPI_INT, last, 2, MPI_COMM_WORLD, &status));
            break;
        case 4:
            OK(MPI_Irecv(&word, 1, MPI_INT, last, 2, MPI_COMM_WORLD, &other));
            while (!flag)
                OK(MPI_Test(&other, &flag, &status));
            break;
        default:
            OK(MPI_Sendrecv(&word, 0, MPI_INT, MPI_PROC_NULL, 2, &word, 1, MPI_INT, last, 2, MPI_COMM_WORLD, &status));
        }
        SAME(word, 42);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    if (rank == 1) {
        OK(MPI_Recv(in, BIG, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        HOLDS(in, BIG, (unsigned)way);
        word = 42;
        if (last != 1)
            OK(MPI_Send(&word, 1, MPI_INT, last, 3, MPI_COMM_WORLD));
        else
            OK(MPI_Send(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD));
    }
    if (rank == last && last != 1) {
        OK(MPI_Recv(&word, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Send(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD));
    }
    meet();
}

/* Buffered sends complete although their sender waits for something else. */
static void buffered_leave(void)
{
    int size = 4 * (BIG / 4 + MPI_BSEND_OVERHEAD), word = 0;
    void *buffer = allocate((size_t)size), *back;
    OK(MPI_Buffer_attach(buffer, size));
    if (rank == 0) {
        fill(out, BIG / 4, 77);
        for (int i = 0; i < 4; i++)
            OK(MPI_Bsend(out, BIG / 4, MPI_BYTE, 1, 4, MPI_COMM_WORLD));
        memset(out, 0, BIG / 4); /* the send has copied the buffer */
        OK(MPI_Recv(&word, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    if (rank == 1) {
        for (int i = 0; i < 4; i++) {
            OK(MPI_Recv(in, BIG / 4, MPI_BYTE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            HOLDS(in, BIG / 4, 77);
        }
        OK(MPI_Send(&word, 1, MPI_INT, 0, 5, MPI_COMM_WORLD));
    }
    OK(MPI_Buffer_detach(&back, &size));
    free(buffer);
    meet();
}

/* A buffered or standard message that is not yet received is delivered while its sender is in MPI_Finalize. */
static void send_and_leave(void)
{
    static unsigned char room[300000];
    OK(MPI_Buffer_attach(room, sizeof room));
    fill(out, 200000, 5);
    if (rank % 2 == 0 && rank + 1 < ranks)
        OK(MPI_Bsend(out, 200000, MPI_BYTE, rank + 1, 6, MPI_COMM_WORLD));
    if (rank % 2) {
        OK(MPI_Recv(in, 200000, MPI_BYTE, rank - 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        HOLDS(in, 200000, 5);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    out = allocate(BIG);
    in = allocate(BIG);
    for (int way = 0; way < 6; way++)
        wait_elsewhere(way);
    buffered_leave();
    send_and_leave();
    return finish();
}
