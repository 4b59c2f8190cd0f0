/* The measurement engine: repetitions, recorded values, and the floor. It is independent of MPI: the tests of the
 * program run on it, and the loops below MPI in the toolbox (src/levels). */
#ifndef FASTPATH_BENCH_ENGINE_H
#define FASTPATH_BENCH_ENGINE_H

#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- clock.c ---- */

struct bench_clock {
    bool uses_tsc;
    double ns_per_tick;
    double error_ppm;     /* largest error of the rate so far, against CLOCK_MONOTONIC */
    double resolution_ns; /* smallest step observed */
    double read_ns;       /* median of one reading */
};
extern struct bench_clock bench_clock;

uint64_t read_monotonic_ns(void);

static inline uint64_t read_ticks(void) {
#if defined __x86_64__
    if (bench_clock.uses_tsc) {
        /* rdtscp waits for preceding instructions, so that a message has arrived when its time is read. */
        unsigned processor;
        return __builtin_ia32_rdtscp(&processor); /* avoids <x86intrin.h>, which doubles the compile time of a file */
    }
#endif
    return read_monotonic_ns();
}

void start_clock(void);
void check_clock(void); /* compares the rate with the kernel's clock and corrects it */
double ns_of(uint64_t ticks);
int compare_ticks(const void *a, const void *b); /* for qsort */

/* ---- histogram.c ---- */

struct histogram {
    uint64_t *counts;
    uint64_t count;
    double sum, min, max;
};

void reset_histogram(struct histogram *h);
void record_value(struct histogram *h, double value); /* in the case's unit; stored in thousandths */
double find_quantile(const struct histogram *h, double share);
/* Fills in pairs of a bucket's value, in thousandths, and its count; returns their number. NULL: only counts. */
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
    long warmup;     /* operations; below 0: determined */
    int window;      /* 0: the test's own */
    long batch;      /* operations of a sample; 0: determined */
    double sample_bytes; /* limit of the bytes of a sample of several operations; 0: no limit */
    int rounds;
    long intervals; /* cases in a row at each size; 0: one; below 0: endless */
    int runs; /* measurements, for tests that define a number of them; 0: the defined number */
    bool check, floor, list, touch;
    bool alloc_mem;  /* buffers are from MPI_Alloc_mem instead of malloc */
    size_t offset;   /* offset of the buffers in that memory */
    bool strided;    /* messages are rows in memory (buffers.c), one vector type each */
    const char *idle;
};
extern struct options options;

void reset_options(void); /* sets all options to their defaults */
double case_duration_ns(void);

/* These functions return an error text, or NULL on success. */
const char *set_option(const char *name, const char *text);
const char *refuse_option(const char *what, const char *text);
const char *parse_sizes(const char *text, size_t *sizes, int *count);

/* ---- engine.c ---- */

/* Contents of a "case" event; fields left zero are printed as null or empty. */
struct figures {
    const char *test, *variant, *operation, *of, *unit;
    size_t bytes;
    int window;
    long interval; /* number of the interval, from 1, if there are several; 0: the only one */
    long operations_per_sample;
    uint64_t warmup_operations;
    double overhead_ns;
    double processor_percent; /* of the leader's time; 0: unknown */
    int checked;              /* -1: not requested */
    int processors[2];
    const struct histogram *samples, *floor;
    const char *floor_of;
    double lines[2]; /* a cache line one way, in ns, before the samples and after them; 0: not measured */
    const char *defined; /* further JSON members: figures defined by another tool */
};
struct bench_case; /* owned by the caller: the engine only passes it back */

/* A case for the engine, on each rank that takes part. */
struct loop {
    struct bench_case *c;
    void (*run)(struct bench_case *, long n);
    bool (*verify)(struct bench_case *); /* checks that sent data reaches the other side; NULL: not requested */
    /* The leader gives orders, and the other ranks wait for them; an order has three words. */
    void (*order)(struct bench_case *, const long *words);
    void (*await_order)(struct bench_case *, long *words);
    bool (*agree)(struct bench_case *, bool own);
    /* The processors of the first and the last rank; returns whether they are equal. */
    bool (*find_places)(struct bench_case *, int *processors);
    void (*show_life)(struct bench_case *);                          /* during a case; NULL: none */
    void (*show_interval)(struct bench_case *, const struct figures *); /* for all but the last; NULL: none */
    size_t bytes;
    double divisor;     /* divisor of an operation's time */
    double sample_each; /* bytes of an operation */
    long batch_min;     /* minimum operations of a sample */
    bool leads, floor;  /* floor: whether the floor is requested */
    bool line_floor;    /* the floor is at least a cache line one way */
    size_t copy_min;    /* smallest message that is compared with a copy; 0: none */
    char *send, *receive; /* source and target of the copy */
};

void measure_overhead(void);
double overhead_of(long operations); /* ns that timing adds to an operation with `operations` in a sample */
/* Measures a case, as its leader. The caller sets the figures that stay zero. The histograms are valid until the next
 * case. */
void lead_loop(const struct loop *l, double duration_ns, struct figures *f);
void follow_loop(const struct loop *l); /* called by the other ranks; returns when the leader ends the case */

/* ---- floor.c ---- */

struct share;
extern struct share *shared; /* a page of the ranks of one host, or NULL */

void reset_lines(bool leads);
void ask_lines(long trips);
void answer_lines(long trips);
double time_copy(char *to, const char *from, size_t bytes, long times);
double time_lines(long means, long trips); /* shortest one-way mean, in ns; the peer answers (means + 1) * trips */

/* ---- wire.c ---- */

extern int wire; /* a bare connection of the two ranks on different hosts; -1: none */

long wire_messages(const struct loop *l); /* messages of a trip; 0: the bare connection is no floor of this case */
void ask_wire(const struct loop *l, long trips);
void answer_wire(const struct loop *l, long trips);

#endif
