! Compiled and linked only: calls of each kind that module mpi_f08 accepts.
module callbacks
  use mpi_f08
  implicit none
contains
  subroutine my_sum(invec, inoutvec, len, datatype)
    use, intrinsic :: iso_c_binding
    type(C_PTR), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    real, pointer :: a(:), b(:)
    call c_f_pointer(invec, a, [len])
    call c_f_pointer(inoutvec, b, [len])
    if (datatype == MPI_REAL) b = a + b
  end subroutine
  subroutine my_sum_c(invec, inoutvec, len, datatype)
    use, intrinsic :: iso_c_binding
    type(C_PTR), value :: invec, inoutvec
    integer(MPI_COUNT_KIND) :: len
    type(MPI_Datatype) :: datatype
    if (len > 0 .and. datatype == MPI_REAL .and. c_associated(invec, inoutvec)) stop
  end subroutine
  subroutine copy(oldcomm, comm_keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    type(MPI_Comm) :: oldcomm
    integer :: comm_keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
    flag = oldcomm /= MPI_COMM_NULL
    attribute_val_out = attribute_val_in + extra_state + comm_keyval
    ierror = MPI_SUCCESS
  end subroutine
  subroutine on_error(comm, error_code)
    type(MPI_Comm) :: comm
    integer :: error_code
    if (comm == MPI_COMM_WORLD) print *, error_code
  end subroutine
  subroutine ext(datatype, extent, extra_state, ierror)
    type(MPI_Datatype) :: datatype
    integer(MPI_ADDRESS_KIND) :: extent, extra_state
    integer :: ierror
    if (datatype == MPI_REAL) extent = extra_state
    ierror = 0
  end subroutine
end module
program uses_mpi_f08
  use mpi_f08
  use callbacks
  use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
  implicit none
  integer, parameter :: ck = MPI_COUNT_KIND
  real, asynchronous :: a(10, 10)
  real, allocatable :: d(:)
  double precision :: t
  integer :: i, n, ierror, keyval
  integer(ck) :: big
  logical :: flag
  type(MPI_Request) :: r(2)
  type(MPI_Status) :: s, ss(2)
  type(MPI_Comm) :: c
  type(MPI_Op) :: op
  type(MPI_Win) :: w
  type(MPI_Datatype) :: dt
  type(MPI_Errhandler) :: eh
  type(c_ptr) :: p
  integer(MPI_ADDRESS_KIND) :: v, lb, extent
  character(len=MPI_MAX_ERROR_STRING) :: text
  character(len=20) :: args(2)
  integer :: istat(MPI_STATUS_SIZE)
  call MPI_Init()
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, n)
  call MPI_Send(a, 1, MPI_REAL, 0, 1, MPI_COMM_WORLD)
  call MPI_Send(a(1:10:2, :), 50, MPI_REAL, 0, 1, MPI_COMM_WORLD, ierror)
  call MPI_Send(1.0, 1_ck, MPI_REAL, 0, 1, MPI_COMM_WORLD, ierror=ierror)
  call MPI_Send("text", 4, MPI_CHARACTER, 0, 1, MPI_COMM_WORLD)
  call MPI_Recv(a(1, 1), 1, MPI_REAL, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  call MPI_Recv(MPI_BOTTOM, 1_ck, MPI_REAL, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, s)
  call PMPI_Recv(a, 1, MPI_REAL, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, s)
  if (s%MPI_SOURCE /= 0 .or. s%MPI_TAG == MPI_ANY_TAG .or. s%MPI_ERROR /= MPI_SUCCESS) stop 1
  call MPI_Isend(a(1:5, 2), 5, MPI_REAL, 0, 1, MPI_COMM_WORLD, r(1))
  call MPI_Waitall(2, r, MPI_STATUSES_IGNORE)
  call MPI_Waitall(2, r, ss)
  call MPI_Waitsome(2, r, n, istat, ss, ierror)
  call MPI_Get_count(s, MPI_REAL, n)
  call MPI_Get_count(s, MPI_REAL, big)
  call MPI_Allreduce(MPI_IN_PLACE, a, 100, MPI_REAL, MPI_SUM, MPI_COMM_WORLD)
  call MPI_Op_create(my_sum, .true., op)
  call MPI_Op_create_c(my_sum_c, .true., op)
  call MPI_Comm_create_keyval(copy, MPI_COMM_NULL_DELETE_FN, keyval, 7_MPI_ADDRESS_KIND)
  call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, keyval, 7_MPI_ADDRESS_KIND)
  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, v, flag)
  call MPI_Comm_create_errhandler(on_error, eh)
  call MPI_Register_datarep("x", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, ext, 0_MPI_ADDRESS_KIND)
  call MPI_Register_datarep_c("x", MPI_CONVERSION_FN_NULL_C, MPI_CONVERSION_FN_NULL_C, ext, 0_MPI_ADDRESS_KIND)
  call MPI_Comm_dup(MPI_COMM_WORLD, c)
  if (c == MPI_COMM_WORLD .or. dt /= MPI_REAL .or. r(1) == MPI_REQUEST_NULL .or. op == MPI_OP_NULL) stop 2
  if (any(r == MPI_REQUEST_NULL)) stop 3
  t = MPI_Wtime() + MPI_Wtick() + PMPI_Wtime()
  call MPI_Alloc_mem(100_MPI_ADDRESS_KIND, MPI_INFO_NULL, p)
  call MPI_Win_allocate(100_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, p, w)
  call MPI_Win_allocate(100_MPI_ADDRESS_KIND, 4_MPI_ADDRESS_KIND, MPI_INFO_NULL, MPI_COMM_WORLD, p, w)
  call MPI_Get_address(a(2, 2), v)
  v = MPI_Aint_add(v, MPI_Aint_diff(v, v))
  call MPI_F_sync_reg(a)
  call MPI_Sizeof(t, n)
  call MPI_Sizeof(a, n, ierror)
  call MPI_Sizeof(cmplx(1d0, kind=8), i)
  call MPI_Error_string(3, text, n)
  call MPI_Comm_spawn("p", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, c, MPI_ERRCODES_IGNORE)
  call MPI_Comm_spawn("p", args, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, c, istat)
  call MPI_Comm_spawn_multiple(2, args, MPI_ARGVS_NULL, [1, 1], [MPI_INFO_NULL, MPI_INFO_NULL], 0, MPI_COMM_WORLD, c, &
      MPI_ERRCODES_IGNORE)
  call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, [0], [0], [0], MPI_UNWEIGHTED, MPI_INFO_NULL, .false., c)
  call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, [0], [0], [0], MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, .false., c)
  call MPI_Type_create_hindexed(1, [1], [1_MPI_ADDRESS_KIND], MPI_REAL, dt)
  call MPI_Type_create_hindexed(1_ck, [1_ck], [1_ck], MPI_REAL, dt)
  call MPI_Type_create_struct(1, [1], [0_MPI_ADDRESS_KIND], [MPI_REAL], dt)
  call MPI_Type_get_extent(dt, lb, extent)
  call MPI_Pack_external("external32", a, 1, MPI_REAL, a, 4_MPI_ADDRESS_KIND, v)
  call MPI_Pack_external("external32", a, 1_ck, MPI_REAL, a, 4_ck, v)
  call MPI_Unpack_external("external32", a, 4_MPI_ADDRESS_KIND, v, a, 1, MPI_REAL, ierror)
  call MPI_Unpack_external(args(1), a, 4_ck, v, a, 1_ck, MPI_REAL)
  call MPI_Status_f2f08(istat, s)
  call MPI_Status_f082f(s, istat)
  call MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0)
  call MPI_Buffer_detach(p, n)
  call MPI_Cancel(r(1))
  call MPI_Pcontrol(1)
  allocate (d(4))
  call MPI_Bcast(d, size(d), MPI_REAL, 0, MPI_COMM_WORLD)
  call MPI_Cart_create(MPI_COMM_WORLD, 2, [1, 1], [.true., .false.], .true., c)
  call MPI_Finalize()
end program
