/* Messages of one sender that match the same receive arrive in the order sent, for all sizes, and an earlier receive
 * matches first. A random schedule of sends and receives is compared with a naive model of matching. After all sends,
 * every third receive blocks, behind the posted ones. Every rank sends to every rank and itself; all ranks compute the
 * model from one seed.
 * test: ranks=1,2,3,4,8 timeout=120 */
#include "../check.h"

#define ROUNDS 60
#define MESSAGES 40
#define TAGS 4
#define LARGEST 70000

static unsigned state;
static unsigned next(unsigned below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

static const int sizes[] = {0, 4, 8, 48, 49, 100, 4096, 8192, 8193, 20000, LARGEST};

struct message {
    int tag, bytes, taken;
    unsigned seed;
};

struct receive {
    int source, tag; /* arguments of the receive, perhaps wildcards */
    int matched;     /* message assigned by the model */
    int blocks;
    unsigned char *buffer;
};

static struct message messages[8][MESSAGES];

/* Messages that each rank sends to rank `to` in this round. Messages of at least 4 bytes contain their number. */
static void plan_messages(int round, int to)
{
    for (int from = 0; from < ranks; from++) {
        state = (unsigned)(round * 10007 + from * 101 + to);
        for (int i = 0; i < MESSAGES; i++) {
            messages[from][i].tag = (int)next(TAGS);
            messages[from][i].bytes = sizes[next(sizeof sizes / sizeof *sizes)];
            messages[from][i].seed = (unsigned)(from * 1000 + i);
            messages[from][i].taken = 0;
        }
    }
}

/* Receives from named sources: the model is exact, because the senders are independent of each other. */
static int plan_receives(int round, struct receive *receives)
{
    int count = 0;
    state = (unsigned)(round * 7919 + rank * 13 + 5);
    for (int left = ranks * MESSAGES; left > 0; left--) {
        struct receive *one = &receives[count];
        int from = (int)next((unsigned)ranks), i = -1, wild = next(4) == 0;
        while (1) {
            int tag = (int)next(TAGS);
            for (i = 0; i < MESSAGES; i++)
                if (!messages[from][i].taken && (wild || messages[from][i].tag == tag))
                    break;
            if (i < MESSAGES)
                break;
            from = (from + 1) % ranks;
        }
        messages[from][i].taken = 1;
        one->source = from;
        one->tag = wild ? MPI_ANY_TAG : messages[from][i].tag;
        one->matched = i;
        one->buffer = NULL;
        count++;
    }
    return count;
}

static void send_all(int round, MPI_Request *requests, unsigned char **buffers)
{
    int made = 0;
    for (int i = 0; i < MESSAGES; i++)
        for (int to = 0; to < ranks; to++) {
            plan_messages(round, to);
            struct message *one = &messages[rank][i];
            buffers[made] = allocate((size_t)one->bytes);
            fill(buffers[made], (size_t)one->bytes, one->seed);
            OK(MPI_Isend(buffers[made], one->bytes, MPI_BYTE, to, one->tag, MPI_COMM_WORLD, &requests[made]));
            made++;
        }
}

static void check_receive(const struct receive *one, const MPI_Status *status)
{
    const struct message *expected = &messages[one->source][one->matched];
    check_status(__LINE__, status, one->source, expected->tag, expected->bytes);
    HOLDS(one->buffer, (size_t)expected->bytes, expected->seed);
}

static void run_round(int round)
{
    int total = ranks * MESSAGES;
    MPI_Request *sends = allocate(sizeof(MPI_Request) * (size_t)total), *pending = allocate(sizeof(MPI_Request) * (size_t)total);
    unsigned char **buffers = allocate(sizeof(char *) * (size_t)total);
    struct receive *receives = allocate(sizeof(struct receive) * (size_t)total);
    MPI_Status *statuses = allocate(sizeof(MPI_Status) * (size_t)total);
    MPI_Status *blocking = allocate(sizeof(MPI_Status) * (size_t)total);

    /* A third of the rounds sends first, a third posts first, a third mixes both. */
    if (round % 3 == 0)
        send_all(round, sends, buffers);
    if (round % 6 == 0)
        meet();
    plan_messages(round, rank);
    plan_receives(round, receives);
    for (int i = 0; i < total; i++) {
        if (round % 3 == 2 && i == total / 2)
            send_all(round, sends, buffers);
        receives[i].buffer = allocate(LARGEST);
        receives[i].blocks = round % 3 == 0 && (i + round / 3) % 3 == 0;
        if (receives[i].blocks) {
            OK(MPI_Recv(receives[i].buffer, LARGEST, MPI_BYTE, receives[i].source, receives[i].tag, MPI_COMM_WORLD, &blocking[i]));
            pending[i] = MPI_REQUEST_NULL;
        } else {
            OK(MPI_Irecv(receives[i].buffer, LARGEST, MPI_BYTE, receives[i].source, receives[i].tag, MPI_COMM_WORLD, &pending[i]));
        }
    }
    if (round % 3 == 1)
        send_all(round, sends, buffers);
    OK(MPI_Waitall(total, pending, statuses));
    plan_messages(round, rank);
    for (int i = 0; i < total; i++) {
        check_receive(&receives[i], receives[i].blocks ? &blocking[i] : &statuses[i]);
        free(receives[i].buffer);
    }
    OK(MPI_Waitall(total, sends, MPI_STATUSES_IGNORE));
    for (int i = 0; i < total; i++)
        free(buffers[i]);
    free(blocking);
    free(statuses);
    free(receives);
    free(buffers);
    free(pending);
    free(sends);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int round = 0; round < ROUNDS / (ranks > 4 ? 4 : 1); round++)
        run_round(round);
    return finish();
}
