! Array sections of mpi_f08 that a call cannot take: an error of class MPI_ERR_BUFFER, through the error handler.
! test: ranks=2 mistakes=yes
#define METHOD_F08
#include "check.h"
program fortran_refusals
  use mpi_f08
  implicit none
  integer :: rank, ranks, failures, ierr, other
  logical, save :: is_called = .false.
  integer, save :: called_with = 0

  call start()
  other = 1 - rank
  call refusals()
  call finish()
contains
#include "check.inc"

  subroutine remember(comm, code)
    type(MPI_Comm) :: comm
    integer :: code
    is_called = comm == MPI_COMM_WORLD .or. comm == MPI_COMM_SELF
    called_with = code
  end subroutine remember

  subroutine refusals()
    integer, asynchronous :: a(8), b(8), counts(2)
    type(MPI_Errhandler) :: handler
    type(MPI_Request) :: request
    integer(kind=MPI_COUNT_KIND), parameter :: two = 2
    integer :: code
    call MPI_Comm_create_errhandler(remember, handler)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler)
    a = 1
    b = -1
    counts = 1
    call MPI_Iallreduce(a(1:8:2), b, 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, ierr)
    call refused('MPI_Iallreduce: sendbuf ', __LINE__)
    call MPI_Iallreduce(a, b(1:8:2), 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, ierr)
    call refused('MPI_Iallreduce: recvbuf ', __LINE__)
    call MPI_Ialltoall(a, 1, MPI_INTEGER, b(1:8:2), 1, MPI_INTEGER, MPI_COMM_WORLD, request, ierr)
    call refused('MPI_Ialltoall: recvbuf ', __LINE__)
    call MPI_Ialltoallv(a(1:8:2), counts, counts, MPI_INTEGER, b, counts, counts, MPI_INTEGER, &
        MPI_COMM_WORLD, request, ierr)
    call refused('MPI_Ialltoallv: sendbuf ', __LINE__)
    call MPI_Ireduce_scatter(a(1:8:2), b, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, ierr)
    call refused('MPI_Ireduce_scatter: sendbuf ', __LINE__)
    call MPI_Psend_init(a(1:8:2), 2, two, MPI_INTEGER, other, 1, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    call refused('MPI_Psend_init: buf ', __LINE__)
    call MPI_Precv_init(a(1:8:2), 2, two, MPI_INTEGER, other, 1, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    call refused('MPI_Precv_init: buf ', __LINE__)
    call MPI_Isend(a(1:8:2), 5, MPI_INTEGER, other, 1, MPI_COMM_WORLD, request, ierr)
    call refused('MPI_Isend: buf ', __LINE__)
    ! The same error has the same code, and does not use up codes.
    code = ierr
    call MPI_Isend(a(1:8:2), 5, MPI_INTEGER, other, 1, MPI_COMM_WORLD, request, ierr)
    SAME(ierr, code)
    call MPI_Isend(a(1:8:2), 3, MPI_SHORT, other, 1, MPI_COMM_WORLD, request, ierr)
    call refused('MPI_Isend: buf ', __LINE__)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)
    call MPI_Errhandler_free(handler)
    CHECK(all(b == -1))
  end subroutine refusals

  subroutine refused(start_of_text, line)
    character(len=*), intent(in) :: start_of_text
    integer, intent(in) :: line
    character(len=MPI_MAX_ERROR_STRING) :: text
    integer :: length, ignored
    call class_is(ierr, MPI_ERR_BUFFER, line)
    call check(is_called, line)
    call same(int(called_with, 8), int(ierr, 8), line)
    call MPI_Error_string(ierr, text, length, ignored)
    if (index(text(:length), start_of_text) == 0) call fail(line, text(:length))
    if (index(text(:length), 'contiguous') == 0) call fail(line, text(:length))
    is_called = .false.
  end subroutine refused
end program fortran_refusals
