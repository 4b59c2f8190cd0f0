/* Processor time left during a transfer, memory of a rank, and time of a job's start. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

/* ---- overlap ---- */

enum { OVERLAP_SAMPLES = 1000, OVERLAP_LEAST = 20 };

static uint64_t exchange(struct bench_case *c, uint64_t compute_ticks) {
    int bytes = (int)c->bytes;
    uint64_t start = read_ticks();
    MPI_Irecv(c->receive, bytes, MPI_BYTE, c->peer, TAG_DATA, MPI_COMM_WORLD, &c->requests[0]);
    MPI_Isend(c->send, bytes, MPI_BYTE, c->peer, TAG_DATA, MPI_COMM_WORLD, &c->requests[1]);
    if (compute_ticks > 0)
        for (uint64_t begun = read_ticks(); read_ticks() - begun < compute_ticks;) continue;
    MPI_Waitall(2, c->requests, MPI_STATUSES_IGNORE);
    return read_ticks() - start;
}

/* The leader computes while it receives; the other rank waits in MPI_Send. */
static uint64_t receive_alone(struct bench_case *c, uint64_t compute_ticks) {
    int bytes = (int)c->bytes;
    MPI_Barrier(c->members);
    uint64_t start = read_ticks();
    if (!c->leads) {
        MPI_Send(c->send, bytes, MPI_BYTE, c->peer, TAG_DATA, MPI_COMM_WORLD);
        return read_ticks() - start;
    }
    MPI_Irecv(c->receive, bytes, MPI_BYTE, c->peer, TAG_DATA, MPI_COMM_WORLD, &c->requests[0]);
    if (compute_ticks > 0)
        for (uint64_t begun = read_ticks(); read_ticks() - begun < compute_ticks;) continue;
    MPI_Wait(&c->requests[0], MPI_STATUS_IGNORE);
    return read_ticks() - start;
}

struct overlap_way {
    const char *variant, *operation;
    uint64_t (*transfer)(struct bench_case *c, uint64_t compute_ticks);
    /* Computation time as a multiple of a bare transfer: a rank that copies alone may take longer than both do. */
    int times;
};
static const struct overlap_way overlap_ways[] = {
    {NULL, "MPI_Isend/MPI_Irecv/MPI_Waitall", exchange, 1},
    {"receive", "MPI_Irecv/MPI_Wait", receive_alone, 1},
    {"receive, long", "MPI_Irecv/MPI_Wait", receive_alone, 8},
};

/* Both sides exchange a message, or one receives. In half of the transfers they compute between the start and the
 * wait, as long as a bare transfer takes, or eight times as long (`long`). Overlap is the hidden part of that time:
 * 100 * (1 - (whole - computing) / transfer), as in the OSU benchmarks. */
static void measure_overlap(struct bench_case *c, int which) {
    const struct test *t = c->test;
    const struct overlap_way *way = &overlap_ways[which];
    MPI_Request requests[2];
    c->requests = requests;
    static uint64_t bare[OVERLAP_SAMPLES];
    static struct histogram samples;
    long calls = OVERLAP_LEAST;
    for (int i = 0; i < OVERLAP_LEAST; i++) bare[i] = way->transfer(c, 0);
    qsort(bare, OVERLAP_LEAST, sizeof *bare, compare_ticks);
    double each = ns_of(bare[OVERLAP_LEAST / 2]);
    if (options.duration_ns / (3 * each + 1) > OVERLAP_LEAST) calls = (long)(options.duration_ns / (3 * each + 1));
    if (options.iterations) calls = options.iterations;
    if (calls > OVERLAP_SAMPLES) calls = OVERLAP_SAMPLES;
    MPI_Bcast(&calls, 1, MPI_LONG, 0, c->members);
    for (long i = 0; i < calls; i++) bare[i] = way->transfer(c, 0);
    qsort(bare, (size_t)calls, sizeof *bare, compare_ticks);
    uint64_t transfer = bare[calls / 2] > 0 ? bare[calls / 2] : 1;
    MPI_Bcast(&transfer, 1, MPI_UINT64_T, 0, c->members);
    reset_histogram(&samples);
    for (long i = 0; i < calls; i++) {
        uint64_t computing = (uint64_t)way->times * transfer;
        double hidden = (double)(transfer + computing) - (double)way->transfer(c, computing);
        double share = 100 * hidden / (double)transfer;
        record_value(&samples, share < 0 ? 0 : share > 100 ? 100 : share);
    }
    struct figures f = {.test = t->name, .variant = way->variant, .operation = way->operation, .of = t->of,
                        .unit = "%", .bytes = c->bytes,
                        .operations_per_sample = 1, .warmup_operations = (uint64_t)(OVERLAP_LEAST + calls),
                        .checked = -1, .samples = &samples};
    if (options.check) {
        fill_pattern(c->send, c->bytes, (unsigned)world_rank);
        memset(c->receive, 0xee, c->bytes);
        way->transfer(c, 0);
        bool received = c->leads || way->transfer == exchange;
        f.checked = agree(c->members, !received || has_pattern(c->receive, c->bytes, (unsigned)c->peer));
        any_wrong |= !f.checked;
    }
    runs_on_one_processor(c->members, f.processors);
    if (c->leads) print_case(&f);
}

