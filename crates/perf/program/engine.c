/* How a case is measured: warm-up, how many operations a sample has, rounds in turn with the floor.
 *
 * The leader orders; the others that take part run as many operations as it says, without a clock. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURN_SAMPLES = 4096, SAMPLES_MIN = 20, BATCH_MAX = 1 << 20, OVERHEADS = 24 };

enum order { END, TURN, LINES, CHECK, PLACES };

static uint64_t stamps[TURN_SAMPLES + 1];
static double overheads[OVERHEADS];
static long steps_done, steps_total;
static struct figures result; /* of the last case that this rank led */

/* ---- what measuring costs ---- */

static void run_empty(struct bench_case *c, long n) {
    for (long i = 0; i < n; i++) __asm__ volatile("" : : "r"(c) : "memory");
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The loop of a turn. A sample ends where the next begins. */
static void time_samples(struct bench_case *c, void (*run)(struct bench_case *, long), long samples, long operations) {
    stamps[0] = read_ticks();
    for (long i = 1; i <= samples; i++) {
        run(c, operations);
        stamps[i] = read_ticks();
    }
}

/* The loop with its clock readings less the bare loop, over an operation that does nothing. */
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

/* ---- agreement ---- */

bool agree(MPI_Comm members, bool own) {
    int mine = own, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, members);
    return all;
}

static void order(struct bench_case *c, enum order what, long samples, long operations) {
    long words[3] = {what, samples, operations};
    MPI_Bcast(words, 3, MPI_LONG, 0, c->members);
}

/* ---- the leader ---- */

struct pace {
    double operation_ns; /* of one call of the operation, windows whole */
    uint64_t warmed;
    double divisor;
};

/* Says once a second that the case goes on. */
static void show_life(const struct bench_case *c) {
    static uint64_t last;
    uint64_t now = read_monotonic_ns();
    if (world_rank != 0 || now - last < 1000000000u) return;
    last = now;
    print_progress(c->test->name, c->bytes, steps_done - 1, steps_total > steps_done ? steps_total : steps_done);
}

/* Runs a turn; what comes before its first sample is for settling. Returns its length in ns. */
static double run_turn(struct bench_case *c, long samples, long operations, struct pace *p) {
    long settle = operations < 16 ? operations : 16;
    order(c, TURN, samples, operations);
    c->test->run(c, settle);
    p->warmed += (uint64_t)settle;
    time_samples(c, c->test->run, samples, operations);
    double elapsed = ns_of(stamps[samples] - stamps[0]);
    p->operation_ns = elapsed / (double)(samples * operations);
    show_life(c);
    return elapsed;
}

static void warm_up(struct bench_case *c, struct pace *p) {
    long wanted = options.warmup;
    double longest = wanted < 0 ? options.duration_ns / 10 : 1e18, spent = 0;
    if (wanted < 0) wanted = 1000;
    long done = 0;
    for (long n = 1; done < wanted && spent < longest; n = n < 64 ? 2 * n : 64) {
        if (n > wanted - done) n = wanted - done;
        spent += run_turn(c, 1, n, p);
        done += n;
    }
    p->warmed += (uint64_t)done;
    /* The pace, from the shortest of a few. */
    double best = 1e18;
    long n = best > 0 && p->operation_ns > 0 ? (long)(20000 / p->operation_ns) + 1 : 1;
    if (wanted == 0) n = 1;
    for (int i = 0; i < 3; i++) {
        run_turn(c, 1, n, p);
        p->warmed += (uint64_t)n;
        if (p->operation_ns < best) best = p->operation_ns;
        if (best * (double)n > 1e6) break;
    }
    p->operation_ns = best;
}

/* What a reading or a step of the clock is taken for: 48 ns times a power of two, so that runs on one machine, whose
 * figures for it are never quite the same, choose the same samples and can be compared. */
static double round_up_clock(double ns) {
    double taken = 48;
    while (taken < ns) taken *= 2;
    return taken;
}

