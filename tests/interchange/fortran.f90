! What the Fortran library converts over another C library: special addresses, handles, statuses, indices, sections,
! operators, error handlers, attributes. Two ranks; prints the number of failed checks.
#include "methods.h"
#include "check.h"
module callbacks
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer :: calls, seen_class, copies, deletes
  integer(kind=MPI_ADDRESS_KIND) :: deleted
  logical :: seen_object
contains
#define OPERATOR_NAME difference
#define OPERAND integer
#include "operator.inc"
    b = a - b
    seen_object = datatype_ == MPI_INTEGER
  end subroutine difference

#undef OPERATOR_NAME
#undef OPERAND
#define OPERATOR_NAME larger
#define OPERAND integer
#include "operator.inc"
    b = max(a, b)
    seen_object = datatype_ == MPI_INTEGER
  end subroutine larger

  subroutine on_error(comm_, code)
    COMM :: comm_
    integer :: code, ignored
    calls = calls + 1
    seen_object = comm_ == MPI_COMM_WORLD
    call MPI_Error_class(code, seen_class, ignored)
  end subroutine on_error

  subroutine copy_value(comm_, key, state, value, new_value, flag, code)
    COMM :: comm_
    integer :: key, code
    integer(kind=MPI_ADDRESS_KIND) :: state, value, new_value
    logical :: flag
    copies = copies + 1
    new_value = value + state
    flag = comm_ == MPI_COMM_WORLD .and. key /= MPI_KEYVAL_INVALID
    code = MPI_SUCCESS
  end subroutine copy_value

  subroutine delete_value(comm_, key, value, state, code)
    COMM :: comm_
    integer :: key, code
    integer(kind=MPI_ADDRESS_KIND) :: value, state
    deletes = deletes + 1
    deleted = value
    code = merge(MPI_SUCCESS, MPI_ERR_ARG, state == 1 .and. key /= MPI_KEYVAL_INVALID .and. comm_ /= MPI_COMM_NULL)
  end subroutine delete_value
end module callbacks

program fortran
  use callbacks
  implicit none
  integer :: rank, ranks, failures, ierr, other

  call start()
  other = 1 - rank
  call constants_()
  call some()
#ifdef METHOD_F08
  call sections()
#endif
  call operators()
  call error_handler()
  call attributes()
  call slots()
  if (rank == 0 .and. failures == 0) print '(a)', 'fortran: all checks passed'
  call finish()
