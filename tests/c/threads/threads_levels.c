/* Ranks of one job at different thread levels, and one that initialises MPI late.
 * test: ranks=1,2,3,4 */
#include "../check.h"
#include <unistd.h>

static void exchange(MPI_Comm comm)
{
    int me, size, got = -1;
    static unsigned char out[100000], in[100000];
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &size);
    int to = (me + 1) % size, from = (me + size - 1) % size;
    OK(MPI_Sendrecv(&me, 1, MPI_INT, to, 1, &got, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, MPI_STATUS_IGNORE));
    SAME(got, from);
    fill(out, sizeof out, (unsigned)me);
    OK(MPI_Sendrecv(out, sizeof out, MPI_BYTE, to, 2, in, sizeof in, MPI_BYTE, from, 2, comm, MPI_STATUS_IGNORE));
    HOLDS(in, sizeof in, (unsigned)from);
    OK(MPI_Barrier(comm));
}

int main(int argc, char **argv)
{
    const int levels[] = {MPI_THREAD_MULTIPLE, MPI_THREAD_MULTIPLE, MPI_THREAD_SINGLE, MPI_THREAD_MULTIPLE};
    const char *text = getenv("FASTPATH_RANK");
    int provided, number = text ? atoi(text) % 4 : 0;
    MPI_Comm comms[4];
    MPI_Request request;
    if (number == 1)
        usleep(200000); /* late: the other ranks are at the first call that needs this rank */
    MPI_Init_thread(&argc, &argv, levels[number], &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]));
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank < 2, -rank, &comms[1]));
    OK(MPI_Comm_idup(comms[1], &comms[2], &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Comm_dup(comms[1], &comms[3]));
    for (int i = 0; i < 4; i++)
        exchange(comms[i]);
    for (int i = 0; i < 4; i++)
        OK(MPI_Comm_free(&comms[i]));
    return finish();
}