/* The smallest power of two at which reading the clock is lost in a sample: below 1 % of an operation and below 1 ns of
 * it; where an operation takes long, below 0.01 % will do, up to 4 ns. */
static long choose_batch(const struct bench_case *c, const struct pace *p) {
    long batch = options.batch ? options.batch : 1;
    double read = round_up_clock(bench_clock.read_ns), step = round_up_clock(bench_clock.resolution_ns);
    double unit = p->operation_ns, most = 0.0001 * unit / p->divisor;
    most = most < 1 ? 1 : most > 4 ? 4 : most;
    while (!options.batch && batch < BATCH_MAX) {
        double each = read / (double)batch;
        if (each / p->divisor < most && each < 0.01 * unit && step < 0.01 * unit * (double)batch) break;
        batch *= 2;
    }
    if (!options.batch && batch < c->test->batch_min) batch = c->test->batch_min;
    double each = (double)c->bytes * (c->window > 0 ? c->window : 1);
    if (options.sample_bytes > 0)
        while (batch > 1 && (double)batch * each > options.sample_bytes) batch /= 2;
    /* Each round has some of the operations that were asked for. */
    long most_of_round = options.iterations / options.rounds > 1 ? options.iterations / options.rounds : 1;
    if (options.iterations && !options.batch && batch > most_of_round) batch = most_of_round;
    return batch;
}

static void measure_floor(struct bench_case *c, bool lines, struct histogram *line, struct histogram *copy) {
    enum { SAMPLES = 20, TRIPS = 50 };
    if (lines) {
        order(c, LINES, SAMPLES, TRIPS);
        ask_lines(TRIPS);
        for (int i = 0; i < SAMPLES; i++) {
            uint64_t start = read_ticks();
            ask_lines(TRIPS);
            record_value(line, ns_of(read_ticks() - start) / (2 * TRIPS));
        }
    }
    /* A message of a window is held against a copy where bytes are what takes the time. */
    if (c->bytes >= (c->test->line_floor ? 64 : 4096) && !c->test->by_rank) {
        double once = time_copy(c->receive, c->send, c->bytes, 1);
        once = time_copy(c->receive, c->send, c->bytes, 1);
        long times = once > 5000 ? 1 : (long)(5000 / (once + 1)) + 1;
        long samples = once > 1e6 ? 3 : SAMPLES;
        for (long i = 0; i < samples; i++) record_value(copy, time_copy(c->receive, c->send, c->bytes, times));
    }
}

/* How many samples of so many operations a round has where their number was asked for: all rounds together as many as
 * hold it. */
static long share_of_round(int round, long batch) {
    long all = (options.iterations + batch - 1) / batch, rounds = options.rounds;
    return (long)((__int128)all * (round + 1) / rounds - (__int128)all * round / rounds);
}

/* The samples of one round. */
static void measure_round(struct bench_case *c, struct pace *p, int round, long batch, double case_ns, struct histogram *h) {
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
        spent += run_turn(c, samples, batch, p);
        for (long i = 0; i < samples; i++)
            record_value(h, ns_of(stamps[i + 1] - stamps[i]) / ((double)batch * p->divisor));
        done += samples;
    }
}

static bool check_once(struct bench_case *c) {
    /* The known contents are what is sent. */
    bool touch = c->touch;
    c->touch = false;
    bool right = c->test->verify(c);
    c->touch = touch;
    return agree(c->members, right);
}

static double read_processor_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

struct parts {
    struct histogram samples, line, copy;
};

/* A cache line one way, ns. */
static double ask_line_time(struct bench_case *c) {
    enum { MEANS = 5, TRIPS = 24 };
    order(c, LINES, MEANS, TRIPS);
    return time_lines(MEANS, TRIPS);
}

