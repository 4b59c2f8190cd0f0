/* A rank receives more slowly than others send to it. Its unexpected messages take no more memory than allowed, the
 * senders wait, no message is lost, and each program that completes without the bound completes with it.
 * test: ranks=2,3,4 timeout=120 env=FASTPATH_UNEXPECTED_MAX=64K stderr=any */
#include "../check.h"

enum { BLOCK = 500, MANY = 5000, NEVER = 30000, GO = 30001 };

/* Value in kilobytes of a line in /proc/self/status. */
static long memory(const char *name)
{
    char line[200];
    long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)))
            kilobytes = atol(line + strlen(name));
    if (file)
        fclose(file);
    return kilobytes;
}

/* The receiver polls for another message three times before each receive, and receives each block last first. */
static void receive_slowly(int messages)
{
    long before = memory("VmRSS:");
    for (int at = 0; at < messages; at++) {
        int block = at / BLOCK, tag = BLOCK - 1 - at % BLOCK, found, value = -1;
        if (rank == 0) {
            value = at;
            OK(MPI_Send(&value, 1, MPI_INT, 1, at % BLOCK, MPI_COMM_WORLD));
            continue;
        }
        for (int look = 0; look < 3; look++) {
            OK(MPI_Iprobe(0, NEVER, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
            CHECK(!found);
        }
        OK(MPI_Recv(&value, 1, MPI_INT, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        SAME(value, block * BLOCK + tag);
    }
    long grown = memory("VmHWM:") - before;
    if (grown > 16 << 10)
        fail(__LINE__, "memory has grown by %ld KiB", grown);
}

static void send_many(int to, int last_to)
{
    MPI_Request requests[MANY];
    static int values[MANY];
    for (int i = 0; i < MANY; i++) {
        values[i] = i;
        OK(MPI_Isend(&values[i], 1, MPI_INT, to, i % 7, MPI_COMM_WORLD, &requests[i]));
    }
    OK(MPI_Send(&rank, 1, MPI_INT, last_to, GO, MPI_COMM_WORLD));
    OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
}

static void receive_many(int from)
{
    int value, next[7] = {0, 1, 2, 3, 4, 5, 6};
    for (int tag = 6; tag >= 0; tag--)
        for (; next[tag] < MANY; next[tag] += 7) {
            OK(MPI_Recv(&value, 1, MPI_INT, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            SAME(value, next[tag]);
        }
}

/* The message received first was sent after all the others. */
static void ask_for_the_last(int polls)
{
    int value = -1, flag = 0;
    MPI_Request request;
    if (rank == 0)
        send_many(1, 1);
    if (rank == 1) {
        OK(MPI_Irecv(&value, 1, MPI_INT, polls ? 0 : MPI_ANY_SOURCE, GO, MPI_COMM_WORLD, &request));
        while (polls && !flag)
            OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        if (!flag)
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        SAME(value, 0);
        receive_many(0);
    }
}

/* The message received first is from a rank that waits for the sender of all the others. */
static void ask_another(void)
{
    int value = -1;
    if (rank == 0)
        send_many(1, 2);
    if (rank == 2) {
        OK(MPI_Recv(&value, 1, MPI_INT, 0, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Send(&value, 1, MPI_INT, 1, GO, MPI_COMM_WORLD));
    }
    if (rank == 1) {
        OK(MPI_Recv(&value, 1, MPI_INT, 2, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        receive_many(0);
    }
}

/* Both ranks send before they receive, and synchronize in between. */
static void flood_each_other(void)
{
    if (rank < 2)
        send_many(1 - rank, 1 - rank);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank < 2) {
        int value;
        OK(MPI_Recv(&value, 1, MPI_INT, 1 - rank, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        receive_many(1 - rank);
    }
}

/* Messages of every kind, received last first. */
static void send_all_kinds(void)
{
    static const int sizes[] = {0, 1, 48, 49, 200, 8192, 40000, 300000};
    enum { COUNT = 400, KINDS = sizeof sizes / sizeof *sizes };
    MPI_Request requests[COUNT];
    unsigned char *data[COUNT];
    if (rank > 1)
        return;
    for (int i = COUNT - 1; i >= 0; i--)
        data[i] = allocate((size_t)sizes[i % KINDS]);
    for (int i = 0; i < COUNT && rank == 0; i++) {
        size_t bytes = (size_t)sizes[i % KINDS];
        fill(data[i], bytes, (unsigned)i);
        if (i % 3)
            OK(MPI_Isend(data[i], (int)bytes, MPI_BYTE, 1, i, MPI_COMM_WORLD, &requests[i]));
        else
            OK(MPI_Issend(data[i], (int)bytes, MPI_BYTE, 1, i, MPI_COMM_WORLD, &requests[i]));
    }
    for (int i = COUNT - 1; i >= 0 && rank == 1; i--) {
        MPI_Status status;
        size_t bytes = (size_t)sizes[i % KINDS];
        if (i % 5 == 0) {
            OK(MPI_Probe(0, i, MPI_COMM_WORLD, &status));
            STATUS(status, 0, i, (MPI_Count)bytes);
        }
        OK(MPI_Recv(data[i], (int)bytes, MPI_BYTE, 0, i, MPI_COMM_WORLD, &status));
        STATUS(status, 0, i, (MPI_Count)bytes);
        HOLDS(data[i], bytes, (unsigned)i);
    }
    if (rank == 0)
        OK(MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < COUNT; i++)
        free(data[i]);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int messages = argc > 1 ? atoi(argv[1]) : 0;
    int is_slow = getenv("FASTPATH_CHECK") || getenv("FASTPATH_DISABLE") || getenv("FASTPATH_WAIT");
    if (!messages)
        messages = ranks == 2 && !is_slow ? 2000000 : 100000;
    if (rank < 2)
        receive_slowly(messages);
    meet();
    ask_for_the_last(1);
    meet();
    ask_for_the_last(0);
    meet();
    if (ranks > 2)
        ask_another();
    meet();
    flood_each_other();
    meet();
    send_all_kinds();
    meet();
    return finish();
}
