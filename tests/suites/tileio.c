/* A PMPI layer between mpi-tile-io and the library: a rank writes bytes that identify it, and reports reads of other
 * bytes. */
#include <mpi.h>
#include <stdio.h>

static unsigned char expected(long at)
{
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return (unsigned char)(at % 251 + rank * 7 + 1);
}

static long bytes_of(int count, MPI_Datatype type)
{
    int size;
    PMPI_Type_size(type, &size);
    return (long)count * size;
}

static const void *fill(const void *buffer, int count, MPI_Datatype type)
{
    for (long at = 0; at < bytes_of(count, type); at++)
        ((unsigned char *)buffer)[at] = expected(at);
    return buffer;
}

static void look(const void *buffer, int count, MPI_Datatype type)
{
    long wrong = 0;
    for (long at = 0; at < bytes_of(count, type); at++)
        wrong += ((const unsigned char *)buffer)[at] != expected(at);
    printf("read %ld bytes, %ld wrong\n", bytes_of(count, type), wrong);
}

int MPI_File_write(MPI_File file, const void *buffer, int count, MPI_Datatype type, MPI_Status *status)
{
    return PMPI_File_write(file, fill(buffer, count, type), count, type, status);
}

int MPI_File_write_all(MPI_File file, const void *buffer, int count, MPI_Datatype type, MPI_Status *status)
{
    return PMPI_File_write_all(file, fill(buffer, count, type), count, type, status);
}

int MPI_File_read(MPI_File file, void *buffer, int count, MPI_Datatype type, MPI_Status *status)
{
    int code = PMPI_File_read(file, buffer, count, type, status);
    look(buffer, count, type);
    return code;
}

int MPI_File_read_all(MPI_File file, void *buffer, int count, MPI_Datatype type, MPI_Status *status)
{
    int code = PMPI_File_read_all(file, buffer, count, type, status);
    look(buffer, count, type);
    return code;
}
