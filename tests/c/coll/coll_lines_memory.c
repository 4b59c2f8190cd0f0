/* test: ranks=8 timeout=120 variants=none within=node
   test: env=FASTPATH_COLL=barrier:lines,bcast:lines,allreduce:lines,reduce:shared
   Shared memory that collective calls of one communicator take: at most 64 KiB for each rank until long data, then
   1 MiB. The queues of messages, which making the lines uses too, are not counted. With an argument, rank 0
   prints the bytes. */
#include "../coll_check.h"
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONG = 1 << 18, PERSISTENT = 8 };

/* Bytes behind the memory file of the job. */
static long shared_bytes(void)
{
    long bytes = 0;
    char path[300], target[300];
    struct dirent *entry;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && (entry = readdir(folder))) {
        struct stat status;
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        if (strstr(target, "memfd:") && stat(path, &status) == 0)
            bytes = status.st_blocks * 512L;
    }
    if (folder)
        closedir(folder);
    return bytes;
}

/* Waits until all ranks have made the calls before, and returns the bytes on all ranks. */
static long bytes_now(MPI_Comm comm)
{
    MPI_Barrier(comm);
    long bytes = shared_bytes();
    MPI_Barrier(comm);
    return bytes;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm comm;
    MPI_Request requests[PERSISTENT];
    int *data = ints(LONG, me), *sum = ints(LONG, 0), word = me, total;
    /* The fifth call makes the lines, by messages to ranks that have a queue then. */
    for (int i = 0; i < 6; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    long before = bytes_now(comm);
    for (int i = 0; i < 40; i++) {
        MPI_Barrier(comm);
        MPI_Bcast(&word, 1, MPI_INT, i % ranks, comm);
        MPI_Allreduce(&me, &total, 1, MPI_INT, MPI_SUM, comm);
        CHECK(word == i % ranks && total == ranks * (ranks - 1) / 2);
        MPI_Ibarrier(comm, &requests[0]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        word = me;
    }
    for (int at = 0; at < PERSISTENT; at++)
        MPI_Allreduce_init(&me, &sum[at], 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[at]);
    for (int i = 0; i < 10; i++) {
        MPI_Startall(PERSISTENT, requests);
        MPI_Waitall(PERSISTENT, requests, MPI_STATUSES_IGNORE);
    }
    long brief = bytes_now(comm) - before;
    for (int i = 0; i < 3; i++) {
        data[LONG - 1] = me;
        MPI_Bcast(data, LONG, MPI_INT, i, comm);
        MPI_Allreduce(data, sum, LONG, MPI_INT, MPI_SUM, comm);
        CHECK(data[LONG - 1] == i && sum[LONG - 1] == i * ranks);
    }
    long whole = bytes_now(comm) - before;
    if (argc > 1 && me == 0)
        printf("short data: %ld bytes a rank, long data: %ld\n", brief / ranks, whole / ranks);
    CHECK(brief > 0 && brief / ranks <= 64 << 10);
    CHECK(whole > 0 && whole / ranks <= 1 << 20);
    for (int at = 0; at < PERSISTENT; at++)
        MPI_Request_free(&requests[at]);
    MPI_Comm_free(&comm);
    return finish();
}
