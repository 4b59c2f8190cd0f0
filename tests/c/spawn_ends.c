/* How jobs end in which processes were spawned. The first argument says what happens.
 * test: only=build */
#include "check.h"
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    MPI_Comm parent, inter = MPI_COMM_NULL;
    int value = 0;
    const char *how = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        if (strcmp(how, "abort") == 0)
            MPI_Abort(MPI_COMM_WORLD, 9);
        if (strcmp(how, "dies") == 0)
            raise(SIGKILL);
        if (strcmp(how, "fails") == 0)
            MPI_Send(&value, 1, MPI_INT, 5, 0, MPI_COMM_WORLD);
        if (strcmp(how, "hangs") == 0)
            MPI_Recv(&value, 1, MPI_INT, 0, 0, parent, MPI_STATUS_IGNORE);
        MPI_Comm_disconnect(&parent);
        if (strcmp(how, "outlives") == 0) {
            /* Its parents are gone when their processes are. */
            while (kill(atoi(argv[2]), 0) == 0)
                usleep(1000);
            printf("child %d is done\n", rank);
        }
        MPI_Finalize();
        return strcmp(how, "leaves") == 0 ? 4 : 0;
    }
    if (strcmp(how, "accept") == 0) {
        char name[MPI_MAX_PORT_NAME];
        MPI_Open_port(MPI_INFO_NULL, name);
        MPI_Comm_accept(name, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    }
    char own[16];
    snprintf(own, sizeof own, "%d", getpid());
    char *words[] = {(char *)how, own, NULL};
    const char *program = strcmp(how, "silent") == 0 ? "/bin/true" : argv[0];
    MPI_Comm_spawn(program, words, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
    if (strcmp(how, "outlives") == 0 || strcmp(how, "leaves") == 0)
        MPI_Comm_disconnect(&inter);
    else
        MPI_Recv(&value, 1, MPI_INT, 0, 0, inter, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
