! How a program names types and constants by each of the three methods; compiled with -DMETHOD_MPIF, _MPI or _F08.
! A program has USE_METHOD before, and INCLUDE_METHOD after, `implicit none`.
#if defined(METHOD_F08)
#define USE_METHOD use mpi_f08
#define INCLUDE_METHOD
#define COMM type(MPI_Comm)
#define DATATYPE type(MPI_Datatype)
#define ERRHANDLER type(MPI_Errhandler)
#define FILE_HANDLE type(MPI_File)
#define GROUP type(MPI_Group)
#define INFO type(MPI_Info)
#define MESSAGE type(MPI_Message)
#define OPERATOR type(MPI_Op)
#define REQUEST type(MPI_Request)
#define SESSION type(MPI_Session)
#define WINDOW type(MPI_Win)
#define STATUS type(MPI_Status)
#define STATUSES(name, length) type(MPI_Status) :: name(length)
#define SOURCE_OF(status) status%MPI_SOURCE
#define TAG_OF(status) status%MPI_TAG
#define ERROR_OF(status) status%MPI_ERROR
#define TAG_AT(statuses, i) statuses(i)%MPI_TAG
#define ERROR_AT(statuses, i) statuses(i)%MPI_ERROR
#define HANDLE_VALUE(handle) handle%MPI_VAL
#else
#if defined(METHOD_MPI)
#define USE_METHOD use mpi
#define INCLUDE_METHOD
#else
#define USE_METHOD
#define INCLUDE_METHOD include 'mpif.h'
#endif
#define COMM integer
#define DATATYPE integer
#define ERRHANDLER integer
#define FILE_HANDLE integer
#define GROUP integer
#define INFO integer
#define MESSAGE integer
#define OPERATOR integer
#define REQUEST integer
#define SESSION integer
#define WINDOW integer
#define STATUS integer, dimension(MPI_STATUS_SIZE)
#define STATUSES(name, length) integer :: name(MPI_STATUS_SIZE, length)
#define SOURCE_OF(status) status(MPI_SOURCE)
#define TAG_OF(status) status(MPI_TAG)
#define ERROR_OF(status) status(MPI_ERROR)
#define TAG_AT(statuses, i) statuses(MPI_TAG, i)
#define ERROR_AT(statuses, i) statuses(MPI_ERROR, i)
#define HANDLE_VALUE(handle) handle
#endif
