! Compiled and linked only: both modules in one file and in one scope.
subroutine one
  use mpi
  implicit none
  integer :: ierror, keyval, n
  integer(MPI_ADDRESS_KIND) :: v
  call MPI_COMM_CREATE_KEYVAL(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, keyval, v, ierror)
  call MPI_SIZEOF(v, n, ierror)
  call MPI_BARRIER(MPI_COMM_WORLD, ierror)
end subroutine
subroutine two
  use mpi_f08
  implicit none
  integer :: keyval, n
  integer(MPI_ADDRESS_KIND) :: v
  call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, keyval, v)
  call MPI_Sizeof(v, n)
  call MPI_Barrier(MPI_COMM_WORLD)
end subroutine
subroutine three
  use mpi
  use mpi_f08, only: MPI_COMM_WORLD_f08 => MPI_COMM_WORLD, MPI_Barrier_f08_generic => MPI_Barrier
  implicit none
  integer :: ierror
  type(MPI_Comm) :: c
  c = MPI_COMM_WORLD_f08
  if (c == MPI_Comm(MPI_COMM_WORLD)) call MPI_Barrier_f08_generic(c)
  call MPI_BARRIER(c%MPI_VAL, ierror)
end subroutine
subroutine four
  use mpi_f08
  use mpi, only: MPI_STATUS_SIZE, MPI_Status_f2f08_90 => MPI_Status_f2f08
  implicit none
  integer :: s(MPI_STATUS_SIZE), ierror
  type(MPI_Status) :: t
  call MPI_Status_f2f08_90(s, t, ierror)
  call MPI_Status_f2f08(s, t)
end subroutine
program uses_both
  call one
  call two
  call three
  call four
end program
