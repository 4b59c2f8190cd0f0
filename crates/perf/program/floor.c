/* The floor, measured in turn with a case: a cache line between the two ranks' processors, outside of MPI, and the
 * copy of memory. The page with the lines is shared by all ranks of one host (share.c). */
#include "bench.h"
#include "share.h"

#include <sched.h>
#include <string.h>

/* Both sides count round trips, so that neither has to be told where to start. */
static uint64_t asked, answered;

/* Spins; gives the processor away now and then, should both have come to run on the same one. */
static void await(_Atomic uint64_t *word, uint64_t value) {
    for (unsigned spins = 1; atomic_load_explicit(word, memory_order_acquire) != value; spins++)
        if (spins % (1u << 16) == 0) sched_yield();
}

bool open_lines(MPI_Comm members, int member) {
    asked = answered = 0;
    if (shared && member == 0) {
        atomic_store(&shared->ping, 0);
        atomic_store(&shared->pong, 0);
    }
    return agree(members, shared != NULL);
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

/* Where the first and the last member are now. */
bool runs_on_one_processor(MPI_Comm members, int processors[2]) {
    int own = sched_getcpu(), member, count;
    MPI_Comm_rank(members, &member);
    MPI_Comm_size(members, &count);
    int first = member == 0 ? own : 0, last = member == count - 1 ? own : 0;
    MPI_Bcast(&first, 1, MPI_INT, 0, members);
    MPI_Bcast(&last, 1, MPI_INT, count - 1, members);
    processors[0] = first;
    processors[1] = last;
    return first == last;
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
