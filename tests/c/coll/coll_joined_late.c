/* test: ranks=2,3 args=barrier;bcast;start mistakes=yes
   A rank waits in MPI_Finalize for a collective call that the others enter later. This is valid and not reported. */
#include "../check.h"
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

int main(int argc, char **argv)
{
    static char data[1 << 20];
    const char *how = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Comm_rank(world, &rank);
    MPI_Request request;
    if (!strcmp(how, "start")) {
        MPI_Barrier_init(world, MPI_INFO_NULL, &request);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    /* The last rank calls late, when the others are in MPI_Finalize, and makes no MPI call before that. */
    double until = now() + 0.15 * rank;
    while (rank && now() < until)
        ;
    if (!strcmp(how, "start"))
        MPI_Start(&request);
    else if (!strcmp(how, "bcast"))
        MPI_Ibcast(data, sizeof data, MPI_BYTE, 0, world, &request);
    else
        MPI_Ibarrier(world, &request);
    if (rank)
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Finalize());
    return failures != 0;
}
