/* Output of rank 0: one JSON object a line. A case has its stored form (docs/schema/bench-1.json). */
#include "bench.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void print_text(const char *text) {
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)(text ? text : ""); *c; c++) {
        if (*c == '"' || *c == '\\') printf("\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f) printf("\\u%04x", *c);
        else putchar(*c);
    }
    putchar('"');
}

static void print_member(const char *name, const char *text) {
    printf("\"%s\":", name);
    print_text(text);
    putchar(',');
}

static void print_clock(void) {
    printf("\"clock\":{\"source\":\"%s\",\"frequency_hz\":%.17g,\"frequency_error_ppm\":%.6g,"
           "\"resolution_ns\":%.6g,\"read_ns\":%.6g}",
           bench_clock.uses_tsc ? "tsc" : "CLOCK_MONOTONIC", 1e9 / bench_clock.ns_per_tick, bench_clock.error_ppm,
           bench_clock.resolution_ns, bench_clock.read_ns);
}

/* All ranks call it; rank 0 prints. */
void print_start(void) {
    int processor = sched_getcpu(), last = processor, length = 0;
    if (world_ranks > 1) {
        if (world_rank == world_ranks - 1) MPI_Send(&processor, 1, MPI_INT, 0, TAG_GO, MPI_COMM_WORLD);
        if (world_rank == 0)
            MPI_Recv(&last, 1, MPI_INT, world_ranks - 1, TAG_GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (world_rank != 0) return;
    char library[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "", host[256] = "";
    MPI_Get_library_version(library, &length);
    library[strcspn(library, "\n")] = 0;
    gethostname(host, sizeof host - 1);
    printf("{\"event\":\"start\",\"program\":1,");
    print_member("library", library);
    printf("\"ranks\":%d,\"processors\":[%d,%d],", world_ranks, processor, last);
    print_member("host", host);
    print_clock();
    printf(",\"overhead_ns_each\":%.4g}\n", overhead_of(1));
    fflush(stdout);
}

void print_end(void) {
    check_clock();
    printf("{\"event\":\"end\",");
    print_clock();
    printf("}\n");
    fflush(stdout);
}

void print_progress(const char *test, size_t bytes, long done, long total) {
    printf("{\"event\":\"progress\",");
    print_member("test", test);
    printf("\"bytes\":%zu,\"done\":%ld,\"total\":%ld}\n", bytes, done, total);
    fflush(stdout);
}

void print_missing(const char *test, const char *format, ...) {
    char reason[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    if (world_rank != 0) return;
    /* Print a reason once: every size of a test may lack one resource. */
    static char said[1280];
    char now[1280];
    snprintf(now, sizeof now, "%s: %s", test, reason);
    if (!strcmp(now, said)) return;
    strcpy(said, now);
    printf("{\"event\":\"missing\",");
    print_member("test", test);
    printf("\"reason\":");
    print_text(reason);
    printf("}\n");
    fflush(stdout);
}

const char *describe_error(const char *function, int code) {
    static char text[MPI_MAX_ERROR_STRING + 128];
    char error[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0, class = 0;
    MPI_Error_class(code, &class);
    MPI_Error_string(code, error, &length);
    error[strcspn(error, "\n")] = 0;
    snprintf(text, sizeof text, "%s: error class %d: %s", function, class, error);
    return text;
}

void print_case(const struct figures *f) {
    char variant[160];
    const char *buffers = describe_buffers(), *own = f->variant ? f->variant : "";
    snprintf(variant, sizeof variant, "%s%s%s", own, *own && *buffers ? ", " : "", buffers);
    printf("{\"event\":\"case\",");
    print_member("test", f->test);
    print_member("variant", variant);
    print_member("operation", f->operation);
    print_member("of", f->of);
    print_member("unit", f->unit);
    printf("\"bytes\":%zu,\"ranks\":%d,", f->bytes, world_ranks);
    if (f->window > 0) printf("\"window\":%d,", f->window);
    else printf("\"window\":null,");
    printf("\"timing\":{\"operations_per_sample\":%ld,\"warmup_operations\":%llu,\"overhead_ns\":%.4g},",
           f->operations_per_sample, (unsigned long long)f->warmup_operations, f->overhead_ns);
    printf("\"checked\":%s,\"processors\":[%d,%d],", f->checked < 0 ? "null" : f->checked ? "true" : "false",
           f->processors[0], f->processors[1]);
    if (f->processor_percent > 0) printf("\"processor_percent\":%.4g,", f->processor_percent);
    if (f->lines[0] > 0) printf("\"lines\":[%.6g,%.6g],", f->lines[0], f->lines[1]);
    if (f->defined) printf("\"defined\":{%s},", f->defined);
    if (f->floor && f->floor->count > 0) {
        print_member("floor_of", f->floor_of);
        printf("\"floor\":");
        print_histogram(f->floor);
        putchar(',');
    }
    printf("\"samples\":");
    print_histogram(f->samples);
    printf("}\n");
    fflush(stdout);
}
