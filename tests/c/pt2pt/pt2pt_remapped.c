/* Long messages to and from the same addresses, whose memory changes between messages: unmapped and remapped in whole
 * or in part, moved, discarded, by this thread or another one. Every byte is compared. An adapter may cache
 * registrations between messages, and must not use them for other memory. With the argument `same` the memory does not
 * change. With `watched` it does, and the test fails unless the library runs its thread that watches memory. A second
 * argument is the message length in KiB.
 * test: ranks=2 */
#define _GNU_SOURCE
#include "../check.h"
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

enum { PAGE = 4096, EACH = 7, WAYS = 8, ROUNDS = 2, RACES = 8, SAME_MESSAGES = 30 };

static size_t length = 1 << 20; /* or the second argument, in KiB */
static int is_watched;            /* set by an argument: the watching thread is expected */
static unsigned char *place = (unsigned char *)0x300000000000; /* an address that the kernel never chooses */

static void map_at(unsigned char *at, size_t bytes)
{
    void *got = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(got == at);
}

static void *unmap(void *nothing)
{
    CHECK(munmap(place, length) == 0);
    return nothing;
}

/* Replaces the memory at the address, or a part of it. */
static void change(int way)
{
    pthread_t other;
    void *moved;
    switch (way) {
    case 0:
        map_at(place, length);
        break;
    case 1:
        unmap(NULL);
        map_at(place, length);
        break;
    case 2:
        CHECK(munmap(place + 5 * PAGE, 3 * PAGE) == 0);
        map_at(place + 5 * PAGE, 3 * PAGE);
        break;
    case 3:
        CHECK(madvise(place, length, MADV_DONTNEED) == 0);
        break;
    case 4:
        CHECK(madvise(place + length / 2, length / 4, MADV_DONTNEED) == 0);
        break;
    case 5: /* a part that is one mapping, independent of earlier changes */
        moved = mremap(place, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + 4 * length);
        CHECK(moved == place + 4 * length);
        map_at(place, 4 * PAGE);
        if (moved == place + 4 * length)
            memset(moved, 0x55, 4 * PAGE);
        CHECK(munmap(place + 4 * length, 4 * PAGE) == 0);
        break;
    case 6: /* remapped before the other thread continues; the new memory is not watched by the kernel */
        CHECK(pthread_create(&other, NULL, unmap, NULL) == 0);
        while (mmap(place, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
            continue;
        break;
    default: /* two mappings instead of one */
        CHECK(mprotect(place, length / 2, PROT_READ) == 0);
        map_at(place + length / 2, length / 2);
        CHECK(mprotect(place, length / 2, PROT_READ | PROT_WRITE) == 0);
        break;
    }
    if (way == 6)
        CHECK(pthread_join(other, NULL) == 0);
}

static void pass(int from, unsigned seed)
{
    if (rank == from) {
        fill(place, length, seed);
        OK(MPI_Send(place, length, MPI_BYTE, 1 - rank, 7, MPI_COMM_WORLD));
    } else {
        memset(place, 0xaa, length);
        OK(MPI_Recv(place, length, MPI_BYTE, from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        HOLDS(place, length, seed);
    }
}

/* Lowers the watching thread, if there is one, to idle priority. It may then have read the event of a change without
 * recording it, when the thread that made the change continues. */
static void hold_back_the_watch(void)
{
    struct sched_param none = {0};
    int found = 0;
    DIR *threads = opendir("/proc/self/task");
    CHECK(threads != NULL);
    for (struct dirent *entry; threads != NULL && (entry = readdir(threads)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *comm = fopen(path, "r");
        if (comm == NULL)
            continue;
        if (fgets(name, sizeof name, comm) != NULL && !strcmp(name, "fastpath-memory\n")) {
            CHECK(sched_setscheduler(atoi(entry->d_name), SCHED_IDLE, &none) == 0);
            found = 1;
        }
        fclose(comm);
    }
    if (threads != NULL)
        closedir(threads);
    CHECK(found || !is_watched);
}

static int turn; /* 1: the page is discarded; 2: the message is sent */

static void set_turn(int to)
{
    __atomic_store_n(&turn, to, __ATOMIC_SEQ_CST);
}

static void await_turn(int wanted)
{
    while (__atomic_load_n(&turn, __ATOMIC_SEQ_CST) != wanted)
        continue;
}

/* Discards the page, then spins until the message is sent. */
static void *discard(void *nothing)
{
    CHECK(madvise(place, PAGE, MADV_DONTNEED) == 0);
    set_turn(1);
    await_turn(2);
    return nothing;
}

/* Another thread discards the first page of a message just before it is sent, so the page holds zeros. The mapping
 * is unchanged, so only the recorded event reveals the change. */
static void pass_discarded(int from, unsigned seed)
{
    static const unsigned char zeros[PAGE];
    pthread_t other;
    fill(place, length, rank == from ? seed : ~seed);
    if (rank == from) {
        set_turn(0);
        hold_back_the_watch();
        CHECK(pthread_create(&other, NULL, discard, NULL) == 0);
        await_turn(1);
        OK(MPI_Send(place, length, MPI_BYTE, 1 - rank, 7, MPI_COMM_WORLD));
        set_turn(2);
        CHECK(pthread_join(other, NULL) == 0);
    } else {
        OK(MPI_Recv(place, length, MPI_BYTE, from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(memcmp(place, zeros, PAGE) == 0);
        fill(place, PAGE, seed);
        HOLDS(place, length, seed);
    }
}

/* Uses another address, where memory has not been replaced too often to be cached. After each race there are enough
 * messages for the registration to be cached again. */
static void race(unsigned seed)
{
    place += 64 * length;
    map_at(place, length);
    for (int round = 0; round < RACES; round++) {
        for (int message = 0; message < EACH; message++)
            pass(message % 2, seed++);
        pass_discarded(round % 2, seed++);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    unsigned seed = 1;
    if (argc > 2)
        length = (size_t)atoi(argv[2]) << 10;
    is_watched = argc > 1 && !strcmp(argv[1], "watched");
    map_at(place, length);
    if (argc > 1 && !strcmp(argv[1], "same"))
        for (int message = 0; message < SAME_MESSAGES; message++)
            pass(message % 2, seed++);
    else {
        for (int round = 0; round < ROUNDS * WAYS; round++)
            for (int message = 0; message < EACH; message++) {
                if (message == 0 && rank == round % 2)
                    change(round / 2 % WAYS);
                else if (message == 1 && rank != round % 2)
                    change((round / 2 + 3) % WAYS);
                pass(message % 2, seed++);
            }
        race(seed);
    }
    return finish();
}
