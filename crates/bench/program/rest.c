/* Actions of ranks without a part in a case: wait in MPI_Barrier, spin or yield without MPI, or sleep in the kernel. */
#include "bench.h"
#include "share.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint32_t rests; /* rests so far, equal on every rank */

bool can_rest(const char *how) { return shared || !strcmp(how, "barrier"); }

static uint32_t count_released(void) { return atomic_load_explicit(&shared->released, memory_order_acquire); }

bool rest(const char *how) {
    if (!strcmp(how, "barrier")) return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS;
    uint32_t own = rests++;
    while (count_released() == own) {
        if (!strcmp(how, "yield")) sched_yield();
        else if (!strcmp(how, "sleep")) syscall(SYS_futex, &shared->released, FUTEX_WAIT, own, NULL, NULL, 0);
    }
    return true;
}

void end_rest(const char *how) {
    if (!strcmp(how, "barrier")) {
        MPI_Barrier(MPI_COMM_WORLD);
        return;
    }
    uint32_t own = rests++, expected = own;
    /* Both ranks of the pair call this function; the first one ends the rest. */
    if (atomic_compare_exchange_strong(&shared->released, &expected, own + 1))
        syscall(SYS_futex, &shared->released, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
