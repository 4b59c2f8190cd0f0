/* Random messages with every byte checked, by all calls that send and receive, in sequence and concurrently. It covers
 * combinations that tests of one call do not: concurrent messages, sizes around each protocol threshold, buffers that
 * are rewritten as soon as they may be reused, receives posted before, while and long after the message is sent, and
 * requests freed while active.
 *
 * All ranks draw the same plan and follow its order, so that no rank waits forever: at message number i, a rank waits
 * only for messages up to i. */
#ifndef SOAK_H
#define SOAK_H
#include "soak_data.h"
#include <sched.h>
#include <unistd.h>

enum { MESSAGES = 48, RANKS_MOST = 8, WILD_MOST = 100000, GUARD = 64, UNTOUCHED = 0xee };
enum { ROUND_BYTES = 20 << 20 }; /* limit for all messages of a round */

/* Communicators of a thread: receives are posted in any order, in the order of the plan, or with wildcards; TOLD is
 * for control messages. */
enum { ANY_ORDER, IN_ORDER, WILD, TOLD, COMMS };
enum { SEND, SSEND, BSEND, RSEND, ISEND, ISSEND, IBSEND, IRSEND, SEND_INIT, SSEND_INIT, BSEND_INIT, RSEND_INIT, CANCELLED,
       PARTITIONED, REPEATED, SHIFT, WAYS };
enum { RECV, IRECV, RECV_INIT, PROBE, MPROBE, IPROBE, IMPROBE, RECEIVES };
enum { EARLY, MEANWHILE, LATE }; /* when the receive is posted */

struct message {
    int from, to, comm, bytes, way, receive, when, any_source, any_tag, room, steps, freed;
    unsigned number; /* counts across rounds */
    struct layout out, in;
};

/* One side of an incomplete message. */
struct side {
    struct message *message; /* null: a wildcard receive */
    MPI_Request request;
    MPI_Datatype type;
    unsigned char *memory, *data;
    size_t bytes; /* size of the memory from `data` on */
    int count, sends, from_mpi, may_wait, hopeless;
};

/* State of one thread of a rank. */
struct soak {
    unsigned long long plan, own; /* random states: equal on all ranks; of this rank */
    MPI_Comm comms[COMMS];
    int first_tag, shares; /* shares: other threads use the communicators too */
    unsigned number;
    struct message messages[MESSAGES];
    struct side sides[3 * MESSAGES];
    int n_sides, last; /* last: requests of this round are freed */
};

/* Identifies the bytes of message `number` in a step. */
static unsigned mark_of(const struct message *m, int step)
{
    return m->number * 8 + (unsigned)step;
}

/* Checks that the message has arrived, and that no byte around it was written. */
static void check_in(struct side *side, const struct layout *layout, int room, int bytes, unsigned mark, const char *what)
{
    size_t left = (size_t)bytes, block = (size_t)layout->block, at = 0, wrong = 0;
    for (size_t i = 0; left > 0; i++) {
        size_t part = left < block ? left : block;
        unsigned char *data = side->data + place_of(layout, (size_t)room, i);
        for (size_t k = 0; k < part; k++, at++)
            if (data[k] != soak_byte(mark, at) && !wrong++)
                fail(__LINE__, "message %u.%u, %s: byte %zu of %d is %d instead of %d", mark / 8, mark % 8, what, at, bytes,
                     data[k], soak_byte(mark, at));
        memset(data, UNTOUCHED, part);
        left -= part;
    }
    if (wrong > 1)
        fail(__LINE__, "message %u.%u, %s: %zu bytes of %d are wrong", mark / 8, mark % 8, what, wrong, bytes);
    for (size_t k = 0; k < side->bytes; k++)
        if (side->data[k] != UNTOUCHED) {
            fail(__LINE__, "message %u.%u, %s: byte %zu of the buffer was written, which has %d bytes in blocks of %d and %d",
                 mark / 8, mark % 8, what, k, bytes, layout->block, layout->gap);
            return;
        }
}

