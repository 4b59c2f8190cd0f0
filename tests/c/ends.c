/* One rank ends in the way that the arguments say, after all have met; the others wait for it for ever. For launchers
 * that are not ours.
 * usage: ends RANK kill|exit|exit0|_exit|abort|error|waits|finalized|none
 * test: only=build */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void end(const char *how)
{
    if (!strcmp(how, "kill"))
        raise(SIGKILL);
    if (!strcmp(how, "exit"))
        exit(7);
    if (!strcmp(how, "exit0"))
        exit(0);
    if (!strcmp(how, "_exit"))
        _exit(7);
    if (!strcmp(how, "abort"))
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (!strcmp(how, "error"))
        MPI_Send(NULL, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
}

/* Runs after the handlers of `exit`, as a destructor of C++ does, in time to finalize MPI. */
__attribute__((destructor)) static void finalize_late(void)
{
    int done, begun;
    MPI_Initialized(&begun);
    MPI_Finalized(&done);
    if (getenv("ENDS_LATE") && begun && !done)
        MPI_Finalize();
}

int main(int argc, char **argv)
{
    int rank, ended = argc > 1 ? atoi(argv[1]) : -1;
    const char *how = argc > 2 ? argv[2] : "none";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (getenv("ENDS_LATE"))
        exit(0);
    if (!strcmp(how, "finalized") || !strcmp(how, "none")) {
        int *appnum, *universe, flag;
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &flag);
        printf("appnum %d, ", flag ? *appnum : -1);
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &flag);
        printf("universe %d\n", flag ? *universe : -1);
        MPI_Finalize();
        /* What a rank does after that is its own affair. */
        return !strcmp(how, "finalized") && rank == ended ? 3 : 0;
    }
    if (rank == ended)
        end(how);
    /* The one that is waited for waits for the first of the others. */
    int source = rank == ended ? (ended == 0) : ended;
    MPI_Recv(&rank, 1, MPI_INT, source, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
