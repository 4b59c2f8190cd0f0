/* Ping-pong over all pairs and rings, by the definitions of the HPC Challenge benchmark's latency and bandwidth part
 * (bench_lat_bw 1.5.2), with this program's clock. The definitions cover the numbers of measurements and rounds, one
 * round of warm-up, the minimum over measurements, and loops of ten clock ticks of at least 1 us each. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_TOKEN = 10, BANDWIDTH_BYTES = 1 << 16 };

/* Above this size, the parameters of the bandwidth measurement apply. */
static bool is_large(size_t bytes) { return bytes >= BANDWIDTH_BYTES; }

/* Minimum time of a loop, in ns: ten ticks of a clock that ticks every microsecond at most. */
static double shortest_loop(void) {
    double tick = bench_clock.resolution_ns, all = 0;
    MPI_Allreduce(&tick, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return 10 * (all < 1e3 ? 1e3 : all > 1e7 ? 1e7 : all);
}

static int lengthen(int loop) { return loop == 1 ? 2 : loop + loop / 2; }

/* ---- pairs ---- */

struct pairs {
    size_t bytes;
    int loop, measurements, stride;
    double shortest;
    char *send, *receive;
    double *best; /* by server: the shortest half round trip as client, ns; 0: not measured */
    bool right;
};

static void play_client(struct pairs *p, int server) {
    int bytes = (int)p->bytes, again = 1;
    while (again) {
        uint64_t start = 0;
        MPI_Send(&p->loop, 1, MPI_INT, server, TAG_GO, MPI_COMM_WORLD);
        for (int i = -1; i < p->loop; i++) {
            if (i == 0) start = read_ticks();
            MPI_Send(p->send, bytes, MPI_BYTE, server, TAG_DATA, MPI_COMM_WORLD);
            MPI_Recv(p->receive, bytes, MPI_BYTE, server, TAG_ACK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        double elapsed = ns_of(read_ticks() - start), half = elapsed / (2.0 * p->loop);
        again = elapsed < p->shortest;
        if (again) p->loop = lengthen(p->loop);
        else if (p->best[server] == 0 || half < p->best[server]) p->best[server] = half;
        MPI_Send(&again, 1, MPI_INT, server, TAG_GO, MPI_COMM_WORLD);
    }
}

static void play_server(struct pairs *p, int client) {
    int bytes = (int)p->bytes, again = 1, loop;
    while (again) {
        MPI_Recv(&loop, 1, MPI_INT, client, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = -1; i < loop; i++) {
            MPI_Recv(p->receive, bytes, MPI_BYTE, client, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(p->send, bytes, MPI_BYTE, client, TAG_ACK, MPI_COMM_WORLD);
        }
        MPI_Recv(&again, 1, MPI_INT, client, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* Verifies one round trip of known contents, outside the timed part. */
static void check_pair(struct pairs *p, int other, bool first) {
    int bytes = (int)p->bytes;
    fill_pattern(p->send, p->bytes, (unsigned)world_rank);
    memset(p->receive, 0xee, p->bytes);
    if (first) MPI_Send(p->send, bytes, MPI_BYTE, other, TAG_DATA, MPI_COMM_WORLD);
    MPI_Recv(p->receive, bytes, MPI_BYTE, other, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!first) MPI_Send(p->send, bytes, MPI_BYTE, other, TAG_DATA, MPI_COMM_WORLD);
    p->right &= has_pattern(p->receive, p->bytes, (unsigned)other);
}

/* Clients are the ranks from 0 up to `clients_end` (exclusive), servers those from the last rank down to
 * `servers_begin`, both in steps of the stride. One pair runs at a time. A token passes the client role on, and all
 * others wait for a message. */
static void measure_pairs(struct pairs *p, int clients_end, int servers_begin) {
    int last = (clients_end - 1) / p->stride * p->stride, high = world_ranks - 1;
    int first_server = high - (high - servers_begin) / p->stride * p->stride;
    for (int m = 0; m < p->measurements; m++)
        for (int client = 0; client <= last; client += p->stride) {
            if (world_rank == client && client > 0)
                MPI_Recv(NULL, 0, MPI_BYTE, client - p->stride, TAG_TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int server = first_server; server <= high; server += p->stride) {
                if (server == client) continue;
                if (world_rank != client && world_rank != server) continue;
                if (options.check && m == 0) check_pair(p, client + server - world_rank, world_rank == client);
                if (world_rank == client) play_client(p, server);
                else play_server(p, client);
            }
            if (world_rank == client && client < last)
                MPI_Send(NULL, 0, MPI_BYTE, client + p->stride, TAG_TOKEN, MPI_COMM_WORLD);
            MPI_Bcast(NULL, 0, MPI_BYTE, last, MPI_COMM_WORLD);
        }
}

/* Chooses a stride with which all pairs take at most ten seconds: a prime, or more than a third of the ranks. */
static int choose_stride(const struct pairs *p, double half_ns) {
    double once = half_ns * 2 * (p->loop + 1);
    if (once < p->shortest) once = p->shortest;
    double pairs = 1e10 / (once * p->measurements);
    int pings = (int)sqrt(pairs), stride;
    if (pings < 5) pings = 5;
    stride = (int)(1.0 * world_ranks / pings + 0.9);
    if (stride < 1) return 1;
    if (stride == 2) return 3;
    for (bool prime = stride <= 3; !prime && stride <= world_ranks / 3;) {
        prime = true;
        for (int i = 2; i < stride; i++) prime &= stride % i != 0;
        if (!prime) stride++;
    }
    return stride;
}

static void print_pairs(const struct test *t, const struct pairs *p, const double *all) {
    static struct histogram samples;
    char defined[256];
    reset_histogram(&samples);
    for (long i = 0; i < (long)world_ranks * world_ranks; i++)
        if (all[i] > 0) record_value(&samples, all[i]);
    struct figures f = {.test = t->name, .operation = t->operation, .of = t->of, .unit = "ns", .bytes = p->bytes,
                        .operations_per_sample = p->loop, .warmup_operations = 1, .samples = &samples,
                        .overhead_ns = overhead_of(p->loop) / 2, .checked = options.check ? p->right : -1,
                        .processors = {-1, -1}};
    snprintf(defined, sizeof defined,
             "\"HPCC MinPingPongLatency\":%.17g,\"HPCC AvgPingPongLatency\":%.17g,\"HPCC MaxPingPongLatency\":%.17g",
             samples.min, samples.sum / (double)samples.count, samples.max);
    if (!is_large(p->bytes)) f.defined = defined;
    print_case(&f);
}

static void run_pairs(const struct test *t, size_t bytes) {
    struct pairs p = {.bytes = bytes, .loop = is_large(bytes) ? 1 : 8, .measurements = is_large(bytes) ? 2 : 5,
                      .stride = 1, .shortest = shortest_loop(), .right = true};
    if (options.runs) p.measurements = options.runs;
    size_t n = (size_t)world_ranks;
    double *all = world_rank == 0 ? calloc(n * n, sizeof *all) : NULL;
    p.send = get_memory(bytes);
    p.receive = get_memory(bytes);
    p.best = calloc(n, sizeof *p.best);
    if (agree(MPI_COMM_WORLD, p.send && p.receive && p.best && (all || world_rank))) {
        measure_pairs(&p, 1, world_ranks - 1);
        double half = p.best[world_ranks - 1];
        p.stride = choose_stride(&p, half);
        MPI_Bcast(&p.stride, 1, MPI_INT, 0, MPI_COMM_WORLD);
        memset(p.best, 0, n * sizeof *p.best);
        measure_pairs(&p, world_ranks, 0);
        p.right = agree(MPI_COMM_WORLD, p.right);
        MPI_Gather(p.best, world_ranks, MPI_DOUBLE, all, world_ranks, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (world_rank == 0) print_pairs(t, &p, all);
        any_wrong |= !p.right;
    } else {
        print_missing(t->name, "%zu bytes: cannot allocate the buffers", bytes);
    }
    free(all);
    free(p.best);
    free_memory(p.send);
    free_memory(p.receive);
}

static void drive_pairs(const struct test *t) {
    size_t sizes[SIZES_MAX], count = list_sizes(t->sizes, 0, sizes);
    expect_steps((long)count);
    for (size_t i = 0; i < count; i++) {
        step_progress(t->name, sizes[i]);
        run_pairs(t, sizes[i]);
    }
}

/* ---- rings ---- */

struct ring {
    int bytes, left, right, loop, warmup;
    double shortest;
    char *send[2], *receive[2]; /* to and from the left, to and from the right */
};

static void step_sendrecv(struct ring *r) {
    MPI_Sendrecv(r->send[1], r->bytes, MPI_BYTE, r->right, TAG_RIGHT, r->receive[0], r->bytes, MPI_BYTE, r->left,
                 TAG_RIGHT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(r->send[0], r->bytes, MPI_BYTE, r->left, TAG_LEFT, r->receive[1], r->bytes, MPI_BYTE, r->right,
                 TAG_LEFT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void step_nonblocking(struct ring *r) {
    MPI_Request requests[4];
    MPI_Irecv(r->receive[0], r->bytes, MPI_BYTE, r->left, TAG_RIGHT, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(r->receive[1], r->bytes, MPI_BYTE, r->right, TAG_LEFT, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(r->send[1], r->bytes, MPI_BYTE, r->right, TAG_RIGHT, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(r->send[0], r->bytes, MPI_BYTE, r->left, TAG_LEFT, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static double time_steps(struct ring *r, void (*step)(struct ring *)) {
    uint64_t start = 0;
    for (int i = -r->warmup; i < r->loop; i++) {
        if (i == 0) start = read_ticks();
        step(r);
    }
    return ns_of(read_ticks() - start);
}

/* Returns the shorter of this rank's times with MPI_Sendrecv and with nonblocking calls, in ns for each message that it
 * sends. */
static double measure_ring(struct ring *r) {
    double with_sendrecv;
    for (int enough = 0; !enough;) {
        int loop = r->loop, own;
        MPI_Allreduce(&loop, &r->loop, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        double elapsed = time_steps(r, step_sendrecv);
        with_sendrecv = elapsed / (2.0 * r->loop);
        own = elapsed >= r->shortest;
        MPI_Allreduce(&own, &enough, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (!enough) r->loop = lengthen(r->loop);
    }
    double without = time_steps(r, step_nonblocking) / (2.0 * r->loop);
    return with_sendrecv < without ? with_sendrecv : without;
}

static bool check_ring(struct ring *r) {
    size_t bytes = (size_t)r->bytes;
    fill_pattern(r->send[0], bytes, (unsigned)world_rank * 2);
    fill_pattern(r->send[1], bytes, (unsigned)world_rank * 2 + 1);
    bool right = true;
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < 2; i++) memset(r->receive[i], 0xee, bytes);
        (way ? step_nonblocking : step_sendrecv)(r);
        right &= has_pattern(r->receive[0], bytes, (unsigned)r->left * 2 + 1);
        right &= has_pattern(r->receive[1], bytes, (unsigned)r->right * 2);
    }
    return right;
}

/* Orders the ring by one permutation on all ranks. The seed is fixed, so that rings are equal in every run. */
static void order_ring(struct ring *r, bool random, uint64_t seed) {
    int *order = malloc((size_t)world_ranks * sizeof *order);
    if (!order) MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = 0; i < world_ranks; i++) order[i] = i;
    for (int i = world_ranks - 1; random && i > 0; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int k = (int)((seed >> 33) % (uint64_t)(i + 1)), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
    for (int i = 0; i < world_ranks; i++)
        if (order[i] == world_rank) {
            r->left = order[(i + world_ranks - 1) % world_ranks];
            r->right = order[(i + 1) % world_ranks];
        }
    free(order);
}

static void print_ring(const struct test *t, const struct ring *r, bool random, const double *slowest, int rings,
                       int measurements, int right) {
    static struct histogram samples;
    char defined[128], variant[32];
    double logarithms = 0;
    reset_histogram(&samples);
    for (int i = 0; i < rings; i++) {
        double best = slowest[i];
        for (int m = 0; m < measurements; m++) {
            double value = slowest[m * rings + i];
            record_value(&samples, value);
            if (value < best) best = value;
        }
        logarithms += log(best);
    }
    snprintf(defined, sizeof defined, "\"HPCC %sOrderedRingLatency\":%.17g", random ? "Randomly" : "Naturally",
             exp(logarithms / rings));
    snprintf(variant, sizeof variant, "warmup=%d", r->warmup);
    struct figures f = {.test = t->name, .variant = variant, .operation = t->operation, .of = t->of, .unit = "ns",
                        .bytes = (size_t)r->bytes, .operations_per_sample = r->loop,
                        .warmup_operations = (uint64_t)r->warmup, .overhead_ns = overhead_of(r->loop) / 2,
                        .checked = right, .processors = {-1, -1}, .samples = &samples};
    if (!is_large((size_t)r->bytes)) f.defined = defined;
    print_case(&f);
}

static void run_ring(const struct test *t, size_t bytes, bool random, int warmup) {
    bool large = is_large(bytes), right = true;
    int measurements = options.runs ? options.runs : large ? 3 : 8, rings = !random ? 1 : large ? 10 : 30;
    struct ring r = {.bytes = (int)bytes, .loop = large ? 2 : 5, .warmup = warmup, .shortest = shortest_loop()};
    double *taken = calloc((size_t)(rings * measurements), sizeof *taken);
    double *slowest = calloc((size_t)(rings * measurements), sizeof *slowest);
    for (int i = 0; i < 2; i++) r.send[i] = get_memory(bytes), r.receive[i] = get_memory(bytes);
    if (!agree(MPI_COMM_WORLD, taken && slowest && r.send[0] && r.send[1] && r.receive[0] && r.receive[1])) {
        print_missing(t->name, "%zu bytes: cannot allocate the buffers", bytes);
    } else {
        for (int m = 0; m < measurements; m++)
            for (int i = 0; i < rings; i++) {
                order_ring(&r, random, (uint64_t)i + 1);
                if (options.check && m == 0) right &= check_ring(&r);
                taken[m * rings + i] = measure_ring(&r);
            }
        right = agree(MPI_COMM_WORLD, right);
        MPI_Reduce(taken, slowest, rings * measurements, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (world_rank == 0)
            print_ring(t, &r, random, slowest, rings, measurements, options.check ? right : -1);
        any_wrong |= !right;
    }
    free(taken);
    free(slowest);
    for (int i = 0; i < 2; i++) free_memory(r.send[i]), free_memory(r.receive[i]);
}

static void drive_ring(const struct test *t) {
    static const int warmups[] = {1, 100};
    size_t sizes[SIZES_MAX], count = list_sizes(t->sizes, 0, sizes);
    bool random = !strcmp(t->name, "ring-random");
    expect_steps(2 * (long)count);
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < 2; k++) {
            step_progress(t->name, sizes[i]);
            run_ring(t, sizes[i], random, warmups[k]);
        }
}

const struct test hpcc_tests[] = {
    {.name = "pairs", .operation = "MPI_Send/MPI_Recv", .of = "half-round-trip", .sizes = "8,2000000",
     .drive = drive_pairs},
    {.name = "ring-natural", .operation = "MPI_Sendrecv or MPI_Isend/MPI_Irecv", .of = "hop", .sizes = "8,2000000",
     .drive = drive_ring},
    {.name = "ring-random", .operation = "MPI_Sendrecv or MPI_Isend/MPI_Irecv", .of = "hop", .sizes = "8,2000000",
     .drive = drive_ring},
    {.name = NULL},
};
