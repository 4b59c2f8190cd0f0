/* The options. Every rank parses them. */
#include "engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULTS {.duration_ns = 2e8, .warmup = -1, .rounds = 5, .floor = true, .idle = "barrier"}

struct options options = DEFAULTS;

void reset_options(void) { options = (struct options)DEFAULTS; }

double case_duration_ns(void) { return options.duration_ns; }

static char problem[256];

const char *refuse_option(const char *what, const char *text) {
    snprintf(problem, sizeof problem, "%s: %.150s", what, text);
    return problem;
}

const char *parse_sizes(const char *text, size_t *sizes, int *count) {
    const char *at = text;
    *count = 0;
    while (*at) {
        char *end;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        if (end == at || value < 0 || errno) return refuse_option("a size is a number with an optional K, M or G", text);
        if (value > 1LL << 30) return refuse_option("the largest size is 1G", text);
        if (*end == 'K') value <<= 10, end++;
        else if (*end == 'M') value <<= 20, end++;
        else if (*end == 'G') value <<= 30, end++;
        if (value > 1LL << 30) return refuse_option("the largest size is 1G", text);
        if (*count == SIZES_MAX) return refuse_option("too many sizes", text);
        sizes[(*count)++] = (size_t)value;
        if (*end == ',') end++;
        else if (*end) return refuse_option("sizes are separated by commas", text);
        at = end;
    }
    return *count ? NULL : refuse_option("no size", text);
}

static bool parse_number(const char *text, double low, double high, double *value) {
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && *value >= low && *value <= high;
}

const char *set_option(const char *name, const char *text) {
    double value = 0;
    const char *expected = NULL;
    if (!strcmp(name, "--sizes")) return parse_sizes(text, options.sizes, &options.size_count);
    if (!strcmp(name, "--iterations")) {
        if (!parse_number(text, 1, 1e12, &value)) expected = "--iterations: expected a number above zero";
        options.iterations = (long)value;
    } else if (!strcmp(name, "--duration")) {
        if (!parse_number(text, 0.001, 1e9, &value)) expected = "--duration: expected milliseconds above zero";
        options.duration_ns = value * 1e6;
    } else if (!strcmp(name, "--warmup")) {
        if (!parse_number(text, 0, 1e12, &value)) expected = "--warmup: expected a number of operations";
        options.warmup = (long)value;
    } else if (!strcmp(name, "--window")) {
        if (!parse_number(text, 1, WINDOW_MAX, &value)) expected = "--window: expected 1 to 4096";
        options.window = (int)value;
    } else if (!strcmp(name, "--rounds")) {
        if (!parse_number(text, 1, 1e6, &value)) expected = "--rounds: expected a number above zero";
        options.rounds = (int)value;
    } else if (!strcmp(name, "--intervals")) {
        if (!strcmp(text, "endless")) value = -1;
        else if (!parse_number(text, 1, 1e9, &value)) expected = "--intervals: expected a number above zero, or endless";
        options.intervals = (long)value;
    } else if (!strcmp(name, "--runs")) {
        if (!parse_number(text, 1, 1e6, &value)) expected = "--runs: expected a number above zero";
        options.runs = (int)value;
    } else if (!strcmp(name, "--timing")) {
        if (!strcmp(text, "auto")) options.batch = 0;
        else if (!strcmp(text, "each")) options.batch = 1;
        else if (!strncmp(text, "batch=", 6) && parse_number(text + 6, 1, 1e9, &value)) options.batch = (long)value;
        else expected = "--timing: expected auto, each or batch=N";
    } else if (!strcmp(name, "--sample-bytes")) {
        if (!parse_number(text, 1, 1e15, &value)) expected = "--sample-bytes: expected a number above zero";
        options.sample_bytes = value;
    } else if (!strcmp(name, "--idle")) {
        if (strcmp(text, "spin") && strcmp(text, "yield") && strcmp(text, "sleep") && strcmp(text, "barrier"))
            expected = "--idle: expected spin, yield, sleep or barrier";
        options.idle = text;
    } else if (!strcmp(name, "--buffer")) {
        if (strcmp(text, "malloc") && strcmp(text, "alloc_mem")) expected = "--buffer: expected malloc or alloc_mem";
        options.alloc_mem = !strcmp(text, "alloc_mem");
    } else if (!strcmp(name, "--offset")) {
        if (!parse_number(text, 0, 4095, &value)) expected = "--offset: expected 0 to 4095";
        options.offset = (size_t)value;
    } else if (!strcmp(name, "--type")) {
        if (strcmp(text, "bytes") && strcmp(text, "strided")) expected = "--type: expected bytes or strided";
        options.strided = !strcmp(text, "strided");
    } else if (!strcmp(name, "--floor")) {
        if (strcmp(text, "yes") && strcmp(text, "no")) expected = "--floor: expected yes or no";
        options.floor = !strcmp(text, "yes");
    } else {
        return refuse_option("unknown option", name);
    }
    return expected ? refuse_option(expected, text) : NULL;
}
