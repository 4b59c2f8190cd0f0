/* Blocking collectives. The root passes to the next rank with every call, and scans run up and down the ranks in
 * turn. No rank can run ahead of the ranks that wait for it, so a call's time is its latency and not the send rate
 * of one rank. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

/* Elements of reductions, with values that add up exactly. */
static double element(int rank, size_t i, long call) { return (double)((rank + 1) * (long)(i % 61 + 1) + call % 7); }

static int root_of(const struct bench_case *c, long call) { return (int)(call % c->member_count); }

/* Numbers of blocks that a rank sends and receives, for tests that can write and read them. */
static size_t blocks_sent(const struct bench_case *c) {
    return !strcmp(c->test->name, "alltoall") ? (size_t)c->member_count : 1;
}

static size_t blocks_received(const struct bench_case *c) { return c->test->by_rank ? (size_t)c->member_count : 1; }

static bool has_root(const struct bench_case *c) { return !strcmp(c->test->name, "bcast"); }

static void write_sent(struct bench_case *c, int root) {
    for (size_t i = 0; i < blocks_sent(c) && !(has_root(c) && c->rank != root); i++)
        write_message(c, c->send + i * c->bytes);
}

static void read_received(struct bench_case *c, int root) {
    const char *at = has_root(c) ? c->send : c->receive;
    for (size_t i = 0; i < blocks_received(c) && !(has_root(c) && c->rank == root); i++)
        read_message(c, at + i * c->bytes);
}

#define EACH_CALL(expression)                                                                                         \
    for (long last = c->calls + n; c->calls < last; c->calls++) {                                                     \
        int root = root_of(c, c->calls);                                                                              \
        (void)root;                                                                                                   \
        if (c->touch) write_sent(c, root);                                                                            \
        expression;                                                                                                   \
        if (c->touch) read_received(c, root);                                                                         \
    }

#define COLLECTIVE(name, expression)                                                                                  \
    static void run_##name(struct bench_case *c, long n) {                                                            \
        int bytes = (int)c->bytes, count = bytes / 8;                                                                 \
        char *send = c->send, *receive = c->receive;                                                                  \
        (void)bytes, (void)count, (void)send, (void)receive;                                                          \
        EACH_CALL(expression)                                                                                         \
    }

COLLECTIVE(barrier, MPI_Barrier(MPI_COMM_WORLD))
COLLECTIVE(bcast, MPI_Bcast(send, bytes, MPI_BYTE, root, MPI_COMM_WORLD))
COLLECTIVE(gather, MPI_Gather(send, bytes, MPI_BYTE, receive, bytes, MPI_BYTE, root, MPI_COMM_WORLD))
COLLECTIVE(gatherv,
           MPI_Gatherv(send, bytes, MPI_BYTE, receive, c->counts, c->offsets, MPI_BYTE, root, MPI_COMM_WORLD))
COLLECTIVE(scatter, MPI_Scatter(send, bytes, MPI_BYTE, receive, bytes, MPI_BYTE, root, MPI_COMM_WORLD))
COLLECTIVE(scatterv,
           MPI_Scatterv(send, c->counts, c->offsets, MPI_BYTE, receive, bytes, MPI_BYTE, root, MPI_COMM_WORLD))
COLLECTIVE(allgather, MPI_Allgather(send, bytes, MPI_BYTE, receive, bytes, MPI_BYTE, MPI_COMM_WORLD))
COLLECTIVE(allgatherv, MPI_Allgatherv(send, bytes, MPI_BYTE, receive, c->counts, c->offsets, MPI_BYTE, MPI_COMM_WORLD))
COLLECTIVE(alltoall, MPI_Alltoall(send, bytes, MPI_BYTE, receive, bytes, MPI_BYTE, MPI_COMM_WORLD))
COLLECTIVE(alltoallv, MPI_Alltoallv(send, c->counts, c->offsets, MPI_BYTE, receive, c->counts, c->offsets, MPI_BYTE,
                                    MPI_COMM_WORLD))
COLLECTIVE(alltoallw, MPI_Alltoallw(send, c->counts, c->offsets, c->types, receive, c->counts, c->offsets, c->types,
                                    MPI_COMM_WORLD))
COLLECTIVE(reduce, MPI_Reduce(send, receive, count, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD))
COLLECTIVE(allreduce, MPI_Allreduce(send, receive, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD))
COLLECTIVE(reduce_scatter, MPI_Reduce_scatter(send, receive, c->counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD))
COLLECTIVE(reduce_scatter_block, MPI_Reduce_scatter_block(send, receive, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD))
COLLECTIVE(scan, MPI_Scan(send, receive, count, MPI_DOUBLE, MPI_SUM, c->calls % 2 ? c->reversed : MPI_COMM_WORLD))
COLLECTIVE(exscan, MPI_Exscan(send, receive, count, MPI_DOUBLE, MPI_SUM, c->calls % 2 ? c->reversed : MPI_COMM_WORLD))

