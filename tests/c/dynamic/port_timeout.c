/* MPI_Comm_connect to a port at which no process accepts ends with MPI_ERR_PORT (MPI 5.0, section 11.9.3), and leaves
   the port free; a connection in time is made.
   test: ranks=2,3 env=FASTPATH_CONNECT_TIMEOUT=100ms variants=none */
#include "../check.h"

static char cause[MPI_MAX_ERROR_STRING];

static void note_cause(MPI_Comm *comm, int *code, ...)
{
    int length;
    (void)comm;
    MPI_Error_string(*code, cause, &length);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    char name[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter = MPI_COMM_SELF;
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(note_cause, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    if (rank == 0)
        OK(MPI_Open_port(MPI_INFO_NULL, name));
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 1)
        for (int round = 0; round < 2; round++) {
            CLASS(MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter), MPI_ERR_PORT);
            SAME(inter, MPI_COMM_NULL);
            CHECK(strstr(cause, "within 0.1 s") && strstr(cause, "FASTPATH_CONNECT_TIMEOUT"));
        }
    meet();
    /* The info key takes precedence over the variable. */
    MPI_Info late;
    MPI_Info_create(&late);
    MPI_Info_set(late, "timeout", "3600");
    if (rank == 0)
        OK(MPI_Comm_accept(name, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
    if (rank == 1)
        OK(MPI_Comm_connect(name, late, 0, MPI_COMM_SELF, &inter));
    if (rank < 2)
        OK(MPI_Comm_disconnect(&inter));
    if (rank == 0)
        OK(MPI_Close_port(name));
    MPI_Info_free(&late);
    MPI_Errhandler_free(&handler);
    return finish();
}