/* Allocates memory for one side, from the heap or MPI, at any address. */
static void take_memory(struct soak *s, struct side *side, size_t bytes)
{
    size_t offset = draw(&s->own, 2) ? draw(&s->own, 64) : 0, whole = bytes + offset + GUARD;
    side->from_mpi = draw(&s->own, 4) == 0;
    if (side->from_mpi)
        OK(MPI_Alloc_mem((MPI_Aint)whole, MPI_INFO_NULL, &side->memory));
    else
        side->memory = allocate(whole);
    side->data = side->memory + offset;
    side->bytes = bytes + GUARD;
    memset(side->data, UNTOUCHED, side->bytes);
}

static void give_back(struct side *side)
{
    memset(side->data, 0xdd, side->bytes); /* makes later reads and writes of freed memory visible */
    if (side->from_mpi)
        OK(MPI_Free_mem(side->memory));
    else
        free(side->memory);
    if (side->type != MPI_BYTE)
        OK(MPI_Type_free(&side->type));
}

static struct side *begin(struct soak *s, struct message *m, int sends)
{
    struct side *side = &s->sides[s->n_sides++];
    *side = (struct side){.message = m, .request = MPI_REQUEST_NULL, .type = MPI_BYTE, .sends = sends, .may_wait = 1};
    const struct layout *layout = sends ? &m->out : &m->in;
    int bytes = sends ? m->bytes : m->bytes + m->room;
    take_memory(s, side, span_of(layout, (size_t)bytes));
    side->type = type_of(layout, bytes, &side->count);
    if (sends)
        write_out(side->data, layout, bytes, mark_of(m, 0));
    return side;
}

static const char *name_of(const struct message *m)
{
    static const char *const ways[WAYS] = {"send", "ssend", "bsend", "rsend", "isend", "issend", "ibsend", "irsend",
        "send_init", "ssend_init", "bsend_init", "rsend_init", "cancelled", "partitioned", "repeated", "shift"};
    return ways[m->way];
}

static int tag_of(const struct soak *s, const struct message *m)
{
    return s->first_tag + (int)(m - s->messages);
}

static void end(struct soak *s, struct side *side)
{
    int at = (int)(side - s->sides);
    give_back(side);
    s->sides[at] = s->sides[--s->n_sides];
}

/* Completes a side. */
static void finish_side(struct soak *s, struct side *side, const MPI_Status *status)
{
    struct message *m = side->message;
    if (!side->sends && !m && !side->hopeless) { /* wildcard receive */
        int index = status->MPI_TAG - s->first_tag;
        if (index < 0 || index >= MESSAGES || s->messages[index].to != rank || s->messages[index].comm != WILD) {
            fail(__LINE__, "a wild receive has a message with tag %d from %d", status->MPI_TAG, status->MPI_SOURCE);
            return end(s, side);
        }
        m = &s->messages[index];
    }
    if (!side->sends && m) {
        check_status(__LINE__, status, m->from, tag_of(s, m), m->bytes);
        int room = side->message ? m->bytes + m->room : WILD_MOST;
        struct layout plain = {.block = WILD_MOST};
        check_in(side, side->message ? &m->in : &plain, room, m->bytes, mark_of(m, 0), name_of(m));
    }
    if (side->request != MPI_REQUEST_NULL) /* persistent */
        OK(MPI_Request_free(&side->request));
    end(s, side);
}