contains
#include "check.inc"

  ! Special constants, statuses, LOGICAL.
  subroutine constants_()
    integer :: a(2), b(2), place(1)
    integer(kind=MPI_ADDRESS_KIND) :: address(1)
    DATATYPE :: absolute
    STATUS :: stat
    logical :: truth
    a = rank + [10, 20]
    call MPI_Sendrecv(a, 2, MPI_INTEGER, other, 7, b, 2, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &
        stat, ierr)
    CHECK(all(b == other + [10, 20]))
    SAME(SOURCE_OF(stat), other)
    SAME(TAG_OF(stat), 7)
    call MPI_Allreduce(MPI_IN_PLACE, a, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    CHECK(all(a == [21, 41]))
    call MPI_Get_address(b, address(1), ierr)
    place = 2
    call MPI_Type_create_hindexed(1, place, address, MPI_INTEGER, absolute, ierr)
    call MPI_Type_commit(absolute, ierr)
    b = rank
    call MPI_Sendrecv_replace(MPI_BOTTOM, 1, absolute, other, 1, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    CHECK(all(b == other))
    call MPI_Type_free(absolute, ierr)
    CHECK(absolute == MPI_DATATYPE_NULL)
    truth = rank == 0
    call MPI_Allreduce(MPI_IN_PLACE, truth, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierr)
    CHECK(truth)
  end subroutine constants_

  ! Indices of completed requests count from 1.
  subroutine some()
    integer :: data(3), count, indices(3), done, flags(3)
    REQUEST :: requests(3)
    STATUSES(stats, 3)
    integer :: i
    do i = 1, 3
      call MPI_Irecv(data(i), 1, MPI_INTEGER, rank, i, MPI_COMM_WORLD, requests(i), ierr)
    end do
    call MPI_Send(30, 1, MPI_INTEGER, rank, 3, MPI_COMM_WORLD, ierr)
    count = 0
    do while (count == 0)
      call MPI_Testsome(3, requests, count, indices, stats, ierr)
    end do
    SAME(count, 1)
    SAME(indices(1), 3)
    SAME(TAG_AT(stats, 1), 3)
    CHECK(requests(3) == MPI_REQUEST_NULL .and. requests(1) /= MPI_REQUEST_NULL)
    call MPI_Send(10, 1, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, ierr)
    call MPI_Send(20, 1, MPI_INTEGER, rank, 2, MPI_COMM_WORLD, ierr)
    flags = [0, 0, 1]
    done = 1
    do while (done < 3)
      call MPI_Testsome(3, requests, count, indices, MPI_STATUSES_IGNORE, ierr)
      flags(indices(1:count)) = flags(indices(1:count)) + 1
      done = done + count
    end do
    CHECK(all(flags == 1))
    CHECK(all(data == [10, 20, 30]))
    call MPI_Testsome(3, requests, count, indices, stats, ierr)
    SAME(count, MPI_UNDEFINED)
  end subroutine some

#ifdef METHOD_F08
  subroutine sections()
    integer, asynchronous :: a(6, 6), b(6, 6)
    type(MPI_Request) :: requests(2)
    integer :: i
    CHECK(MPI_SUBARRAYS_SUPPORTED)
    a = reshape([(rank * 100 + i, i = 1, 36)], [6, 6])
    b = -1
    call MPI_Irecv(b(6:1:-2, 1:5:4), 6, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(a(1:5:2, 2:4:2), 6, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    CHECK(all(b(6:1:-2, 1:5:4) - other * 100 == a(1:5:2, 2:4:2) - rank * 100))
    SAME(count(b == -1), 30)
    call MPI_Bcast(a(3, 1:6:5), 2, MPI_INTEGER, 1, MPI_COMM_WORLD)
    CHECK(all(a(3, 1:6:5) == [103, 133]))
  end subroutine sections
#endif

  ! A Fortran function runs in a slot of its own: two operators do not mix.
  subroutine operators()
    integer :: sent(2), differences(2), largest(2)
    OPERATOR :: first, second
    call MPI_Op_create(difference, .false., first, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Op_create(larger, .true., second, ierr)
    sent = [10, 3] * (rank + 1)
    seen_object = .false.
    call MPI_Allreduce(sent, differences, 2, MPI_INTEGER, first, MPI_COMM_WORLD, ierr)
    CHECK(all(differences == [-10, -3]))
    call MPI_Allreduce(sent, largest, 2, MPI_INTEGER, second, MPI_COMM_WORLD, ierr)
    CHECK(all(largest == [20, 6]))
    call MPI_Reduce_local(sent, largest, 2, MPI_INTEGER, first, ierr)
    CHECK(all(largest == sent - [20, 6]))
    CHECK(seen_object)
    call MPI_Op_free(first, ierr)
    call MPI_Op_free(second, ierr)
    CHECK(first == MPI_OP_NULL)
  end subroutine operators

  subroutine error_handler()
    ERRHANDLER :: handler
    calls = 0
    seen_object = .false.
    call MPI_Comm_create_errhandler(on_error, handler, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler, ierr)
    call MPI_Send(calls, 1, MPI_INTEGER, 7777, 1, MPI_COMM_WORLD, ierr)
    SAME(calls, 1)
    SAME(seen_class, MPI_ERR_RANK)
    CHECK(seen_object)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierr)
    call MPI_Errhandler_free(handler, ierr)
    call MPI_Send(calls, 1, MPI_INTEGER, 7777, 1, MPI_COMM_WORLD, ierr)
    SAME(calls, 1)
    CLASS(MPI_ERR_RANK)
  end subroutine error_handler

  subroutine attributes()
    integer(kind=MPI_ADDRESS_KIND), parameter :: large = 123456789012345_MPI_ADDRESS_KIND
    integer(kind=MPI_ADDRESS_KIND) :: value, one
    integer :: key
    logical :: flag
    COMM :: copy
    copies = 0
    deletes = 0
    one = 1
    call MPI_Comm_create_keyval(copy_value, delete_value, key, one, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, key, value, flag, ierr)
    CHECK(.not. flag)
    call MPI_Comm_set_attr(MPI_COMM_WORLD, key, large, ierr)
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
    SAME(copies, 1)
    call MPI_Comm_get_attr(copy, key, value, flag, ierr)
    CHECK(flag)
    SAME(value, large + 1)
    call MPI_Comm_free(copy, ierr)
    SAME(deletes, 1)
    SAME(deleted, large + 1)
    value = -large
    call MPI_Comm_set_attr(MPI_COMM_WORLD, key, value, ierr)
    SAME(deleted, large)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, key, value, flag, ierr)
    SAME(value, -large)
    call MPI_Comm_delete_attr(MPI_COMM_WORLD, key, ierr)
    SAME(deletes, 3)
    call MPI_Comm_free_keyval(key, ierr)
    SAME(key, MPI_KEYVAL_INVALID)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierr)
    CHECK(flag .and. value >= 32767)
  end subroutine attributes

  ! A function that is registered again takes no further slot.
  subroutine slots()
    integer :: i
    OPERATOR :: op
    do i = 1, 70
      call MPI_Op_create(larger, .true., op, ierr)
      SAME(ierr, MPI_SUCCESS)
      call MPI_Op_free(op, ierr)
    end do
  end subroutine slots
end program fortran
