/* The measurement of a case: warm-up, operations of a sample, and rounds in turn with the floor. The leader gives
 * orders; the other ranks run as many operations as it orders, without a clock. */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURN_SAMPLES = 4096, SAMPLES_MIN = 20, BATCH_MAX = 1 << 20, OVERHEADS = 24 };

enum order { END, TURN, LINES, CHECK, PLACES, WIRE };

static uint64_t stamps[TURN_SAMPLES + 1];
static double overheads[OVERHEADS];

/* ---- overhead of measuring ---- */

static void run_empty(struct bench_case *c, long n) {
    for (long i = 0; i < n; i++) __asm__ volatile("" : : "r"(c) : "memory");
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The loop of a turn. A sample ends where the next one starts. */
static void time_samples(struct bench_case *c, void (*run)(struct bench_case *, long), long samples, long operations) {
    stamps[0] = read_ticks();
    for (long i = 1; i <= samples; i++) {
        run(c, operations);
        stamps[i] = read_ticks();
    }
}

/* Measures the overhead of clock readings: an empty operation in the timed loop, less the bare loop. */
void measure_overhead(void) {
    enum { TRIES = 15, SAMPLES = 256 };
    void (*volatile run)(struct bench_case *, long) = run_empty;
    for (int i = 0; i < OVERHEADS; i++) {
        long operations = 1L << i;
        double taken[TRIES];
        if (operations > 1024) {
            overheads[i] = overheads[i - 1] / 2;
            continue;
        }
        for (int k = 0; k < TRIES; k++) {
            time_samples(NULL, run, SAMPLES, operations);
            double with = ns_of(stamps[SAMPLES] - stamps[0]);
            uint64_t start = read_ticks();
            run(NULL, SAMPLES * operations);
            double bare = ns_of(read_ticks() - start);
            taken[k] = (with - bare) / (double)(SAMPLES * operations);
        }
        qsort(taken, TRIES, sizeof *taken, compare_doubles);
        overheads[i] = taken[TRIES / 2] > 0 ? taken[TRIES / 2] : 0;
    }
}

double overhead_of(long operations) {
    int i = 0;
    while (i < OVERHEADS - 1 && 1L << i < operations) i++;
    return overheads[i];
}

/* ---- the leader ---- */

static void order(const struct loop *l, enum order what, long samples, long operations) {
    l->order(l->c, (long[3]){what, samples, operations});
}

struct pace {
    double operation_ns; /* time of one call of the operation, with its whole window */
    uint64_t warmed;
};

/* Runs a turn, with some untimed operations before its first sample. Returns the time of all samples in ns. */
static double run_turn(const struct loop *l, long samples, long operations, struct pace *p) {
    long settle = operations < 16 ? operations : 16;
    order(l, TURN, samples, operations);
    l->run(l->c, settle);
    p->warmed += (uint64_t)settle;
    time_samples(l->c, l->run, samples, operations);
    double elapsed = ns_of(stamps[samples] - stamps[0]);
    p->operation_ns = elapsed / (double)(samples * operations);
    if (l->show_life) l->show_life(l->c);
    return elapsed;
}

static void warm_up(const struct loop *l, struct pace *p) {
    long wanted = options.warmup;
    double longest = wanted < 0 ? options.duration_ns / 10 : 1e18, spent = 0;
    if (wanted < 0) wanted = 1000;
    long done = 0;
    for (long n = 1; done < wanted && spent < longest; n = n < 64 ? 2 * n : 64) {
        if (n > wanted - done) n = wanted - done;
        spent += run_turn(l, 1, n, p);
        done += n;
    }
    p->warmed += (uint64_t)done;
    /* The duration of an operation, from the shortest of a few. */
    double best = 1e18;
    long n = best > 0 && p->operation_ns > 0 ? (long)(20000 / p->operation_ns) + 1 : 1;
    if (wanted == 0) n = 1;
    for (int i = 0; i < 3; i++) {
        run_turn(l, 1, n, p);
        p->warmed += (uint64_t)n;
        if (p->operation_ns < best) best = p->operation_ns;
        if (best * (double)n > 1e6) break;
    }
    p->operation_ns = best;
}

/* Assumed cost of a reading or a step of the clock: 48 ns times a power of two. Runs on one machine measure slightly
 * different costs. The rounding makes them choose equal samples, which can be compared. */
static double round_up_clock(double ns) {
    double taken = 48;
    while (taken < ns) taken *= 2;
    return taken;
}

/* The smallest power of two of operations at which clock reading is negligible: below 1 % of an operation and below
 * 1 ns. For long operations the limit is 0.01 %, up to 4 ns. */
static long choose_batch(const struct loop *l, const struct pace *p) {
    long batch = options.batch ? options.batch : 1;
    double read = round_up_clock(bench_clock.read_ns), step = round_up_clock(bench_clock.resolution_ns);
    double unit = p->operation_ns, most = 0.0001 * unit / l->divisor;
    most = most < 1 ? 1 : most > 4 ? 4 : most;
    while (!options.batch && batch < BATCH_MAX) {
        double each = read / (double)batch;
        if (each / l->divisor < most && each < 0.01 * unit && step < 0.01 * unit * (double)batch) break;
        batch *= 2;
    }
    if (!options.batch && batch < l->batch_min) batch = l->batch_min;
    if (options.sample_bytes > 0)
        while (batch > 1 && (double)batch * l->sample_each > options.sample_bytes) batch /= 2;
    /* If the number of operations was requested, a sample must not exceed a round's share of them. */
    long most_of_round = options.iterations / options.rounds > 1 ? options.iterations / options.rounds : 1;
    if (options.iterations && !options.batch && batch > most_of_round) batch = most_of_round;
    return batch;
}

/* Measures the floor by the bare connection; a sample of long messages is one trip. */
static void measure_wire(const struct loop *l, struct histogram *h) {
    double each = l->sample_each > 0 ? l->sample_each : 1;
    long trips = each > 65536 ? 1 : 10, samples = each > 1 << 22 ? 3 : 20;
    order(l, WIRE, samples, trips);
    ask_wire(l, trips);
    for (long i = 0; i < samples; i++) {
        uint64_t start = read_ticks();
        ask_wire(l, trips);
        record_value(h, ns_of(read_ticks() - start) / ((double)trips * l->divisor));
    }
}

static void measure_floor(const struct loop *l, struct histogram *line, struct histogram *copy) {
    enum { SAMPLES = 20, TRIPS = 50 };
    if (wire >= 0) {
        measure_wire(l, line);
        return;
    }
    if (l->line_floor) {
        order(l, LINES, SAMPLES, TRIPS);
        ask_lines(TRIPS);
        for (int i = 0; i < SAMPLES; i++) {
            uint64_t start = read_ticks();
            ask_lines(TRIPS);
            record_value(line, ns_of(read_ticks() - start) / (2 * TRIPS));
        }
    }
    if (l->copy_min > 0 && l->bytes >= l->copy_min) {
        double once = time_copy(l->receive, l->send, l->bytes, 1);
        once = time_copy(l->receive, l->send, l->bytes, 1);
        long times = once > 5000 ? 1 : (long)(5000 / (once + 1)) + 1;
        long samples = once > 1e6 ? 3 : SAMPLES;
        for (long i = 0; i < samples; i++) record_value(copy, time_copy(l->receive, l->send, l->bytes, times));
    }
}

/* Number of samples of `batch` operations in a round, if the number of operations was requested. All rounds together
 * take the smallest number of samples that has at least the requested number of operations. */
static long share_of_round(int round, long batch) {
    long all = (options.iterations + batch - 1) / batch, rounds = options.rounds;
    return (long)((__int128)all * (round + 1) / rounds - (__int128)all * round / rounds);
}

/* Takes the samples of one round. */
static void measure_round(const struct loop *l, struct pace *p, int round, long batch, double case_ns, struct histogram *h) {
    double rounds = options.rounds, budget = case_ns / rounds, spent = 0;
    long least = SAMPLES_MIN / options.rounds > 0 ? SAMPLES_MIN / options.rounds : 1;
    long wanted = options.iterations ? share_of_round(round, batch) : 0;
    for (long done = 0;;) {
        double left = (budget - spent) / (p->operation_ns * (double)batch);
        long samples = options.iterations ? wanted - done : left > TURN_SAMPLES ? TURN_SAMPLES : (long)left;
        if (!options.iterations && done + samples < least && spent < 20 * budget) samples = least - done;
        if (!options.iterations && samples < 1 && done == 0) samples = 1;
        if (samples < 1) return;
        if (samples > TURN_SAMPLES) samples = TURN_SAMPLES;
        spent += run_turn(l, samples, batch, p);
        for (long i = 0; i < samples; i++)
            record_value(h, ns_of(stamps[i + 1] - stamps[i]) / ((double)batch * l->divisor));
        done += samples;
    }
}

static bool check_once(const struct loop *l) { return l->agree(l->c, l->verify(l->c)); }

static double read_processor_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Returns whether all ranks have the shared page with the cache lines of the floor. */
static bool open_floor(const struct loop *l) {
    reset_lines(l->leads);
    return l->agree(l->c, shared != NULL);
}

struct parts {
    struct histogram samples, line, copy;
};

/* Returns the one-way time of a cache line, in ns. */
static double ask_line_time(const struct loop *l) {
    enum { MEANS = 5, TRIPS = 24 };
    order(l, LINES, MEANS, TRIPS);
    return time_lines(MEANS, TRIPS);
}

/* Measures all rounds of one interval. */
static void measure_rounds(const struct loop *l, struct pace *p, double duration_ns, bool floor, struct figures *f,
                           struct parts *parts) {
    double begun = (double)read_monotonic_ns(), used = read_processor_ns();
    f->lines[0] = floor && wire < 0 ? ask_line_time(l) : 0;
    reset_histogram(&parts->samples);
    reset_histogram(&parts->line);
    reset_histogram(&parts->copy);
    for (int round = 0; round < options.rounds; round++) {
        if (round % 2 == 0 && floor) measure_floor(l, &parts->line, &parts->copy);
        measure_round(l, p, round, f->operations_per_sample, duration_ns, &parts->samples);
        if (round % 2 == 1 && floor) measure_floor(l, &parts->line, &parts->copy);
    }
    f->lines[1] = floor && wire < 0 ? ask_line_time(l) : 0;
    f->processor_percent = 100 * (read_processor_ns() - used) / ((double)read_monotonic_ns() - begun);
    const struct histogram *line = &parts->line, *copy = &parts->copy;
    bool copies = copy->count > 0 && (line->count == 0 || find_quantile(copy, 0.5) > find_quantile(line, 0.5));
    f->samples = &parts->samples;
    f->floor = copies ? copy : line;
    f->floor_of = wire >= 0 ? l->line_floor ? "bare socket" : "bare socket, stream"
                  : copies  ? "memory copy"
                            : "cache line one way";
    f->warmup_operations = p->warmed;
    f->overhead_ns = overhead_of(f->operations_per_sample) / l->divisor;
}

void lead_loop(const struct loop *l, double duration_ns, struct figures *f) {
    static struct parts parts;
    struct pace p = {0};
    bool right = true;
    if (l->verify) order(l, CHECK, 0, 0), right = check_once(l);
    warm_up(l, &p);
    order(l, PLACES, 0, 0);
    bool crowded = l->find_places(l->c, f->processors);
    bool floor = l->floor && (wire >= 0 ? wire_messages(l) > 0 : !crowded && open_floor(l));
    f->operations_per_sample = choose_batch(l, &p);
    f->checked = l->verify ? right : -1;
    /* The intervals follow without a pause. The caller shows the figures of the last one. */
    for (f->interval = options.intervals ? 1 : 0;; f->interval++) {
        measure_rounds(l, &p, duration_ns, floor, f, &parts);
        if (options.intervals >= 0 && f->interval >= options.intervals) break;
        check_clock();
        if (l->show_interval) l->show_interval(l->c, f);
    }
    if (l->verify) order(l, CHECK, 0, 0), right = check_once(l) && right;
    order(l, END, 0, 0);
    check_clock();
    f->checked = l->verify ? right : -1;
}

/* ---- the other ranks ---- */

void follow_loop(const struct loop *l) {
    for (;;) {
        long words[3];
        l->await_order(l->c, words);
        int processors[2];
        switch ((enum order)words[0]) {
        case TURN:
            l->run(l->c, words[2] < 16 ? words[2] : 16);
            for (long i = 0; i < words[1]; i++) l->run(l->c, words[2]);
            break;
        case LINES:
            answer_lines((words[1] + 1) * words[2]);
            break;
        case CHECK:
            check_once(l);
            break;
        case PLACES:
            if (!l->find_places(l->c, processors) && l->floor && wire < 0) open_floor(l);
            break;
        case WIRE:
            answer_wire(l, (words[1] + 1) * words[2]);
            break;
        default:
            return;
        }
    }
}
