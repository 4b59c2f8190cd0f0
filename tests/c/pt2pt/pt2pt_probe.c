/* Probe, Iprobe, Mprobe, Improbe: each reports what a receive would match, for every size and mode, with and without
 * wildcards. A message taken by a matched probe is not received by another call.
 * test: ranks=1,2,3,4,8 */
#include "../check.h"

static const int sizes[] = {0, 1, 8, 48, 49, 4096, 8192, 8193, 32768, 100000, 1 << 20};
#define SIZES ((int)(sizeof sizes / sizeof *sizes))
#define LARGEST (1 << 20)
static unsigned char *out, *in;

/* The sender's half: a message of each size, every second one synchronous. */
static void send_all(int to, int tag, MPI_Request *requests)
{
    for (int i = 0; i < SIZES; i++)
        OK((i % 2 ? MPI_Issend : MPI_Isend)(out, sizes[i], MPI_BYTE, to, tag + i, MPI_COMM_WORLD, &requests[i]));
}

/* Waits for a message with one of four probes; the matched probes return it. */
static MPI_Message look(int way, int source, int tag, MPI_Status *status)
{
    MPI_Message message = MPI_MESSAGE_NULL;
    int flag = 0;
    switch (way) {
    case 0:
        OK(MPI_Probe(source, tag, MPI_COMM_WORLD, status));
        break;
    case 1:
        while (!flag)
            OK(MPI_Iprobe(source, tag, MPI_COMM_WORLD, &flag, status));
        break;
    case 2:
        OK(MPI_Mprobe(source, tag, MPI_COMM_WORLD, &message, status));
        CHECK(message != MPI_MESSAGE_NULL && message != MPI_MESSAGE_NO_PROC);
        break;
    default:
        while (!flag)
            OK(MPI_Improbe(source, tag, MPI_COMM_WORLD, &flag, &message, status));
        CHECK(message != MPI_MESSAGE_NULL && message != MPI_MESSAGE_NO_PROC);
    }
    return message;
}

static void receive_all(int from, int tag)
{
    MPI_Status status, again;
    for (int k = 0; k < SIZES; k++) {
        int i = SIZES - 1 - k; /* last first: the others precede it in the unexpected queue */
        for (int way = 0; way < 2; way++) {
            look(way, from, tag + i, &status);
            STATUS(status, from, tag + i, sizes[i]);
            look(way, MPI_ANY_SOURCE, tag + i, &status);
            STATUS(status, from, tag + i, sizes[i]);
        }
        memset(in, 0, (size_t)sizes[i]);
        if (i % 3 == 0) {
            OK(MPI_Recv(in, sizes[i], MPI_BYTE, from, tag + i, MPI_COMM_WORLD, &again));
        } else {
            MPI_Message message = look(2 + i % 2, i % 5 ? from : MPI_ANY_SOURCE, tag + i, &status);
            STATUS(status, from, tag + i, sizes[i]);
            int flag = 1;
            OK(MPI_Iprobe(from, tag + i, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
            SAME(flag, 0); /* the message is no longer available for matching */
            if (i % 4 == 1) {
                MPI_Request request;
                OK(MPI_Imrecv(in, sizes[i], MPI_BYTE, &message, &request));
                CHECK(message == MPI_MESSAGE_NULL);
                OK(MPI_Wait(&request, &again));
            } else {
                OK(MPI_Mrecv(in, sizes[i], MPI_BYTE, &message, &again));
            }
            CHECK(message == MPI_MESSAGE_NULL);
        }
        STATUS(again, from, tag + i, sizes[i]);
        HOLDS(in, (size_t)sizes[i], (unsigned)from);
    }
}

/* A posted receive matches before a probe: the probe does not see its message. */
static void post_before_probe(void)
{
    int value = -1, flag = 1, to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Request request;
    OK(MPI_Irecv(&value, 1, MPI_INT, from, 60, MPI_COMM_WORLD, &request));
    OK(MPI_Send(&rank, 1, MPI_INT, to, 60, MPI_COMM_WORLD));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    SAME(value, from);
    meet();
    OK(MPI_Iprobe(from, 60, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    SAME(flag, 0);
}

/* Matched messages of one source may be received in any order; later messages are unaffected. */
static void take_two(void)
{
    int values[3] = {-1, -1, -1}, to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Message messages[2];
    MPI_Request requests[3];
    for (int i = 0; i < 3; i++) {
        values[i] = i;
        OK(MPI_Isend(&values[i], 1, MPI_INT, to, 61, MPI_COMM_WORLD, &requests[i]));
    }
    int got[3];
    OK(MPI_Mprobe(from, 61, MPI_COMM_WORLD, &messages[0], MPI_STATUS_IGNORE));
    OK(MPI_Mprobe(MPI_ANY_SOURCE, 61, MPI_COMM_WORLD, &messages[1], MPI_STATUS_IGNORE));
    OK(MPI_Recv(&got[2], 1, MPI_INT, from, 61, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Mrecv(&got[1], 1, MPI_INT, &messages[1], MPI_STATUS_IGNORE));
    OK(MPI_Mrecv(&got[0], 1, MPI_INT, &messages[0], MPI_STATUS_IGNORE));
    for (int i = 0; i < 3; i++)
        SAME(got[i], i);
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
}

static void probe_proc_null(void)
{
    MPI_Status status;
    MPI_Message message = MPI_MESSAGE_NULL;
    int flag = 0;
    OK(MPI_Probe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status));
    STATUS(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    OK(MPI_Iprobe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &flag, &status));
    SAME(flag, 1);
    STATUS(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    OK(MPI_Mprobe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &message, &status));
    CHECK(message == MPI_MESSAGE_NO_PROC);
    OK(MPI_Mrecv(in, 5, MPI_BYTE, &message, &status));
    STATUS(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    CHECK(message == MPI_MESSAGE_NULL);
    flag = 0;
    OK(MPI_Improbe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &flag, &message, &status));
    SAME(flag, 1);
    CHECK(message == MPI_MESSAGE_NO_PROC);
    MPI_Request request;
    OK(MPI_Imrecv(in, 5, MPI_BYTE, &message, &request));
    OK(MPI_Wait(&request, &status));
    STATUS(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
}

/* A matched message that is longer than the buffer is truncated and removed. */
static void truncate_matched(void)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    int lengths[] = {100, 20000};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 2; i++) {
        MPI_Message message;
        MPI_Request request;
        OK(MPI_Isend(out, lengths[i], MPI_BYTE, to, 62, MPI_COMM_WORLD, &request));
        OK(MPI_Mprobe(from, 62, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
        memset(in, 0x77, 100);
        CLASS(MPI_Mrecv(in, 50, MPI_BYTE, &message, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
        SAME(in[50], 0x77);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    out = allocate(LARGEST);
    in = allocate(LARGEST);
    fill(out, LARGEST, (unsigned)rank);
    for (int distance = 0; distance < ranks; distance++) {
        MPI_Request requests[SIZES];
        int tag = 1000 * (distance + 1);
        send_all((rank + distance) % ranks, tag, requests);
        receive_all((rank + ranks - distance) % ranks, tag);
        OK(MPI_Waitall(SIZES, requests, MPI_STATUSES_IGNORE));
    }
    post_before_probe();
    take_two();
    probe_proc_null();
    truncate_matched();
    free(in);
    free(out);
    return finish();
}