/* All rounds of one interval. */
static void measure_rounds(struct bench_case *c, struct pace *p, double duration_ns, bool floor, struct figures *f,
                           struct parts *parts) {
    double begun = (double)read_monotonic_ns(), used = read_processor_ns();
    f->lines[0] = floor ? ask_line_time(c) : 0;
    reset_histogram(&parts->samples);
    reset_histogram(&parts->line);
    reset_histogram(&parts->copy);
    for (int round = 0; round < options.rounds; round++) {
        if (round % 2 == 0 && floor) measure_floor(c, c->test->line_floor, &parts->line, &parts->copy);
        measure_round(c, p, round, f->operations_per_sample, duration_ns, &parts->samples);
        if (round % 2 == 1 && floor) measure_floor(c, c->test->line_floor, &parts->line, &parts->copy);
    }
    f->lines[1] = floor ? ask_line_time(c) : 0;
    f->processor_percent = 100 * (read_processor_ns() - used) / ((double)read_monotonic_ns() - begun);
    const struct histogram *line = &parts->line, *copy = &parts->copy;
    bool copies = copy->count > 0 && (line->count == 0 || find_quantile(copy, 0.5) > find_quantile(line, 0.5));
    f->samples = &parts->samples;
    f->floor = copies ? copy : line;
    f->floor_of = copies ? "memory copy" : "cache line one way";
    f->warmup_operations = p->warmed;
    f->overhead_ns = overhead_of(f->operations_per_sample) / p->divisor;
}

/* Cases without a pause between them, printed as they end; the last is left to the caller. */
static void measure_intervals(struct bench_case *c, struct pace *p, double duration_ns, bool floor, struct figures *f,
                              struct parts *parts) {
    static char variant[96];
    for (long i = 1;; i++) {
        if (options.intervals) {
            snprintf(variant, sizeof variant, "%s%sinterval %ld", c->variant, *c->variant ? ", " : "", i);
            f->variant = variant;
        }
        measure_rounds(c, p, duration_ns, floor, f, parts);
        if (options.intervals >= 0 && i >= options.intervals) return;
        check_clock();
        if (world_rank == 0) print_case(f);
    }
}

static void lead(struct bench_case *c, double duration_ns) {
    static struct parts parts;
    const struct test *t = c->test;
    struct pace p = {.divisor = c->flows * (t->per_operation > 0 ? t->per_operation : 1) *
                                (c->window > 0 ? c->window : 1)};
    struct figures f = {.test = t->name, .variant = c->variant, .operation = c->operation, .of = c->of, .unit = "ns",
                        .bytes = c->bytes, .window = c->window, .checked = -1};
    bool right = true, checks = options.check && t->verify;
    if (checks) order(c, CHECK, 0, 0), right = check_once(c);
    warm_up(c, &p);
    order(c, PLACES, 0, 0);
    bool together = runs_on_one_processor(c->members, f.processors);
    bool floor = options.floor && world_ranks == 2 && !together && open_lines(c->members, c->member);
    f.operations_per_sample = choose_batch(c, &p);
    measure_intervals(c, &p, duration_ns, floor, &f, &parts);
    if (checks) order(c, CHECK, 0, 0), right = check_once(c) && right;
    order(c, END, 0, 0);
    check_clock();
    f.checked = checks ? right : -1;
    if (world_rank == 0) print_case(&f);
    result = f;
    if (!right) fprintf(stderr, "%s, %zu bytes: contents arrived wrong\n", t->name, c->bytes);
    any_wrong |= !right;
}

/* ---- the others ---- */

static void follow(struct bench_case *c) {
    for (;;) {
        long words[3];
        MPI_Bcast(words, 3, MPI_LONG, 0, c->members);
        int processors[2];
        switch ((enum order)words[0]) {
        case TURN:
            c->test->run(c, words[2] < 16 ? words[2] : 16);
            for (long i = 0; i < words[1]; i++) c->test->run(c, words[2]);
            break;
        case LINES:
            answer_lines((words[1] + 1) * words[2]);
            break;
        case CHECK:
            check_once(c);
            break;
        case PLACES: {
            bool together = runs_on_one_processor(c->members, processors);
            if (options.floor && world_ranks == 2 && !together) open_lines(c->members, c->member);
            break;
        }
        default:
            return;
        }
    }
}

