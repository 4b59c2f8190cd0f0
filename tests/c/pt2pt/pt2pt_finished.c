/* Only rank 0 stays in the job. A send to a finalized rank, or a wait for its messages, returns an error instead of
 * hanging. Messages that the finalized rank has sent before arrive.
 * test: ranks=2,3 mistakes=yes args=send;recv;irecv;test;any;several;probe;sendrecv;silent;collective;partitioned */
#include "../check.h"

static int value;
static unsigned char big[100000];

/* The call fails with a text that contains these words and names the finalized rank. */
#define GONE(call, words) gone(__LINE__, call, words)
static void gone(int line, int code, const char *words)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (class_of(code) != MPI_ERR_OTHER)
        return fail(line, "class %d instead of MPI_ERR_OTHER", class_of(code));
    MPI_Error_string(code, text, &length);
    if (!strstr(text, words) || !strstr(text, "has left the job") + !strstr(text, "have left the job") > 1)
        fail(line, "the text is \"%s\"", text);
}

static void test_send(void)
{
    int code;
    /* Rank 1 finalizes soon; until then messages are sent and lost. */
    do
        code = MPI_Send(&value, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
    while (code == MPI_SUCCESS);
    GONE(code, "rank 1");
    GONE(MPI_Send(big, sizeof big, MPI_BYTE, 1, 3, MPI_COMM_WORLD), "rank 1");
    GONE(MPI_Ssend(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD), "tag 3");
}

static void test_recv(void)
{
    /* Messages of other tags and sizes precede the awaited message, which never arrives. */
    MPI_Status status;
    GONE(MPI_Recv(&value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "rank 1 has left");
    GONE(MPI_Recv(&value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "tag 9");
    OK(MPI_Recv(big, sizeof big, MPI_BYTE, 1, 3, MPI_COMM_WORLD, &status));
    STATUS(status, 1, 3, 30000);
    HOLDS(big, 30000, 3);
    OK(MPI_Recv(&value, 1, MPI_INT, 1, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
    STATUS(status, 1, 1, 4);
    GONE(MPI_Recv(&value, 1, MPI_INT, 1, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
}

static void test_irecv(void)
{
    MPI_Request request[3];
    MPI_Status status[3];
    OK(MPI_Irecv(&value, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, &request[0]));
    GONE(MPI_Wait(&request[0], MPI_STATUS_IGNORE), "MPI_Wait");
    CHECK(request[0] == MPI_REQUEST_NULL);
    OK(MPI_Irecv(&value, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, &request[0]));
    OK(MPI_Irecv(big, sizeof big, MPI_BYTE, 1, 3, MPI_COMM_WORLD, &request[1]));
    OK(MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &request[2]));
    CLASS(MPI_Waitall(3, request, status), MPI_ERR_IN_STATUS);
    SAME(class_of(status[0].MPI_ERROR), MPI_ERR_OTHER);
    SAME(status[1].MPI_ERROR, MPI_SUCCESS);
    SAME(class_of(status[2].MPI_ERROR), MPI_ERR_OTHER);
    STATUS(status[1], 1, 3, 30000);
    OK(MPI_Recv_init(&value, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, &request[0]));
    for (int round = 0; round < 2; round++) {
        OK(MPI_Start(&request[0]));
        GONE(MPI_Wait(&request[0], MPI_STATUS_IGNORE), "rank 1");
    }
    OK(MPI_Request_free(&request[0]));
}

static void test_test(void)
{
    MPI_Request request, both[2];
    int flag = 0, index, count, indices[2];
    while (MPI_Send(&value, 1, MPI_INT, 1, 2, MPI_COMM_WORLD) == MPI_SUCCESS)
        ;
    /* A receive without a possible match is no error while no call waits for it: it may be cancelled. */
    OK(MPI_Irecv(&value, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, &both[0]));
    for (int i = 0; i < 100; i++) {
        OK(MPI_Test(&both[0], &flag, MPI_STATUS_IGNORE));
        CHECK(!flag);
        OK(MPI_Testany(1, both, &index, &flag, MPI_STATUS_IGNORE));
        CHECK(!flag);
    }
    for (int i = 0; i < 3; i++) {
        OK(MPI_Irecv(&value, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, &both[1]));
        OK(MPI_Send(&i, 1, MPI_INT, 0, 9, MPI_COMM_WORLD));
        if (i < 2)
            OK(MPI_Waitany(2, both, &index, MPI_STATUS_IGNORE));
        else {
            OK(MPI_Waitsome(2, both, &count, indices, MPI_STATUSES_IGNORE));
            SAME(count, 1);
            index = indices[0];
        }
        SAME(index, 1);
        SAME(value, i);
    }
    OK(MPI_Cancel(&both[0]));
    OK(MPI_Wait(&both[0], MPI_STATUS_IGNORE));
    /* A receive that rank 0 can still match itself does not fail. */
    OK(MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &request));
    for (int i = 0; i < 100; i++) {
        OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        CHECK(!flag);
    }
    int other = 5;
    OK(MPI_Send(&other, 1, MPI_INT, 0, 8, MPI_COMM_WORLD));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    SAME(value, 5);
    /* The receive can be cancelled. */
    OK(MPI_Irecv(&value, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, &request));
    OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void test_any(void)
{
    MPI_Status status;
    /* The last rank sends this message after rank 1 has finalized. */
    if (ranks > 2) {
        OK(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, &status));
        STATUS(status, 2, 4, 4);
        SAME(value, 44);
    }
    GONE(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "every other rank");
    OK(MPI_Recv(big, sizeof big, MPI_BYTE, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &status));
    STATUS(status, 1, 3, 30000);
    /* A message in flight to the rank itself is not abandoned. */
    MPI_Request request[2];
    static unsigned char own[300000];
    OK(MPI_Isend(own, sizeof own, MPI_BYTE, 0, 6, MPI_COMM_WORLD, &request[0]));
    OK(MPI_Recv(own, sizeof own, MPI_BYTE, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &status));
    STATUS(status, 0, 6, sizeof own);
    OK(MPI_Wait(&request[0], MPI_STATUS_IGNORE));
}

static void test_several(void)
{
    MPI_Request request[2];
    MPI_Status status[2];
    int index, count, indices[2];
    OK(MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &request[0]));
    OK(MPI_Irecv(big, sizeof big, MPI_BYTE, 1, 3, MPI_COMM_WORLD, &request[1]));
    OK(MPI_Waitany(2, request, &index, status));
    SAME(index, 1);
    /* A message to self completes the other receive, which was not failed before. */
    OK(MPI_Send(&index, 1, MPI_INT, 0, 8, MPI_COMM_WORLD));
    OK(MPI_Waitany(2, request, &index, status));
    SAME(index, 0);
    OK(MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &request[0]));
    GONE(MPI_Waitany(2, request, &index, status), "every other rank");
    SAME(index, 0);
    OK(MPI_Irecv(&value, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, &request[0]));
    OK(MPI_Irecv(&value, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, &request[1]));
    for (int left = 2; left > 0; left -= count) {
        CLASS(MPI_Waitsome(2, request, &count, indices, status), MPI_ERR_IN_STATUS);
        SAME(class_of(status[0].MPI_ERROR), MPI_ERR_OTHER);
        CHECK(count > 0);
        if (count <= 0)
            return;
    }
}

static void test_probe(void)
{
    MPI_Status status;
    MPI_Message message;
    int flag;
    OK(MPI_Probe(1, 3, MPI_COMM_WORLD, &status));
    GONE(MPI_Probe(1, 9, MPI_COMM_WORLD, &status), "MPI_Probe");
    GONE(MPI_Mprobe(1, 9, MPI_COMM_WORLD, &message, &status), "tag 9");
    OK(MPI_Mprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &message, &status));
    OK(MPI_Mrecv(big, sizeof big, MPI_BYTE, &message, &status));
    STATUS(status, 1, 3, 30000);
    if (ranks > 2) {
        OK(MPI_Probe(MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, &status));
        SAME(status.MPI_SOURCE, 2);
        OK(MPI_Recv(&value, 1, MPI_INT, 2, 4, MPI_COMM_WORLD, &status));
    }
    GONE(MPI_Probe(MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, &status), "every other rank");
    OK(MPI_Iprobe(1, 9, MPI_COMM_WORLD, &flag, &status));
    CHECK(!flag);
}

static void test_sendrecv(void)
{
    MPI_Request request;
    /* The receive is from the finalized rank, the send goes to this rank. */
    OK(MPI_Irecv(big, 4, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &request));
    GONE(MPI_Sendrecv(&value, 1, MPI_INT, 0, 5, &value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "rank 1");
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Irecv(big, 4, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &request));
    MPI_Request pair;
    OK(MPI_Isendrecv(&value, 1, MPI_INT, 0, 5, &value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, &pair));
    GONE(MPI_Wait(&pair, MPI_STATUS_IGNORE), "rank 1");
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

/* The ranks have never exchanged a message. */
static void test_silent(void)
{
    GONE(MPI_Recv(&value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "rank 1 has left");
    GONE(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "every other rank");
}

static void test_collective(void)
{
    GONE(MPI_Barrier(MPI_COMM_WORLD), "takes no part in this collective call");
}

/* The text must not contain the internal tag of the message that announces the partitions. */
static void test_partitioned(void)
{
    MPI_Request request;
    char text[MPI_MAX_ERROR_STRING];
    int code, length;
    while (MPI_Send(&value, 1, MPI_INT, 1, 2, MPI_COMM_WORLD) == MPI_SUCCESS)
        ;
    code = MPI_Psend_init(&value, 1, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    GONE(code, "MPI_Psend_init");
    MPI_Error_string(code, text, &length);
    CHECK(!strstr(text, "tag -"));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const char *what = argc > 1 ? argv[1] : "";
    const struct { const char *name; void (*run)(void); } all[] = {
        {"send", test_send}, {"recv", test_recv}, {"irecv", test_irecv}, {"test", test_test}, {"any", test_any},
        {"several", test_several}, {"probe", test_probe}, {"sendrecv", test_sendrecv}, {"silent", test_silent},
        {"collective", test_collective}, {"partitioned", test_partitioned},
    };
    if (rank > 0 && strcmp(what, "silent")) {
        if (rank > 1) {
            while (MPI_Send(&value, 1, MPI_INT, 1, 2, MPI_COMM_WORLD) == MPI_SUCCESS)
                ;
            value = 44;
            if (strcmp(what, "any") == 0 || strcmp(what, "probe") == 0)
                OK(MPI_Send(&value, 1, MPI_INT, 0, 4, MPI_COMM_WORLD));
        } else {
            /* The last messages of rank 1 are in flight when it finalizes. */
            fill(big, 30000, 3);
            OK(MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD));
            OK(MPI_Send(big, 30000, MPI_BYTE, 0, 3, MPI_COMM_WORLD));
        }
    }
    int runs = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (rank == 0 && strcmp(what, all[i].name) == 0) {
            all[i].run();
            runs++;
        }
    if (rank == 0 && strcmp(what, "silent") && strcmp(what, "recv")) {
        OK(MPI_Recv(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        SAME(value, 0);
    }
    CHECK(runs == (rank == 0));
    MPI_Finalize();
    return failures ? 1 : 0;
}
