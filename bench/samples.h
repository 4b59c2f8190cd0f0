/* Samples of a plain ping-pong loop, printed as the lines that `fastpath compare` reads. For bench/agreement. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SAMPLES = 4000, TRIPS = 16, WARMUP = 2000 };

static double samples[SAMPLES];

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static int compare_samples(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Thousandths of a nanosecond, with 12 significant bits: crates/report/src/record/histogram.rs. */
static unsigned long bucket_of(double ns) {
    unsigned long value = (unsigned long)(ns * 1000 + 0.5);
    int dropped = 0;
    while (value >> dropped >= 4096) dropped++;
    return value >> dropped << dropped;
}

#define CLOCK "\"clock\":{\"source\":\"CLOCK_MONOTONIC\",\"frequency_hz\":1e9,\"frequency_error_ppm\":0,\"resolution_ns\":1,\"read_ns\":0}"

static void print_samples(const char *library, const char *operation, size_t bytes) {
    double sum = 0;
    qsort(samples, SAMPLES, sizeof *samples, compare_samples);
    for (int i = 0; i < SAMPLES; i++) sum += samples[i];
    printf("{\"event\":\"start\",\"program\":1,\"library\":\"%s\",\"ranks\":2,\"processors\":[0,1],\"host\":\"\"," CLOCK
           ",\"overhead_ns_each\":0}\n", library);
    printf("{\"event\":\"case\",\"test\":\"latency\",\"variant\":\"\",\"operation\":\"%s\",\"of\":\"half-round-trip\","
           "\"unit\":\"ns\",\"bytes\":%zu,\"ranks\":2,\"window\":null,\"operations_per_sample\":%d,"
           "\"warmup_operations\":%d,\"overhead_ns\":0,\"checked\":null,\"processors\":[0,1],"
           "\"sum\":%.6f,\"min\":%.6f,\"max\":%.6f,\"buckets\":[",
           operation, bytes, TRIPS, WARMUP, sum, samples[0], samples[SAMPLES - 1]);
    for (int i = 0, next; i < SAMPLES; i = next) {
        for (next = i; next < SAMPLES && bucket_of(samples[next]) == bucket_of(samples[i]);) next++;
        printf("%s[%lu,%d]", i ? "," : "", bucket_of(samples[i]), next - i);
    }
    printf("],\"floor\":null}\n{\"event\":\"end\"," CLOCK "}\n");
}

/* `round_trip` sends one message and receives one; the leader measures the time. */
static void measure(void (*round_trip)(void), int leads) {
    for (int i = 0; i < WARMUP; i++) round_trip();
    for (int i = 0; i < SAMPLES; i++) {
        double start = now_ns();
        for (int k = 0; k < TRIPS; k++) round_trip();
        if (leads) samples[i] = (now_ns() - start) / (2 * TRIPS);
    }
}
