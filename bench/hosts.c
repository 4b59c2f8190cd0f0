/* Half round trips of some sizes and a stream of 1 MiB messages between two ranks, for bench/hosts: a line for each. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LARGEST = 1 << 20, WINDOW = 16, STREAM = 1024 };

static int rank;
static char out[WINDOW][LARGEST], in[WINDOW][LARGEST];

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of half round trips, in microseconds. */
static double trips(int bytes, int count)
{
    double *times = malloc((size_t)count * sizeof *times);
    for (int i = -count / 4; i < count; i++) {
        double began = MPI_Wtime();
        if (rank == 0)
            MPI_Send(out[0], bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(in[0], bytes, MPI_BYTE, !rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(out[0], bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        if (i >= 0)
            times[i] = (MPI_Wtime() - began) * 5e5;
    }
    qsort(times, (size_t)count, sizeof *times, compare);
    double median = times[count / 2];
    free(times);
    return median;
}

/* Rate of 1 MiB messages in MiB/s, with WINDOW of them in flight. */
static double stream(void)
{
    MPI_Request all[WINDOW];
    double began = MPI_Wtime();
    for (int i = 0; i < STREAM; i += WINDOW) {
        for (int j = 0; j < WINDOW; j++)
            if (rank == 0)
                MPI_Isend(out[j], LARGEST, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &all[j]);
            else
                MPI_Irecv(in[j], LARGEST, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &all[j]);
        MPI_Waitall(WINDOW, all, MPI_STATUSES_IGNORE);
    }
    MPI_Sendrecv(out[0], 1, MPI_BYTE, !rank, 3, in[0], 1, MPI_BYTE, !rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return STREAM / (MPI_Wtime() - began);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < WINDOW; i++)
        for (int j = 0; j < LARGEST; j += 4096)
            out[i][j] = in[i][j] = 1;
    double small = trips(8, 4000), middle = trips(65536, 1000), large = trips(LARGEST, 200), rate;
    stream();
    rate = stream();
    if (rank == 0)
        printf("FIGURES %.2f %.1f %.1f %.0f\n", small, middle, large, rate);
    return MPI_Finalize();
}
