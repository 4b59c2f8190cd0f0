/* Long messages from and to the same addresses, at which other memory lies from time to time: unmapped and mapped again,
 * whole or in part, moved away, discarded, by this thread or another one. Every byte is compared. An adapter may keep what it knows
 * of memory from message to message, and must not use it for other memory. With the argument `same` the
 * memory stays as it is.
 * test: ranks=2 */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sys/mman.h>

enum { LEN = 1 << 20, PAGE = 4096, EACH = 7, WAYS = 8, ROUNDS = 2, SAME_MESSAGES = 30 };

static unsigned char *const place = (unsigned char *)0x300000000000; /* where the kernel puts nothing by itself */

static void map_at(unsigned char *at, size_t bytes)
{
    void *got = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(got == at);
}

static void *unmap(void *nothing)
{
    CHECK(munmap(place, LEN) == 0);
    return nothing;
}

/* Other memory than before lies at the place, or in a part of it. */
static void change(int way)
{
    pthread_t other;
    void *moved;
    switch (way) {
    case 0:
        map_at(place, LEN);
        break;
    case 1:
        unmap(NULL);
        map_at(place, LEN);
        break;
    case 2:
        CHECK(munmap(place + 5 * PAGE, 3 * PAGE) == 0);
        map_at(place + 5 * PAGE, 3 * PAGE);
        break;
    case 3:
        CHECK(madvise(place, LEN, MADV_DONTNEED) == 0);
        break;
    case 4:
        CHECK(madvise(place + LEN / 2, LEN / 4, MADV_DONTNEED) == 0);
        break;
    case 5: /* a part that is one mapping, whatever was done to others */
        moved = mremap(place, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + 4 * LEN);
        CHECK(moved == place + 4 * LEN);
        map_at(place, 4 * PAGE);
        if (moved == place + 4 * LEN)
            memset(moved, 0x55, 4 * PAGE);
        CHECK(munmap(place + 4 * LEN, 4 * PAGE) == 0);
        break;
    case 6: /* it is taken again before the other thread goes on */
        CHECK(pthread_create(&other, NULL, unmap, NULL) == 0);
        while (mmap(place, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
            continue;
        break;
    default: /* two mappings in place of one */
        CHECK(mprotect(place, LEN / 2, PROT_READ) == 0);
        map_at(place + LEN / 2, LEN / 2);
        CHECK(mprotect(place, LEN / 2, PROT_READ | PROT_WRITE) == 0);
        break;
    }
    if (way == 6)
        CHECK(pthread_join(other, NULL) == 0);
}

static void pass(int from, unsigned seed)
{
    if (rank == from) {
        fill(place, LEN, seed);
        OK(MPI_Send(place, LEN, MPI_BYTE, 1 - rank, 7, MPI_COMM_WORLD));
    } else {
        memset(place, 0xaa, LEN);
        OK(MPI_Recv(place, LEN, MPI_BYTE, from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        HOLDS(place, LEN, seed);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    unsigned seed = 1;
    map_at(place, LEN);
    if (argc > 1 && !strcmp(argv[1], "same"))
        for (int message = 0; message < SAME_MESSAGES; message++)
            pass(message % 2, seed++);
    else
        for (int round = 0; round < ROUNDS * WAYS; round++)
            for (int message = 0; message < EACH; message++) {
                if (message == 0 && rank == round % 2)
                    change(round / 2 % WAYS);
                else if (message == 1 && rank != round % 2)
                    change((round / 2 + 3) % WAYS);
                pass(message % 2, seed++);
            }
    return finish();
}
