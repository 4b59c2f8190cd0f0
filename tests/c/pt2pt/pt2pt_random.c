/* Random programs of sends, receives, probes, matched probes and cancels on every rank, concurrent and out of order,
 * compared with the matching rules (MPI 5.0, section 3.5). A message is received once. Of two messages of one sender
 * that a receive accepts, the one sent first matches. Of two receives that accept a message, the one posted first
 * matches. The arguments are the first seed and the number of programs.
 * test: ranks=1,2,3,4,8 timeout=120 args=1;500 */
#include "../check.h"

enum { ROUNDS = 12, SENDS = 120, COMMS = 2, TAGS = 3, MOST = 40000, RECEIVES = 4 * SENDS * 8 };

/* A message in its sender's program. All ranks know all programs. */
struct message { int to, comm, tag, bytes, way; };
/* A receive, in posting order; `got` is the number of its message, -1 while it waits. */
struct receive { int from, comm, tag, source, got; MPI_Request request; unsigned char *data; };

static MPI_Comm comms[COMMS];
static struct message plans[8][SENDS];
static struct receive receives[RECEIVES];
static int posted, arrived, expected, taken_by[8][SENDS];

static unsigned draw(unsigned long long *state, unsigned below)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((*state >> 33) % below);
}

static void plan(unsigned seed)
{
    static const int sizes[] = {8, 8, 8, 30, 48, 49, 500, 8000, 9000, MOST};
    expected = 0;
    for (int from = 0; from < ranks; from++) {
        unsigned long long state = seed * 1000u + (unsigned)from;
        for (int i = 0; i < SENDS; i++) {
            struct message *m = &plans[from][i];
            m->to = (int)draw(&state, (unsigned)ranks);
            m->comm = draw(&state, 4) == 0;
            m->tag = (int)draw(&state, TAGS);
            m->bytes = sizes[draw(&state, 10)];
            m->way = (int)draw(&state, 3);
            expected += m->to == rank;
            taken_by[from][i] = -1;
        }
    }
}

static int accepts(const struct receive *r, int from, int number)
{
    const struct message *m = &plans[from][number];
    return m->to == rank && m->comm == r->comm && (r->from == MPI_ANY_SOURCE || r->from == from) &&
           (r->tag == MPI_ANY_TAG || r->tag == m->tag);
}

/* A receive has got a message that it accepts, and that no other receive got. */
static void identify(int index, const MPI_Status *status)
{
    struct receive *r = &receives[index];
    int names[2];
    memcpy(names, r->data, sizeof names);
    if (names[0] < 0 || names[0] >= ranks || names[1] < 0 || names[1] >= SENDS) {
        fail(__LINE__, "receive %d got nonsense", index);
        return;
    }
    const struct message *m = &plans[names[0]][names[1]];
    if (!accepts(r, names[0], names[1]) || taken_by[names[0]][names[1]] >= 0)
        fail(__LINE__, "receive %d got message %d of rank %d, and so did %d", index, names[1], names[0],
             taken_by[names[0]][names[1]]);
    check_status(__LINE__, status, names[0], m->tag, m->bytes);
    HOLDS(r->data + 8, (size_t)m->bytes - 8, (unsigned)(names[0] * SENDS + names[1]));
    r->source = names[0];
    r->got = names[1];
    r->request = MPI_REQUEST_NULL;
    taken_by[names[0]][names[1]] = index;
    arrived++;
    free(r->data);
    r->data = NULL;
}

static struct receive *post(int from, int comm, int tag)
{
    struct receive *r = &receives[posted++];
    *r = (struct receive){from, comm, tag, -1, -1, MPI_REQUEST_NULL, allocate(MOST)};
    memset(r->data, 0xff, 8);
    return r;
}

static void receive_somehow(unsigned long long *state)
{
    int from = draw(state, 3) ? (int)draw(state, (unsigned)ranks) : MPI_ANY_SOURCE, comm = draw(state, 4) == 0;
    int tag = draw(state, 3) ? (int)draw(state, TAGS) : MPI_ANY_TAG, way = (int)draw(state, 4), found = 0;
    MPI_Status status;
    MPI_Message message;
    if (way == 0) {
        OK(MPI_Iprobe(from, tag, comms[comm], &found, &status));
        if (found) { /* the probed message is the one received */
            struct receive *r = post(from, comm, tag);
            MPI_Status then;
            OK(MPI_Recv(r->data, MOST, MPI_BYTE, from, tag, comms[comm], &then));
            int count;
            MPI_Get_count(&status, MPI_BYTE, &count);
            check_status(__LINE__, &then, status.MPI_SOURCE, status.MPI_TAG, count);
            identify(posted - 1, &then);
        }
    } else if (way == 1) {
        OK(MPI_Improbe(from, tag, comms[comm], &found, &message, &status));
        if (found) {
            struct receive *r = post(from, comm, tag);
            OK(MPI_Mrecv(r->data, MOST, MPI_BYTE, &message, &status));
            identify(posted - 1, &status);
        }
    } else {
        struct receive *r = post(from, comm, tag);
        OK(MPI_Irecv(r->data, MOST, MPI_BYTE, from, tag, comms[comm], &r->request));
    }
}

