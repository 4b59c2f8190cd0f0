! Mistakes, by the argument. The report has the routine and the program's place.
! test: ranks=2 methods=mpif.h,mpi,mpi_f08 only=build
#include "methods.h"
program fortran_fatal
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  character(len=20) :: mistake
  integer :: rank, ierr, a(8)
  REQUEST :: request

  call get_command_argument(1, mistake)
  if (mistake == 'early') call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  a = rank
  select case (mistake)
  case ('rank')
    if (rank == 1) call MPI_Send(a, 1, MPI_INTEGER, 77, 1, MPI_COMM_WORLD, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  case ('abort')
    if (rank == 1) call MPI_Abort(MPI_COMM_WORLD, 9, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  case ('types')
    if (rank == 0) then
      call MPI_Send(a, 4, MPI_INTEGER, 1, 5, MPI_COMM_WORLD, ierr)
    else
      call MPI_Recv(a, 4, MPI_REAL, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    end if
  case ('left')
    if (rank == 1) call MPI_Irecv(a, 4, MPI_INTEGER, 0, 7, MPI_COMM_WORLD, request, ierr)
#ifdef METHOD_F08
  case ('section')
    call MPI_Iallreduce(MPI_IN_PLACE, a(1:8:2), 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request)
  case ('section-types')
    if (rank == 0) then
      call MPI_Send(a(1:8:2), 4, MPI_INTEGER, 1, 5, MPI_COMM_WORLD)
    else
      call MPI_Recv(a(1:8:2), 4, MPI_REAL, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    end if
  case ('section-left')
    if (rank == 1) call MPI_Irecv(a(1:8:2), 4, MPI_INTEGER, 0, 7, MPI_COMM_WORLD, request)
#endif
  end select
  call MPI_Finalize(ierr)
end program fortran_fatal
