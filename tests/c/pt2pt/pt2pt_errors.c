/* Wrong arguments give the right error class and have no effect, and later calls succeed.
 * test: ranks=1,2,4 */
#include "../check.h"

static char data[64];

/* Each line is a call with one wrong argument. `COMM` stands for a valid communicator. */
static void check_pt2pt(MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    MPI_Message message;
    int flag, far = ranks + 5;
    MPI_Datatype raw, freed;

    CLASS(MPI_Send(data, 1, MPI_INT, ranks, 0, comm), MPI_ERR_RANK);
    CLASS(MPI_Send(data, 1, MPI_INT, far, 0, comm), MPI_ERR_RANK);
    CLASS(MPI_Send(data, 1, MPI_INT, -5, 0, comm), MPI_ERR_RANK);
    CLASS(MPI_Send(data, 1, MPI_INT, MPI_ANY_SOURCE, 0, comm), MPI_ERR_RANK);
    CLASS(MPI_Send(data, 1, MPI_INT, rank, -1, comm), MPI_ERR_TAG);
    CLASS(MPI_Send(data, 1, MPI_INT, rank, MPI_ANY_TAG, comm), MPI_ERR_TAG);
    CLASS(MPI_Send(data, -1, MPI_INT, rank, 0, comm), MPI_ERR_COUNT);
    CLASS(MPI_Send(data, 1, MPI_DATATYPE_NULL, rank, 0, comm), MPI_ERR_TYPE);
    CLASS(MPI_Send(NULL, 1, MPI_INT, rank, 0, comm), MPI_ERR_BUFFER);
    CLASS(MPI_Send(data, 1, MPI_INT, rank, 0, MPI_COMM_NULL), MPI_ERR_COMM);
    CLASS(MPI_Ssend(data, 1, MPI_INT, ranks, 0, comm), MPI_ERR_RANK);
    CLASS(MPI_Rsend(data, -3, MPI_INT, rank, 0, comm), MPI_ERR_COUNT);
    CLASS(MPI_Bsend(data, 1, MPI_INT, rank, 0, comm), MPI_ERR_BUFFER); /* no buffer is attached */
    CLASS(MPI_Isend(data, 1, MPI_INT, ranks, 0, comm, &request), MPI_ERR_RANK);
    CLASS(MPI_Isend(data, 1, MPI_INT, rank, -7, comm, &request), MPI_ERR_TAG);
    CLASS(MPI_Issend(data, 1, MPI_DATATYPE_NULL, rank, 0, comm, &request), MPI_ERR_TYPE);
    CLASS(MPI_Ibsend(data, 1, MPI_INT, rank, 0, MPI_COMM_NULL, &request), MPI_ERR_COMM);
    CLASS(MPI_Irsend(NULL, 1, MPI_INT, rank, 0, comm, &request), MPI_ERR_BUFFER);
    CLASS(MPI_Send_init(data, 1, MPI_INT, ranks, 0, comm, &request), MPI_ERR_RANK);
    CLASS(MPI_Recv_init(data, -1, MPI_INT, rank, 0, comm, &request), MPI_ERR_COUNT);

    CLASS(MPI_Recv(data, 1, MPI_INT, ranks, 0, comm, &status), MPI_ERR_RANK);
    CLASS(MPI_Recv(data, 1, MPI_INT, -7, 0, comm, &status), MPI_ERR_RANK);
    CLASS(MPI_Recv(data, 1, MPI_INT, rank, -9, comm, &status), MPI_ERR_TAG);
    CLASS(MPI_Recv(data, -1, MPI_INT, rank, 0, comm, &status), MPI_ERR_COUNT);
    CLASS(MPI_Recv(data, 1, MPI_DATATYPE_NULL, rank, 0, comm, &status), MPI_ERR_TYPE);
    CLASS(MPI_Recv(NULL, 1, MPI_INT, rank, 0, comm, &status), MPI_ERR_BUFFER);
    CLASS(MPI_Recv(data, 1, MPI_INT, rank, 0, MPI_COMM_NULL, &status), MPI_ERR_COMM);
    CLASS(MPI_Irecv(data, 1, MPI_INT, ranks, 0, comm, &request), MPI_ERR_RANK);
    CLASS(MPI_Irecv(data, 1, MPI_INT, rank, -77, comm, &request), MPI_ERR_TAG);
    CLASS(MPI_Irecv(NULL, 1, MPI_INT, rank, 0, comm, &request), MPI_ERR_BUFFER);

    /* Either half of a sendrecv may be wrong; then neither half takes place. */
    CLASS(MPI_Sendrecv(data, 1, MPI_INT, rank, 0, data + 8, 1, MPI_INT, ranks, 0, comm, &status), MPI_ERR_RANK);
    CLASS(MPI_Sendrecv(data, 1, MPI_INT, ranks, 0, data + 8, 1, MPI_INT, rank, 0, comm, &status), MPI_ERR_RANK);
    CLASS(MPI_Sendrecv(data, 1, MPI_INT, rank, 0, data + 8, -1, MPI_INT, rank, 0, comm, &status), MPI_ERR_COUNT);
    CLASS(MPI_Sendrecv(data, 1, MPI_INT, rank, 0, data + 8, 1, MPI_DATATYPE_NULL, rank, 0, comm, &status), MPI_ERR_TYPE);
    CLASS(MPI_Sendrecv(data, 1, MPI_INT, rank, -1, data + 8, 1, MPI_INT, rank, 0, comm, &status), MPI_ERR_TAG);
    CLASS(MPI_Sendrecv_replace(data, 1, MPI_INT, ranks, 0, rank, 0, comm, &status), MPI_ERR_RANK);
    OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status));
    SAME(flag, 0);

    CLASS(MPI_Probe(ranks, 0, comm, &status), MPI_ERR_RANK);
    CLASS(MPI_Iprobe(rank, -9, comm, &flag, &status), MPI_ERR_TAG);
    CLASS(MPI_Mprobe(ranks, 0, comm, &message, &status), MPI_ERR_RANK);
    CLASS(MPI_Improbe(rank, 0, MPI_COMM_NULL, &flag, &message, &status), MPI_ERR_COMM);

    /* An uncommitted type, a freed type, invalid handles. */
    OK(MPI_Type_contiguous(2, MPI_INT, &raw));
    CLASS(MPI_Send(data, 1, raw, rank, 0, comm), MPI_ERR_TYPE);
    CLASS(MPI_Recv(data, 1, raw, rank, 0, comm, &status), MPI_ERR_TYPE);
    freed = raw;
    OK(MPI_Type_free(&raw));
    CLASS(MPI_Send(data, 1, freed, rank, 0, comm), MPI_ERR_TYPE);
    CLASS(MPI_Send(data, 1, (MPI_Datatype)(void *)0x7fffdeadbeef, rank, 0, comm), MPI_ERR_TYPE);
    CLASS(MPI_Send(data, 1, MPI_INT, rank, 0, (MPI_Comm)(void *)0x123456789), MPI_ERR_COMM);
    CLASS(MPI_Send(data, 1, (MPI_Datatype)comm, rank, 0, comm), MPI_ERR_TYPE);
}