static void start_send(struct soak *s, struct message *m)
{
    struct side *side = begin(s, m, 1);
    MPI_Comm comm = s->comms[m->comm];
    int tag = tag_of(s, m), flag = 0;
    unsigned char *data = side->data;
    MPI_Datatype type = side->type;
    MPI_Status status;
    side->may_wait = m->when != LATE && m->comm != WILD;
    switch (m->way) {
    case SEND: OK(MPI_Send(data, side->count, type, m->to, tag, comm)); break;
    case SSEND: OK(MPI_Ssend(data, side->count, type, m->to, tag, comm)); break;
    case BSEND: OK(MPI_Bsend(data, side->count, type, m->to, tag, comm)); break;
    case RSEND: OK(MPI_Rsend(data, side->count, type, m->to, tag, comm)); break;
    case ISEND: OK(MPI_Isend(data, side->count, type, m->to, tag, comm, &side->request)); break;
    case CANCELLED:
    case ISSEND: OK(MPI_Issend(data, side->count, type, m->to, tag, comm, &side->request)); break;
    case IBSEND: OK(MPI_Ibsend(data, side->count, type, m->to, tag, comm, &side->request)); break;
    case IRSEND: OK(MPI_Irsend(data, side->count, type, m->to, tag, comm, &side->request)); break;
    case SEND_INIT: OK(MPI_Send_init(data, side->count, type, m->to, tag, comm, &side->request)); break;
    case SSEND_INIT: OK(MPI_Ssend_init(data, side->count, type, m->to, tag, comm, &side->request)); break;
    case BSEND_INIT: OK(MPI_Bsend_init(data, side->count, type, m->to, tag, comm, &side->request)); break;
    case RSEND_INIT: OK(MPI_Rsend_init(data, side->count, type, m->to, tag, comm, &side->request)); break;
    }
    if (m->way >= SEND_INIT && m->way <= RSEND_INIT)
        OK(MPI_Start(&side->request));
    if (m->way == CANCELLED) {
        if (draw(&s->own, 2))
            OK(MPI_Test(&side->request, &flag, &status));
        if (!flag) {
            OK(MPI_Cancel(&side->request));
            OK(MPI_Wait(&side->request, &status));
            OK(MPI_Test_cancelled(&status, &flag));
        } else
            flag = 0;
        OK(MPI_Bsend(&flag, 1, MPI_INT, m->to, tag, s->comms[TOLD]));
    }
    if (side->request == MPI_REQUEST_NULL)
        end(s, side);
    else if (m->freed)
        OK(MPI_Request_free(&side->request)); /* the buffer stays allocated until the next round */
}

static void start_receive(struct soak *s, struct message *m)
{
    struct side *side = begin(s, m, 0);
    MPI_Comm comm = s->comms[m->comm];
    int from = m->any_source ? MPI_ANY_SOURCE : m->from, tag = m->any_tag ? MPI_ANY_TAG : tag_of(s, m), flag = 0;
    MPI_Status status, shown;
    MPI_Message message;
    MPI_Request *request = &side->request;
    side->may_wait = m->when != EARLY && m->way != CANCELLED;
    switch (m->receive) {
    case RECV: OK(MPI_Recv(side->data, side->count, side->type, from, tag, comm, &status)); break;
    case IRECV: OK(MPI_Irecv(side->data, side->count, side->type, from, tag, comm, request)); break;
    case RECV_INIT:
        OK(MPI_Recv_init(side->data, side->count, side->type, from, tag, comm, request));
        OK(MPI_Start(request));
        break;
    case PROBE:
        OK(MPI_Probe(from, tag, comm, &shown));
        OK(MPI_Recv(side->data, side->count, side->type, shown.MPI_SOURCE, shown.MPI_TAG, comm, &status));
        break;
    case MPROBE:
        OK(MPI_Mprobe(from, tag, comm, &message, &shown));
        OK(MPI_Mrecv(side->data, side->count, side->type, &message, &status));
        break;
    case IPROBE:
        while (!flag)
            OK(MPI_Iprobe(from, tag, comm, &flag, &shown));
        OK(MPI_Irecv(side->data, side->count, side->type, shown.MPI_SOURCE, shown.MPI_TAG, comm, request));
        break;
    case IMPROBE:
        while (!flag)
            OK(MPI_Improbe(from, tag, comm, &flag, &message, &shown));
        OK(MPI_Imrecv(side->data, side->count, side->type, &message, request));
        break;
    }
    if (m->receive >= PROBE)
        check_status(__LINE__, &shown, m->from, tag_of(s, m), m->bytes);
    if (*request == MPI_REQUEST_NULL)
        finish_side(s, side, &status);
    else if (s->last && m->way != CANCELLED)
        OK(MPI_Request_free(request));
}

