/* mpibench: small MPI measurements that run alike on every MPI library.
 *
 *   mpiexec -n N mpibench TEST [--sizes 0,8,4K,1M] [--batches B] [--warmup W]
 *                              [--batch-us T] [--window K] [--seconds S]
 *
 * TEST  pingpong       half a round trip between ranks 0 and 1
 *       pingpong-idle  the same between ranks 0 and N-1, all others waiting in MPI_Barrier
 *       rate           time per message in windows of K, each window acknowledged
 *       stream         time per message in windows of K, acknowledged once per batch
 *       bandwidth      as rate, over large sizes
 *       barrier        MPI_Barrier of all ranks
 *       allreduce      MPI_Allreduce (sum of doubles) of all ranks
 *       sendrecv       ring step: MPI_Sendrecv to the right, from the left, all ranks
 *       idle           processor share of a rank blocked in MPI_Recv for S seconds
 *       memory         resident memory of each rank after one exchange with one partner
 *       empty          MPI_Init, MPI_Finalize
 *
 * Each case prints one line of JSON from rank 0. A sample is the mean over one batch of operations; a batch lasts at
 * least T microseconds, so that the resolution of the clock (printed too) does not matter. Every batch after the
 * warm-up counts and is printed. min, median and p99 (nearest rank) are statistics over batches. MB is 10^6 bytes.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { TAG_DATA = 1, TAG_CONTROL = 2, MAX_SIZES = 64, MAX_WINDOW = 1024 };

static struct {
    const char *test;
    long sizes[MAX_SIZES];
    int size_count;
    int batches, warmup, window;
    double batch_us, seconds;
} opt = {.batches = 20, .warmup = 2, .window = 64, .batch_us = 2000, .seconds = 2};

static int rank, ranks;
static char *send_buffer, *receive_buffer;

static void fail(const char *what) {
    fprintf(stderr, "mpibench: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The smallest step that the clock was seen to make. */
static int64_t clock_resolution_ns(void) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < 1000; i++) {
        int64_t a = now_ns(), b;
        do b = now_ns(); while (b == a);
        if (b - a < best) best = b - a;
    }
    return best;
}

/* ---- one batch of each test: `n` operations of `bytes` bytes; called by every rank that takes part ---- */