/* ---- a case from its beginning to its end ---- */

static size_t buffer_bytes(const struct bench_case *c) {
    size_t messages = c->test->messages > 0 ? (size_t)c->test->messages : 1;
    if (c->test->by_rank) messages = (size_t)c->member_count;
    /* What is written anew is not what is under way. */
    if (c->touch && c->window > 0) messages = (size_t)c->window;
    return span_of(c) * messages;
}

/* Whether there is room; says what is missing. */
static bool get_buffers(struct bench_case *c) {
    size_t bytes = buffer_bytes(c);
    double all = 2.0 * (double)bytes * c->member_count, shortage = memory_shortage(all);
    if (!agree(c->members, shortage == 0)) {
        if (c->leads)
            print_missing(c->test->name, "%zu bytes need buffers of %.0f MiB on %d ranks, more than the memory available",
                          c->bytes, all / (1 << 20), c->member_count);
        return false;
    }
    c->send = get_memory(bytes + 64);
    c->receive = get_memory(bytes + 64);
    size_t each = (size_t)(c->window > 0 ? c->window : 1), peers = (size_t)(c->member_count > 2 ? c->member_count : 2);
    c->requests = malloc(each * peers * 2 * sizeof *c->requests);
    if (agree(c->members, c->send && c->receive && c->requests)) return true;
    if (c->leads) print_missing(c->test->name, "%zu bytes: no memory for the buffers", c->bytes);
    return false;
}

