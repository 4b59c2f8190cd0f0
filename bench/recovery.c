/* Times what fault tolerance (ULFM) adds. An MPI with mpi-ext.h runs it.
 *
 * usage: recovery detect|calls|pingpong
 *   detect    The last rank kills itself at a known time while the others wait for its message. Each prints the time
 *             until its receive returns an error, in us. One death each job.
 *   calls     Median time of MPI_Allreduce of 8 B, MPIX_Comm_agree and MPIX_Comm_shrink, in turn, in us
 *   pingpong  Median of half a round trip of 8 B between ranks 0 and 1, in ns
 */
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SAMPLES = 51, CALLS = 50, SHRINKS = 10, PINGS = 20000 };

static int rank, ranks;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *samples)
{
    qsort(samples, SAMPLES, sizeof *samples, compare);
    return samples[SAMPLES / 2];
}

static void detect(void)
{
    int last = ranks - 1, never = 0;
    double death = now() + 0.1;
    MPI_Bcast(&death, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank == last) {
        double left = death - now();
        struct timespec pause = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
        nanosleep(&pause, NULL);
        death = now();
        MPI_Send(&death, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
        raise(SIGKILL);
    }
    if (rank == 0)
        MPI_Recv(&death, 1, MPI_DOUBLE, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int rc = MPI_Recv(&never, 1, MPI_INT, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double seen = now();
    /* Rank 0 knows when the message before the death was sent. */
    for (int to = 1; to < last && rank == 0; to++)
        MPI_Send(&death, 1, MPI_DOUBLE, to, 3, MPI_COMM_WORLD);
    if (rank != 0)
        MPI_Recv(&death, 1, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("detect %d %d %.0f\n", ranks, rc != MPI_SUCCESS, 1e6 * (seen - death));
    fflush(stdout);
}

static void calls(void)
{
    double allreduce[SAMPLES], agree[SAMPLES], shrink[SAMPLES], in = 1, out;
    for (int i = 0; i < SAMPLES; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = now();
        for (int j = 0; j < CALLS; j++)
            MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        allreduce[i] = 1e6 / CALLS * (now() - begun);
        MPI_Barrier(MPI_COMM_WORLD);
        begun = now();
        for (int j = 0; j < CALLS; j++) {
            int flag = 1;
            MPIX_Comm_agree(MPI_COMM_WORLD, &flag);
        }
        agree[i] = 1e6 / CALLS * (now() - begun);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Comm made[SHRINKS];
        begun = now();
        for (int j = 0; j < SHRINKS; j++)
            MPIX_Comm_shrink(MPI_COMM_WORLD, &made[j]);
        shrink[i] = 1e6 / SHRINKS * (now() - begun);
        for (int j = 0; j < SHRINKS; j++)
            MPI_Comm_free(&made[j]);
    }
    if (rank == 0)
        printf("calls %d %.2f %.2f %.2f\n", ranks, median(allreduce), median(agree), median(shrink));
}

static void pingpong(void)
{
    double samples[SAMPLES], data = 0;
    for (int i = 0; i < SAMPLES && rank < 2; i++) {
        double begun = now();
        for (int j = 0; j < PINGS; j++) {
            if (rank == 0)
                MPI_Send(&data, 1, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(&data, 1, MPI_DOUBLE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1)
                MPI_Send(&data, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
        }
        samples[i] = 1e9 / PINGS / 2 * (now() - begun);
    }
    if (rank == 0)
        printf("pingpong %.1f\n", median(samples));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "detect"))
        detect();
    else if (!strcmp(what, "calls"))
        calls();
    else if (!strcmp(what, "pingpong"))
        pingpong();
    MPI_Finalize();
    return 0;
}
