/* A rank waits for the first message of a late rank, which is before MPI_Init, computing, or stopped. The wait
 * continues, and the message arrives. The ranks have exchanged no message before. The rank number is read from the
 * environment that `mpiexec` sets.
 * test: ranks=2,3 args=init;computes;stopped variants=none needs=1 */
#include "../check.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Long enough for several checks whether the rank is alive. */
enum { SECONDS = 2 };

static void compute(void)
{
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec - begin.tv_sec <= SECONDS);
}

/* Stops until a child process continues it. */
static void stop(void)
{
    pid_t child = fork();
    if (child == 0) {
        sleep(SECONDS);
        _exit(kill(getppid(), SIGCONT) != 0);
    }
    int status = -1;
    raise(SIGSTOP);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "", *number = getenv("FASTPATH_RANK");
    int value = -1;
    if (!strcmp(how, "init") && number && !strcmp(number, "1"))
        sleep(SECONDS);
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    if (rank == 1) {
        if (!strcmp(how, "computes"))
            compute();
        if (!strcmp(how, "stopped"))
            stop();
        for (int to = 0; to < ranks; to++)
            if (to != rank)
                OK(MPI_Send(&to, 1, MPI_INT, to, 3, MPI_COMM_WORLD));
    } else {
        OK(MPI_Recv(&value, 1, MPI_INT, rank ? MPI_ANY_SOURCE : 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        SAME(value, rank);
    }
    MPI_Finalize();
    return failures != 0;
}
