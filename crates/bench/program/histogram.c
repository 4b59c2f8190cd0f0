/* Every sample in bounded memory: buckets with 12 significant bits of a value in thousandths of the unit. */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 12, HALF = 1 << (KEPT - 1), BUCKETS = 2 * HALF + (64 - KEPT) * HALF };

static unsigned width_of(uint64_t value) { return value ? 64 - (unsigned)__builtin_clzll(value) : 0; }

static size_t bucket_of(uint64_t value) {
    unsigned width = width_of(value), dropped = width > KEPT ? width - KEPT : 0;
    if (dropped == 0) return (size_t)value;
    return 2 * HALF + (size_t)(dropped - 1) * HALF + (size_t)((value >> dropped) - HALF);
}

static uint64_t bound_of(size_t bucket) {
    if (bucket < 2 * HALF) return bucket;
    size_t dropped = (bucket - 2 * HALF) / HALF + 1;
    return (uint64_t)((bucket - 2 * HALF) % HALF + HALF) << dropped;
}

void reset_histogram(struct histogram *h) {
    uint64_t *counts = h->counts;
    if (counts) memset(counts, 0, BUCKETS * sizeof *counts);
    else counts = calloc(BUCKETS, sizeof *counts);
    if (!counts) {
        fprintf(stderr, "cannot allocate a histogram\n");
        abort();
    }
    *h = (struct histogram){.counts = counts};
}

void record_value(struct histogram *h, double value) {
    if (!(value > 0)) value = 0;
    if (value > 1e15) value = 1e15;
    h->counts[bucket_of((uint64_t)(value * 1000 + 0.5))]++;
    h->min = h->count == 0 || value < h->min ? value : h->min;
    h->max = h->count == 0 || value > h->max ? value : h->max;
    h->sum += value;
    h->count++;
}

double find_quantile(const struct histogram *h, double share) {
    uint64_t rank = (uint64_t)(share * (double)h->count), seen = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        seen += h->counts[i];
        if (seen > rank) return (double)bound_of(i) / 1000;
    }
    return h->max;
}

size_t pack_histogram(const struct histogram *h, uint64_t *pairs) {
    size_t count = 0;
    for (size_t i = 0; h->count > 0 && i < BUCKETS; i++) {
        if (!h->counts[i]) continue;
        if (pairs) pairs[2 * count] = bound_of(i), pairs[2 * count + 1] = h->counts[i];
        count++;
    }
    return count;
}

void unpack_histogram(struct histogram *h, const uint64_t *pairs, size_t count, const double *sum_min_max) {
    reset_histogram(h);
    for (size_t i = 0; i < count; i++) {
        h->counts[bucket_of(pairs[2 * i])] += pairs[2 * i + 1];
        h->count += pairs[2 * i + 1];
    }
    h->sum = sum_min_max[0], h->min = sum_min_max[1], h->max = sum_min_max[2];
}

void print_histogram(const struct histogram *h) {
    printf("{\"count\":%llu,\"min\":%.17g,\"mean\":%.17g,\"max\":%.17g,\"buckets\":[", (unsigned long long)h->count, h->min,
           h->sum / (double)h->count, h->max);
    const char *comma = "";
    for (size_t i = 0; i < BUCKETS; i++) {
        if (!h->counts[i]) continue;
        printf("%s[%llu,%llu]", comma, (unsigned long long)bound_of(i), (unsigned long long)h->counts[i]);
        comma = ",";
    }
    printf("]}");
}
