/* The first messages of a pair: their times right after MPI_Init, before anything is learned, registered or cached,
 * and the times of later messages. */
#include "bench.h"
#include "share.h"

#include <string.h>

enum { NEXT = 50, LATER = 500, TRIPS = 1 + NEXT + LATER };

static void send_one(struct bench_case *c) {
    if (c->touch) write_message(c, c->send);
    MPI_Send(c->send, c->count, c->type, c->peer, TAG_DATA, MPI_COMM_WORLD);
}

static void receive_one(struct bench_case *c) {
    MPI_Recv(c->receive, c->count, c->type, c->peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (c->touch) read_message(c, c->receive);
}

static void play(struct bench_case *c, long trips, uint64_t *stamps) {
    stamps[0] = read_ticks();
    for (long i = 1; i <= trips; i++) {
        if (c->leads) send_one(c);
        receive_one(c);
        if (!c->leads) send_one(c);
        stamps[i] = read_ticks();
    }
}

/* Returns the one-way time of a cache line, in ns; 0 unless the ranks share memory and have a processor each. */
static double time_line(struct bench_case *c) {
    enum { MEANS = 5, TRIPS_OF_LINE = 24 };
    int processors[2];
    if (runs_on_one_processor(c->members, processors) || !options.floor || !open_lines(c->members, c->member)) return 0;
    if (c->leads) return time_lines(MEANS, TRIPS_OF_LINE);
    answer_lines((MEANS + 1) * TRIPS_OF_LINE);
    return 0;
}

static bool check_contents(struct bench_case *c) {
    fill_message(c, c->send, (unsigned)c->rank);
    memset(c->receive, 0xee, span_of(c));
    uint64_t unused[2];
    c->touch = false;
    play(c, 1, unused);
    return agree(c->members, has_message(c, c->receive, (unsigned)c->peer));
}

/* Prints `count` round trips as samples; with `worst`, only the longest of them. */
static void print_part(const struct bench_case *c, const char *name, const uint64_t *stamps, long count, bool worst,
                       struct figures *f) {
    const struct test *t = c->test;
    static struct histogram samples;
    double longest = 0;
    reset_histogram(&samples);
    for (long i = 0; i < count; i++) {
        double taken = ns_of(stamps[i + 1] - stamps[i]);
        if (taken > longest) longest = taken;
        if (!worst) record_value(&samples, taken);
    }
    if (worst) record_value(&samples, longest);
    f->test = t->name, f->variant = name, f->operation = t->operation, f->of = t->of, f->unit = "ns";
    f->bytes = c->bytes, f->operations_per_sample = 1, f->overhead_ns = overhead_of(1), f->samples = &samples;
    print_case(f);
}

static void measure_first(struct bench_case *c, int way) {
    (void)way;
    struct figures f = {.checked = -1};
    double before = time_line(c);
    static uint64_t stamps[TRIPS + 1];
    play(c, TRIPS, stamps);
    double after = time_line(c);
    if (before > 0 && after > 0) f.lines[0] = before, f.lines[1] = after;
    runs_on_one_processor(c->members, f.processors);
    if (options.check) f.checked = check_contents(c);
    any_wrong |= f.checked == 0;
    if (!c->leads) return;
    print_part(c, "the first", stamps, 1, false, &f);
    print_part(c, "worst of the next 50", stamps + 1, NEXT, true, &f);
    print_part(c, "later", stamps + 1 + NEXT, LATER, false, &f);
}

static void drive_first(const struct test *t) { drive_ends(t, 1, measure_first); }

const struct test first_tests[] = {
    {.name = "first", .operation = "MPI_Send/MPI_Recv", .of = "round-trip", .sizes = "64K", .touches = true,
     .strides = true, .drive = drive_first},
    {.name = NULL},
};
