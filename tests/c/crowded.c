/* Rank 1 has no descriptor left when rank 0 connects to it: it says so once, sleeps meanwhile, and takes the connection
 * when it has given some back.
 * test: only=build */
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int held[256], count;

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

static void *give_back(void *unused)
{
    nanosleep(&(struct timespec){1, 0}, NULL);
    while (count > 0)
        close(held[--count]);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int value = 7;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        OK(MPI_Ssend(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD));
    } else {
        CHECK(pthread_create(&thread, NULL, give_back, NULL) == 0);
        struct rlimit few = {200, 200};
        setrlimit(RLIMIT_NOFILE, &few);
        while (count < 256 && (held[count] = open("/dev/null", O_RDONLY)) >= 0)
            count++;
        CHECK(count < 256);
        double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), wall = seconds(CLOCK_MONOTONIC);
        OK(MPI_Recv(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        SAME(value, 7);
        cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        wall = seconds(CLOCK_MONOTONIC) - wall;
        printf("slept: %s\n", cpu < wall / 4 ? "yes" : "no");
        pthread_join(thread, NULL);
    }
    MPI_Finalize();
    return failures != 0;
}
