/* Helpers of the file tests. */
#ifndef FILE_CHECK_H
#define FILE_CHECK_H
#include "../check.h"
#include <unistd.h>

/* File name that is unique to this job, and equal on all ranks. */
static void name_file(char *path, size_t size, const char *name)
{
    int job = rank == 0 ? getpid() : 0;
    const char *folder = getenv("TMPDIR");
    MPI_Bcast(&job, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(path, size, "%s/%s.%d", folder ? folder : "/tmp", name, job);
}

#endif
