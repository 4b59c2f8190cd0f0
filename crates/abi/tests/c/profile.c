/* A profiling library: counts calls and prints the counts at the end. */
#include <mpi.h>
#include <stdio.h>

static int inits, sends, receives, waits, versions;

int MPI_Init(int *argc, char ***argv)
{
    inits++;
    return PMPI_Init(argc, argv);
}

int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    sends++;
    return PMPI_Send(buf, count, type, dest, tag, comm);
}

int MPI_Irecv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    receives++;
    return PMPI_Irecv(buf, count, type, source, tag, comm, request);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    waits++;
    return PMPI_Wait(request, status);
}

int MPI_Get_version(int *version, int *subversion)
{
    versions++;
    return PMPI_Get_version(version, subversion);
}

__attribute__((destructor)) static void print_counts(void)
{
    printf("MPI_Init %d, MPI_Send %d, MPI_Irecv %d, MPI_Wait %d, MPI_Get_version %d\n", inits, sends,
           receives, waits, versions);
}