static void drive_overlap(const struct test *t) {
    drive_ends(t, sizeof overlap_ways / sizeof *overlap_ways, measure_overlap);
}

/* ---- memory ---- */

/* Reads a field of the kernel's memory summary of this process, in bytes; below 0 if it is missing. */
static double read_memory(const char *field) { return read_number("/proc/self/smaps_rollup", field) * 1024; }

static void print_memory(const struct test *t, const char *variant, double own) {
    static struct histogram samples;
    double *all = world_rank == 0 ? calloc((size_t)world_ranks, sizeof *all) : NULL;
    if (!agree(MPI_COMM_WORLD, own >= 0 && (all || world_rank))) {
        print_missing(t->name, "%s: /proc/self/smaps_rollup does not report it", variant);
    } else {
        MPI_Gather(&own, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (world_rank == 0) reset_histogram(&samples);
        for (int i = 0; all && i < world_ranks; i++) record_value(&samples, all[i]);
        struct figures f = {.test = t->name, .variant = variant, .operation = t->operation, .of = t->of, .unit = "B",
                            .operations_per_sample = 1, .checked = -1, .processors = {-1, -1}, .samples = &samples};
        if (world_rank == 0) print_case(&f);
    }
    free(all);
}

/* Exchanges one message with the rank at each distance from 1 to `distances`, in both directions. */
static void talk(int distances) {
    int own = world_rank, other;
    for (int d = 1; d <= distances; d++)
        MPI_Sendrecv(&own, 1, MPI_INT, (world_rank + d) % world_ranks, TAG_DATA, &other, 1, MPI_INT,
                     (world_rank + world_ranks - d) % world_ranks, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Reads all values before any is gathered or counted, because that takes memory too. */
static void drive_memory(const struct test *t) {
    static const char *const variants[] = {"pss, neighbours", "rss, neighbours", "pss, all pairs", "rss, all pairs"};
    double own[4];
    step_progress(t->name, 0);
    for (int i = 0; i < 4; i += 2) {
        talk(i == 0 ? (world_ranks > 1 ? 1 : 0) : world_ranks - 1);
        MPI_Barrier(MPI_COMM_WORLD);
        own[i] = read_memory("Pss:");
        own[i + 1] = read_memory("Rss:");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 0; i < 4; i++) print_memory(t, variants[i], own[i]);
}

/* The tool times the job; the ranks do nothing (main.c). */
static void drive_startup(const struct test *t) { step_progress(t->name, 0); }

const struct test resource_tests[] = {
    {.name = "startup", .who = EVERYONE, .operation = "MPI_Init/MPI_Finalize", .of = "process", .sizes = "0", .drive = drive_startup},
    {.name = "overlap", .operation = "MPI_Isend/MPI_Irecv/MPI_Waitall", .of = "overlap", .sizes = "1K,16K,256K,1M,4M",
     .drive = drive_overlap},
    {.name = "memory", .who = EVERYONE, .operation = "MPI_Sendrecv", .of = "memory", .sizes = "0", .drive = drive_memory},
    {.name = NULL},
};
