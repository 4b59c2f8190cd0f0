/* Cases from start to end: participants, resources, and operations for the engine. */
#include "bench.h"
#include "share.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long steps_done, steps_total;
static struct figures result; /* of the last case that this rank led */

/* ---- agreement ---- */

bool agree(MPI_Comm members, bool own) {
    int mine = own, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, members);
    return all;
}

bool open_lines(MPI_Comm members, int member) {
    reset_lines(member == 0);
    return agree(members, shared != NULL);
}

bool runs_on_one_processor(MPI_Comm members, int processors[2]) {
    int own = sched_getcpu(), member, count;
    MPI_Comm_rank(members, &member);
    MPI_Comm_size(members, &count);
    int first = member == 0 ? own : 0, last = member == count - 1 ? own : 0;
    MPI_Bcast(&first, 1, MPI_INT, 0, members);
    MPI_Bcast(&last, 1, MPI_INT, count - 1, members);
    processors[0] = first;
    processors[1] = last;
    return first == last;
}

/* ---- callbacks of the engine ---- */

static void order(struct bench_case *c, const long *words) { MPI_Bcast((long *)words, 3, MPI_LONG, 0, c->members); }

static void await_order(struct bench_case *c, long *words) { MPI_Bcast(words, 3, MPI_LONG, 0, c->members); }

static bool agree_on(struct bench_case *c, bool own) { return agree(c->members, own); }

static bool find_places(struct bench_case *c, int *processors) { return runs_on_one_processor(c->members, processors); }

static bool verify(struct bench_case *c) {
    /* Switch --touch off: it would overwrite the known contents before each send. */
    bool touch = c->touch;
    c->touch = false;
    bool right = c->test->verify(c);
    c->touch = touch;
    return right;
}

/* Reports once a second that the case progresses. */
static void show_life(struct bench_case *c) {
    static uint64_t last;
    uint64_t now = read_monotonic_ns();
    if (world_rank != 0 || now - last < 1000000000u) return;
    last = now;
    print_progress(c->test->name, c->bytes, steps_done - 1, steps_total > steps_done ? steps_total : steps_done);
}

static void show_figures(struct bench_case *c, const struct figures *f) {
    static char variant[96];
    struct figures shown = *f;
    if (f->interval) {
        snprintf(variant, sizeof variant, "%s%sinterval %ld", c->variant, *c->variant ? ", " : "", f->interval);
        shown.variant = variant;
    }
    if (world_rank == 0) print_case(&shown);
    result = shown;
}

static struct loop make_loop(struct bench_case *c) {
    const struct test *t = c->test;
    double window = c->window > 0 ? c->window : 1, per = t->per_operation > 0 ? t->per_operation : 1;
    return (struct loop){
        .c = c, .run = t->run, .verify = options.check && t->verify ? verify : NULL,
        .order = order, .await_order = await_order, .agree = agree_on, .find_places = find_places,
        .show_life = show_life, .show_interval = show_figures,
        .bytes = c->bytes, .divisor = c->flows * per * window, .sample_each = (double)c->bytes * window,
        .batch_min = t->batch_min, .leads = c->leads, .floor = options.floor && world_ranks == 2,
        /* Without a line floor, only messages of 4 KiB and more are compared with a copy. */
        .line_floor = t->line_floor, .copy_min = t->by_rank ? 0 : t->line_floor ? 64 : 4096,
        .send = c->send, .receive = c->receive};
}

static void measure_case(struct bench_case *c, double duration_ns) {
    const struct test *t = c->test;
    struct loop loop = make_loop(c);
    struct figures f = {.test = t->name, .variant = c->variant, .operation = c->operation, .of = c->of, .unit = "ns",
                        .bytes = c->bytes, .window = c->window};
    if (!c->leads) {
        follow_loop(&loop);
        return;
    }
    lead_loop(&loop, duration_ns, &f);
    show_figures(c, &f);
    if (f.checked == 0) {
        fprintf(stderr, "%s, %zu bytes: messages arrived with wrong contents\n", t->name, c->bytes);
        any_wrong = true;
    }
}

/* ---- a case from start to end ---- */

static size_t buffer_bytes(const struct bench_case *c) {
    size_t messages = c->test->messages > 0 ? (size_t)c->test->messages : 1;
    if (c->test->by_rank) messages = (size_t)c->member_count;
    /* A buffer must not be rewritten in flight, so each message of a window has its own. */
    if (c->touch && c->window > 0) messages = (size_t)c->window;
    return span_of(c) * messages;
}

/* Returns whether memory suffices; reports the shortage. */
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
    if (c->leads) print_missing(c->test->name, "%zu bytes: cannot allocate the buffers", c->bytes);
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

/* Returns whether the case could be measured. */
static bool run_case(struct bench_case *c, double duration_ns) {
    c->leads = c->goes_first = c->member == 0;
    bool ready = prepare_case(c);
    if (ready) measure_case(c, duration_ns);
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

/* Returns the reason why the test does not support a requested option; NULL: it supports all. */
static const char *find_lacking(const struct test *t) {
    if (options.touch && !t->touches) return "the test does not support --touch";
    if (options.strided && !t->strides) return "the test does not support --type strided";
    if (options.offset % 8 != 0 && (t->words || t->multiple == 8)) return "the test needs aligned words; use an --offset that is a multiple of 8";
    return NULL;
}

void expect_test(const struct test *t) {
    size_t sizes[SIZES_MAX];
    long variants = 0;
    while (t->variants && t->variants[variants]) variants++;
    /* Tests with a `drive` function count their steps themselves. */
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

void drive_ends(const struct test *t, int ways, void (*measure)(struct bench_case *, int way)) {
    size_t sizes[SIZES_MAX], count = list_sizes(t->sizes, options.strided ? ROW_BYTES : 0, sizes);
    bool member = world_rank == 0 || world_rank == world_ranks - 1;
    MPI_Comm members;
    MPI_Comm_split(MPI_COMM_WORLD, member ? 0 : MPI_UNDEFINED, world_rank, &members);
    expect_steps(ways * (long)count);
    for (size_t step = 0; member && step < (size_t)ways * count; step++) {
        struct bench_case c = make_case(t, members, sizes[step % count]);
        c.leads = c.member == 0;
        c.peer = world_ranks - 1 - world_rank;
        step_progress(t->name, c.bytes);
        c.send = get_memory(span_of(&c));
        c.receive = get_memory(span_of(&c));
        if (agree(members, c.send && c.receive && make_type(&c) == MPI_SUCCESS)) {
            measure(&c, (int)(step / count));
            free_type(&c);
        } else {
            print_missing(t->name, "%zu bytes: cannot allocate the buffers", c.bytes);
        }
        free_memory(c.send);
        free_memory(c.receive);
    }
    if (member) MPI_Comm_free(&members);
    MPI_Barrier(MPI_COMM_WORLD);
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
    if ((t->who == PAIR || t->window > 0) && world_ranks < 2) {
        print_missing(t->name, "needs two ranks");
        return;
    }
    if (t->drive) {
        t->drive(t);
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