static void send_next(int number, unsigned char **data, MPI_Request *request)
{
    const struct message *m = &plans[rank][number];
    int names[2] = {rank, number};
    *data = allocate((size_t)m->bytes);
    memcpy(*data, names, 8);
    fill(*data + 8, (size_t)m->bytes - 8, (unsigned)(rank * SENDS + number));
    *request = MPI_REQUEST_NULL;
    if (m->way == 0 && m->bytes <= 500) /* does not wait for its receive */
        OK(MPI_Send(*data, m->bytes, MPI_BYTE, m->to, m->tag, comms[m->comm]));
    else if (m->way == 1)
        OK(MPI_Issend(*data, m->bytes, MPI_BYTE, m->to, m->tag, comms[m->comm], request));
    else
        OK(MPI_Isend(*data, m->bytes, MPI_BYTE, m->to, m->tag, comms[m->comm], request));
}

static void look_at(int index)
{
    int done = 0;
    MPI_Status status;
    OK(MPI_Test(&receives[index].request, &done, &status));
    if (done)
        identify(index, &status);
}

static void check_order(void)
{
    for (int i = 0; i < posted; i++) {
        int from = receives[i].source, got = receives[i].got;
        if (got < 0)
            continue;
        for (int earlier = 0; earlier < got; earlier++)
            if (accepts(&receives[i], from, earlier) && taken_by[from][earlier] > i)
                fail(__LINE__, "receive %d got message %d of rank %d before %d, which receive %d got later", i, got, from,
                     earlier, taken_by[from][earlier]);
        for (int j = 0; j < i; j++)
            if (receives[j].got < 0 && accepts(&receives[j], from, got))
                fail(__LINE__, "receive %d got message %d of rank %d while receive %d waited", i, got, from, j);
    }
}

static void run(unsigned seed)
{
    unsigned long long state = seed * 77u + (unsigned)rank;
    unsigned char *data[SENDS];
    MPI_Request sends[SENDS];
    int sent = 0;
    plan(seed);
    posted = arrived = 0;
    while (sent < SENDS) {
        int what = (int)draw(&state, 8);
        if (what < 3)
            sent++, send_next(sent - 1, &data[sent - 1], &sends[sent - 1]);
        else if (what < 6 && posted < RECEIVES / 2)
            receive_somehow(&state);
        else if (posted) {
            int index = (int)draw(&state, (unsigned)posted);
            if (receives[index].request != MPI_REQUEST_NULL)
                look_at(index);
        }
    }
    /* Unmatched receives are cancelled, last first. Wildcard receives take the remaining messages. */
    for (int i = posted - 1; i >= 0; i--)
        if (receives[i].request != MPI_REQUEST_NULL && draw(&state, 2)) {
            MPI_Status status;
            int cancelled = 0;
            OK(MPI_Cancel(&receives[i].request));
            OK(MPI_Wait(&receives[i].request, &status));
            OK(MPI_Test_cancelled(&status, &cancelled));
            if (!cancelled) {
                identify(i, &status);
            } else {
                receives[i].comm = -1; /* the receive accepts no message any more */
                free(receives[i].data);
            }
        }
    while (arrived < expected) {
        for (int i = 0; i < posted; i++)
            if (receives[i].request != MPI_REQUEST_NULL)
                look_at(i);
        for (int comm = 0; comm < COMMS; comm++) {
            MPI_Message message;
            MPI_Status status;
            int found;
            OK(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comms[comm], &found, &message, &status));
            if (found) {
                struct receive *r = post(MPI_ANY_SOURCE, comm, MPI_ANY_TAG);
                OK(MPI_Mrecv(r->data, MOST, MPI_BYTE, &message, &status));
                identify(posted - 1, &status);
            }
        }
    }
    OK(MPI_Waitall(SENDS, sends, MPI_STATUSES_IGNORE));
    check_order();
    for (int i = 0; i < posted; i++)
        if (receives[i].request != MPI_REQUEST_NULL) {
            OK(MPI_Cancel(&receives[i].request));
            OK(MPI_Wait(&receives[i].request, MPI_STATUS_IGNORE));
            free(receives[i].data);
        }
    for (int i = 0; i < SENDS; i++)
        free(data[i]);
    if (failures)
        fprintf(stderr, "rank %d: seed %u\n", rank, seed);
}

int main(int argc, char **argv)
{
    unsigned first = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    start(&argc, &argv);
    if (ranks > 8)
        return 4;
    for (int i = 0; i < COMMS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (unsigned seed = first; seed < first + ROUNDS && !failures; seed++) {
        run(seed);
        meet();
    }
    for (int i = 0; i < COMMS; i++)
        MPI_Comm_free(&comms[i]);
    return finish();
}
