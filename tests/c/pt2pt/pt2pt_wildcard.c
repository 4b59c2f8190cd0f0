/* Receives with MPI_ANY_SOURCE and MPI_ANY_TAG, mixed with exact ones. The receive posted first matches first, each
 * message is received once, those of one sender in order, and the status is right.
 * test: ranks=1,2,3,4,8 timeout=120 */
#include "../check.h"

#define MESSAGES 300

static const int sizes[] = {4, 8, 48, 60, 5000, 9000, 40000};

static int size_of(int from, int i)
{
    return sizes[(from * 7 + i * 3) % 7];
}

/* All ranks send to rank `root`, which receives everything with blocking wildcard receives. */
static void receive_wild(int root, int any_tag, MPI_Comm comm)
{
    static unsigned char buffer[40000];
    MPI_Status status;
    int seen[8] = {0};
    if (rank == root)
        for (int i = 0; i < MESSAGES * (ranks - 1); i++) {
            OK(MPI_Recv(buffer, sizeof buffer, MPI_BYTE, MPI_ANY_SOURCE, any_tag ? MPI_ANY_TAG : 5, comm, &status));
            int from = status.MPI_SOURCE, expected = seen[from]++;
            STATUS(status, from, any_tag ? expected % 50 : 5, size_of(from, expected));
            HOLDS(buffer, (size_t)size_of(from, expected), (unsigned)(from + expected));
        }
    else
        for (int i = 0; i < MESSAGES; i++) {
            fill(buffer, (size_t)size_of(rank, i), (unsigned)(rank + i));
            OK(MPI_Send(buffer, size_of(rank, i), MPI_BYTE, root, any_tag ? i % 50 : 5, comm));
        }
}

/* The four kinds of receive are posted in turn; each message matches the first that accepts it. Rank 0 receives from
 * rank `from`, which waits until all are posted. */
static void match_in_posting_order(int from, MPI_Comm comm)
{
    MPI_Request requests[4];
    MPI_Status statuses[4];
    int values[4], value, token = 0;
    if (rank == 0) {
        OK(MPI_Irecv(&values[0], 1, MPI_INT, MPI_ANY_SOURCE, 7, comm, &requests[0]));
        OK(MPI_Irecv(&values[1], 1, MPI_INT, from, MPI_ANY_TAG, comm, &requests[1]));
        OK(MPI_Irecv(&values[2], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[2]));
        OK(MPI_Irecv(&values[3], 1, MPI_INT, from, 7, comm, &requests[3]));
    }
    if (rank == 0 && from != 0)
        MPI_Send(&token, 1, MPI_INT, from, 8, comm);
    if (rank == from) {
        int tags[] = {9, 7, 7, 7}; /* they match receive 1, receive 0, receive 2 and receive 3 */
        if (from != 0)
            MPI_Recv(&token, 1, MPI_INT, 0, 8, comm, MPI_STATUS_IGNORE);
        for (value = 0; value < 4; value++)
            OK(MPI_Send(&value, 1, MPI_INT, 0, tags[value], comm));
    }
    if (rank == 0) {
        OK(MPI_Waitall(4, requests, statuses));
        SAME(values[1], 0);
        SAME(values[0], 1);
        SAME(values[2], 2);
        SAME(values[3], 3);
        STATUS(statuses[1], from, 9, 4);
        STATUS(statuses[2], from, 7, 4);
    }
}

/* Unexpected messages are found in order of arrival: exact receives from the middle, then the rest. */
static void take_unexpected_in_order(int from, MPI_Comm comm)
{
    int value, tags[] = {1, 2, 3, 2, 1, 3};
    MPI_Status status;
    if (rank == from)
        for (value = 0; value < 6; value++)
            OK(MPI_Send(&value, 1, MPI_INT, 0, 100 + tags[value], comm));
    if (rank == from)
        OK(MPI_Send(NULL, 0, MPI_INT, 0, 200, comm));
    if (rank == 0) {
        OK(MPI_Recv(NULL, 0, MPI_INT, from, 200, comm, &status)); /* now all are unexpected */
        STATUS(status, from, 200, 0);
        OK(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 102, comm, &status));
        SAME(value, 1);
        STATUS(status, from, 102, 4);
        OK(MPI_Recv(&value, 1, MPI_INT, from, 103, comm, &status));
        SAME(value, 2);
        int rest[] = {0, 3, 4, 5};
        for (int i = 0; i < 4; i++) {
            OK(MPI_Recv(&value, 1, MPI_INT, i % 2 ? MPI_ANY_SOURCE : from, MPI_ANY_TAG, comm, &status));
            SAME(value, rest[i]);
            STATUS(status, from, 100 + tags[rest[i]], 4);
        }
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int root = 0; root < ranks; root++) {
        receive_wild(root, 0, MPI_COMM_WORLD);
        meet();
        receive_wild(root, 1, comm);
        meet();
    }
    for (int from = 0; from < ranks; from++) {
        for (int i = 0; i < 20; i++)
            match_in_posting_order(from, comm);
        meet();
        for (int i = 0; i < 20; i++)
            take_unexpected_in_order(from, comm);
        meet();
    }
    /* A wildcard receive on one communicator sees no message of another communicator. */
    int value = 17, flag = 1;
    MPI_Request request;
    MPI_Status status;
    OK(MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &request));
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % ranks, 3, &value, 1, MPI_INT, (rank + ranks - 1) % ranks,
                    MPI_ANY_TAG, MPI_COMM_WORLD, &status));
    SAME(value, (rank + ranks - 1) % ranks);
    OK(MPI_Test(&request, &flag, &status));
    SAME(flag, 0);
    meet();
    OK(MPI_Send(&rank, 1, MPI_INT, (rank + 1) % ranks, 4, comm));
    OK(MPI_Wait(&request, &status));
    STATUS(status, (rank + ranks - 1) % ranks, 4, 4);
    OK(MPI_Comm_free(&comm));
    return finish();
}
