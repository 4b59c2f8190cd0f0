/* Sends the cases that are led by another rank to rank 0, which prints all output. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

struct header {
    struct figures figures; /* its pointers are invalid at the receiver */
    char variant[64];
    double sums[2][3]; /* sum, minimum, maximum of samples and floor */
    long buckets[2];
    int measured, has_line_floor;
};

static const char *const line_floor = "cache line one way", *const copy_floor = "memory copy";

void send_case(const struct figures *f, bool measured) {
    struct header h = {.measured = measured};
    if (measured) {
        const struct histogram *parts[2] = {f->samples, f->floor};
        h.figures = *f;
        strncpy(h.variant, f->variant, sizeof h.variant - 1);
        h.has_line_floor = f->floor_of && !strcmp(f->floor_of, line_floor);
        for (int i = 0; i < 2; i++) {
            h.buckets[i] = (long)pack_histogram(parts[i], NULL);
            h.sums[i][0] = parts[i]->sum, h.sums[i][1] = parts[i]->min, h.sums[i][2] = parts[i]->max;
        }
    }
    MPI_Send(&h, sizeof h, MPI_BYTE, 0, TAG_CASE, MPI_COMM_WORLD);
    for (int i = 0; measured && i < 2; i++) {
        uint64_t *pairs = malloc((size_t)(2 * h.buckets[i] + 1) * sizeof *pairs);
        if (!pairs) MPI_Abort(MPI_COMM_WORLD, 2);
        pack_histogram(i ? f->floor : f->samples, pairs);
        MPI_Send(pairs, (int)(2 * h.buckets[i]), MPI_UINT64_T, 0, TAG_CASE, MPI_COMM_WORLD);
        free(pairs);
    }
}

void receive_case(const struct test *t, int from) {
    static struct histogram parts[2];
    struct header h;
    MPI_Recv(&h, sizeof h, MPI_BYTE, from, TAG_CASE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!h.measured) return;
    for (int i = 0; i < 2; i++) {
        uint64_t *pairs = malloc((size_t)(2 * h.buckets[i] + 1) * sizeof *pairs);
        if (!pairs) MPI_Abort(MPI_COMM_WORLD, 2);
        MPI_Recv(pairs, (int)(2 * h.buckets[i]), MPI_UINT64_T, from, TAG_CASE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        unpack_histogram(&parts[i], pairs, (size_t)h.buckets[i], h.sums[i]);
        free(pairs);
    }
    struct figures f = h.figures;
    f.test = t->name, f.variant = h.variant, f.operation = t->operation, f.of = t->of, f.unit = "ns";
    f.samples = &parts[0], f.floor = &parts[1], f.defined = NULL;
    f.floor_of = h.has_line_floor ? line_floor : copy_floor;
    print_case(&f);
}
