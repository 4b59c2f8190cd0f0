/* The floor, measured in turn with a case: a cache line between the two ranks' processors, outside of MPI, and a
 * copy of memory. All ranks of one host share the page with the lines (share.c). */
#include "engine.h"
#include "share.h"

#include <sched.h>
#include <string.h>

struct share *shared;

/* Both sides count round trips, so neither needs to be told where to start. */
static uint64_t asked, answered;

/* Spins; yields at intervals, in case both run on the same processor. */
static void await(_Atomic uint64_t *word, uint64_t value) {
    for (unsigned spins = 1; atomic_load_explicit(word, memory_order_acquire) != value; spins++)
        if (spins % (1u << 16) == 0) sched_yield();
}

void reset_lines(bool leads) {
    asked = answered = 0;
    if (!shared || !leads) return;
    atomic_store(&shared->ping, 0);
    atomic_store(&shared->pong, 0);
}

void ask_lines(long trips) {
    for (uint64_t last = asked + (uint64_t)trips; asked != last;) {
        asked++;
        atomic_store_explicit(&shared->ping, asked, memory_order_release);
        await(&shared->pong, asked);
    }
}

void answer_lines(long trips) {
    for (uint64_t last = answered + (uint64_t)trips; answered != last;) {
        answered++;
        await(&shared->ping, answered);
        atomic_store_explicit(&shared->pong, answered, memory_order_release);
    }
}

double time_lines(long means, long trips) {
    double best = 0;
    ask_lines(trips);
    for (long i = 0; i < means; i++) {
        uint64_t start = read_ticks();
        ask_lines(trips);
        double mean = ns_of(read_ticks() - start) / (double)(2 * trips);
        if (i == 0 || mean < best) best = mean;
    }
    return best;
}

double time_copy(char *to, const char *from, size_t bytes, long times) {
    uint64_t start = read_ticks();
    for (long i = 0; i < times; i++) {
        memcpy(to, from, bytes);
        __asm__ volatile("" : : "r"(to), "r"(from) : "memory");
    }
    return ns_of(read_ticks() - start) / (double)times;
}
