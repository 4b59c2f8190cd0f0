/* Checks for communicators. */
#ifndef COMM_CHECK_H
#define COMM_CHECK_H
#include "check.h"

/* The deprecated names are tested too. GCC warns about the constants for weights, which are no addresses of arrays. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overread"
#endif

/* A ring of messages over the communicator: each member must get the mark of its left neighbour. */
#define RING(comm, mark) ring(__LINE__, comm, mark)
__attribute__((unused)) static void ring(int line, MPI_Comm comm, int mark)
{
    int own, size, got = -1;
    MPI_Status status;
    MPI_Comm_rank(comm, &own);
    MPI_Comm_size(comm, &size);
    int left = (own + size - 1) % size, right = (own + 1) % size, mine = mark * 1000 + own;
    MPI_Sendrecv(&mine, 1, MPI_INT, right, 5, &got, 1, MPI_INT, left, 5, comm, &status);
    if (got != mark * 1000 + left || status.MPI_SOURCE != left)
        fail(line, "the ring gives %d from %d instead of %d from %d", got, status.MPI_SOURCE, mark * 1000 + left, left);
}

#endif
