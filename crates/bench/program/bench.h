/* The benchmark program: the same source for every MPI library. MPI 3.1 and C11 on Linux, nothing else.
 *
 * Rank 0 prints one JSON object a line (events.c) and decides what is done next; the ranks that take part in a case
 * obey its orders (cases.c). A sample is the mean over so many operations that reading the clock does not show. */
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
    const char *const *variants; /* ends with NULL; NULL: one without a name */
    int window;                  /* messages of one operation; 0: not a test of windows */
    int messages;                /* that each buffer holds; 0: one, or what the fields below say */
    double per_operation;        /* what an operation's time is divided by, besides the window */
    bool by_rank;                /* buffers for a message from each rank */
    bool fixed_size;             /* its size is not for choice */
    bool touches;                /* knows how to write what it sends and to read what it receives */
    bool strides;                /* knows messages that are rows in memory */
    bool rows;                   /* its messages always are */
    bool words;                  /* its buffers hold words that have to be aligned */
    size_t multiple;             /* sizes are multiples of it (elements of a reduction); 0: any */
    bool line_floor;             /* the floor is at least a cache line one way */
    long batch_min;              /* operations of a sample, at least */
    int (*prepare)(struct bench_case *);
    void (*run)(struct bench_case *, long n);
    bool (*verify)(struct bench_case *); /* one operation with known contents: whether they arrived */
    void (*finish)(struct bench_case *);
    void (*drive)(const struct test *); /* a way of its own; then the fields from `window` on are not used */
};

/* One case as the ranks that take part see it. */
struct bench_case {
    const struct test *test;
    const char *variant, *operation, *of;
    int variant_index;
    size_t bytes;
    int window;
    double flows;     /* messages that go at once for each of the leader's; 1 but where a test says otherwise */
    MPI_Comm members; /* those who take part; its rank 0 leads */
    int rank, ranks;  /* in MPI_COMM_WORLD */
    int member, member_count;
    int peer; /* the partner's rank in MPI_COMM_WORLD */
    int next_peer, previous_peer;
    bool leads;      /* says what is run when; one of all that take part */
    bool goes_first; /* of its pair: sends before it receives; the leader where there is one pair only */
    char *send, *receive;
    MPI_Datatype type; /* of a message, of which `count` are sent */
    int count;
    bool strided;
    long calls; /* operations done so far: who is root of the next */
    bool touch; /* each message is written before it is sent and read after it has come */
    uint64_t turn; /* what it is written with */
    MPI_Request *requests;
    MPI_Win win;
    char *part; /* of the window: this rank's memory */
    MPI_Comm reversed;
    int *counts, *offsets;
    MPI_Datatype *types;
    const char *failed; /* the function that gave an error in `prepare` */
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
void expect_test(const struct test *t); /* its steps, where it does not count them itself */
struct bench_case make_case(const struct test *t, MPI_Comm members, size_t bytes);
/* Sizes that were asked for, or these; whole elements, each once. */
size_t list_sizes(const char *own, size_t multiple, size_t *sizes);
/* Whether all members could get what they asked for. */
bool agree(MPI_Comm members, bool own);
bool open_lines(MPI_Comm members, int member); /* whether there is a page for them */
/* Where the first and the last member are now. */
bool runs_on_one_processor(MPI_Comm members, int processors[2]);

struct pair {
    int first, second; /* ranks; the first leads */
    const char *variant;
    int variant_index;
    const char *idle; /* what the others do: rest.c */
};

/* One case of a pair of ranks with the others resting; everyone calls it. */
void run_pair(const struct test *t, const struct pair *pair, size_t bytes, double duration_ns);
/* The first and the last rank measure each size by themselves, in so many ways; everyone calls it. */
void drive_ends(const struct test *t, int ways, void (*measure)(struct bench_case *, int way));

/* ---- deliver.c ---- */

void send_case(const struct figures *f, bool measured);
void receive_case(const struct test *t, int from);

/* ---- rest.c: what ranks do that take no part ---- */

bool rest(const char *how);        /* the others: until the pair ends it */
void end_rest(const char *how);    /* the pair, both of them */
bool can_rest(const char *how);


/* ---- buffers.c ---- */

/* A message of rows: each of 64 doubles, in an array whose rows are twice as long. */
enum { ROW_BYTES = 512, ROW_STRIDE = 1024 };

void *get_memory(size_t bytes); /* as --buffer and --offset say; written once */
void free_memory(void *at);
const char *describe_buffers(void); /* what distinguishes a case by how its buffers lie and are used */
size_t span_of(const struct bench_case *c); /* bytes of memory over which a message lies */
int make_type(struct bench_case *c);  /* of a message; the case has the bytes and whether they are rows */
void free_type(struct bench_case *c);
void fill_message(const struct bench_case *c, char *at, unsigned seed);
bool has_message(const struct bench_case *c, const char *at, unsigned seed);
void write_message(struct bench_case *c, char *at); /* as a program that makes it */
void read_message(const struct bench_case *c, const char *at); /* as a program that uses it */
void fill_pattern(char *at, size_t bytes, unsigned seed);
bool has_pattern(const char *at, size_t bytes, unsigned seed);
void write_all(char *at, size_t bytes, uint64_t word);
void read_all(const char *at, size_t bytes);
double memory_shortage(double bytes); /* of this job in bytes; 0 where it fits */
double read_number(const char *path, const char *field); /* behind a field of a file; below 0 where it is missing */

#endif
