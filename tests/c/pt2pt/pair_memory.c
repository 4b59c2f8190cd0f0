/* Job memory of a pair of ranks: it grows by a page with the first short message, and further as the pair sends more.
 * In jobs of 2 or 3 ranks it does not grow for first messages. An alltoall of short blocks opens few pairs.
 * test: ranks=2,3,4,8,64 timeout=120 variants=none */
#define _GNU_SOURCE
#include "../check.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* Pages of the job's memory file; -1 if there is none, or if it is no memory file. */
static long job_pages(void)
{
    DIR *folder = opendir("/proc/self/fd");
    long pages = -1;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[300], target[300] = "";
        struct stat about;
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof target - 1) > 0 && !strncmp(target, "/memfd:fastpath", 15) &&
            !stat(path, &about))
            pages = about.st_blocks * 512 / PAGE;
    }
    if (folder)
        closedir(folder);
    return pages;
}

/* Pages added while rank 0 sends `messages` messages of `bytes` bytes without an answer. */
static long sent(int messages, int bytes)
{
    static char data[1 << 16];
    long before = job_pages();
    for (int i = 0; i < messages; i++)
        OK(MPI_Send(data, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
    return job_pages() - before;
}

static void taken(int messages)
{
    static char data[1 << 16];
    for (int i = 0; i < messages; i++)
        OK(MPI_Recv(data, sizeof data, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

/* First messages of a pair, while all other ranks wait. Jobs of few ranks have memory in advance, also for a first
 * long message. */
static void grow(void)
{
    int ahead = ranks <= 3;
    if (rank == 0) {
        long pages = sent(1, 8);
        if (pages > (ahead ? 0 : 2))
            fail(__LINE__, "a first short message took %ld pages", pages);
        pages = sent(1, 1000);
        if (pages > (ahead ? 0 : 2))
            fail(__LINE__, "a first message of 1000 bytes took %ld pages", pages);
        pages = sent(30, 8);
        if (pages > (ahead ? 0 : 1))
            fail(__LINE__, "30 short messages took %ld pages", pages);
        pages = sent(1, 1 << 16);
        if (ahead ? pages != 0 : pages < 16)
            fail(__LINE__, "a first message of 64 KiB took %ld pages", pages);
        for (int other = 2; other < ranks; other++)
            OK(MPI_Send(NULL, 0, MPI_BYTE, other, 3, MPI_COMM_WORLD));
    } else if (rank == 1) {
        taken(33);
    } else {
        OK(MPI_Recv(NULL, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
}

/* Fragmented messages, each answered, so that few bytes suffice for them. The memory of the pair still grows with
 * the amount sent, because lines that are reused late are cheaper to write. */
static void widen(void)
{
    static char data[20 * 1024];
    long before = job_pages();
    for (int i = 0; i < 600; i++) {
        if (rank == 0) {
            OK(MPI_Send(data, sizeof data, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
            OK(MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        } else {
            OK(MPI_Recv(data, sizeof data, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD));
        }
    }
    long pages = job_pages() - before;
    if (rank == 0 && (pages < 128 || pages > 300))
        fail(__LINE__, "600 messages of 20 KiB took %ld pages", pages);
}

/* An alltoall in a job in which each rank has communicated with at most one other. */
static void exchange(void)
{
    int *out = calloc((size_t)ranks, sizeof *out), *into = calloc((size_t)ranks, sizeof *into);
    for (int i = 0; i < ranks; i++)
        out[i] = rank * ranks + i;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    long before = job_pages(), partners = 1;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Alltoall(out, 1, MPI_INT, into, 1, MPI_INT, MPI_COMM_WORLD));
    for (int i = 0; i < ranks; i++)
        SAME(into[i], i * ranks + rank);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    while (1 << partners < ranks)
        partners++;
    long pages = job_pages() - before, most = ranks * 3 * (partners + 1);
    if (ranks >= 8 && pages > most)
        fail(__LINE__, "an alltoall of %d ranks took %ld pages instead of %ld", ranks, pages, most);
    free(out);
    free(into);
}

int main(int argc, char **argv)
{
    /* `start` is not called, because it exchanges messages. */
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    if (job_pages() >= 0) {
        if (ranks <= 4)
            grow(); /* first, because the other tests open pairs */
        exchange();
        if (ranks == 2)
            widen();
    }
    OK(MPI_Finalize());
    return failures != 0;
}
