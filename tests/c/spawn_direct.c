/* What comes while a job runs, under a launcher that is not ours: a port within a host, the name of a service where the
 * launcher keeps such (argument `names`), and an error that says what to do for the rest.
 * test: only=build */
#include "check.h"

/* What a refusal says. */
static void check_refused(int line, int code, int class, const char *word)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    if (class_of(code) != class || !strstr(text, word))
        fail(line, "class %d: %s", class_of(code), text);
}

int main(int argc, char **argv)
{
    char port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME] = "";
    int names = argc > 1 && !strcmp(argv[1], "names"), code, codes[2] = {-1, -1};
    MPI_Comm inter;
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    if (rank == 0)
        OK(MPI_Open_port(MPI_INFO_NULL, port));
    OK(MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD));
    if (rank == 0) {
        code = MPI_Publish_name("a service", MPI_INFO_NULL, port);
        if (names)
            OK(code);
        else
            check_refused(__LINE__, code, MPI_ERR_OTHER, "does not keep names of services");
    }
    meet();
    if (rank == ranks - 1) {
        code = MPI_Lookup_name("a service", MPI_INFO_NULL, found);
        if (names) {
            OK(code);
            CHECK(!strcmp(found, port));
            CLASS(MPI_Lookup_name("nobody's", MPI_INFO_NULL, found), MPI_ERR_NAME);
            CLASS(MPI_Publish_name("a service", MPI_INFO_NULL, port), MPI_ERR_SERVICE);
            CLASS(MPI_Unpublish_name("nobody's", MPI_INFO_NULL, port), MPI_ERR_SERVICE);
            CLASS(MPI_Unpublish_name("a service", MPI_INFO_NULL, "another"), MPI_ERR_SERVICE);
        } else {
            check_refused(__LINE__, code, MPI_ERR_OTHER, "does not keep names of services");
        }
    }
    meet();
    if (rank == 0 && names)
        OK(MPI_Unpublish_name("a service", MPI_INFO_NULL, port));
    if (rank == 0)
        OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
    else if (rank == ranks - 1)
        OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
    if (rank == 0 || rank == ranks - 1) {
        int word = rank, other = -1;
        OK(MPI_Sendrecv(&word, 1, MPI_INT, 0, 1, &other, 1, MPI_INT, 0, 1, inter, MPI_STATUS_IGNORE));
        SAME(other, ranks - 1 - rank);
        OK(MPI_Comm_disconnect(&inter));
    }
    code = MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes);
    if (rank == 0)
        check_refused(__LINE__, code, MPI_ERR_SPAWN, "mpiexec");
    else
        CLASS(code, MPI_ERR_SPAWN);
    SAME(class_of(codes[1]), MPI_ERR_SPAWN);
    return finish();
}
