/* Buffers, and contents that are known. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *get_memory(size_t bytes) {
    size_t rounded = (bytes + 4096) / 4096 * 4096;
    char *at = aligned_alloc(4096, rounded);
    if (at) memset(at, 0, rounded);
    return at;
}

void fill_pattern(char *at, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++) at[i] = (char)((i * 31 + seed * 101 + (i >> 8)) & 0xff);
}

bool has_pattern(const char *at, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != (char)((i * 31 + seed * 101 + (i >> 8)) & 0xff)) return false;
    return true;
}

/* As a program that makes its message: every byte is stored. */
void write_all(char *at, size_t bytes, uint64_t word) {
    size_t i = 0;
    for (; i + sizeof word <= bytes; i += sizeof word) memcpy(at + i, &word, sizeof word);
    for (; i < bytes; i++) at[i] = (char)word;
    __asm__ volatile("" : : "r"(at) : "memory");
}

/* As a program that uses it: every byte is loaded. */
void read_all(const char *at, size_t bytes) {
    uint64_t all = 0, word;
    size_t i = 0;
    for (; i + sizeof word <= bytes; i += sizeof word) memcpy(&word, at + i, sizeof word), all += word;
    for (; i < bytes; i++) all += (unsigned char)at[i];
    __asm__ volatile("" : : "r"(all));
}

static double read_number(const char *path, const char *field) {
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