/* Starts a wildcard receive; in the last round each message has its own receive. */
static void start_wild(struct soak *s)
{
    struct message any = {.bytes = WILD_MOST, .in = {.block = WILD_MOST}};
    struct side *side = begin(s, &any, 0);
    side->message = NULL;
    side->may_wait = 0;
    OK(MPI_Irecv(side->data, side->count, side->type, MPI_ANY_SOURCE, MPI_ANY_TAG, s->comms[WILD], &side->request));
}

/* Cancels a receive without a message. */
static void start_hopeless(struct soak *s)
{
    struct message none = {.bytes = 100, .in = {.block = 100}};
    struct side *side = begin(s, &none, 0);
    side->message = NULL;
    side->may_wait = 0;
    side->hopeless = 1;
    int from = draw(&s->own, 2) ? MPI_ANY_SOURCE : (int)draw(&s->own, (unsigned)ranks), tag = s->first_tag + MESSAGES;
    OK(MPI_Irecv(side->data, 100, MPI_BYTE, from, tag, s->comms[draw(&s->own, 2)], &side->request));
}

static void take_back(struct soak *s, struct side *side)
{
    MPI_Status status;
    int flag = 0;
    OK(MPI_Cancel(&side->request));
    OK(MPI_Wait(&side->request, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag);
    side->hopeless = 1;
    side->message = NULL;
    finish_side(s, side, &status);
}

/* Sends repeatedly with one request, partitioned or persistent; both ranks wait for each step. */
static void repeat(struct soak *s, struct message *m)
{
    int sends = m->from == rank, tag = tag_of(s, m), parts[] = {1, 2, 3, 4, 6, 8, 12, 24, 48, 96};
    struct side *side = begin(s, m, sends);
    MPI_Comm comm = s->comms[ANY_ORDER];
    MPI_Request *request = &side->request;
    int n = parts[draw(&s->own, 10)], flag = 1;
    MPI_Status status;
    if (m->way == PARTITIONED && sends)
        OK(MPI_Psend_init(side->data, n, m->bytes / n, MPI_BYTE, m->to, tag, comm, MPI_INFO_NULL, request));
    else if (m->way == PARTITIONED)
        OK(MPI_Precv_init(side->data, n, m->bytes / n, MPI_BYTE, m->from, tag, comm, MPI_INFO_NULL, request));
    else if (sends)
        OK((m->steps & 1 ? MPI_Send_init : MPI_Ssend_init)(side->data, side->count, side->type, m->to, tag, comm, request));
    else
        OK(MPI_Recv_init(side->data, side->count, side->type, m->from, tag, comm, request));
    for (int step = 0; step < m->steps; step++) {
        if (sends)
            write_out(side->data, &m->out, m->bytes, mark_of(m, step));
        OK(MPI_Start(request));
        for (int i = 0, first = (int)draw(&s->own, 96); m->way == PARTITIONED && i < n; i++)
            if (sends)
                OK(MPI_Pready((first + i) % n, *request));
            else if (first % 2)
                OK(MPI_Parrived(*request, (first + i) % n, &flag));
        OK(MPI_Wait(request, &status));
        if (!sends) {
            check_status(__LINE__, &status, m->from, tag, m->bytes);
            check_in(side, &m->in, m->bytes + m->room, m->bytes, mark_of(m, step), name_of(m));
        } else
            memset(side->data, 0xdd, side->bytes);
    }
    OK(MPI_Request_free(request));
    end(s, side);
}

/* All ranks send and receive in one call, each with its own size. */
static void shift(struct soak *s, struct message *m)
{
    int by = m->from, to = (rank + by) % ranks, from = (rank + ranks - by) % ranks, tag = tag_of(s, m);
    int same = m->receive % 4 % 2; /* one buffer, so one size */
    struct message out = *m, in = *m;
    out.number = m->number + 100000 * (unsigned)(rank + 1), in.number = m->number + 100000 * (unsigned)(from + 1);
    if (!same) {
        out.bytes = m->bytes / (rank + 1), in.bytes = m->bytes / (from + 1);
        out.out.counted = in.in.counted = 0;
    }
    in.room = same ? 0 : m->bytes - in.bytes;
    struct layout *into = same ? &in.out : &in.in;
    struct side *source = begin(s, &out, 1), *target = same ? source : begin(s, &in, 0);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    MPI_Comm comm = s->comms[m->comm];
    switch (m->receive % 4) {
    case 0:
        OK(MPI_Sendrecv(source->data, source->count, source->type, to, tag, target->data, target->count, target->type, from,
                        tag, comm, &status));
        break;
    case 1: OK(MPI_Sendrecv_replace(source->data, source->count, source->type, to, tag, from, tag, comm, &status)); break;
    case 2:
        OK(MPI_Isendrecv(source->data, source->count, source->type, to, tag, target->data, target->count, target->type, from,
                         tag, comm, &request));
        OK(MPI_Wait(&request, &status));
        break;
    default:
        OK(MPI_Isendrecv_replace(source->data, source->count, source->type, to, tag, from, tag, comm, &request));
        OK(MPI_Wait(&request, &status));
    }
    check_status(__LINE__, &status, from, tag, in.bytes);
    check_in(target, into, in.bytes + in.room, in.bytes, mark_of(&in, 0), "shift");
    if (!same)
        end(s, target);
    end(s, source);
}

/* Returns whether the program still waits for this side. */
static int is_pending(const struct side *side)
{
    return side->request != MPI_REQUEST_NULL && !side->hopeless;
}

/* Completes some requests with one of the completion calls; waits if `must` is set. Uses only requests that may be
 * waited for, unless `all` is set. */
static void complete(struct soak *s, int must, int all)
{
    static const int is_wait[] = {1, 1, 1, 1, 0, 0, 0, 0, 0};
    MPI_Request some[3 * MESSAGES];
    MPI_Status statuses[3 * MESSAGES];
    struct side *sides[3 * MESSAGES];
    int indices[3 * MESSAGES], n = 0, done = 0, flag = 0, way;
    do
        way = (int)draw(&s->own, 9);
    while (must && !is_wait[way]);
    for (int i = 0; i < s->n_sides; i++)
        if (is_pending(&s->sides[i]) && (all || !is_wait[way] || s->sides[i].may_wait)) {
            sides[n] = &s->sides[i];
            some[n++] = s->sides[i].request;
        }
    if (n == 0)
        return;
    int one = (int)draw(&s->own, (unsigned)n);
    for (int i = 0; i < n; i++)
        indices[i] = i;
    switch (way) {
    case 0:
        OK(MPI_Wait(&some[one], statuses));
        indices[0] = one, done = 1;
        break;
    case 1:
        OK(MPI_Waitany(n, some, indices, statuses));
        done = 1;
        break;
    case 2: OK(MPI_Waitsome(n, some, &done, indices, statuses)); break;
    case 3:
        OK(MPI_Waitall(n, some, statuses));
        done = n;
        break;
    case 4:
        OK(MPI_Test(&some[one], &flag, statuses));
        indices[0] = one, done = flag;
        break;
    case 5:
        OK(MPI_Testany(n, some, indices, &flag, statuses));
        done = flag;
        break;
    case 6: OK(MPI_Testsome(n, some, &done, indices, statuses)); break;
    case 7:
        OK(MPI_Testall(n, some, &flag, statuses));
        done = flag ? n : 0;
        break;
    default: OK(MPI_Request_get_status(some[one], &flag, statuses));
    }
    struct side *last[3 * MESSAGES];
    for (int i = 0; i < done; i++) {
        last[i] = sides[indices[i]];
        last[i]->request = some[indices[i]];
    }
    /* Last first: a removed entry is replaced by the last one. */
    for (int left = done; left > 0; left--) {
        int top = 0;
        for (int i = 1; i < left; i++)
            if (last[i] > last[top])
                top = i;
        finish_side(s, last[top], &statuses[top]);
        last[top] = last[left - 1], statuses[top] = statuses[left - 1];
    }
}

static int is_blocking(int way)
{
    return way == SEND || way == SSEND || way == RSEND || way == PARTITIONED || way == REPEATED || way == SHIFT;
}

/* Draws message number `i`, equally on all ranks. */
static void plan_message(struct soak *s, struct message *m, int left)
{
    unsigned long long *p = &s->plan;
    *m = (struct message){.from = (int)draw(p, (unsigned)ranks), .to = (int)draw(p, (unsigned)ranks), .number = s->number++};
    m->bytes = draw_size(p);
    if (m->bytes > left)
        m->bytes = m->bytes % 100;
    m->way = (int)draw(p, WAYS);
    m->receive = (int)draw(p, RECEIVES);
    m->comm = (int)draw(p, 3);
    m->when = (int)draw(p, 3);
    m->room = draw(p, 3) ? 0 : (int)draw(p, 1u << draw(p, 16));
    m->steps = 1 + (int)draw(p, 4);
    m->freed = s->last || draw(p, 6) == 0;
    m->any_source = draw(p, 3) == 0;
    if (m->way == PARTITIONED || m->way == REPEATED) {
        if (ranks == 1 || s->last)
            m->way = ISEND;
        else if (m->from == m->to)
            m->to = (m->from + 1) % ranks;
    }
    if (m->comm == WILD && (s->shares || is_blocking(m->way) || m->way == CANCELLED))
        m->comm = ANY_ORDER;
    int ready = m->way == RSEND || m->way == IRSEND || m->way == RSEND_INIT;
    if (m->way == SHIFT || m->way == PARTITIONED || m->way == REPEATED || m->comm == IN_ORDER)
        m->when = MEANWHILE;
    if (ready)
        m->comm = ANY_ORDER, m->when = EARLY;
    if (m->comm == WILD) {
        m->bytes %= WILD_MOST;
        m->when = MEANWHILE;
    }
    if (m->when == LATE && is_blocking(m->way))
        m->way = ISEND;
    if (m->way == PARTITIONED) {
        m->bytes = m->bytes / 96 * 96;
        m->room = 0;
    }
    m->any_tag = m->comm == IN_ORDER && !s->shares && draw(p, 2) && m->way != CANCELLED;
    if (m->any_tag)
        m->any_source = 0;
    if (m->way == CANCELLED) /* no wait for a message that may never arrive, and no other receive that matches it */
        m->comm = ANY_ORDER, m->receive = m->receive % 2 ? IRECV : RECV_INIT, m->freed = 0;
    if (m->when == EARLY || m->from == m->to)
        m->receive = m->receive % 2 ? IRECV : RECV_INIT;
    int plain = m->way == PARTITIONED;
    m->out = plain ? (struct layout){.block = m->bytes + 1} : draw_layout(p, m->bytes);
    m->in = plain ? m->out : draw_layout(p, m->bytes + m->room);
    if (m->way == SHIFT)
        m->from = (int)draw(p, (unsigned)ranks);
}

static void go_through(struct soak *s, struct message *m)
{
    if (m->way == SHIFT)
        return shift(s, m);
    if (m->way == PARTITIONED || m->way == REPEATED) {
        if (m->from == rank || m->to == rank)
            repeat(s, m);
        return;
    }
    if (m->to == rank && m->comm == WILD && !s->last)
        start_wild(s);
    else if (m->to == rank && m->when == MEANWHILE)
        start_receive(s, m);
    if (m->from == rank)
        start_send(s, m);
}

static void meet_in(MPI_Comm comm, int tag)
{
    char out = 0, in;
    for (int step = 1; step < ranks; step *= 2)
        OK(MPI_Sendrecv(&out, 1, MPI_CHAR, (rank + step) % ranks, tag, &in, 1, MPI_CHAR, (rank + ranks - step) % ranks, tag,
                        comm, MPI_STATUS_IGNORE));
}

/* Messages that their senders may have cancelled: each sender reports whether its message was cancelled. */
static void resolve_cancelled(struct soak *s)
{
    for (struct message *m = s->messages; m < s->messages + MESSAGES; m++) {
        int cancelled = 0, waits = 0;
        if (m->to != rank || m->way != CANCELLED)
            continue;
        OK(MPI_Recv(&cancelled, 1, MPI_INT, m->from, tag_of(s, m), s->comms[TOLD], MPI_STATUS_IGNORE));
        for (int i = s->n_sides - 1; i >= 0 && !waits; i--)
            if (s->sides[i].message == m && !s->sides[i].sends) {
                waits = s->sides[i].may_wait = 1;
                if (cancelled)
                    take_back(s, &s->sides[i]);
            }
        CHECK(waits || !cancelled);
    }
}

/* Sends whose requests were freed in the previous round: all ranks have received them. */
static void end_freed(struct soak *s)
{
    for (int i = s->n_sides - 1; i >= 0; i--)
        if (s->sides[i].sends)
            end(s, &s->sides[i]);
}

/* Runs one round. Freed requests of the last round complete in MPI_Finalize. */
static void run_round(struct soak *s, int last)
{
    int bytes = 0;
    s->last = last;
    for (int i = 0; i < MESSAGES; i++) {
        plan_message(s, &s->messages[i], ROUND_BYTES - bytes);
        bytes += s->messages[i].bytes;
        /* The last round has no wildcard receives, because their messages could not be identified. */
        if (last && s->messages[i].comm == WILD)
            s->messages[i].comm = ANY_ORDER;
    }
    for (int i = 0; i < MESSAGES; i++)
        if (s->messages[i].to == rank && s->messages[i].when == EARLY && s->messages[i].way != SHIFT)
            start_receive(s, &s->messages[i]);
    meet_in(s->comms[TOLD], s->first_tag + MESSAGES);
    end_freed(s);
    for (int i = 0; i < MESSAGES; i++) {
        go_through(s, &s->messages[i]);
        switch (draw(&s->own, 12)) {
        case 0: case 1: case 2: complete(s, 0, 0); break;
        case 3: sched_yield(); break;
        case 4: usleep(draw(&s->own, 50) * draw(&s->own, 10)); break;
        case 5: start_hopeless(s); break;
        }
    }
    for (int i = 0, first = (int)draw(&s->own, MESSAGES); i < MESSAGES; i++) {
        struct message *m = &s->messages[(first + i) % MESSAGES];
        if (m->to == rank && m->when == LATE)
            start_receive(s, m);
    }
    resolve_cancelled(s);
    for (int i = s->n_sides - 1; i >= 0; i--)
        if (s->sides[i].hopeless)
            take_back(s, &s->sides[i]);
    for (int pending = 1; pending;) {
        complete(s, draw(&s->own, 4) == 0, 1);
        pending = 0;
        for (int i = 0; i < s->n_sides; i++)
            pending |= is_pending(&s->sides[i]);
    }
}

/* After MPI_Finalize, messages of freed receives have arrived. */
static void check_freed(struct soak *s)
{
    for (int i = 0; i < s->n_sides; i++) {
        struct side *side = &s->sides[i];
        struct message *m = side->message;
        if (!side->sends)
            check_in(side, &m->in, m->bytes + m->room, m->bytes, mark_of(m, 0), name_of(m));
    }
}
#endif
