/* A plain ping-pong, with which bench/agreement compares `fastpath bench latency`. */
#include <mpi.h>

#include "samples.h"

static int rank;
static size_t bytes;
static char buffer[1 << 20];

static void round_trip(void) {
    if (rank == 0) {
        MPI_Send(buffer, (int)bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(buffer, (int)bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(buffer, (int)bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(buffer, (int)bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bytes = strtoul(getenv("BYTES"), NULL, 10);
    measure(round_trip, rank == 0);
    if (rank == 0) print_samples("a plain loop", "MPI_Send/MPI_Recv", bytes);
    MPI_Finalize();
}
