/* A rank that waits for a computing peer releases its processor: once asleep it takes less than 1 % of it. The peer
 * reads the CPU clock of the waiting process, for 6 s or as many as the argument gives. It repeats the measurement if
 * the value is too high, because the clock of a virtual processor advances while the host does not run it.
 * test: ranks=2 variants=none needs=machine */
#define _GNU_SOURCE
#include "../check.h"

#include <time.h>
#include <unistd.h>

static double processor_seconds(int process)
{
    clockid_t clock;
    struct timespec used = {0, 0};
    SAME(clock_getcpuclockid((pid_t)process, &clock), 0);
    SAME(clock_gettime(clock, &used), 0);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static void compute(int seconds)
{
    struct timespec time = {seconds, 0};
    nanosleep(&time, NULL); /* the waiting rank cannot distinguish this from computing */
}

/* CPU time, in seconds, that process `process` uses while this rank computes for `*waited` seconds. */
static double look(int process, int seconds, double *waited)
{
    double from = MPI_Wtime(), before = processor_seconds(process);
    compute(seconds);
    *waited = MPI_Wtime() - from;
    return processor_seconds(process) - before;
}

int main(int argc, char **argv)
{
    int process = (int)getpid(), seconds = argc > 1 ? atoi(argv[1]) : 6;
    start(&argc, &argv);
    if (rank == 1) {
        OK(MPI_Recv(&process, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        compute(1);
        double waited, took = look(process, seconds, &waited);
        for (int again = 0; again < 3 && took * 100 >= waited; again++)
            took = look(process, seconds, &waited);
        printf("%.1f ms of the processor in %.1f s\n", took * 1e3, waited);
        if (took * 100 >= waited)
            fail(__LINE__, "%g s of the processor in %g s of waiting", took, waited);
        OK(MPI_Send(&process, 1, MPI_INT, 0, 2, MPI_COMM_WORLD));
    } else {
        OK(MPI_Send(&process, 1, MPI_INT, 1, 1, MPI_COMM_WORLD));
        OK(MPI_Recv(&process, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    return finish();
}
