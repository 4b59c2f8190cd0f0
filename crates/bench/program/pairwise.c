/* Messages between two ranks, and between neighbours. */
#include "bench.h"

#include <string.h>

/* ---- ping-pong ---- */

/* Ping-pong of messages that are written before each send and read after each receive. Otherwise a copy can profit
 * from bytes that have not changed since the preceding copy. */
static void run_touched_latency(struct bench_case *c, long n) {
    for (long i = 0; i < 2 * n; i++) {
        if ((i % 2 == 0) == c->goes_first) {
            write_message(c, c->send);
            MPI_Send(c->send, c->count, c->type, c->peer, TAG_DATA, MPI_COMM_WORLD);
        } else {
            MPI_Recv(c->receive, c->count, c->type, c->peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            read_message(c, c->receive);
        }
    }
}

static void run_latency(struct bench_case *c, long n) {
    int count = c->count, peer = c->peer;
    char *send = c->send, *receive = c->receive;
    MPI_Datatype type = c->type;
    if (c->touch) run_touched_latency(c, n);
    else if (c->goes_first)
        for (long i = 0; i < n; i++) {
            MPI_Send(send, count, type, peer, TAG_DATA, MPI_COMM_WORLD);
            MPI_Recv(receive, count, type, peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    else
        for (long i = 0; i < n; i++) {
            MPI_Recv(receive, count, type, peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(send, count, type, peer, TAG_DATA, MPI_COMM_WORLD);
        }
}

enum { ANY_SOURCE, ANY_TAG, ANY_BOTH };
static const char *const wildcards[] = {"any-source", "any-tag", "both", NULL};

static void run_wildcard(struct bench_case *c, long n) {
    int bytes = (int)c->bytes, peer = c->peer;
    int source = c->variant_index == ANY_TAG ? peer : MPI_ANY_SOURCE;
    int tag = c->variant_index == ANY_SOURCE ? TAG_DATA : MPI_ANY_TAG;
    for (long i = 0; i < n; i++) {
        if (c->goes_first) MPI_Send(c->send, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD);
        MPI_Recv(c->receive, bytes, MPI_BYTE, source, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!c->goes_first) MPI_Send(c->send, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD);
    }
}

/* One operation in which each rank sends its own pattern to its partner. */
static bool verify_exchange(struct bench_case *c) {
    fill_message(c, c->send, (unsigned)c->rank);
    memset(c->receive, 0xee, span_of(c));
    c->test->run(c, 1);
    bool receives = c->test->window == 0 || c->test->variants || !c->goes_first || !strcmp(c->test->name, "bibandwidth");
    return !receives || has_message(c, c->receive, (unsigned)c->peer);
}

/* ---- windows ---- */

/* Address of message `w` of a window: one buffer for all messages, unless each message is rewritten. */
static char *slot(const struct bench_case *c, char *buffer, int w) {
    return c->touch ? buffer + (size_t)w * span_of(c) : buffer;
}

static void write_window(struct bench_case *c) {
    for (int w = 0; c->touch && w < c->window; w++) write_message(c, slot(c, c->send, w));
}

static void read_window(struct bench_case *c) {
    for (int w = 0; c->touch && w < c->window; w++) read_message(c, slot(c, c->receive, w));
}

static void run_window(struct bench_case *c, long n) {
    int count = c->count, peer = c->peer, window = c->window;
    MPI_Request *requests = c->requests;
    for (long i = 0; i < n; i++) {
        if (c->goes_first) {
            write_window(c);
            for (int w = 0; w < window; w++)
                MPI_Isend(slot(c, c->send, w), count, c->type, peer, TAG_DATA, MPI_COMM_WORLD, &requests[w]);
            MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
            MPI_Recv(NULL, 0, MPI_BYTE, peer, TAG_ACK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            for (int w = 0; w < window; w++)
                MPI_Irecv(slot(c, c->receive, w), count, c->type, peer, TAG_DATA, MPI_COMM_WORLD, &requests[w]);
            MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
            read_window(c);
            MPI_Send(NULL, 0, MPI_BYTE, peer, TAG_ACK, MPI_COMM_WORLD);
        }
    }
}

static void run_both_windows(struct bench_case *c, long n) {
    int count = c->count, peer = c->peer, window = c->window;
    MPI_Request *requests = c->requests;
    for (long i = 0; i < n; i++) {
        write_window(c);
        for (int w = 0; w < window; w++)
            MPI_Irecv(slot(c, c->receive, w), count, c->type, peer, TAG_DATA, MPI_COMM_WORLD, &requests[w]);
        for (int w = 0; w < window; w++)
            MPI_Isend(slot(c, c->send, w), count, c->type, peer, TAG_DATA, MPI_COMM_WORLD, &requests[window + w]);
        MPI_Waitall(2 * window, requests, MPI_STATUSES_IGNORE);
        read_window(c);
        MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, TAG_ACK, NULL, 0, MPI_BYTE, peer, TAG_ACK, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
}

/* The lower half of the ranks sends to the upper half, all pairs at once. Rank 0's time ends when all have finished. */
static int prepare_multirate(struct bench_case *c) {
    int half = c->ranks / 2;
    c->peer = c->rank < half ? c->rank + half : c->rank < 2 * half ? c->rank - half : MPI_PROC_NULL;
    c->goes_first = c->rank < half;
    return MPI_SUCCESS;
}

static void run_multirate(struct bench_case *c, long n) {
    if (c->peer != MPI_PROC_NULL) run_window(c, n);
    MPI_Barrier(c->members);
}

static bool verify_multirate(struct bench_case *c) {
    return c->peer == MPI_PROC_NULL ? (run_multirate(c, 1), true) : verify_exchange(c);
}

/* All other ranks send to rank 0 at once. A time is for one message of all flows together. */
static int prepare_incast(struct bench_case *c) {
    c->flows = c->ranks > 1 ? c->ranks - 1 : 1;
    return MPI_SUCCESS;
}

static void run_incast(struct bench_case *c, long n) {
    int bytes = (int)c->bytes, window = c->window;
    for (long i = 0; i < n; i++) {
        int posted = 0;
        for (int w = 0; w < window; w++) {
            if (c->rank != 0) {
                MPI_Isend(c->send, bytes, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD, &c->requests[posted++]);
                continue;
            }
            for (int from = 1; from < c->ranks; from++)
                MPI_Irecv(c->receive + (size_t)from * c->bytes, bytes, MPI_BYTE, from, TAG_DATA, MPI_COMM_WORLD,
                          &c->requests[posted++]);
        }
        MPI_Waitall(posted, c->requests, MPI_STATUSES_IGNORE);
        if (c->rank != 0) MPI_Recv(NULL, 0, MPI_BYTE, 0, TAG_ACK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int to = 1; c->rank == 0 && to < c->ranks; to++)
            MPI_Send(NULL, 0, MPI_BYTE, to, TAG_ACK, MPI_COMM_WORLD);
    }
}

static bool verify_incast(struct bench_case *c) {
    bool right = true;
    fill_pattern(c->send, c->bytes, (unsigned)c->rank);
    memset(c->receive, 0xee, c->bytes * (size_t)c->member_count);
    run_incast(c, 1);
    for (int from = 1; c->rank == 0 && from < c->ranks; from++)
        right &= has_pattern(c->receive + (size_t)from * c->bytes, c->bytes, (unsigned)from);
    return right;
}

/* The receiver takes the last message first, so that all others are unexpected. */
static void run_unexpected(struct bench_case *c, long n) {
    int bytes = (int)c->bytes, peer = c->peer, window = c->window;
    for (long i = 0; i < n; i++) {
        if (c->goes_first) {
            for (int w = 0; w < window; w++)
                MPI_Isend(c->send, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &c->requests[w]);
            MPI_Send(NULL, 0, MPI_BYTE, peer, TAG_GO, MPI_COMM_WORLD);
            MPI_Waitall(window, c->requests, MPI_STATUSES_IGNORE);
            MPI_Recv(NULL, 0, MPI_BYTE, peer, TAG_ACK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(NULL, 0, MPI_BYTE, peer, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int w = 0; w < window; w++)
                MPI_Recv(c->receive, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(NULL, 0, MPI_BYTE, peer, TAG_ACK, MPI_COMM_WORLD);
        }
    }
}

/* ---- neighbours ---- */

static void run_sendrecv(struct bench_case *c, long n) {
    for (long i = 0; i < n; i++) {
        if (c->touch) write_message(c, c->send);
        MPI_Sendrecv(c->send, c->count, c->type, c->next_peer, TAG_DATA, c->receive, c->count, c->type,
                     c->previous_peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (c->touch) read_message(c, c->receive);
    }
}

static bool verify_sendrecv(struct bench_case *c) {
    c->peer = c->previous_peer;
    return verify_exchange(c);
}

/* Sends one message to each neighbour and receives one from each, all at once. */
static void run_halo(struct bench_case *c, long n) {
    char *from[2] = {c->receive, c->receive + span_of(c)}, *to[2] = {c->send, c->send + span_of(c)};
    int left = c->previous_peer, right = c->next_peer;
    MPI_Request *requests = c->requests;
    for (long i = 0; i < n; i++) {
        for (int k = 0; c->touch && k < 2; k++) write_message(c, to[k]);
        MPI_Irecv(from[0], c->count, c->type, left, TAG_RIGHT, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(from[1], c->count, c->type, right, TAG_LEFT, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(to[0], c->count, c->type, left, TAG_LEFT, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(to[1], c->count, c->type, right, TAG_RIGHT, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        for (int k = 0; c->touch && k < 2; k++) read_message(c, from[k]);
    }
}

static bool verify_halo(struct bench_case *c) {
    size_t span = span_of(c);
    fill_message(c, c->send, (unsigned)c->rank * 2);
    fill_message(c, c->send + span, (unsigned)c->rank * 2 + 1);
    memset(c->receive, 0xee, 2 * span);
    run_halo(c, 1);
    return has_message(c, c->receive, (unsigned)c->previous_peer * 2 + 1) &&
           has_message(c, c->receive + span, (unsigned)c->next_peer * 2);
}

#define SIZES "0,8,64,256,1K,4K,16K,64K,256K,1M,4M"

const struct test pairwise_tests[] = {
    {.name = "latency", .who = PAIR, .operation = "MPI_Send/MPI_Recv", .of = "half-round-trip", .sizes = SIZES,
     .per_operation = 2, .line_floor = true, .touches = true, .strides = true, .run = run_latency,
     .verify = verify_exchange},
    {.name = "bandwidth", .who = PAIR, .operation = "MPI_Isend/MPI_Irecv", .of = "message",
     .sizes = "4K,16K,64K,256K,1M,4M", .window = 64, .touches = true, .strides = true, .run = run_window,
     .verify = verify_exchange},
    {.name = "bibandwidth", .who = PAIR, .operation = "MPI_Isend/MPI_Irecv", .of = "message",
     .sizes = "4K,16K,64K,256K,1M,4M", .window = 64, .per_operation = 2, .touches = true, .strides = true,
     .run = run_both_windows, .verify = verify_exchange},
    {.name = "rate", .who = PAIR, .operation = "MPI_Isend/MPI_Irecv", .of = "message", .sizes = "8", .window = 64,
     .run = run_window, .verify = verify_exchange},
    {.name = "multirate", .who = EVERYONE, .operation = "MPI_Isend/MPI_Irecv", .of = "message", .sizes = "8",
     .window = 64, .batch_min = 16, .prepare = prepare_multirate, .run = run_multirate, .verify = verify_multirate},
    {.name = "incast", .who = EVERYONE, .operation = "MPI_Isend/MPI_Irecv", .of = "message", .sizes = "8,64K",
     .window = 64, .by_rank = true, .prepare = prepare_incast, .run = run_incast, .verify = verify_incast},
    {.name = "sendrecv", .who = EVERYONE, .operation = "MPI_Sendrecv", .of = "call", .sizes = SIZES,
     .line_floor = true, .touches = true, .strides = true, .run = run_sendrecv, .verify = verify_sendrecv},
    {.name = "halo", .who = EVERYONE, .operation = "MPI_Irecv/MPI_Isend/MPI_Waitall", .of = "call",
     .sizes = "512,4K,32K,256K", .messages = 2, .line_floor = true, .touches = true, .strides = true, .rows = true,
     .run = run_halo, .verify = verify_halo},
    {.name = "unexpected", .who = PAIR, .operation = "MPI_Isend/MPI_Recv", .of = "message", .sizes = "8,64,1K,16K",
     .window = 64, .run = run_unexpected, .verify = verify_exchange},
    {.name = "wildcard", .who = PAIR, .operation = "MPI_Send/MPI_Recv", .of = "half-round-trip", .sizes = "0,8,1K",
     .variants = wildcards, .per_operation = 2, .line_floor = true, .run = run_wildcard, .verify = verify_exchange},
    {.name = NULL},
};
