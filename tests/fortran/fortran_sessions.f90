! Sessions without MPI_Init, and what may be called before MPI is initialised.
! test: ranks=1,2
#define METHOD_F08
#include "check.h"
program fortran_sessions
  use mpi_f08
  implicit none
  integer :: rank = -1, ranks, failures = 0, ierr, provided, sum_, level
  character(len=MPI_MAX_LIBRARY_VERSION_STRING) :: version
  character(len=20) :: value
  real(8) :: tick
  logical :: flag
  type(MPI_Session) :: session
  type(MPI_Group) :: world
  type(MPI_Comm) :: comm
  type(MPI_Info) :: info, types
  type(MPI_Errhandler) :: handler

  call MPI_Initialized(flag)
  CHECK(.not. flag)
  call MPI_Finalized(flag)
  CHECK(.not. flag)
  call MPI_Get_library_version(version, level)
  CHECK(level > 0)
  call MPI_Info_create(info)
  call MPI_Info_set(info, 'thread_level', 'MPI_THREAD_MULTIPLE')
  call MPI_Session_init(info, MPI_ERRORS_RETURN, session, ierr)
  SAME(ierr, MPI_SUCCESS)
  call MPI_Info_free(info)
  call MPI_Session_get_errhandler(session, handler)
  CHECK(handler == MPI_ERRORS_RETURN)
  call MPI_Session_get_info(session, info)
  level = len(value)
  call MPI_Info_get_string(info, 'thread_level', level, value, flag)
  CHECK(flag)
  CHECK(value == 'MPI_THREAD_MULTIPLE')
  call MPI_Info_free(info)
  call MPI_Session_get_pset_info(session, 'mpi://WORLD ', info, ierr)
  SAME(ierr, MPI_SUCCESS)
  level = len(value)
  call MPI_Info_get_string(info, 'mpi_size', level, value, flag)
  CHECK(flag)
  read (value, *) ranks
  call MPI_Info_free(info)
  call MPI_Group_from_session_pset(session, 'mpi://WORLD', world, ierr)
  SAME(ierr, MPI_SUCCESS)
  call MPI_Group_size(world, level)
  SAME(level, ranks)
  call MPI_Comm_create_from_group(world, 'fortran sessions ', MPI_INFO_NULL, MPI_ERRORS_RETURN, comm, ierr)
  SAME(ierr, MPI_SUCCESS)
  call MPI_Comm_rank(comm, rank)
  call MPI_Allreduce(rank + 1, sum_, 1, MPI_INTEGER, MPI_SUM, comm)
  SAME(sum_, ranks * (ranks + 1) / 2)
  call MPI_Initialized(flag)
  CHECK(.not. flag)
  call described()
  call MPI_Comm_free(comm)
  call MPI_Group_free(world)
  call MPI_Session_finalize(session, ierr)
  SAME(ierr, MPI_SUCCESS)
  CHECK(session == MPI_SESSION_NULL)

  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, ierr)
  SAME(ierr, MPI_SUCCESS)
  CHECK(provided >= MPI_THREAD_FUNNELED)
  call MPI_Is_thread_main(flag)
  CHECK(flag)
  call MPI_Query_thread(level)
  SAME(level, provided)
  tick = MPI_Wtick()
  CHECK(tick > 0d0 .and. tick < 1d0)
  CHECK(MPI_Wtime() > 0d0)
  call MPI_Pcontrol(1)
  call finish()
contains
#include "check.inc"

  ! The C library has the sizes of this compiler's types and the values of its LOGICALs.
  subroutine described()
    logical :: yes, no
    yes = .false.
    no = .true.
    call MPI_Abi_get_fortran_booleans(4, yes, no, flag, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(flag)
    CHECK(yes .and. .not. no)
    call MPI_Abi_get_fortran_info(types, ierr)
    SAME(ierr, MPI_SUCCESS)
    call size_is('mpi_integer_size', storage_size(0) / 8)
    call size_is('mpi_logical_size', storage_size(.true.) / 8)
    call size_is('mpi_real_size', storage_size(0.0) / 8)
    call size_is('mpi_double_precision_size', storage_size(0d0) / 8)
    call MPI_Info_free(types)
  end subroutine described

  subroutine size_is(key, bytes)
    character(len=*), intent(in) :: key
    integer, intent(in) :: bytes
    integer :: length, found
    length = len(value)
    call MPI_Info_get_string(types, key, length, value, flag)
    CHECK(flag)
    read (value, *) found
    SAME(found, bytes)
  end subroutine size_is
end program fortran_sessions