/* ---- preparation ---- */

static int prepare_counts(struct bench_case *c, int count) {
    size_t n = (size_t)c->member_count;
    c->counts = malloc(n * sizeof *c->counts);
    c->offsets = malloc(n * sizeof *c->offsets);
    c->types = malloc(n * sizeof *c->types);
    c->failed = "malloc";
    if (!c->counts || !c->offsets || !c->types) return MPI_ERR_NO_MEM;
    for (size_t i = 0; i < n; i++) {
        c->counts[i] = count;
        c->offsets[i] = (int)(i * c->bytes);
        c->types[i] = MPI_BYTE;
    }
    return MPI_SUCCESS;
}

/* Offsets are C ints. */
static int prepare_bytes(struct bench_case *c) {
    c->failed = "the offsets of the blocks do not fit an int";
    if ((double)c->bytes * c->member_count > 2147483647.0) return MPI_ERR_COUNT;
    return prepare_counts(c, (int)c->bytes);
}

static int prepare_doubles(struct bench_case *c) {
    c->failed = "the sum of counts does not fit an int";
    if ((double)c->bytes / 8 * c->member_count > 2147483647.0) return MPI_ERR_COUNT;
    return prepare_counts(c, (int)(c->bytes / 8));
}

static void finish_counts(struct bench_case *c) {
    free(c->counts);
    free(c->offsets);
    free(c->types);
    c->counts = c->offsets = NULL;
    c->types = NULL;
}

static int prepare_reversed(struct bench_case *c) {
    c->failed = "MPI_Comm_split";
    return MPI_Comm_split(MPI_COMM_WORLD, 0, c->ranks - c->rank, &c->reversed);
}

static void finish_reversed(struct bench_case *c) { MPI_Comm_free(&c->reversed); }

/* ---- contents ---- */

/* The pattern of a block depends on its sender and its receiver. */
static unsigned seed_of(int from, int to) { return (unsigned)(from * 37 + to * 11 + 3); }

static void fill_blocks(struct bench_case *c, bool by_receiver) {
    for (int to = 0; to < c->member_count; to++)
        fill_pattern(c->send + (size_t)to * c->bytes, c->bytes, seed_of(c->rank, by_receiver ? to : 0));
}

static bool has_blocks(const struct bench_case *c, bool by_receiver) {
    bool right = true;
    for (int from = 0; from < c->member_count; from++)
        right &= has_pattern(c->receive + (size_t)from * c->bytes, c->bytes, seed_of(from, by_receiver ? c->rank : 0));
    return right;
}

static bool verify_bcast(struct bench_case *c) {
    int root = root_of(c, c->calls);
    fill_pattern(c->send, c->bytes, c->rank == root ? seed_of(root, 0) : 9999);
    c->test->run(c, 1);
    return has_pattern(c->send, c->bytes, seed_of(root, 0));
}

static bool verify_gather(struct bench_case *c) {
    int root = root_of(c, c->calls);
    fill_pattern(c->send, c->bytes, seed_of(c->rank, 0));
    c->test->run(c, 1);
    return c->rank != root || has_blocks(c, false);
}

static bool verify_scatter(struct bench_case *c) {
    int root = root_of(c, c->calls);
    fill_blocks(c, true);
    c->test->run(c, 1);
    return has_pattern(c->receive, c->bytes, seed_of(root, c->rank));
}

static bool verify_allgather(struct bench_case *c) {
    fill_pattern(c->send, c->bytes, seed_of(c->rank, 0));
    c->test->run(c, 1);
    return has_blocks(c, false);
}

static bool verify_alltoall(struct bench_case *c) {
    fill_blocks(c, true);
    memset(c->receive, 0xee, c->bytes * (size_t)c->member_count);
    c->test->run(c, 1);
    return has_blocks(c, true);
}

/* Returns whether the result is the sum over the ranks from `first` up to but excluding `end`. */
static bool has_sum(const struct bench_case *c, size_t skipped, int first, int end, long call) {
    const double *received = (const double *)c->receive;
    for (size_t i = 0; i < c->bytes / 8; i++) {
        double sum = 0;
        for (int r = first; r < end; r++) sum += element(r, skipped + i, call);
        if (received[i] != sum) return false;
    }
    return true;
}

static void fill_elements(struct bench_case *c, size_t blocks) {
    double *send = (double *)c->send;
    for (size_t i = 0; i < c->bytes / 8 * blocks; i++) send[i] = element(c->rank, i, c->calls);
    memset(c->receive, 0xee, c->bytes);
}

static bool verify_reduce(struct bench_case *c) {
    long call = c->calls;
    fill_elements(c, 1);
    c->test->run(c, 1);
    bool mine = !strcmp(c->test->name, "allreduce") || c->rank == root_of(c, call);
    return !mine || has_sum(c, 0, 0, c->member_count, call);
}

