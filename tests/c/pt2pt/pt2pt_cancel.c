/* MPI_Cancel: an unmatched receive or send is cancelled and reports it, a matched one completes. Requests posted after
 * it match as if it had not existed.
 * test: ranks=1,2,3,4,8 within=node */
#include "../check.h"
#include <unistd.h>

enum { MODES = 5, LONGEST = 3000000 };
static unsigned char out[MODES][LONGEST], into[LONGEST];

/* Returns whether a send of this mode waits for its receiver, so that it can be cancelled. */
static int waits_for_receiver(int mode, int bytes)
{
    return mode == 1 || mode == 4 || (mode != 2 && bytes >= 400000);
}

/* Starts, cancels and completes a send of each mode, to a rank that receives none of them before they are cancelled. */
static void cancel_each(int bytes, int to, int *cancelled)
{
    MPI_Request sends[MODES];
    MPI_Status status;
    for (int mode = 0; mode < MODES; mode++)
        fill(out[mode], bytes, mode);
    OK(MPI_Isend(out[0], bytes, MPI_BYTE, to, 20, MPI_COMM_WORLD, &sends[0]));
    OK(MPI_Issend(out[1], bytes, MPI_BYTE, to, 21, MPI_COMM_WORLD, &sends[1]));
    OK(MPI_Ibsend(out[2], bytes, MPI_BYTE, to, 22, MPI_COMM_WORLD, &sends[2]));
    OK(MPI_Send_init(out[3], bytes, MPI_BYTE, to, 23, MPI_COMM_WORLD, &sends[3]));
    OK(MPI_Ssend_init(out[4], bytes, MPI_BYTE, to, 24, MPI_COMM_WORLD, &sends[4]));
    OK(MPI_Startall(2, &sends[3]));
    for (int mode = 0; mode < MODES; mode++)
        OK(MPI_Cancel(&sends[mode]));
    OK(MPI_Cancel(&sends[1])); /* a second cancel has no effect */
    for (int mode = 0; mode < MODES; mode++) {
        OK(MPI_Wait(&sends[mode], &status));
        OK(MPI_Test_cancelled(&status, &cancelled[mode]));
        if (waits_for_receiver(mode, bytes))
            SAME(cancelled[mode], 1);
        /* The buffer may be reused. */
        if (cancelled[mode])
            memset(out[mode], 0, bytes);
    }
    OK(MPI_Request_free(&sends[3]));
    OK(MPI_Request_free(&sends[4]));
}

