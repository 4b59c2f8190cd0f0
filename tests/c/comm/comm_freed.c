/* A communicator is freed while requests use it. Until the last of these requests is freed, the
 * communicator's error handler gets their errors and its context is not reused.
 * test: ranks=1,2,3 */
#include "../check.h"

static int calls, seen;

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    calls++;
    seen = class_of(*code);
}

/* Errors of persistent and other requests go to the error handler of their communicator. */
static void test_handler(int to, int from)
{
    MPI_Comm dup;
    MPI_Errhandler own;
    MPI_Request in, out, plain;
    int small = 0, big[4] = {1, 2, 3, 4};
    MPI_Comm_create_errhandler(handler, &own);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    OK(MPI_Comm_set_errhandler(dup, own));
    OK(MPI_Errhandler_free(&own));
    OK(MPI_Recv_init(&small, 1, MPI_INT, from, 1, dup, &in));
    OK(MPI_Send_init(big, 4, MPI_INT, to, 1, dup, &out));
    OK(MPI_Irecv(&small, 1, MPI_INT, from, 2, dup, &plain));
    meet();
    OK(MPI_Send(big, 4, MPI_INT, to, 2, dup));
    OK(MPI_Comm_free(&dup));
    for (int round = 0; round < 2; round++) {
        OK(MPI_Start(&in));
        OK(MPI_Start(&out));
        CLASS(MPI_Wait(&in, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
        OK(MPI_Wait(&out, MPI_STATUS_IGNORE));
        SAME(calls, round + 1);
        SAME(seen, MPI_ERR_TRUNCATE);
    }
    seen = 0;
    CLASS(MPI_Wait(&plain, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    SAME(calls, 3);
    OK(MPI_Request_free(&in));
    OK(MPI_Request_free(&out));
}

/* Creates more communicators than there are contexts, while a receive waits on a freed one. */
static void test_context(void)
{
    MPI_Comm freed, comm;
    MPI_Request waiting, last, next;
    int got = -1, value, one = 1;
    OK(MPI_Comm_dup(MPI_COMM_SELF, &freed));
    OK(MPI_Recv_init(&got, 1, MPI_INT, 0, 7, freed, &waiting));
    OK(MPI_Send_init(&one, 1, MPI_INT, 0, 7, freed, &last));
    OK(MPI_Comm_free(&freed));
    OK(MPI_Start(&waiting));
    for (int i = 0; i < 540000; i++) {
        if (MPI_Comm_dup(MPI_COMM_SELF, &comm) != MPI_SUCCESS)
            return fail(__LINE__, "no communicator %d", i);
        int flag;
        MPI_Send(&i, 1, MPI_INT, 0, 7, comm);
        MPI_Irecv(&value, 1, MPI_INT, 0, 7, comm, &next);
        MPI_Test(&next, &flag, MPI_STATUS_IGNORE);
        if (!flag || value != i)
            return fail(__LINE__, "communicator %d has the context of one that was freed", i);
        MPI_Comm_free(&comm);
    }
    OK(MPI_Start(&last));
    OK(MPI_Wait(&last, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&waiting, MPI_STATUS_IGNORE));
    SAME(got, 1);
    OK(MPI_Request_free(&last));
    OK(MPI_Request_free(&waiting));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    test_handler((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    if (ranks == 1)
        test_context();
    return finish();
}
