! Rank 0 waits for rank 1, which computes in a module procedure or sleeps in the main program.
! test: only=build
module solver
contains
  subroutine relax(n)
    integer, intent(in) :: n
    real(8) :: x
    integer(8), volatile :: i
    x = n
    i = 0
    do ! line of relax
      i = i + 1 ! line of relax
      x = x * 0.5d0 + i ! line of relax
      if (x < -1d0) exit ! line of relax
    end do ! line of relax
  end subroutine
end module

program places
  use mpi_f08
  use solver
  implicit none
  integer :: rank, value
  character(len=10) :: how
  call get_command_argument(1, how)
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  print '(a)', 'ready'
  flush (6)
  if (rank == 1 .and. how == 'relax') call relax(3)
  if (rank == 1) call sleep(1000) ! line of sleep
  call MPI_Recv(value, 1, MPI_INTEGER, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  call MPI_Finalize()
end program
