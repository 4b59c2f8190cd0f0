! A profiling library in C counts each call once, and no call that the Fortran library makes itself.
! test: ranks=1 methods=mpif.h,mpi,mpi_f08 with=fortran_profiled.c only=build
#include "methods.h"
#include "check.h"
program fortran_profiled
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer :: rank, ranks, failures, ierr, before
  external :: profile_count, profile_total

  failures = 0
  rank = -1
  ! The calls that describe Fortran's types to the C library are not counted.
  call profile_total(before)
  SAME(before, 0)
  call MPI_Init(ierr)
  call expect('MPI_Init', __LINE__)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call expect('MPI_Comm_rank', __LINE__)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call expect('MPI_Comm_size', __LINE__)
  call PMPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call expect('', __LINE__)
  call messages()
  call topologies()
  call attributes()
#ifdef METHOD_F08
  call sections()
#endif
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL, ierr)
  call finish()
contains
#include "check.inc"

  ! One more function was called, this one; none for a blank name.
  subroutine expect(name, line)
    character(len=*), intent(in) :: name
    integer, intent(in) :: line
    integer, save :: earlier = 0
    integer :: calls, total
    call profile_total(total)
    call same(int(total - earlier, 8), int(merge(1, 0, name /= ' '), 8), line)
    earlier = total
    if (name == ' ') return
    call profile_count(name, calls)
    call check(calls >= 1, line)
  end subroutine expect

  subroutine messages()
    integer :: a(2), b(2), index
    REQUEST :: requests(2)
    a = 1
    call MPI_Irecv(b, 2, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, requests(1), ierr)
    call expect('MPI_Irecv', __LINE__)
    call MPI_Isend(a, 2, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, requests(2), ierr)
    call expect('MPI_Isend', __LINE__)
    call MPI_Waitany(2, requests, index, MPI_STATUS_IGNORE, ierr)
    call expect('MPI_Waitany', __LINE__)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
    call expect('MPI_Waitall', __LINE__)
    call MPI_Allreduce(MPI_IN_PLACE, a, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    call expect('MPI_Allreduce', __LINE__)
  end subroutine messages

  subroutine topologies()
    integer :: places(1), counts(1), a(1), b(1)
    logical :: keeps(1)
    COMM :: grid, line
    DATATYPE :: types(1)
    call MPI_Cart_create(MPI_COMM_WORLD, 1, [1], [.true.], .false., grid, ierr)
    call expect('MPI_Cart_create', __LINE__)
    keeps = .true.
    call MPI_Cart_sub(grid, keeps, line, ierr)
    call expect('MPI_Cart_sub', __LINE__)
    types = MPI_INTEGER
    counts = 1
    places = 0
    a = 1
    call MPI_Alltoallw(a, counts, places, types, b, counts, places, types, line, ierr)
    call expect('MPI_Alltoallw', __LINE__)
    call MPI_Comm_free(line, ierr)
    call expect('MPI_Comm_free', __LINE__)
    call MPI_Comm_free(grid, ierr)
    call expect('MPI_Comm_free', __LINE__)
  end subroutine topologies

  subroutine attributes()
    character(len=20) :: value
    integer :: key, length
    integer(kind=MPI_ADDRESS_KIND) :: number
    logical :: flag
    INFO :: info_
    number = 5
    call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, key, number, ierr)
    call expect('MPI_Comm_create_keyval', __LINE__)
    call MPI_Comm_set_attr(MPI_COMM_WORLD, key, number, ierr)
    call expect('MPI_Comm_set_attr', __LINE__)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, key, number, flag, ierr)
    call expect('MPI_Comm_get_attr', __LINE__)
    call MPI_Comm_delete_attr(MPI_COMM_WORLD, key, ierr)
    call expect('MPI_Comm_delete_attr', __LINE__)
    call MPI_Comm_free_keyval(key, ierr)
    call expect('MPI_Comm_free_keyval', __LINE__)
    call MPI_Info_create(info_, ierr)
    call expect('MPI_Info_create', __LINE__)
    length = 20
    call MPI_Info_get_string(info_, 'key', length, value, flag, ierr)
    call expect('MPI_Info_get_string', __LINE__)
    call MPI_Info_free(info_, ierr)
    call expect('MPI_Info_free', __LINE__)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierr)
    call expect('MPI_Comm_set_errhandler', __LINE__)
  end subroutine attributes

#ifdef METHOD_F08
  ! The calls that make datatypes for sections, and a refused call, are not counted.
  subroutine sections()
    integer, asynchronous :: a(8), b(8)
    type(MPI_Request) :: requests(2)
    a = 1
    call MPI_Irecv(b(1:8:2), 4, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, requests(1))
    call expect('MPI_Irecv', __LINE__)
    call MPI_Send(a(2:8:2), 4, MPI_INTEGER, rank, 1, MPI_COMM_WORLD)
    call expect('MPI_Send', __LINE__)
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
    call expect('MPI_Wait', __LINE__)
    call MPI_Iallreduce(a(1:8:2), b, 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1), ierr)
    call expect('', __LINE__)
    CHECK(ierr /= MPI_SUCCESS)
  end subroutine sections
#endif
end program fortran_profiled
