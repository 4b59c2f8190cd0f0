/* Cancelling receives: one that nothing has matched is taken back and says so, one that has matched completes, and what
 * was posted behind it moves up.
 * test: ranks=1,2,3,4 */
#include "check.h"

/* A send is not taken back, in no mode and of no length: it completes as if MPI_Cancel had not been called, and its
 * message arrives. */
static void cancel_sends(int to, int from)
{
    enum { LENGTHS = 4, MODES = 5 };
    static const int lengths[LENGTHS] = {8, 1000, 30000, 400000};
    static unsigned char out[MODES][400000], into[400000], attached[4000000];
    MPI_Request sends[MODES], in;
    MPI_Status statuses[MODES], status;
    int cancelled;
    MPI_Buffer_attach(attached, sizeof attached);
    for (int i = 0; i < LENGTHS; i++) {
        int n = lengths[i];
        for (int mode = 0; mode < MODES; mode++)
            fill(out[mode], n, mode);
        OK(MPI_Isend(out[0], n, MPI_BYTE, to, 20, MPI_COMM_WORLD, &sends[0]));
        OK(MPI_Issend(out[1], n, MPI_BYTE, to, 21, MPI_COMM_WORLD, &sends[1]));
        OK(MPI_Ibsend(out[2], n, MPI_BYTE, to, 22, MPI_COMM_WORLD, &sends[2]));
        OK(MPI_Send_init(out[3], n, MPI_BYTE, to, 23, MPI_COMM_WORLD, &sends[3]));
        OK(MPI_Ssend_init(out[4], n, MPI_BYTE, to, 24, MPI_COMM_WORLD, &sends[4]));
        OK(MPI_Startall(2, &sends[3]));
        for (int mode = 0; mode < MODES; mode++)
            OK(MPI_Cancel(&sends[mode]));
        for (int mode = MODES - 1; mode >= 0; mode--) {
            OK(MPI_Irecv(into, n, MPI_BYTE, from, 20 + mode, MPI_COMM_WORLD, &in));
            OK(MPI_Wait(&in, &status));
            STATUS(status, from, 20 + mode, n);
            HOLDS(into, n, mode);
        }
        for (int mode = 0; mode < MODES; mode++) {
            OK(MPI_Wait(&sends[mode], &statuses[mode]));
            OK(MPI_Test_cancelled(&statuses[mode], &cancelled));
            SAME(cancelled, 0);
        }
        OK(MPI_Request_free(&sends[3]));
        OK(MPI_Request_free(&sends[4]));
    }
    void *buffer;
    int size;
    MPI_Buffer_detach(&buffer, &size);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, values[3] = {-1, -1, -1}, cancelled = -1, flag = 0;
    MPI_Request requests[3];
    MPI_Status status;

    for (int wild = 0; wild < 2; wild++) {
        int source = wild ? MPI_ANY_SOURCE : from;
        /* Three receives of the same messages; the middle one is taken back. */
        for (int i = 0; i < 3; i++)
            OK(MPI_Irecv(&values[i], 1, MPI_INT, source, 5, MPI_COMM_WORLD, &requests[i]));
        OK(MPI_Cancel(&requests[1]));
        CHECK(requests[1] != MPI_REQUEST_NULL);
        OK(MPI_Wait(&requests[1], &status));
        OK(MPI_Test_cancelled(&status, &cancelled));
        SAME(cancelled, 1);
        CHECK(requests[1] == MPI_REQUEST_NULL);
        SAME(values[1], -1);
        meet();
        for (int i = 0; i < 2; i++)
            OK(MPI_Send(&i, 1, MPI_INT, to, 5, MPI_COMM_WORLD));
        OK(MPI_Wait(&requests[0], &status));
        OK(MPI_Test_cancelled(&status, &cancelled));
        SAME(cancelled, 0);
        OK(MPI_Wait(&requests[2], &status));
        SAME(values[0], 0);
        SAME(values[2], 1);
        STATUS(status, from, 5, 4);
        values[0] = values[2] = -1;
        meet();

        /* Cancelled after its message has come: it is received, not lost. */
        OK(MPI_Irecv(&values[0], 1, MPI_INT, source, 6, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Send(&rank, 1, MPI_INT, to, 6, MPI_COMM_WORLD));
        do
            OK(MPI_Request_get_status(requests[0], &flag, MPI_STATUS_IGNORE));
        while (!flag);
        OK(MPI_Cancel(&requests[0]));
        OK(MPI_Wait(&requests[0], &status));
        OK(MPI_Test_cancelled(&status, &cancelled));
        SAME(cancelled, 0);
        SAME(values[0], from);
        STATUS(status, from, 6, 4);
        values[0] = -1;
    }

    /* A persistent receive: cancelled, it can be started again. */
    meet();
    OK(MPI_Recv_init(&values[0], 1, MPI_INT, from, 7, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Start(&requests[0]));
    OK(MPI_Cancel(&requests[0]));
    OK(MPI_Wait(&requests[0], &status));
    OK(MPI_Test_cancelled(&status, &cancelled));
    SAME(cancelled, 1);
    OK(MPI_Start(&requests[0]));
    meet();
    OK(MPI_Send(&rank, 1, MPI_INT, to, 7, MPI_COMM_WORLD));
    OK(MPI_Wait(&requests[0], &status));
    OK(MPI_Test_cancelled(&status, &cancelled));
    SAME(cancelled, 0);
    SAME(values[0], from);
    OK(MPI_Request_free(&requests[0]));

    /* Hundreds, taken back from the middle outwards. */
    enum { MANY = 500 };
    static MPI_Request many[MANY];
    static int numbers[MANY];
    static MPI_Status statuses[MANY];
    for (int i = 0; i < MANY; i++)
        OK(MPI_Irecv(&numbers[i], 1, MPI_INT, i % 2 ? MPI_ANY_SOURCE : from, 8, MPI_COMM_WORLD, &many[i]));
    for (int i = 0; i < MANY; i++)
        if (i % 5)
            OK(MPI_Cancel(&many[(i + MANY / 2) % MANY]));
    meet();
    for (int i = 0; i < MANY / 5; i++)
        OK(MPI_Send(&i, 1, MPI_INT, to, 8, MPI_COMM_WORLD));
    OK(MPI_Waitall(MANY, many, statuses));
    int received = 0;
    for (int i = 0; i < MANY; i++) {
        OK(MPI_Test_cancelled(&statuses[i], &cancelled));
        SAME(cancelled, (i + MANY / 2) % MANY % 5 != 0);
        if (!cancelled)
            SAME(numbers[i], received++);
    }
    SAME(received, MANY / 5);
    cancel_sends(to, from);
    return finish();
}
