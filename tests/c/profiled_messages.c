/* Messages of known numbers and sizes, for the profiler among the examples: each rank sends to itself and to the next.
 * test: only=build */
#include "check.h"

/* Bytes, and how often. */
static const int kinds[][2] = {{8, 10}, {2000, 5}, {1 << 20, 3}};

static void send_all(int from, int to)
{
    static char out[1 << 20], into[1 << 20];
    MPI_Request request;
    for (int kind = 0; kind < 3; kind++)
        for (int i = 0; i < kinds[kind][1]; i++) {
            OK(MPI_Isend(out, kinds[kind][0], MPI_BYTE, to, kind, MPI_COMM_WORLD, &request));
            OK(MPI_Recv(into, kinds[kind][0], MPI_BYTE, from, kind, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    send_all(rank, rank);
    if (ranks > 1)
        send_all((rank + ranks - 1) % ranks, (rank + 1) % ranks);
    return finish();
}
