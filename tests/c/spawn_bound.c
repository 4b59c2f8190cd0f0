/* Room for spawned processes. The first argument is the number of rounds, the second one how children end that have
 * disconnected; or, for `full`, they stay until there is no room.
 * test: only=build */
#include "check.h"
#include <signal.h>
#include <unistd.h>

static int spawn(char *program, const char *how, int count, MPI_Comm *inter)
{
    char *words[] = {"0", (char *)how, NULL};
    return MPI_Comm_spawn(program, words, count, MPI_INFO_NULL, 0, MPI_COMM_SELF, inter, MPI_ERRCODES_IGNORE);
}

static void part(MPI_Comm *inter)
{
    int own, there, sum = 0;
    MPI_Comm_rank(*inter, &own);
    MPI_Comm_remote_size(*inter, &there);
    OK(MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, *inter));
    SAME(sum, there * (there - 1) / 2);
    OK(MPI_Comm_disconnect(inter));
}

/* Two worlds of two take all the room. */
static void fill_up(char *program)
{
    MPI_Comm worlds[2], more = MPI_COMM_NULL;
    char text[MPI_MAX_ERROR_STRING];
    int length, code;
    for (int i = 0; i < 2; i++)
        OK(spawn(program, "well", 2, &worlds[i]));
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    code = spawn(program, "well", 1, &more);
    SAME(class_of(code), MPI_ERR_SPAWN);
    MPI_Error_string(code, text, &length);
    printf("%s\n", text);
    code = spawn(program, "well", 5, &more);
    SAME(class_of(code), MPI_ERR_SPAWN);
    part(&worlds[0]);
    OK(spawn(program, "well", 2, &worlds[0]));
    CLASS(spawn(program, "well", 1, &more), MPI_ERR_SPAWN);
    for (int i = 0; i < 2; i++)
        part(&worlds[i]);
    OK(spawn(program, "well", 4, &more));
    part(&more);
}

int main(int argc, char **argv)
{
    MPI_Comm parent, inter;
    MPI_Init(&argc, &argv);
    const char *how = argv[2];
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        part(&parent);
        if (strcmp(how, "dies") == 0)
            raise(SIGKILL);
        if (strcmp(how, "exits") == 0)
            _exit(0);
        return finish();
    }
    if (strcmp(how, "full") == 0)
        fill_up(argv[0]);
    for (int round = 0, most = atoi(argv[1]); round < most; round++) {
        OK(spawn(argv[0], how, 2, &inter));
        part(&inter);
    }
    printf("goes on\n");
    return finish();
}
