/* Tests of a pair beside idle ranks, of every pair, and of the exit skew of collectives. */
#include "bench.h"
#include "share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a pair beside idle ranks ---- */

static void drive_idle(const struct test *t) {
    static const char *const modes[] = {"barrier", "sleep", "yield", "spin"};
    struct test latency = *find_test("latency");
    size_t sizes[SIZES_MAX], count = list_sizes(t->sizes, 0, sizes);
    latency.name = t->name;
    int modes_used = world_ranks == 2 ? 1 : 4;
    expect_steps((long)count * modes_used);
    for (int m = 0; m < modes_used; m++) {
        char variant[32];
        snprintf(variant, sizeof variant, "idle=%s", world_ranks == 2 ? "none" : modes[m]);
        if (!can_rest(modes[m])) {
            print_missing(t->name, "%s: the ranks share no memory outside of MPI", variant);
            continue;
        }
        struct pair pair = {0, world_ranks - 1, variant, m, modes[m]};
        for (size_t i = 0; i < count; i++) run_pair(&latency, &pair, sizes[i], options.duration_ns);
    }
}

/* ---- every pair ---- */

static void drive_matrix(const struct test *t) {
    struct test latency = *find_test("latency");
    size_t sizes[SIZES_MAX], count = list_sizes(t->sizes, 0, sizes);
    latency.name = t->name;
    /* Measure one case for each pair: a matrix has one value for each pair, not several intervals. */
    long intervals = options.intervals;
    options.intervals = 0;
    expect_steps((long)count * world_ranks * (world_ranks - 1) / 2);
    for (size_t i = 0; i < count; i++)
        for (int first = 0; first < world_ranks; first++)
            for (int second = first + 1; second < world_ranks; second++) {
                char variant[32];
                snprintf(variant, sizeof variant, "%d-%d", first, second);
                struct pair pair = {first, second, variant, 0, options.idle};
                run_pair(&latency, &pair, sizes[i], options.duration_ns / 10);
            }
    options.intervals = intervals;
}

/* ---- exit skew ---- */

enum { SKEW_SAMPLES = 2000, SKEW_LEAST = 20 };

/* Each call follows a barrier; every rank records when it left the call, by the shared clock. */
static void stamp_exits(struct bench_case *c, long samples, int64_t *stamps) {
    for (long i = 0; i < samples; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        c->test->run(c, 1);
        stamps[i] = (int64_t)read_monotonic_ns();
    }
}

/* Returns the number of calls that fit the time of a case, estimated from a few calls. */
static long count_calls(struct bench_case *c, int64_t *stamps) {
    stamp_exits(c, SKEW_LEAST, stamps);
    double each = (double)(stamps[SKEW_LEAST - 1] - stamps[0]) / (SKEW_LEAST - 1);
    long calls = (long)(options.duration_ns / (each + 1));
    if (options.iterations) calls = options.iterations;
    calls = calls > SKEW_SAMPLES ? SKEW_SAMPLES : calls < SKEW_LEAST && !options.iterations ? SKEW_LEAST : calls;
    MPI_Bcast(&calls, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return calls;
}

static void measure_skew(const struct test *t, const struct test *collective, size_t bytes) {
    static int64_t stamps[SKEW_SAMPLES], first[SKEW_SAMPLES], last[SKEW_SAMPLES];
    static struct histogram samples;
    struct bench_case c = make_case(collective, MPI_COMM_WORLD, bytes);
    size_t room = (bytes + 64) * (size_t)world_ranks;
    c.send = get_memory(room);
    c.receive = get_memory(room);
    if (agree(MPI_COMM_WORLD, c.send && c.receive)) {
        long calls = count_calls(&c, stamps);
        stamp_exits(&c, calls, stamps);
        MPI_Reduce(stamps, first, (int)calls, MPI_INT64_T, MPI_MIN, 0, MPI_COMM_WORLD);
        MPI_Reduce(stamps, last, (int)calls, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
        reset_histogram(&samples);
        for (long i = 0; i < calls; i++) record_value(&samples, (double)(last[i] - first[i]));
        struct figures f = {.test = t->name, .variant = collective->name, .operation = collective->operation,
                            .of = t->of, .unit = "ns", .bytes = bytes, .operations_per_sample = 1,
                            .warmup_operations = SKEW_LEAST, .checked = -1, .processors = {-1, -1},
                            .samples = &samples};
        if (world_rank == 0) print_case(&f);
    } else {
        print_missing(t->name, "%zu bytes: cannot allocate the buffers", bytes);
    }
    free_memory(c.send);
    free_memory(c.receive);
}

static void drive_skew(const struct test *t) {
    static const char *const names[] = {"barrier", "bcast",  "gather",    "scatter",             "allgather",
                                        "alltoall", "reduce", "allreduce", "reduce_scatter_block"};
    size_t sizes[SIZES_MAX], count = list_sizes(t->sizes, 8, sizes);
    if (!shared) {
        print_missing(t->name, "the ranks are on several hosts and share no clock");
        return;
    }
    expect_steps(1 + 8 * (long)count);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        for (size_t i = 0; i < (k == 0 ? 1 : count); i++) {
            size_t bytes = k == 0 ? 0 : sizes[i];
            step_progress(t->name, bytes);
            measure_skew(t, find_test(names[k]), bytes);
        }
}

const struct test scaling_tests[] = {
    {.name = "idle", .operation = "MPI_Send/MPI_Recv", .of = "half-round-trip", .sizes = "8", .touches = true,
     .drive = drive_idle},
    {.name = "matrix", .operation = "MPI_Send/MPI_Recv", .of = "half-round-trip", .sizes = "8", .drive = drive_matrix},
    {.name = "exit-skew", .who = EVERYONE, .operation = "", .of = "skew", .sizes = "8", .drive = drive_skew},
    {.name = NULL},
};