static void check_requests(void)
{
    MPI_Request request, copy;
    MPI_Status status;
    int flag, index, value = 3;
    OK(MPI_Irecv(&value, 1, MPI_INT, rank, 1, MPI_COMM_SELF == MPI_COMM_NULL ? MPI_COMM_NULL : MPI_COMM_WORLD, &request));
    OK(MPI_Send(&value, 1, MPI_INT, rank, 1, MPI_COMM_WORLD));
    copy = request;
    OK(MPI_Wait(&request, &status));
    CLASS(MPI_Wait(&copy, &status), MPI_ERR_REQUEST); /* a stale handle */
    CLASS(MPI_Test(&copy, &flag, &status), MPI_ERR_REQUEST);
    CLASS(MPI_Waitany(1, &copy, &index, &status), MPI_ERR_REQUEST);
    CLASS(MPI_Cancel(&copy), MPI_ERR_REQUEST);
    CLASS(MPI_Request_free(&copy), MPI_ERR_REQUEST);
    copy = (MPI_Request)(void *)0x7fff12345678;
    CLASS(MPI_Wait(&copy, &status), MPI_ERR_REQUEST);
    copy = MPI_REQUEST_NULL;
    OK(MPI_Wait(&copy, &status));
    CLASS(MPI_Start(&copy), MPI_ERR_REQUEST);
    CLASS(MPI_Request_free(&copy), MPI_ERR_REQUEST);
    /* A request that is not persistent cannot be started, an active one cannot be started again. */
    OK(MPI_Irecv(&value, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &request));
    CLASS(MPI_Start(&request), MPI_ERR_REQUEST);
    OK(MPI_Send(&value, 1, MPI_INT, rank, 1, MPI_COMM_WORLD));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Recv_init(&value, 1, MPI_INT, rank, 1, MPI_COMM_WORLD, &request));
    OK(MPI_Start(&request));
    CLASS(MPI_Start(&request), MPI_ERR_REQUEST);
    OK(MPI_Send(&value, 1, MPI_INT, rank, 1, MPI_COMM_WORLD));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Request_free(&request));
}

static void check_buffers(void)
{
    static char room[1000 + MPI_BSEND_OVERHEAD];
    void *address;
    int size;
    CLASS(MPI_Buffer_detach(&address, &size), MPI_ERR_BUFFER);
    OK(MPI_Buffer_attach(room, sizeof room));
    CLASS(MPI_Buffer_attach(room, sizeof room), MPI_ERR_BUFFER);
    char *big = allocate(2000);
    CLASS(MPI_Bsend(big, 2000, MPI_BYTE, rank, 0, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    OK(MPI_Bsend(big, 1000, MPI_BYTE, rank, 0, MPI_COMM_WORLD));
    OK(MPI_Recv(big, 1000, MPI_BYTE, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    free(big);
    OK(MPI_Buffer_detach(&address, &size));
    CHECK(address == room);
    SAME(size, sizeof room);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm comm;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN); /* errors without a communicator are raised here */
    check_pt2pt(MPI_COMM_WORLD);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    check_pt2pt(comm);
    MPI_Comm freed = comm;
    OK(MPI_Comm_free(&comm));
    CHECK(comm == MPI_COMM_NULL);
    CLASS(MPI_Send(data, 1, MPI_INT, rank, 0, freed), MPI_ERR_COMM);
    CLASS(MPI_Recv(data, 1, MPI_INT, rank, 0, freed, MPI_STATUS_IGNORE), MPI_ERR_COMM);
    check_requests();
    check_buffers();
    /* Messages still work after all these errors. */
    meet();
    int value = rank, other = -1;
    OK(MPI_Sendrecv(&value, 1, MPI_INT, (rank + 1) % ranks, 0, &other, 1, MPI_INT, (rank + ranks - 1) % ranks, 0,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    SAME(other, (rank + ranks - 1) % ranks);
    return finish();
}
