! Compiled and linked only: calls of each kind that module mpi accepts.
subroutine my_sum(invec, inoutvec, len, datatype)
  use mpi
  implicit none
  integer :: len, datatype
  real :: invec(len), inoutvec(len)
  if (datatype == MPI_REAL) inoutvec = invec + inoutvec
end subroutine
program uses_mpi
  use mpi
  use, intrinsic :: iso_c_binding, only: c_ptr
  implicit none
  external :: my_sum
  real :: a(10, 10)
  real, allocatable :: d(:)
  character(20) :: args(2)
  type(c_ptr) :: p
  integer(MPI_ADDRESS_KIND) :: v
  integer :: r(2), s(MPI_STATUS_SIZE), ss(MPI_STATUS_SIZE, 2), ierror, n, op, keyval, w, c
  logical :: flag
  double precision :: t
  type(MPI_Status) :: st
  type(MPI_Comm) :: tc
  call MPI_INIT(ierror)
  call MPI_SEND(a, 1, MPI_REAL, 0, 1, MPI_COMM_WORLD, ierror)
  call MPI_SEND(a(1:10:2, :), 1, MPI_REAL, 0, 1, MPI_COMM_WORLD, ierror)
  call MPI_SEND(a(1, 1), 1, MPI_REAL, 0, 1, MPI_COMM_WORLD, ierror)
  call MPI_SEND(1, 1, MPI_INTEGER, 0, 1, MPI_COMM_WORLD, ierror)
  call MPI_SEND("abc", 3, MPI_CHARACTER, 0, 1, MPI_COMM_WORLD, ierror)
  call MPI_SEND(MPI_BOTTOM, 3, MPI_CHARACTER, 0, 1, MPI_COMM_WORLD, ierror)
  call MPI_RECV(a, 1, MPI_REAL, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
  call PMPI_RECV(a, 1, MPI_REAL, 0, 1, MPI_COMM_WORLD, s, ierror)
  if (s(MPI_SOURCE) /= 0 .or. s(MPI_TAG) /= 1 .or. s(MPI_ERROR) /= MPI_SUCCESS) stop 1
  call MPI_WAITALL(2, r, ss, ierror)
  call MPI_WAITALL(2, r, MPI_STATUSES_IGNORE, ierror)
  call MPI_ALLREDUCE(MPI_IN_PLACE, a, 100, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierror)
  call MPI_OP_CREATE(my_sum, .true., op, ierror)
  call MPI_COMM_CREATE_KEYVAL(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, keyval, v, ierror)
  call MPI_KEYVAL_CREATE(MPI_DUP_FN, MPI_NULL_DELETE_FN, keyval, n, ierror)
  call MPI_ATTR_GET(MPI_COMM_WORLD, keyval, n, flag, ierror)
  call MPI_REGISTER_DATAREP("x", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, my_sum, v, ierror)
  call MPI_ALLOC_MEM(100_MPI_ADDRESS_KIND, MPI_INFO_NULL, p, ierror)
  call MPI_ALLOC_MEM(100_MPI_ADDRESS_KIND, MPI_INFO_NULL, v, ierror)
  call MPI_WIN_ALLOCATE(100_MPI_ADDRESS_KIND, 1, MPI_INFO_NULL, MPI_COMM_WORLD, p, w, ierror)
  call PMPI_WIN_ALLOCATE(100_MPI_ADDRESS_KIND, 1, MPI_INFO_NULL, MPI_COMM_WORLD, v, w, ierror)
  call MPI_COMM_SPAWN("p", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, c, MPI_ERRCODES_IGNORE, ierror)
  call MPI_COMM_SPAWN_MULTIPLE(2, args, MPI_ARGVS_NULL, [1, 1], [MPI_INFO_NULL, MPI_INFO_NULL], 0, MPI_COMM_WORLD, c, &
      MPI_ERRCODES_IGNORE, ierror)
  call MPI_SIZEOF(a, n, ierror)
  call MPI_F_SYNC_REG(a)
  call MPI_STATUS_F2F08(s, st, ierror)
  call MPI_GET_ADDRESS(a, v, ierror)
  call MPI_BUFFER_DETACH(a, n, ierror)
  call MPI_PACK_EXTERNAL("external32", "abc", 3, MPI_CHARACTER, a, 4_MPI_ADDRESS_KIND, v, ierror)
  call MPI_UNPACK_EXTERNAL("external32", a, 4_MPI_ADDRESS_KIND, v, a, 1, MPI_REAL, ierror)
  tc%MPI_VAL = MPI_COMM_WORLD
  if (tc == MPI_Comm(MPI_COMM_WORLD)) t = MPI_WTIME() + MPI_WTICK()
  allocate (d(3))
  call MPI_BCAST(d, 3, MPI_REAL, 0, MPI_COMM_WORLD, ierror)
  call MPI_BCAST(d(2:), 3, MPI_REAL, 0, MPI_COMM_WORLD, ierror)
  call MPI_CART_CREATE(MPI_COMM_WORLD, 2, [1, 1], [.true., .false.], .true., c, ierror)
  call assumed(a)
  call MPI_FINALIZE(ierror)
contains
  subroutine assumed(x)
    real :: x(:, :)
    call MPI_SEND(x, 1, MPI_REAL, 0, 1, MPI_COMM_WORLD, ierror)
    call MPI_SEND(x(2, 1), 1, MPI_REAL, 0, 1, MPI_COMM_WORLD, ierror)
  end subroutine
end program
