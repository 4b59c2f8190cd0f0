/* Buffers and known contents. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Buffers in use, and the memory of each. */
static struct {
    void *buffer, *memory;
} held[64];

/* Blocks of malloc are not aligned to pages: as in a program, a large block starts 16 bytes into a page. */
void *get_memory(size_t bytes) {
    size_t all = bytes + options.offset + 1, at = 0;
    void *memory = NULL;
    while (at < sizeof held / sizeof *held && held[at].buffer) at++;
    if (at == sizeof held / sizeof *held) return NULL;
    if (!options.alloc_mem) memory = malloc(all);
    else if (MPI_Alloc_mem((MPI_Aint)all, MPI_INFO_NULL, &memory) != MPI_SUCCESS) memory = NULL;
    if (!memory) return NULL;
    /* Without this barrier, a compiler merges malloc and memset into calloc, whose pages are not yet written. */
    __asm__ volatile("" : "+r"(memory));
    memset(memory, 0, all);
    held[at].memory = memory;
    held[at].buffer = (char *)memory + options.offset;
    return held[at].buffer;
}

void free_memory(void *buffer) {
    size_t at = 0;
    if (!buffer) return;
    while (held[at].buffer != buffer) at++;
    if (options.alloc_mem) MPI_Free_mem(held[at].memory);
    else free(held[at].memory);
    held[at].buffer = held[at].memory = NULL;
}

const char *describe_buffers(void) {
    static char text[64];
    int length = 0;
    text[0] = 0;
    if (options.touch) length += snprintf(text, sizeof text, "touched");
    if (options.strided) length += snprintf(text + length, sizeof text - (size_t)length, "%sstrided", length ? ", " : "");
    if (options.alloc_mem)
        length += snprintf(text + length, sizeof text - (size_t)length, "%salloc_mem", length ? ", " : "");
    if (options.offset)
        snprintf(text + length, sizeof text - (size_t)length, "%soffset %zu", length ? ", " : "", options.offset);
    return text;
}

/* ---- messages ---- */

static size_t rows_of(const struct bench_case *c) { return c->strided ? c->bytes / ROW_BYTES : 1; }

static size_t row_bytes(const struct bench_case *c) { return c->strided ? ROW_BYTES : c->bytes; }

size_t span_of(const struct bench_case *c) { return c->strided ? rows_of(c) * ROW_STRIDE : c->bytes; }

int make_type(struct bench_case *c) {
    c->type = MPI_BYTE;
    c->count = (int)c->bytes;
    if (!c->strided) return MPI_SUCCESS;
    int doubles = ROW_BYTES / 8, stride = ROW_STRIDE / 8;
    c->count = 1;
    c->failed = "MPI_Type_vector";
    int code = MPI_Type_vector((int)rows_of(c), doubles, stride, MPI_DOUBLE, &c->type);
    return code == MPI_SUCCESS ? MPI_Type_commit(&c->type) : code;
}

void free_type(struct bench_case *c) {
    if (c->strided) MPI_Type_free(&c->type);
}

void fill_message(const struct bench_case *c, char *at, unsigned seed) {
    for (size_t i = 0; i < rows_of(c); i++) fill_pattern(at + i * ROW_STRIDE, row_bytes(c), seed + (unsigned)i);
}

bool has_message(const struct bench_case *c, const char *at, unsigned seed) {
    bool right = true;
    for (size_t i = 0; i < rows_of(c); i++) right &= has_pattern(at + i * ROW_STRIDE, row_bytes(c), seed + (unsigned)i);
    return right;
}

void write_message(struct bench_case *c, char *at) {
    /* The value is a double, so that reductions of it resemble those of a program. */
    double value = (double)++c->turn;
    uint64_t word;
    memcpy(&word, &value, sizeof word);
    for (size_t i = 0; i < rows_of(c); i++) write_all(at + i * ROW_STRIDE, row_bytes(c), word);
}

void read_message(const struct bench_case *c, const char *at) {
    for (size_t i = 0; i < rows_of(c); i++) read_all(at + i * ROW_STRIDE, row_bytes(c));
}

/* ---- contents ---- */

void fill_pattern(char *at, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++) at[i] = (char)((i * 31 + seed * 101 + (i >> 8)) & 0xff);
}

bool has_pattern(const char *at, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != (char)((i * 31 + seed * 101 + (i >> 8)) & 0xff)) return false;
    return true;
}

/* Stores every byte, like a program that produces its message. */
void write_all(char *at, size_t bytes, uint64_t word) {
    size_t i = 0;
    for (; i + sizeof word <= bytes; i += sizeof word) memcpy(at + i, &word, sizeof word);
    for (; i < bytes; i++) at[i] = (char)word;
    __asm__ volatile("" : : "r"(at) : "memory");
}

/* Loads every byte, like a program that uses its message. */
void read_all(const char *at, size_t bytes) {
    uint64_t all = 0, word;
    size_t i = 0;
    for (; i + sizeof word <= bytes; i += sizeof word) memcpy(&word, at + i, sizeof word), all += word;
    for (; i < bytes; i++) all += (unsigned char)at[i];
    __asm__ volatile("" : : "r"(all));
}

double read_number(const char *path, const char *field) {
    char line[256];
    double value = -1;
    FILE *f = fopen(path, "r");
    while (f && value < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field))) value = strtod(line + strlen(field), NULL);
    if (f) fclose(f);
    return value;
}

double memory_shortage(double bytes) {
    double available = read_number("/proc/meminfo", "MemAvailable:") * 1024;
    double limit = read_number("/sys/fs/cgroup/memory.max", ""), used = read_number("/sys/fs/cgroup/memory.current", "");
    if (limit > 0 && used >= 0 && limit - used < available) available = limit - used;
    return available >= 0 && bytes > available * 0.9 ? bytes - available * 0.9 : 0;
}
