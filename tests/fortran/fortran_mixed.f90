! Fortran and C in one program exchange handles, statuses and constants.
! test: ranks=2 methods=mpi,mpi_f08,mpif.h with=fortran_mixed.c
#include "methods.h"
#include "check.h"
module products
  USE_METHOD
  implicit none
  INCLUDE_METHOD
contains
#define OPERATOR_NAME multiply
#define OPERAND integer
#include "operator.inc"
    if (datatype_ == MPI_INTEGER) b = a * b
  end subroutine multiply
end module products

program fortran_mixed
  use products
  implicit none
  integer :: rank, ranks, failures, ierr, other
  external :: c_describe, c_ring, c_wait, c_status, c_ignores, c_ignores_f08, c_ignores_all_f08, &
      c_make, c_reduce, c_handler, c_weights

  call c_describe(.true., .false., ierr)
  SAME(ierr, MPI_SUCCESS)
  call start()
  other = 1 - rank
  call messages()
  call objects()
  call operators()
  call constants_()
  call weights()
  call finish()
contains
#include "check.inc"

  subroutine messages()
    integer :: value, old(MPI_STATUS_SIZE), count, source, tag
    integer, save :: received(3)
    integer :: data(2)
    REQUEST :: request
    STATUS :: stat
    value = rank
    call c_ring(HANDLE_VALUE(MPI_COMM_WORLD), other, other, value, old)
    SAME(value, other)
    SAME(old(MPI_SOURCE), other)
    SAME(old(MPI_TAG), 3)
    call MPI_Irecv(received, 3, MPI_INTEGER, other, 8, MPI_COMM_WORLD, request, ierr)
    data = [rank, 9]
    call MPI_Send(data, 2, MPI_INTEGER, other, 8, MPI_COMM_WORLD, ierr)
    call c_wait(HANDLE_VALUE(request), old, count)
    CHECK(request == MPI_REQUEST_NULL)
    SAME(count, 2)
    SAME(old(MPI_SOURCE), other)
    SAME(received(1), other)
    call MPI_Sendrecv(data, 2, MPI_INTEGER, other, 9, received, 3, MPI_INTEGER, other, 9, MPI_COMM_WORLD, &
        stat, ierr)
#ifdef METHOD_F08
    call MPI_Status_f082f(stat, old)
#else
    old = stat
#endif
    call c_status(old, source, tag, count)
    SAME(source, other)
    SAME(tag, 9)
    SAME(count, 2)
  end subroutine messages

  subroutine objects()
    character(len=20) :: value
    integer :: compared, size, is_return
    logical :: flag
    COMM :: comm_
    DATATYPE :: pairs
    OPERATOR :: op
    GROUP :: group_
    INFO :: info_
    ERRHANDLER :: handler
    call c_make(HANDLE_VALUE(comm_), HANDLE_VALUE(pairs), HANDLE_VALUE(op), HANDLE_VALUE(group_), &
        HANDLE_VALUE(info_), HANDLE_VALUE(handler))
    CHECK(op == MPI_SUM)
    CHECK(handler == MPI_ERRORS_RETURN)
    call MPI_Comm_compare(comm_, MPI_COMM_WORLD, compared, ierr)
    SAME(compared, MPI_CONGRUENT)
    call MPI_Type_size(pairs, size, ierr)
    SAME(size, 8)
    call MPI_Group_size(group_, size, ierr)
    SAME(size, 2)
    value = ' '
    call MPI_Info_get(info_, 'key', 20, value, flag, ierr)
    CHECK(flag .and. value == 'set in C')
    call MPI_Comm_set_errhandler(comm_, handler, ierr)
    call c_handler(HANDLE_VALUE(comm_), is_return)
    SAME(is_return, 1)
    call MPI_Info_free(info_, ierr)
    call MPI_Group_free(group_, ierr)
    call MPI_Type_free(pairs, ierr)
    call MPI_Comm_free(comm_, ierr)
  end subroutine objects

  subroutine operators()
    integer :: values(2)
    OPERATOR :: op
    call MPI_Op_create(multiply, .true., op, ierr)
    values = [rank + 2, 10]
    call c_reduce(HANDLE_VALUE(MPI_COMM_WORLD), HANDLE_VALUE(MPI_INTEGER), HANDLE_VALUE(op), values)
    CHECK(all(values == [6, 100]))
    call MPI_Op_free(op, ierr)
  end subroutine operators

  subroutine constants_()
    integer :: which, stat(MPI_STATUS_SIZE)
#ifdef METHOD_F08
    call c_ignores_f08(MPI_STATUS_IGNORE, which)
    SAME(which, 1)
    call c_ignores_all_f08(MPI_STATUSES_IGNORE, which)
    SAME(which, 2)
    stat = 0
    call c_ignores(stat, which)
    SAME(which, 0)
#else
    call c_ignores(MPI_STATUS_IGNORE, which)
    SAME(which, 1)
    call c_ignores(MPI_STATUSES_IGNORE, which)
    SAME(which, 2)
    call c_ignores(stat, which)
    SAME(which, 0)
#endif
  end subroutine constants_

  subroutine weights()
    integer :: constants, none(1)
    COMM :: graph
    none = 0
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, none, MPI_WEIGHTS_EMPTY, 0, none, &
        MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, .false., graph, ierr)
    call c_weights(constants)
    SAME(constants, 1)
    call MPI_Comm_free(graph, ierr)
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, none, MPI_UNWEIGHTED, 0, none, &
        MPI_UNWEIGHTED, MPI_INFO_NULL, .false., graph, ierr)
    call c_weights(constants)
    SAME(constants, 2)
    call MPI_Comm_free(graph, ierr)
  end subroutine weights
end program fortran_mixed
