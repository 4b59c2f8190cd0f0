/* The benchmark program: the same source for every MPI library. It needs MPI 3.1 and C11 on Linux only. Rank 0
 * prints one JSON object a line (events.c) and selects the cases; the ranks of a case follow its orders (cases.c). A
 * sample is the mean over enough operations that the clock reading is negligible. */
#ifndef FASTPATH_BENCH_H
#define FASTPATH_BENCH_H

#include "engine.h"

#include <mpi.h>

enum { TAG_DATA = 1, TAG_ACK = 2, TAG_GO = 3, TAG_CASE = 4, TAG_RIGHT = 11, TAG_LEFT = 12 };

/* ---- tests and cases ---- */

enum who { PAIR, EVERYONE };

struct test {
    const char *name;
    enum who who;
    const char *operation, *of, *sizes;
    const char *const *variants; /* names, terminated by NULL; NULL: a single unnamed variant */
    int window;                  /* messages of one operation; 0: not a test of windows */
    int messages;                /* messages in each buffer; 0: one, or what `by_rank` or a rewritten window needs */
    double per_operation;        /* divisor of an operation's time, besides the window */
    bool by_rank;                /* buffers for a message from each rank */
    bool fixed_size;             /* the size cannot be chosen */
    bool touches;                /* supports writing sent and reading received messages */
    bool strides;                /* supports messages that are rows in memory */
    bool rows;                   /* all messages of the test are rows */
    bool words;                  /* buffers of the test hold aligned words */
    size_t multiple;             /* sizes are multiples of this (elements of a reduction); 0: any */
    bool line_floor;             /* the floor is at least a cache line one way */
    long batch_min;              /* minimum operations of a sample */
    int (*prepare)(struct bench_case *);
    void (*run)(struct bench_case *, long n);
    bool (*verify)(struct bench_case *); /* one operation with known contents; returns whether they arrived */
    void (*finish)(struct bench_case *);
    void (*drive)(const struct test *); /* runs the test itself; fields from `window` on are then unused */
};

/* One case, as seen by a rank that takes part. */
struct bench_case {
    const struct test *test;
    const char *variant, *operation, *of;
    int variant_index;
    size_t bytes;
    int window;
    double flows;     /* messages of all ranks for each message of the leader; usually 1 */
    MPI_Comm members; /* participants; its rank 0 leads */
    int rank, ranks;  /* in MPI_COMM_WORLD */
    int member, member_count;
    int peer; /* the partner's rank in MPI_COMM_WORLD */
    int next_peer, previous_peer;
    bool leads;      /* the one participant that gives orders */
    bool goes_first; /* in its pair: sends before it receives; the leader if there is one pair only */
    char *send, *receive;
    MPI_Datatype type; /* element type of a message, which has `count` elements */
    int count;
    bool strided;
    long calls; /* operations so far, which determine the root of the next */
    bool touch; /* each message is written before it is sent and read after it is received */
    uint64_t turn; /* counter of written messages, from which their contents are made */
    MPI_Request *requests;
    MPI_Win win;
    char *part; /* this rank's memory of the window */
    MPI_Comm reversed;
    int *counts, *offsets;
    MPI_Datatype *types;
    const char *failed; /* function that returned an error in `prepare` */
};

extern int world_rank, world_ranks;
extern bool any_wrong; /* a check failed */
const struct test *find_test(const char *name);
extern const struct test pairwise_tests[], collective_tests[], rma_tests[], hpcc_tests[], scaling_tests[],
    resource_tests[], first_tests[], file_tests[];

/* ---- events.c ---- */

void print_start(void);
void print_end(void);
void print_progress(const char *test, size_t bytes, long done, long total);
void print_missing(const char *test, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *describe_error(const char *function, int code);

void print_case(const struct figures *f);

/* ---- cases.c ---- */

void run_test(const struct test *t);
void step_progress(const char *test, size_t bytes);
void expect_steps(long steps);
void expect_test(const struct test *t); /* steps of the test, unless it counts them itself */
struct bench_case make_case(const struct test *t, MPI_Comm members, size_t bytes);
/* Lists the requested sizes, or those of `own`, rounded up to whole elements, each once. */
size_t list_sizes(const char *own, size_t multiple, size_t *sizes);
/* Returns whether `own` is true on all members, for instance that resources were allocated. */
bool agree(MPI_Comm members, bool own);
bool open_lines(MPI_Comm members, int member); /* returns whether there is a shared page for the lines */
/* Returns whether the first and the last member share a processor, and both processors. */
bool runs_on_one_processor(MPI_Comm members, int processors[2]);

struct pair {
    int first, second; /* ranks; the first leads */
    const char *variant;
    int variant_index;
    const char *idle; /* action of the other ranks: rest.c */
};

/* Measures one case of a pair of ranks while the other ranks rest; all ranks call it. */
void run_pair(const struct test *t, const struct pair *pair, size_t bytes, double duration_ns);
/* Calls `measure` on the first and the last rank for each size and each `way` below `ways`; all ranks call it. */
void drive_ends(const struct test *t, int ways, void (*measure)(struct bench_case *, int way));

/* ---- deliver.c ---- */

void send_case(const struct figures *f, bool measured);
void receive_case(const struct test *t, int from);

/* ---- rest.c: actions of ranks without a part in the case ---- */

bool rest(const char *how);        /* called by the other ranks; returns when the pair ends the rest */
void end_rest(const char *how);    /* called by both ranks of the pair */
bool can_rest(const char *how);


/* ---- buffers.c ---- */

/* Bytes of a row of a strided message: 64 doubles, in an array whose rows are twice as long. */
enum { ROW_BYTES = 512, ROW_STRIDE = 1024 };

void *get_memory(size_t bytes); /* allocated by --buffer and --offset, and written once; NULL on failure */
void free_memory(void *at);
const char *describe_buffers(void); /* layout and use of the buffers, which distinguish cases */
size_t span_of(const struct bench_case *c); /* memory extent of a message, in bytes */
int make_type(struct bench_case *c);  /* type of a message, by the bytes of the case and whether they are rows */
void free_type(struct bench_case *c);
void fill_message(const struct bench_case *c, char *at, unsigned seed);
bool has_message(const struct bench_case *c, const char *at, unsigned seed);
void write_message(struct bench_case *c, char *at); /* stores all data, like a program that produces it */
void read_message(const struct bench_case *c, const char *at); /* loads all data, like a program that uses it */
void fill_pattern(char *at, size_t bytes, unsigned seed);
bool has_pattern(const char *at, size_t bytes, unsigned seed);
void write_all(char *at, size_t bytes, uint64_t word);
void read_all(const char *at, size_t bytes);
double memory_shortage(double bytes); /* missing memory of this job, in bytes; 0 if it fits */
double read_number(const char *path, const char *field); /* number after a field of a file; below 0 if it is missing */

#endif