/* Cancelled messages are never received, the others arrive. */
static void receive_rest(int bytes, int from, const int *cancelled)
{
    MPI_Status status;
    int found;
    for (int mode = MODES - 1; mode >= 0; mode--) {
        if (cancelled[mode]) {
            OK(MPI_Iprobe(from, 20 + mode, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
            SAME(found, 0);
        } else {
            OK(MPI_Recv(into, bytes, MPI_BYTE, from, 20 + mode, MPI_COMM_WORLD, &status));
            STATUS(status, from, 20 + mode, bytes);
            HOLDS(into, bytes, mode);
        }
    }
}

static void cancel_sends(int to, int from)
{
    static const int lengths[] = {0, 8, 1000, 30000, 400000, LONGEST};
    for (int i = 0; i < 6; i++) {
        int mine[MODES], theirs[MODES];
        cancel_each(lengths[i], to, mine);
        MPI_Sendrecv(mine, MODES, MPI_INT, to, 1, theirs, MODES, MPI_INT, from, 1, meeting, MPI_STATUS_IGNORE);
        receive_rest(lengths[i], from, theirs);
        meet();
    }
}

/* Hundreds of times, the receiver makes no MPI call until the sender's MPI_Wait has returned. */
static void cancel_unattended(void)
{
    enum { ROUNDS = 600, ROW = 100 };
    static MPI_Request row[ROW];
    static int flags[ROW];
    const char *path = temporary_path("cancelled");
    int cancelled[MODES], sum = 0;
    if (rank == 0) {
        for (int i = 0; i < ROUNDS; i++) {
            MPI_Request send;
            MPI_Status status;
            int flag, bytes = i % 3 ? i : 400000;
            OK(MPI_Issend(out[0], bytes, MPI_BYTE, 1, 25, MPI_COMM_WORLD, &send));
            OK(MPI_Cancel(&send));
            OK(MPI_Wait(&send, &status));
            OK(MPI_Test_cancelled(&status, &flag));
            sum += flag;
        }
        SAME(sum, ROUNDS);
        cancel_each(LONGEST, 1, cancelled);
        /* More messages than the queue holds: the last one sent is incomplete. */
        for (int i = 0; i < ROW; i++) {
            fill(out[0] + 30000 * i, 30000, i);
            OK(MPI_Isend(out[0] + 30000 * i, 30000, MPI_BYTE, 1, 31, MPI_COMM_WORLD, &row[i]));
        }
        for (int i = 0; i < ROW; i++)
            OK(MPI_Cancel(&row[i]));
        for (int i = 0; i < ROW; i++) {
            MPI_Status status;
            OK(MPI_Wait(&row[i], &status));
            OK(MPI_Test_cancelled(&status, &flags[i]));
        }
        if (!getenv("FASTPATH_PROGRESS")) /* the progress thread drains the queue */
            CHECK(flags[ROW - 1]);
        memset(out[0], 0, LONGEST);
        fclose(fopen(path, "w"));
        OK(MPI_Send(cancelled, MODES, MPI_INT, 1, 26, MPI_COMM_WORLD));
        OK(MPI_Send(flags, ROW, MPI_INT, 1, 26, MPI_COMM_WORLD));
    } else if (rank == 1) {
        while (access(path, F_OK) != 0)
            ;
        unlink(path);
        OK(MPI_Recv(cancelled, MODES, MPI_INT, 0, 26, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        receive_rest(LONGEST, 0, cancelled);
        OK(MPI_Recv(flags, ROW, MPI_INT, 0, 26, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; i < ROW; i++)
            if (!flags[i]) {
                OK(MPI_Recv(into, 30000, MPI_BYTE, 0, 31, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                HOLDS(into, 30000, i);
            }
        int found;
        OK(MPI_Iprobe(0, 31, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
        SAME(found, 0);
        OK(MPI_Iprobe(0, 25, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
        SAME(found, 0);
    }
    meet();
}

/* The library's copy of a cancelled send uses no space of the attached buffer, and a flush does not wait for it. */
static void cancel_beside_buffered(int bytes)
{
    enum { ROW = 100 };
    static MPI_Request row[ROW];
    static int flags[ROW];
    static char attached[1000 + MPI_BSEND_OVERHEAD];
    char name[40];
    int size;
    void *buffer;
    snprintf(name, sizeof name, "cancelled_beside_%d", bytes);
    const char *path = temporary_path(name);
    if (rank == 0) {
        OK(MPI_Buffer_attach(attached, sizeof attached));
        for (int i = 0; i < ROW; i++) {
            fill(out[0] + bytes * i, bytes, i);
            OK(MPI_Isend(out[0] + bytes * i, bytes, MPI_BYTE, 1, 32, MPI_COMM_WORLD, &row[i]));
        }
        for (int i = 0; i < ROW; i++)
            OK(MPI_Cancel(&row[i]));
        for (int i = 0; i < ROW; i++) {
            MPI_Status status;
            OK(MPI_Wait(&row[i], &status));
            OK(MPI_Test_cancelled(&status, &flags[i]));
        }
        /* The receiver receives no message yet. */
        OK(MPI_Buffer_detach(&buffer, &size));
        OK(MPI_Buffer_attach(attached, sizeof attached));
        fill(out[1], 1000, 33);
        OK(MPI_Bsend(out[1], 1000, MPI_BYTE, 1, 33, MPI_COMM_WORLD));
        fclose(fopen(path, "w"));
        OK(MPI_Buffer_detach(&buffer, &size));
        CHECK(buffer == attached);
        OK(MPI_Send(flags, ROW, MPI_INT, 1, 34, MPI_COMM_WORLD));
    } else if (rank == 1) {
        while (access(path, F_OK) != 0)
            ;
        unlink(path);
        OK(MPI_Recv(flags, ROW, MPI_INT, 0, 34, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; i < ROW; i++)
            if (!flags[i]) {
                OK(MPI_Recv(into, bytes, MPI_BYTE, 0, 32, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                HOLDS(into, bytes, i);
            }
        OK(MPI_Recv(into, 1000, MPI_BYTE, 0, 33, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        HOLDS(into, 1000, 33);
    }
    meet();
}

/* Some sends of a sequence are cancelled: the others arrive in order. Many wait for credits. */
static void cancel_some(int to, int from)
{
    enum { ROW = 1500 };
    static MPI_Request sends[ROW];
    static int numbers[ROW], flags[ROW], theirs[ROW];
    MPI_Status status;
    for (int i = 0; i < ROW; i++) {
        numbers[i] = i;
        if (i % 3 == 2)
            OK(MPI_Issend(&numbers[i], 1, MPI_INT, to, 27, MPI_COMM_WORLD, &sends[i]));
        else
            OK(MPI_Isend(&numbers[i], 1, MPI_INT, to, 27, MPI_COMM_WORLD, &sends[i]));
    }
    for (int i = ROW - 1; i >= 0; i--)
        if (i % 5)
            OK(MPI_Cancel(&sends[i]));
    for (int i = 0; i < ROW; i++)
        if (i % 5) {
            OK(MPI_Wait(&sends[i], &status));
            OK(MPI_Test_cancelled(&status, &flags[i]));
            CHECK(flags[i] || i % 3 != 2);
        }
    MPI_Sendrecv(flags, ROW, MPI_INT, to, 1, theirs, ROW, MPI_INT, from, 1, meeting, MPI_STATUS_IGNORE);
    for (int i = 0; i < ROW; i++)
        if (!theirs[i]) {
            int number = -1;
            OK(MPI_Recv(&number, 1, MPI_INT, from, 27, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            SAME(number, i);
        }
    for (int i = 0; i < ROW; i += 5)
        OK(MPI_Wait(&sends[i], MPI_STATUS_IGNORE));
}

/* A send is cancelled while its receive is posted: either both complete, or neither. */
static void cancel_in_race(int to, int from)
{
    static const int lengths[] = {4, 3000, 40000, 300000};
    for (int i = 0; i < 2000; i++) {
        int bytes = lengths[i % 4], tag = 100 + i, flag, theirs, found;
        MPI_Request send, receive = MPI_REQUEST_NULL;
        MPI_Status status;
        fill(out[0], bytes, i);
        memset(into, 0, bytes);
        /* The receive is posted before the send, between send and cancel, or after the cancel. */
        int when = (i * 7 + rank * 3) % 5;
        if (when == 0)
            OK(MPI_Irecv(into, bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, &receive));
        OK(MPI_Issend(out[0], bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &send));
        if (when == 1)
            OK(MPI_Iprobe(from, tag, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
        if (when <= 2 && receive == MPI_REQUEST_NULL)
            OK(MPI_Irecv(into, bytes, MPI_BYTE, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &receive));
        OK(MPI_Cancel(&send));
        if (receive == MPI_REQUEST_NULL)
            OK(MPI_Irecv(into, bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, &receive));
        OK(MPI_Wait(&send, &status));
        OK(MPI_Test_cancelled(&status, &flag));
        MPI_Sendrecv(&flag, 1, MPI_INT, to, 1, &theirs, 1, MPI_INT, from, 1, meeting, MPI_STATUS_IGNORE);
        if (theirs)
            OK(MPI_Cancel(&receive));
        OK(MPI_Wait(&receive, &status));
        OK(MPI_Test_cancelled(&status, &flag));
        SAME(flag, theirs);
        if (!theirs)
            HOLDS(into, bytes, i);
    }
}

/* A message taken by a matched probe is matched, one seen by a probe is not. */
static void cancel_probed(int to, int from)
{
    MPI_Request send[2];
    MPI_Message message;
    MPI_Status status;
    int flag, found;
    OK(MPI_Issend(out[0], 10, MPI_BYTE, to, 29, MPI_COMM_WORLD, &send[0]));
    OK(MPI_Issend(out[0], 400000, MPI_BYTE, to, 30, MPI_COMM_WORLD, &send[1]));
    OK(MPI_Mprobe(from, 29, MPI_COMM_WORLD, &message, &status));
    OK(MPI_Probe(from, 30, MPI_COMM_WORLD, &status));
    meet();
    OK(MPI_Cancel(&send[0]));
    OK(MPI_Cancel(&send[1]));
    OK(MPI_Mrecv(into, 10, MPI_BYTE, &message, &status));
    OK(MPI_Wait(&send[0], &status));
    OK(MPI_Test_cancelled(&status, &flag));
    SAME(flag, 0);
    OK(MPI_Wait(&send[1], &status));
    OK(MPI_Test_cancelled(&status, &flag));
    SAME(flag, 1);
    meet();
    OK(MPI_Iprobe(from, 30, MPI_COMM_WORLD, &found, &status));
    SAME(found, 0);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, values[3] = {-1, -1, -1}, cancelled = -1, flag = 0;
    MPI_Request requests[3];
    MPI_Status status;

    for (int wild = 0; wild < 2; wild++) {
        int source = wild ? MPI_ANY_SOURCE : from;
        /* Three receives of the same messages; the middle one is cancelled. */
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

        /* Cancelled after its message has arrived: the message is received, not lost. */
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

    /* A cancelled persistent receive can be started again. */
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

    /* Hundreds of receives, cancelled from the middle outwards. */
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
    if (ranks > 1 && !are_apart()) {
        cancel_beside_buffered(12000);
        cancel_beside_buffered(30000);
    }
    static unsigned char attached[8 * (LONGEST + MPI_BSEND_OVERHEAD)];
    MPI_Buffer_attach(attached, sizeof attached);
    cancel_sends(to, from);
    cancel_some(to, from);
    cancel_in_race(to, from);
    cancel_probed(to, from);
    if (ranks > 1 && !are_apart())
        cancel_unattended();
    void *buffer;
    int size;
    MPI_Buffer_detach(&buffer, &size);
    return finish();
}