static bool prepare_case(struct bench_case *c) {
    if (!get_buffers(c)) return false;
    int typed = make_type(c);
    if (typed != MPI_SUCCESS) print_missing(c->test->name, "%s", describe_error(c->failed, typed));
    if (!agree(c->members, typed == MPI_SUCCESS)) return false;
    if (!c->test->prepare) return true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(c->members, MPI_ERRORS_RETURN);
    int code = c->test->prepare(c);
    MPI_Comm_set_errhandler(c->members, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    if (agree(c->members, code == MPI_SUCCESS)) return true;
    if (c->leads)
        print_missing(c->test->name, "%s",
                      code == MPI_SUCCESS ? "failed on another rank" : describe_error(c->failed, code));
    return false;
}

/* Whether it could be measured. */
static bool run_case(struct bench_case *c, double duration_ns) {
    c->leads = c->goes_first = c->member == 0;
    bool ready = prepare_case(c);
    if (ready && c->leads) lead(c, duration_ns);
    else if (ready) follow(c);
    if (ready && c->test->finish) c->test->finish(c);
    free_type(c);
    free_memory(c->send);
    free_memory(c->receive);
    free(c->requests);
    return ready;
}

struct bench_case make_case(const struct test *t, MPI_Comm members, size_t bytes) {
    struct bench_case c = {.test = t, .variant = "", .operation = t->operation, .of = t->of, .bytes = bytes, .members = members,
                           .flows = 1, .touch = options.touch, .strided = t->rows || options.strided,
                           .rank = world_rank, .ranks = world_ranks, .win = MPI_WIN_NULL, .reversed = MPI_COMM_NULL};
    c.window = t->window == 0 ? 0 : options.window ? options.window : t->window;
    MPI_Comm_rank(members, &c.member);
    MPI_Comm_size(members, &c.member_count);
    c.next_peer = (world_rank + 1) % world_ranks;
    c.previous_peer = (world_rank + world_ranks - 1) % world_ranks;
    return c;
}

size_t list_sizes(const char *own, size_t multiple, size_t *sizes) {
    int count = options.size_count;
    if (count > 0) memcpy(sizes, options.sizes, (size_t)count * sizeof *sizes);
    else parse_sizes(own, sizes, &count);
    size_t kept = 0;
    for (int i = 0; i < count; i++) {
        size_t size = multiple ? (sizes[i] + multiple - 1) / multiple * multiple : sizes[i];
        bool known = false;
        for (size_t k = 0; k < kept; k++) known |= sizes[k] == size;
        if (!known) sizes[kept++] = size;
    }
    return kept;
}

static size_t count_sizes(const struct test *t, size_t *sizes) {
    int count;
    if (!t->fixed_size) return list_sizes(t->sizes, options.strided || t->rows ? ROW_BYTES : t->multiple, sizes);
    parse_sizes(t->sizes, sizes, &count);
    return (size_t)count;
}

/* What the test cannot do of what was asked for; NULL: nothing. */
static const char *find_lacking(const struct test *t) {
    if (options.touch && !t->touches) return "no way to write what is sent and to read what comes (--touch)";
    if (options.strided && !t->strides) return "no messages that are rows in memory (--type strided)";
    if (options.offset % 8 != 0 && (t->words || t->multiple == 8)) return "its words have to be aligned (--offset)";
    return NULL;
}

void expect_test(const struct test *t) {
    size_t sizes[SIZES_MAX];
    long variants = 0;
    while (t->variants && t->variants[variants]) variants++;
    /* Those with a way of their own count as they go. */
    if (!t->drive && !find_lacking(t)) steps_total += (variants ? variants : 1) * (long)count_sizes(t, sizes);
}

void step_progress(const char *test, size_t bytes) {
    if (world_rank == 0) print_progress(test, bytes, steps_done, steps_total > steps_done ? steps_total : steps_done + 1);
    steps_done++;
}

void expect_steps(long steps) { steps_total += steps; }

void run_pair(const struct test *t, const struct pair *pair, size_t bytes, double duration_ns) {
    int first = pair->first, second = pair->second;
    bool member = world_rank == first || world_rank == second;
    MPI_Comm members;
    bool measured = false;
    step_progress(t->name, bytes);
    MPI_Comm_split(MPI_COMM_WORLD, member ? 0 : MPI_UNDEFINED, world_rank == first ? 0 : 1, &members);
    if (member) {
        struct bench_case c = make_case(t, members, bytes);
        c.variant = pair->variant;
        c.variant_index = pair->variant_index;
        c.peer = world_rank == first ? second : first;
        measured = run_case(&c, duration_ns);
        if (world_ranks > 2) end_rest(pair->idle);
        MPI_Comm_free(&members);
    } else {
        rest(pair->idle);
    }
    if (first != 0 && world_rank == first) send_case(&result, measured);
    if (first != 0 && world_rank == 0) receive_case(t, first);
}

static void run_everyone(const struct test *t, const char *variant, int index, size_t bytes) {
    MPI_Comm members;
    step_progress(t->name, bytes);
    MPI_Comm_dup(MPI_COMM_WORLD, &members);
    struct bench_case c = make_case(t, members, bytes);
    c.variant = variant;
    c.variant_index = index;
    run_case(&c, options.duration_ns);
    MPI_Comm_free(&members);
}

void run_test(const struct test *t) {
    static const char *const unnamed[] = {"", NULL};
    size_t sizes[SIZES_MAX];
    const char *lacking = find_lacking(t);
    if (lacking) {
        print_missing(t->name, "%s", lacking);
        return;
    }
    if (t->drive) {
        t->drive(t);
        return;
    }
    if ((t->who == PAIR || t->window > 0) && world_ranks < 2) {
        print_missing(t->name, "needs two ranks");
        return;
    }
    size_t count = count_sizes(t, sizes);
    const char *const *variants = t->variants ? t->variants : unnamed;
    for (int v = 0; variants[v]; v++)
        for (size_t i = 0; i < count; i++) {
            if (t->who == EVERYONE) run_everyone(t, variants[v], v, sizes[i]);
            else {
                struct pair pair = {0, world_ranks - 1, variants[v], v, options.idle};
                run_pair(t, &pair, sizes[i], options.duration_ns);
            }
        }
}
