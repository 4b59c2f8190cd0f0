! Compiled and linked only: the modules for compilers without assumed rank.
subroutine with_mpi
  use mpi
  implicit none
  real :: a(10, 10)
  integer :: ierror
  call MPI_SEND(a, 1, MPI_REAL, 0, 1, MPI_COMM_WORLD, ierror)
  call MPI_F_SYNC_REG(a)
end subroutine
program uses_addresses
  use mpi_f08
  implicit none
  real, asynchronous :: a(10, 10)
  type(MPI_Request) :: r
  integer(MPI_ADDRESS_KIND) :: v
  if (MPI_SUBARRAYS_SUPPORTED .or. MPI_ASYNC_PROTECTS_NONBLOCKING) stop 1
  call with_mpi
  call MPI_Send(a, 1, MPI_REAL, 0, 1, MPI_COMM_WORLD)
  call MPI_Send(a(1:10:2, :), 1_MPI_COUNT_KIND, MPI_REAL, 0, 1, MPI_COMM_WORLD)
  call MPI_Recv(MPI_BOTTOM, 1, MPI_REAL, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  call MPI_Isend("text", 4, MPI_CHARACTER, 0, 1, MPI_COMM_WORLD, r)
  call PMPI_Get_address(a(2, 2), v)
  call MPI_F_sync_reg(a)
  call MPI_Pack_external("external32", a, 1, MPI_REAL, a, 4_MPI_ADDRESS_KIND, v)
  call MPI_Unpack_external("external32", a, 4_MPI_ADDRESS_KIND, v, a, 1, MPI_REAL)
end program
