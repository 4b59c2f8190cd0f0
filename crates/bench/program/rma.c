/* One-sided operations of the first rank on memory of the last. The target only waits for the next order in MPI, so
 * that libraries whose targets must help can progress. */
#include "bench.h"

#include <string.h>

/* The memory is allocated by the program, or by the library. */
enum { EACH_FLUSHED, WINDOWS, ALLOCATED_FLUSHED, ALLOCATED_WINDOWS };
static const char *const flushes[] = {"each flushed", "windows", "allocated, each flushed", "allocated, windows", NULL};

enum { FETCH_AND_OP, COMPARE_AND_SWAP, ACCUMULATE, ATOMICS };
static const char *const atomics[] = {"fetch_and_op", "compare_and_swap", "accumulate", "fetch_and_op, allocated",
                                      "compare_and_swap, allocated", "accumulate, allocated", NULL};
static const char *const atomic_names[] = {"MPI_Fetch_and_op", "MPI_Compare_and_swap", "MPI_Accumulate"};

static int target_of(const struct bench_case *c) { return 1 - c->member; }

static int lock_all(struct bench_case *c) {
    c->failed = "MPI_Win_lock_all";
    return MPI_Win_lock_all(MPI_MODE_NOCHECK, c->win);
}

static int prepare_window(struct bench_case *c) {
    c->failed = "MPI_Win_create";
    c->part = c->receive;
    int code = MPI_Win_create(c->part, (MPI_Aint)(c->bytes + 8), 1, MPI_INFO_NULL, c->members, &c->win);
    return code == MPI_SUCCESS ? lock_all(c) : code;
}

static int allocate_window(struct bench_case *c) {
    c->failed = "MPI_Win_allocate";
    int code = MPI_Win_allocate((MPI_Aint)(c->bytes + 8), 1, MPI_INFO_NULL, c->members, &c->part, &c->win);
    return code == MPI_SUCCESS ? lock_all(c) : code;
}

static int prepare_transfer(struct bench_case *c) {
    bool allocated = c->variant_index == ALLOCATED_FLUSHED || c->variant_index == ALLOCATED_WINDOWS;
    if (c->variant_index == EACH_FLUSHED || c->variant_index == ALLOCATED_FLUSHED) c->window = 0;
    else c->of = "message";
    return allocated ? allocate_window(c) : prepare_window(c);
}

static int prepare_atomic(struct bench_case *c) {
    c->operation = atomic_names[c->variant_index % ATOMICS];
    return c->variant_index < ATOMICS ? prepare_window(c) : allocate_window(c);
}

static void finish_window(struct bench_case *c) {
    MPI_Win_unlock_all(c->win);
    MPI_Win_free(&c->win);
}

static void run_put(struct bench_case *c, long n) {
    int bytes = (int)c->bytes, target = target_of(c), window = c->window > 0 ? c->window : 1;
    if (!c->leads) return;
    for (long i = 0; i < n; i++) {
        for (int w = 0; w < window; w++) MPI_Put(c->send, bytes, MPI_BYTE, target, 0, bytes, MPI_BYTE, c->win);
        MPI_Win_flush(target, c->win);
    }
}

static void run_get(struct bench_case *c, long n) {
    int bytes = (int)c->bytes, target = target_of(c), window = c->window > 0 ? c->window : 1;
    if (!c->leads) return;
    for (long i = 0; i < n; i++) {
        for (int w = 0; w < window; w++) MPI_Get(c->send, bytes, MPI_BYTE, target, 0, bytes, MPI_BYTE, c->win);
        MPI_Win_flush(target, c->win);
    }
}

static void run_flush(struct bench_case *c, long n) {
    int target = target_of(c);
    if (!c->leads) return;
    for (long i = 0; i < n; i++) MPI_Win_flush(target, c->win);
}

/* send[0] is the operand, send[1] the expected value, send[2] the returned value. */
static void run_atomic(struct bench_case *c, long n) {
    int64_t *words = (int64_t *)c->send;
    int target = target_of(c), atomic = c->variant_index % ATOMICS;
    if (!c->leads) return;
    for (long i = 0; i < n; i++) {
        if (atomic == FETCH_AND_OP)
            MPI_Fetch_and_op(&words[0], &words[2], MPI_INT64_T, target, 0, MPI_SUM, c->win);
        else if (atomic == COMPARE_AND_SWAP)
            MPI_Compare_and_swap(&words[0], &words[1], &words[2], MPI_INT64_T, target, 0, c->win);
        else
            MPI_Accumulate(&words[0], 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_SUM, c->win);
        MPI_Win_flush(target, c->win);
    }
}

/* Synchronizes both ranks. Afterwards the target's memory is ready, or the leader's data has arrived in it. */
static void meet(struct bench_case *c) {
    MPI_Win_sync(c->win);
    MPI_Barrier(c->members);
    MPI_Win_sync(c->win);
}

static bool verify_put(struct bench_case *c) {
    fill_pattern(c->send, c->bytes, 7);
    if (!c->leads) memset(c->part, 0xee, c->bytes);
    meet(c);
    run_put(c, 1);
    meet(c);
    return c->leads || has_pattern(c->part, c->bytes, 7);
}

static bool verify_get(struct bench_case *c) {
    if (c->leads) memset(c->send, 0xee, c->bytes);
    else fill_pattern(c->part, c->bytes, 9);
    meet(c);
    run_get(c, 1);
    meet(c);
    return !c->leads || has_pattern(c->send, c->bytes, 9);
}

static bool verify_atomic(struct bench_case *c) {
    int64_t *words = (int64_t *)c->send, *there = (int64_t *)c->part;
    if (!c->leads) *there = 40;
    words[0] = 2;
    words[1] = 40;
    words[2] = -1;
    meet(c);
    run_atomic(c, 1);
    meet(c);
    int atomic = c->variant_index % ATOMICS;
    if (c->leads) return atomic == ACCUMULATE || words[2] == 40;
    return *there == (atomic == COMPARE_AND_SWAP ? 2 : 42);
}

#define SIZES "8,64,1K,8K,64K,1M"

const struct test rma_tests[] = {
    {.name = "put", .who = PAIR, .operation = "MPI_Put/MPI_Win_flush", .of = "round-trip", .sizes = SIZES,
     .variants = flushes, .window = 256, .prepare = prepare_transfer, .run = run_put, .verify = verify_put,
     .finish = finish_window},
    {.name = "get", .who = PAIR, .operation = "MPI_Get/MPI_Win_flush", .of = "round-trip", .sizes = SIZES,
     .variants = flushes, .window = 256, .prepare = prepare_transfer, .run = run_get, .verify = verify_get,
     .finish = finish_window},
    {.name = "atomics", .who = PAIR, .operation = "", .of = "round-trip", .sizes = "8", .fixed_size = true,
     .variants = atomics, .words = true, .prepare = prepare_atomic, .run = run_atomic, .verify = verify_atomic,
     .finish = finish_window},
    {.name = "flush", .who = PAIR, .operation = "MPI_Win_flush", .of = "call", .sizes = "0", .fixed_size = true,
     .prepare = prepare_window, .run = run_flush, .finish = finish_window},
    {.name = NULL},
};