static void pingpong_batch(long n, int bytes, int peer, int first) {
    for (long i = 0; i < n; i++) {
        if (first) {
            MPI_Send(send_buffer, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD);
            MPI_Recv(receive_buffer, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(receive_buffer, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(send_buffer, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD);
        }
    }
}

/* `n` windows; an acknowledgement of 4 bytes after each `per_ack` windows. */
static void window_batch(long n, int bytes, int peer, int first, long per_ack) {
    static MPI_Request requests[MAX_WINDOW];
    int ack = 0;
    for (long i = 0; i < n; i++) {
        for (int w = 0; w < opt.window; w++) {
            if (first) MPI_Isend(send_buffer, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &requests[w]);
            else MPI_Irecv(receive_buffer, bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &requests[w]);
        }
        MPI_Waitall(opt.window, requests, MPI_STATUSES_IGNORE);
        if ((i + 1) % per_ack == 0 || i + 1 == n) {
            if (first) MPI_Recv(&ack, 1, MPI_INT, peer, TAG_CONTROL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            else MPI_Send(&ack, 1, MPI_INT, peer, TAG_CONTROL, MPI_COMM_WORLD);
        }
    }
}

static void collective_batch(long n, int bytes) {
    if (!strcmp(opt.test, "barrier"))
        for (long i = 0; i < n; i++) MPI_Barrier(MPI_COMM_WORLD);
    else if (!strcmp(opt.test, "allreduce"))
        for (long i = 0; i < n; i++)
            MPI_Allreduce(send_buffer, receive_buffer, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    else
        for (long i = 0; i < n; i++)
            MPI_Sendrecv(send_buffer, bytes, MPI_BYTE, (rank + 1) % ranks, TAG_DATA, receive_buffer, bytes, MPI_BYTE,
                         (rank + ranks - 1) % ranks, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int is_pairwise(void) {
    return !strncmp(opt.test, "pingpong", 8) || !strcmp(opt.test, "rate") || !strcmp(opt.test, "stream") ||
           !strcmp(opt.test, "bandwidth");
}

static int is_windowed(void) {
    return is_pairwise() && strncmp(opt.test, "pingpong", 8);
}

/* Runs one batch on this rank; a count of 0 ends the case. The leader says how many operations to run. */
static double run_batch(long n, int bytes, int peer) {
    int leader = rank == 0;
    if (is_pairwise()) {
        if (leader) MPI_Send(&n, 1, MPI_LONG, peer, TAG_CONTROL, MPI_COMM_WORLD);
        if (n == 0) return 0;
        int64_t start = now_ns();
        if (is_windowed()) window_batch(n, bytes, peer, leader, strcmp(opt.test, "stream") ? 1 : n);
        else pingpong_batch(n, bytes, peer, leader);
        return (double)(now_ns() - start);
    }
    if (leader) MPI_Bcast(&n, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    if (n == 0) return 0;
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t start = now_ns();
    collective_batch(n, bytes);
    return (double)(now_ns() - start);
}

/* The other side of run_batch: obeys the leader until it says 0. */
static void follow(int bytes) {
    for (;;) {
        long n;
        if (is_pairwise()) MPI_Recv(&n, 1, MPI_LONG, 0, TAG_CONTROL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else MPI_Bcast(&n, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        if (n == 0) return;
        run_batch(n, bytes, 0);
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_case(long bytes, long operations, const double *samples) {
    int n = opt.batches;
    double *sorted = malloc((size_t)n * sizeof *sorted);
    memcpy(sorted, samples, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    double median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    double p99 = sorted[(99 * n + 99) / 100 - 1];
    const char *of = is_windowed() ? "message" : is_pairwise() ? "half round trip" : "call";
    printf("{\"test\":\"%s\",\"ranks\":%d,\"bytes\":%ld,\"unit\":\"ns\",\"of\":\"%s\",\"min\":%.2f,\"median\":%.2f,"
           "\"p99\":%.2f,\"batches\":%d,\"warmup_batches\":%d,\"operations_per_batch\":%ld,\"clock_resolution_ns\":%ld",
           opt.test, ranks, bytes, of, sorted[0], median, p99, n, opt.warmup, operations, (long)clock_resolution_ns());
    if (is_windowed()) {
        printf(",\"window\":%d,\"messages_per_s_median\":%.0f,\"messages_per_s_best\":%.0f", opt.window, 1e9 / median,
               1e9 / sorted[0]);
        printf(",\"MB_per_s_median\":%.1f", (double)bytes * 1e3 / median);
    }
    printf(",\"samples\":[");
    for (int i = 0; i < n; i++) printf("%s%.2f", i ? "," : "", samples[i]);
    printf("]}\n");
    fflush(stdout);
    free(sorted);
}

/* Rank 0's side of one case: finds a batch size, warms up, measures, prints. */
static void lead(int bytes, int peer) {
    double target = opt.batch_us * 1000, elapsed;
    long n = 1;
    for (;; n *= 2) {
        elapsed = run_batch(n, bytes, peer);
        /* The shortest of three counts: an interruption would make the batches too small. */
        for (int i = 0; i < 2 && elapsed >= target / 4; i++) {
            double again = run_batch(n, bytes, peer);
            if (again < elapsed) elapsed = again;
        }
        if (elapsed >= target / 4) break;
    }
    n = (long)((double)n * target / elapsed) + 1;
    for (int i = 0; i < opt.warmup; i++) run_batch(n, bytes, peer);
    double *samples = malloc((size_t)opt.batches * sizeof *samples);
    double per = is_windowed() ? opt.window : is_pairwise() ? 2 : 1;
    for (int i = 0; i < opt.batches; i++) samples[i] = run_batch(n, bytes, peer) / ((double)n * per);
    run_batch(0, bytes, peer);
    print_case(bytes, n, samples);
    free(samples);
}

/* One exchange with known contents, so that a library that is fast because it is wrong is found out. */
static void check_contents(int bytes, int peer) {
    memset(send_buffer, 0x5a ^ bytes ^ rank, (size_t)bytes);
    memset(receive_buffer, 0, (size_t)bytes);
    MPI_Sendrecv(send_buffer, bytes, MPI_BYTE, peer, TAG_DATA, receive_buffer, bytes, MPI_BYTE, peer, TAG_DATA,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (long i = 0; i < bytes; i++)
        if (receive_buffer[i] != (char)(0x5a ^ bytes ^ peer)) fail("received contents differ from those sent");
}

static void run_timed(void) {
    long largest = 64;
    for (int i = 0; i < opt.size_count; i++)
        if (opt.sizes[i] > largest) largest = opt.sizes[i];
    send_buffer = aligned_alloc(4096, (size_t)(largest + 4095) / 4096 * 4096);
    receive_buffer = aligned_alloc(4096, (size_t)(largest + 4095) / 4096 * 4096);
    if (!send_buffer || !receive_buffer) fail("out of memory for the buffers");
    memset(send_buffer, 0, (size_t)largest);
    memset(receive_buffer, 0, (size_t)largest);
    if (ranks < 2) fail("needs at least two ranks");
    int last = strcmp(opt.test, "pingpong-idle") ? 1 : ranks - 1;
    int member = !is_pairwise() || rank == 0 || rank == last;
    for (int i = 0; i < opt.size_count && member; i++) {
        if (is_pairwise()) check_contents((int)opt.sizes[i], rank == 0 ? last : 0);
        else memset(send_buffer, 0, (size_t)largest);
        if (rank == 0) lead((int)opt.sizes[i], last);
        else follow((int)opt.sizes[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void run_idle(void) {
    int token = 0;
    if (ranks < 2) fail("needs at least two ranks");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        struct timespec t = {(time_t)opt.seconds, (long)((opt.seconds - (double)(time_t)opt.seconds) * 1e9)};
        nanosleep(&t, NULL);
        for (int i = 1; i < ranks; i++) MPI_Send(&token, 1, MPI_INT, i, TAG_DATA, MPI_COMM_WORLD);
    } else {
        struct rusage a, b;
        getrusage(RUSAGE_SELF, &a);
        int64_t start = now_ns();
        MPI_Recv(&token, 1, MPI_INT, 0, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        double elapsed = (double)(now_ns() - start) / 1e9;
        getrusage(RUSAGE_SELF, &b);
        double cpu = (double)(b.ru_utime.tv_sec - a.ru_utime.tv_sec + b.ru_stime.tv_sec - a.ru_stime.tv_sec) +
                     (double)(b.ru_utime.tv_usec - a.ru_utime.tv_usec + b.ru_stime.tv_usec - a.ru_stime.tv_usec) / 1e6;
        if (rank == 1)
            printf("{\"test\":\"idle\",\"ranks\":%d,\"unit\":\"percent of one processor\",\"blocked_s\":%.3f,\"value\":%.3f}\n",
                   ranks, elapsed, 100 * cpu / elapsed);
    }
}

/* A field of /proc/self/smaps_rollup in KiB; -1 where it is missing. */
static long read_rollup(const char *field) {
    char line[256];
    long value = -1;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field))) value = atol(line + strlen(field));
    if (f) fclose(f);
    return value;
}

static void run_memory(void) {
    int partner = rank ^ 1, token = rank;
    if (partner < ranks)
        MPI_Sendrecv_replace(&token, 1, MPI_INT, partner, TAG_DATA, partner, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    long own[2] = {read_rollup("Rss:"), read_rollup("Pss:")};
    if (rank == 0)
        printf("{\"test\":\"memory\",\"ranks\":%d,\"unit\":\"KiB\",\"of\":\"rank 0\",\"rss\":%ld,\"pss\":%ld}\n", ranks,
               own[0], own[1]);
    MPI_Barrier(MPI_COMM_WORLD);
}

static long parse_size(const char *text, char **end) {
    long value = strtol(text, end, 10);
    if (*end == text || value < 0) fail("a size is a number with an optional K or M");
    if (**end == 'K') value <<= 10, ++*end;
    else if (**end == 'M') value <<= 20, ++*end;
    if (value > 1L << 30) fail("the largest size is 1024M");
    return value;
}

static void parse_options(int argc, char **argv) {
    const char *sizes = NULL;
    opt.test = argc > 1 ? argv[1] : "";
    for (int i = 2; i < argc; i++) {
        if (i + 1 == argc) fail("an option lacks its value");
        if (!strcmp(argv[i], "--sizes")) sizes = argv[++i];
        else if (!strcmp(argv[i], "--batches")) opt.batches = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--warmup")) opt.warmup = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--window")) opt.window = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--batch-us")) opt.batch_us = atof(argv[++i]);
        else if (!strcmp(argv[i], "--seconds")) opt.seconds = atof(argv[++i]);
        else fail("unknown option");
    }
    if (opt.batches < 1 || opt.warmup < 0 || opt.window < 1 || opt.window > MAX_WINDOW || opt.batch_us <= 0)
        fail("an option is out of range");
    if (!sizes)
        sizes = !strcmp(opt.test, "bandwidth") ? "4K,64K,256K,1M,4M"
                : !strcmp(opt.test, "barrier") ? "0"
                : !strcmp(opt.test, "pingpong") ? "0,8,64,256,1K,4K,16K,64K,256K,1M,4M" : "8";
    for (char *at = (char *)sizes; *at && opt.size_count < MAX_SIZES;) {
        opt.sizes[opt.size_count++] = parse_size(at, &at);
        if (*at == ',') at++;
        else if (*at) fail("sizes are separated by commas");
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    parse_options(argc, argv);
    if (!strcmp(opt.test, "idle")) run_idle();
    else if (!strcmp(opt.test, "memory")) run_memory();
    else if (is_pairwise() || !strcmp(opt.test, "barrier") || !strcmp(opt.test, "allreduce") ||
             !strcmp(opt.test, "sendrecv")) run_timed();
    else if (strcmp(opt.test, "empty")) fail("unknown test; the head of mpibench.c lists them");
    MPI_Finalize();
    return 0;
}
