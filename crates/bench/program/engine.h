/* The measurement engine: how often what runs, what is recorded, and the floor beside it. It knows nothing of MPI: the
 * tests of the program run on it, and the loops below MPI that the toolbox has itself (src/levels). */
#ifndef FASTPATH_BENCH_ENGINE_H
#define FASTPATH_BENCH_ENGINE_H

#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined __x86_64__
#include <x86intrin.h>
#endif

/* ---- clock.c ---- */

struct bench_clock {
    bool uses_tsc;
    double ns_per_tick;
    double error_ppm;     /* of that, against CLOCK_MONOTONIC: the largest so far */
    double resolution_ns; /* smallest step seen */
    double read_ns;       /* one reading, median */
};
extern struct bench_clock bench_clock;

uint64_t read_monotonic_ns(void);

static inline uint64_t read_ticks(void) {
#if defined __x86_64__
    if (bench_clock.uses_tsc) {
        /* Waits for what stands before it, so that a message is there when its time is taken. */
        unsigned processor;
        return __rdtscp(&processor);
    }
#endif
    return read_monotonic_ns();
}

void start_clock(void);
void check_clock(void); /* compares the rate with the kernel's clock again and corrects it */
double ns_of(uint64_t ticks);
int compare_ticks(const void *a, const void *b); /* for qsort */

/* ---- histogram.c ---- */

struct histogram {
    uint64_t *counts;
    uint64_t count;
    double sum, min, max;
};

void reset_histogram(struct histogram *h);
void record_value(struct histogram *h, double value); /* in the case's unit; kept in thousandths */
double find_quantile(const struct histogram *h, double share);
/* Pairs of a value in a bucket, in thousandths, and a count; returns how many, and only counts them for NULL. */
size_t pack_histogram(const struct histogram *h, uint64_t *pairs);
void unpack_histogram(struct histogram *h, const uint64_t *pairs, size_t count, const double *sum_min_max);
void print_histogram(const struct histogram *h); /* as JSON */

/* ---- options.c ---- */

enum { SIZES_MAX = 128, WINDOW_MAX = 4096, TESTS_MAX = 64 };

struct options {
    const char *tests[TESTS_MAX];
    int test_count;
    size_t sizes[SIZES_MAX];
    int size_count;
    double duration_ns;
    long iterations; /* 0: by duration */
    long warmup;     /* operations; below 0: found out */
    int window;      /* 0: the test's own */
    long batch;      /* operations of a sample; 0: found out */
    double sample_bytes; /* a sample of several operations carries no more than this; 0: no limit */
    int rounds;
    long intervals; /* cases in a row at each size; 0: one; below 0: without end */
    int runs; /* measurements of tests that have a number of their own; 0: theirs */
    bool check, floor, list, touch;
    bool alloc_mem;  /* buffers come from MPI_Alloc_mem, not from malloc */
    size_t offset;   /* how far into that memory they begin */
    bool strided;    /* messages are rows in memory (buffers.c), one vector type each */
    const char *idle;
};
extern struct options options;

void reset_options(void); /* to what they are where nothing is asked for */
double case_duration_ns(void);

/* These return what is wrong, or NULL. */
const char *set_option(const char *name, const char *text);
const char *refuse_option(const char *what, const char *text);
const char *parse_sizes(const char *text, size_t *sizes, int *count);

/* ---- engine.c ---- */

/* What a "case" event says; fields left zero are printed as null or empty. */
struct figures {
    const char *test, *variant, *operation, *of, *unit;
    size_t bytes;
    int window;
    long interval; /* which of several in a row; 0: the only one */
    long operations_per_sample;
    uint64_t warmup_operations;
    double overhead_ns;
    double processor_percent; /* of the leader's time; 0: not known */
    int checked;              /* -1: not asked for */
    int processors[2];
    const struct histogram *samples, *floor;
    const char *floor_of;
    double lines[2]; /* a cache line one way, ns, before the samples and after them; 0: not measured */
    const char *defined; /* further JSON members: figures by another tool's definition */
};
struct bench_case; /* whose it is: the engine only hands it back */

/* A case as the engine sees it, on each rank that takes part. */
struct loop {
    struct bench_case *c;
    void (*run)(struct bench_case *, long n);
    bool (*verify)(struct bench_case *); /* what one side sends is what the other gets; NULL: not asked for */
    /* The leader orders, the others wait for orders; each order has three words. */
    void (*order)(struct bench_case *, const long *words);
    void (*await_order)(struct bench_case *, long *words);
    bool (*agree)(struct bench_case *, bool own);
    /* The processors of the first and the last rank; whether they are one. */
    bool (*find_places)(struct bench_case *, int *processors);
    void (*show_life)(struct bench_case *);                          /* during a case; NULL: nothing */
    void (*show_interval)(struct bench_case *, const struct figures *); /* not the last; NULL: nothing */
    size_t bytes;
    double divisor;     /* of an operation's time */
    double sample_each; /* bytes that an operation carries */
    long batch_min;     /* operations of a sample, at least */
    bool leads, floor;  /* whether a floor is wanted */
    bool line_floor;    /* the floor is at least a cache line one way */
    size_t copy_min;    /* smallest message that is held against a copy; 0: none */
    char *send, *receive; /* what is copied */
};

void measure_overhead(void);
double overhead_of(long operations); /* ns that timing adds to an operation at so many per sample */
/* Measures a case, as its leader; what stays zero in the figures is the caller's. The histograms are there until the next
 * case. */
void lead_loop(const struct loop *l, double duration_ns, struct figures *f);
void follow_loop(const struct loop *l); /* the others, until the leader ends it */

/* ---- floor.c ---- */

struct share;
extern struct share *shared; /* a page of the ranks of one host; NULL where there is none */

void reset_lines(bool leads);
void ask_lines(long trips);
void answer_lines(long trips);
double time_copy(char *to, const char *from, size_t bytes, long times);
double time_lines(long means, long trips); /* one way, ns: the shortest mean; the other side answers (means + 1) * trips */

/* ---- wire.c ---- */

extern int wire; /* a bare connection of the two ranks, where they are on different hosts; -1: none */

long wire_messages(const struct loop *l); /* those of a trip; 0: the bare connection is no floor of it */
void ask_wire(const struct loop *l, long trips);
void answer_wire(const struct loop *l, long trips);

#endif
