/* Attached buffers: of the process, of communicators, automatic ones; which buffer holds a message; flushes that wait
 * and flushes with a request.
 * test: ranks=1,2,3 mistakes=yes */
#include "../check.h"

enum { LONG = 200000 };
static char memory[2 * (LONG + MPI_BSEND_OVERHEAD)], second[LONG + MPI_BSEND_OVERHEAD], message[LONG], got[LONG];

static void check_owners(MPI_Comm comm)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks, size;
    void *address;
    MPI_Comm other;
    MPI_Comm_dup(comm, &other);
    CLASS(MPI_Bsend(message, 100, MPI_CHAR, right, 1, comm), MPI_ERR_BUFFER);
    CLASS(MPI_Comm_detach_buffer(comm, &address, &size), MPI_ERR_BUFFER);
    OK(MPI_Buffer_attach(memory, 100 + MPI_BSEND_OVERHEAD));
    OK(MPI_Comm_attach_buffer(comm, second, sizeof second));
    CLASS(MPI_Comm_attach_buffer(comm, second, sizeof second), MPI_ERR_BUFFER);
    /* The communicator's buffer is large enough, the process's buffer is not. */
    OK(MPI_Bsend(message, LONG, MPI_CHAR, right, 1, comm));
    CLASS(MPI_Bsend(message, LONG, MPI_CHAR, right, 1, other), MPI_ERR_BUFFER);
    OK(MPI_Bsend(message, 100, MPI_CHAR, right, 2, other));
    MPI_Recv(got, LONG, MPI_CHAR, left, 1, comm, MPI_STATUS_IGNORE);
    HOLDS(got, LONG, (unsigned)left);
    MPI_Recv(got, LONG, MPI_CHAR, left, 2, other, MPI_STATUS_IGNORE);
    OK(MPI_Comm_flush_buffer(comm));
    OK(MPI_Comm_flush_buffer(other));
    OK(MPI_Buffer_flush());
    OK(MPI_Comm_detach_buffer(comm, &address, &size));
    CHECK(address == second && size == sizeof second);
    OK(MPI_Buffer_detach(&address, &size));
    CHECK(address == memory && size == 100 + MPI_BSEND_OVERHEAD);
    /* The communicator is freed with its buffer. */
    OK(MPI_Comm_attach_buffer(other, memory, sizeof memory));
    OK(MPI_Bsend(message, LONG, MPI_CHAR, right, 3, other));
    MPI_Recv(got, LONG, MPI_CHAR, left, 3, other, MPI_STATUS_IGNORE);
    OK(MPI_Comm_free(&other));
}

static void check_automatic(MPI_Comm comm)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks, size = -1;
    void *address = NULL;
    MPI_Count large = -1;
    OK(MPI_Comm_attach_buffer(comm, MPI_BUFFER_AUTOMATIC, 0));
    for (int i = 0; i < 20; i++)
        OK(MPI_Bsend(message, LONG, MPI_CHAR, right, i, comm));
    for (int i = 19; i >= 0; i--) {
        memset(got, 0, LONG);
        MPI_Recv(got, LONG, MPI_CHAR, left, i, comm, MPI_STATUS_IGNORE);
        HOLDS(got, LONG, (unsigned)left);
    }
    OK(MPI_Comm_detach_buffer(comm, &address, &size));
    CHECK(address == MPI_BUFFER_AUTOMATIC);
    SAME(size, 0);
    OK(MPI_Buffer_attach_c(MPI_BUFFER_AUTOMATIC, 0));
    OK(MPI_Bsend(message, LONG, MPI_CHAR, right, 1, comm));
    MPI_Recv(got, LONG, MPI_CHAR, left, 1, comm, MPI_STATUS_IGNORE);
    OK(MPI_Buffer_detach_c(&address, &large));
    CHECK(address == MPI_BUFFER_AUTOMATIC && large == 0);
}

/* A flush with a request completes with the messages that were buffered when it was started. */
static void check_flushes(MPI_Comm comm)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks, size, flag = 0;
    void *address;
    MPI_Request flush, none;
    OK(MPI_Comm_iflush_buffer(comm, &none));
    OK(MPI_Wait(&none, MPI_STATUS_IGNORE));
    OK(MPI_Comm_attach_buffer(comm, memory, sizeof memory));
    OK(MPI_Bsend(message, LONG, MPI_CHAR, right, 1, comm));
    OK(MPI_Comm_iflush_buffer(comm, &flush));
    if (ranks > 1)
        OK(MPI_Bsend(message, LONG, MPI_CHAR, right, 2, comm));
    OK(MPI_Buffer_iflush(&none));
    OK(MPI_Wait(&none, MPI_STATUS_IGNORE));
    MPI_Recv(got, LONG, MPI_CHAR, left, 1, comm, MPI_STATUS_IGNORE);
    OK(MPI_Wait(&flush, MPI_STATUS_IGNORE));
    if (ranks > 1) {
        MPI_Recv(got, LONG, MPI_CHAR, left, 2, comm, MPI_STATUS_IGNORE);
        OK(MPI_Comm_iflush_buffer(comm, &flush));
        while (!flag)
            MPI_Test(&flush, &flag, MPI_STATUS_IGNORE);
    }
    OK(MPI_Comm_detach_buffer(comm, &address, &size));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    fill(message, LONG, (unsigned)rank);
    for (int round = 0; round < 3; round++) {
        check_owners(comm);
        check_automatic(comm);
        check_flushes(comm);
    }
    MPI_Comm_free(&comm);
    return finish();
}
