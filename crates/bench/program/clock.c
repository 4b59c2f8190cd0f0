/* The clock: the processor's time stamp counter if it is invariant, otherwise CLOCK_MONOTONIC. */
#include "engine.h"

#include <stdlib.h>
#include <time.h>
#if defined __x86_64__
#include <cpuid.h>
#endif

struct bench_clock bench_clock;

static uint64_t first_ticks, first_ns;

uint64_t read_monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool has_invariant_tsc(void) {
#if defined __x86_64__
    unsigned a, b, c, d;
    if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !(d & 1u << 27)) return false; /* rdtscp */
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
#else
    return false;
#endif
}

/* Reads one moment on both clocks; returns the nanoseconds between the surrounding readings. */
static uint64_t read_both(uint64_t *ticks, uint64_t *ns) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 200; i++) {
        uint64_t before = read_monotonic_ns(), now = read_ticks(), after = read_monotonic_ns();
        if (after - before >= best) continue;
        best = after - before;
        *ticks = now;
        *ns = before + best / 2;
    }
    return best;
}

int compare_ticks(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void measure_reading(void) {
    enum { SAMPLES = 201, READINGS = 64 };
    static uint64_t taken[SAMPLES];
    uint64_t step = UINT64_MAX;
    for (int i = 0; i < SAMPLES; i++) {
        uint64_t start = read_ticks(), last = start;
        for (int k = 0; k < READINGS; k++) {
            uint64_t now = read_ticks();
            if (now != last && now - last < step) step = now - last;
            last = now;
        }
        taken[i] = last - start;
    }
    qsort(taken, SAMPLES, sizeof *taken, compare_ticks);
    bench_clock.read_ns = ns_of(taken[SAMPLES / 2]) / READINGS;
    bench_clock.resolution_ns = ns_of(step);
}

void start_clock(void) {
    bench_clock = (struct bench_clock){.uses_tsc = has_invariant_tsc(), .ns_per_tick = 1};
    if (bench_clock.uses_tsc) {
        uint64_t ticks, ns, width = read_both(&first_ticks, &first_ns);
        struct timespec pause = {0, 20000000};
        nanosleep(&pause, NULL);
        width += read_both(&ticks, &ns);
        bench_clock.ns_per_tick = (double)(ns - first_ns) / (double)(ticks - first_ticks);
        bench_clock.error_ppm = (double)width / 2 / (double)(ns - first_ns) * 1e6;
        if (!(bench_clock.ns_per_tick > 0 && bench_clock.ns_per_tick < 1000)) {
            bench_clock = (struct bench_clock){.ns_per_tick = 1};
        }
    }
    measure_reading();
}

void check_clock(void) {
    if (!bench_clock.uses_tsc) return;
    uint64_t ticks, ns;
    read_both(&ticks, &ns);
    double rate = (double)(ns - first_ns) / (double)(ticks - first_ticks);
    /* The new rate spans a longer time and is better: its difference from the old one is the error so far. */
    double error = (bench_clock.ns_per_tick / rate - 1) * 1e6;
    if (error < 0) error = -error;
    if (error > bench_clock.error_ppm) bench_clock.error_ppm = error;
    bench_clock.ns_per_tick = rate;
}

double ns_of(uint64_t ticks) { return (double)ticks * bench_clock.ns_per_tick; }