static bool verify_reduce_scatter(struct bench_case *c) {
    long call = c->calls;
    fill_elements(c, (size_t)c->member_count);
    c->test->run(c, 1);
    return has_sum(c, (size_t)c->rank * (c->bytes / 8), 0, c->member_count, call);
}

static bool verify_scan(struct bench_case *c) {
    long call = c->calls;
    int excluded = !strcmp(c->test->name, "exscan");
    fill_elements(c, 1);
    c->test->run(c, 1);
    /* The reversed communicator sums from the last rank down. */
    int first = call % 2 ? c->rank + excluded : 0, end = call % 2 ? c->member_count : c->rank + 1 - excluded;
    return first >= end || has_sum(c, 0, first, end, call);
}

#define SIZES "8,64,1K,8K,64K,1M"
#define BLOCKS "8,64,1K,8K,64K"
#define ROOTS .variants = roots
#define OF_ALL .who = EVERYONE, .of = "call", .line_floor = true

static const char *const roots[] = {"root in turn", NULL};
static const char *const directions[] = {"up and down", NULL};

const struct test collective_tests[] = {
    {.name = "barrier", OF_ALL, .operation = "MPI_Barrier", .sizes = "0", .fixed_size = true, .run = run_barrier},
    {.name = "bcast", OF_ALL, ROOTS, .operation = "MPI_Bcast", .sizes = SIZES, .touches = true, .run = run_bcast,
     .verify = verify_bcast},
    {.name = "gather", OF_ALL, ROOTS, .operation = "MPI_Gather", .sizes = BLOCKS, .by_rank = true, .run = run_gather,
     .verify = verify_gather},
    {.name = "gatherv", OF_ALL, ROOTS, .operation = "MPI_Gatherv", .sizes = BLOCKS, .by_rank = true,
     .prepare = prepare_bytes, .run = run_gatherv, .verify = verify_gather, .finish = finish_counts},
    {.name = "scatter", OF_ALL, ROOTS, .operation = "MPI_Scatter", .sizes = BLOCKS, .by_rank = true,
     .run = run_scatter, .verify = verify_scatter},
    {.name = "scatterv", OF_ALL, ROOTS, .operation = "MPI_Scatterv", .sizes = BLOCKS, .by_rank = true,
     .prepare = prepare_bytes, .run = run_scatterv, .verify = verify_scatter, .finish = finish_counts},
    {.name = "allgather", OF_ALL, .operation = "MPI_Allgather", .sizes = BLOCKS, .by_rank = true, .touches = true,
     .run = run_allgather, .verify = verify_allgather},
    {.name = "allgatherv", OF_ALL, .operation = "MPI_Allgatherv", .sizes = BLOCKS, .by_rank = true,
     .prepare = prepare_bytes, .run = run_allgatherv, .verify = verify_allgather, .finish = finish_counts},
    {.name = "alltoall", OF_ALL, .operation = "MPI_Alltoall", .sizes = BLOCKS, .by_rank = true, .touches = true,
     .run = run_alltoall, .verify = verify_alltoall},
    {.name = "alltoallv", OF_ALL, .operation = "MPI_Alltoallv", .sizes = BLOCKS, .by_rank = true,
     .prepare = prepare_bytes, .run = run_alltoallv, .verify = verify_alltoall, .finish = finish_counts},
    {.name = "alltoallw", OF_ALL, .operation = "MPI_Alltoallw", .sizes = BLOCKS, .by_rank = true,
     .prepare = prepare_bytes, .run = run_alltoallw, .verify = verify_alltoall, .finish = finish_counts},
    {.name = "reduce", OF_ALL, ROOTS, .operation = "MPI_Reduce", .sizes = SIZES, .multiple = 8, .run = run_reduce,
     .verify = verify_reduce},
    {.name = "allreduce", OF_ALL, .operation = "MPI_Allreduce", .sizes = "0," SIZES, .multiple = 8, .touches = true,
     .run = run_allreduce, .verify = verify_reduce},
    {.name = "reduce_scatter", OF_ALL, .operation = "MPI_Reduce_scatter", .sizes = BLOCKS, .by_rank = true,
     .multiple = 8, .prepare = prepare_doubles, .run = run_reduce_scatter, .verify = verify_reduce_scatter,
     .finish = finish_counts},
    {.name = "reduce_scatter_block", OF_ALL, .operation = "MPI_Reduce_scatter_block", .sizes = BLOCKS, .by_rank = true,
     .multiple = 8, .run = run_reduce_scatter_block, .verify = verify_reduce_scatter},
    {.name = "scan", OF_ALL, .variants = directions, .operation = "MPI_Scan", .sizes = SIZES, .multiple = 8,
     .prepare = prepare_reversed, .run = run_scan, .verify = verify_scan, .finish = finish_reversed},
    {.name = "exscan", OF_ALL, .variants = directions, .operation = "MPI_Exscan", .sizes = SIZES, .multiple = 8,
     .prepare = prepare_reversed, .run = run_exscan, .verify = verify_scan, .finish = finish_reversed},
    {.name = NULL},
};
