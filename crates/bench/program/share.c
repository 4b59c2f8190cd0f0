/* Rank 0 creates a memory file; the others open it through /proc. If that fails for one rank, no rank uses it. */
#include "bench.h"
#include "share.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static struct share *map_share(int file) {
    void *at = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct share), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return at == MAP_FAILED ? NULL : at;
}

void open_share(void) {
    long where[3] = {0, -1, 0}; /* process, descriptor, mark */
    int file = -1;
    if (world_rank == 0) {
        file = memfd_create("bench", MFD_CLOEXEC);
        if (file >= 0 && ftruncate(file, sizeof(struct share)) == 0) shared = map_share(file);
        where[0] = getpid();
        where[1] = file;
        where[2] = (long)(read_monotonic_ns() ^ (uint64_t)getpid() << 40);
        if (shared) shared->mark = (uint64_t)where[2];
    }
    MPI_Bcast(where, 3, MPI_LONG, 0, MPI_COMM_WORLD);
    if (world_rank != 0 && where[1] >= 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%ld/fd/%ld", where[0], where[1]);
        file = open(path, O_RDWR | O_CLOEXEC);
        off_t size = file < 0 ? 0 : lseek(file, 0, SEEK_END);
        if (size == (off_t)sizeof(struct share)) shared = map_share(file);
        if (shared && shared->mark != (uint64_t)where[2]) shared = NULL;
    }
    if (!agree(MPI_COMM_WORLD, shared != NULL)) shared = NULL;
    if (file >= 0) close(file);
}
