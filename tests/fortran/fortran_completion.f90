! Completion: indices count from 1, MPI_UNDEFINED stays, errors are in the statuses. Statuses: fields, conversions,
! constants that ignore them.
! test: ranks=1,2 methods=mpif.h,mpi,mpi_f08 mistakes=yes
#include "methods.h"
#include "check.h"
program fortran_completion
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer :: rank, ranks, failures, ierr

  call start()
  call any_of_several()
  call some_of_several()
  call none_active()
  call queries()
  call errors()
  call one_error()
  call many()
  call fields()
#ifndef METHOD_MPIF
  call conversions()
#endif
  call finish()
contains
#include "check.inc"

  ! Starts three receives.
  subroutine post(requests, data)
    REQUEST, intent(out) :: requests(3)
    integer, intent(inout) :: data(3)
    integer :: i
    do i = 1, 3
      call MPI_Irecv(data(i), 1, MPI_INTEGER, rank, i, MPI_COMM_WORLD, requests(i), ierr)
    end do
  end subroutine post

  ! Sends the message of one receive.
  subroutine complete(which)
    integer, intent(in) :: which
    call MPI_Send(100 + which, 1, MPI_INTEGER, rank, which, MPI_COMM_WORLD, ierr)
  end subroutine complete

  subroutine any_of_several()
    integer, save :: data(3)
    integer :: index, i
    integer, parameter :: order(3) = [2, 3, 1]
    logical :: flag
    REQUEST :: requests(3)
    STATUS :: stat
    call post(requests, data)
    index = -5
    call MPI_Testany(3, requests, index, flag, stat, ierr)
    CHECK(.not. flag)
    SAME(index, MPI_UNDEFINED)
    do i = 1, 3
      call complete(order(i))
      if (i == 2) then
        flag = .false.
        do while (.not. flag)
          call MPI_Testany(3, requests, index, flag, stat, ierr)
        end do
      else
        call MPI_Waitany(3, requests, index, stat, ierr)
      end if
      SAME(index, order(i))
      SAME(TAG_OF(stat), order(i))
      CHECK(requests(index) == MPI_REQUEST_NULL)
      SAME(data(index), 100 + order(i))
    end do
    call MPI_Waitany(3, requests, index, stat, ierr)
    SAME(index, MPI_UNDEFINED)
    SAME(TAG_OF(stat), MPI_ANY_TAG)
  end subroutine any_of_several

  subroutine some_of_several()
    integer, save :: data(3)
    integer :: indices(3), count
    REQUEST :: requests(3)
    STATUSES(stats, 3)
    call post(requests, data)
    count = 9
    call MPI_Testsome(3, requests, count, indices, stats, ierr)
    SAME(count, 0)
    call complete(3)
    indices = -7
    call MPI_Waitsome(3, requests, count, indices, stats, ierr)
    SAME(count, 1)
    SAME(indices(1), 3)
    SAME(indices(2), -7)
    call complete(1)
    call complete(2)
    count = 0
    do while (count == 0)
      call MPI_Testsome(3, requests, count, indices, MPI_STATUSES_IGNORE, ierr)
    end do
    SAME(count, 2)
    CHECK(any(indices(1:2) == 1) .and. any(indices(1:2) == 2))
    call MPI_Waitsome(3, requests, count, indices, stats, ierr)
    SAME(count, MPI_UNDEFINED)
    call MPI_Testsome(3, requests, count, indices, stats, ierr)
    SAME(count, MPI_UNDEFINED)
  end subroutine some_of_several

  subroutine none_active()
    REQUEST :: requests(2)
    integer :: index
    logical :: flag
    STATUS :: stat
    requests = MPI_REQUEST_NULL
    call MPI_Testany(2, requests, index, flag, stat, ierr)
    CHECK(flag)
    SAME(index, MPI_UNDEFINED)
    call MPI_Testall(2, requests, flag, MPI_STATUSES_IGNORE, ierr)
    CHECK(flag)
    call MPI_Waitall(0, requests, MPI_STATUSES_IGNORE, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Test(requests(1), flag, stat, ierr)
    CHECK(flag)
  end subroutine none_active

  ! MPI_Request_get_status and its forms for several requests leave the requests alone.
  subroutine queries()
    integer, save :: data(3)
    integer :: index, count, indices(3)
    logical :: flag
    REQUEST :: requests(3)
    STATUS :: stat
    STATUSES(stats, 3)
    call post(requests, data)
    call MPI_Request_get_status_any(3, requests, index, flag, stat, ierr)
    CHECK(.not. flag)
    SAME(index, MPI_UNDEFINED)
    call MPI_Request_get_status_all(3, requests, flag, stats, ierr)
    CHECK(.not. flag)
    call MPI_Request_get_status_some(3, requests, count, indices, stats, ierr)
    SAME(count, 0)
    call complete(2)
    flag = .false.
    do while (.not. flag)
      call MPI_Request_get_status_any(3, requests, index, flag, stat, ierr)
    end do
    SAME(index, 2)
    SAME(TAG_OF(stat), 2)
    call MPI_Request_get_status_some(3, requests, count, indices, stats, ierr)
    SAME(count, 1)
    SAME(indices(1), 2)
    CHECK(requests(2) /= MPI_REQUEST_NULL)
    call complete(1)
    call complete(3)
    flag = .false.
    do while (.not. flag)
      call MPI_Request_get_status_all(3, requests, flag, MPI_STATUSES_IGNORE, ierr)
    end do
    call MPI_Request_get_status(requests(3), flag, stat, ierr)
    CHECK(flag)
    SAME(TAG_OF(stat), 3)
    call MPI_Waitall(3, requests, stats, ierr)
    SAME(TAG_AT(stats, 1), 1)
  end subroutine queries

  ! A truncated message among several: the call returns MPI_ERR_IN_STATUS, and the statuses have each error.
  subroutine errors()
    integer, save :: data(3)
    integer, parameter :: long(2) = [1, 2]
    integer :: count, indices(3), i
    REQUEST :: requests(3)
    STATUSES(stats, 3)
    call post(requests, data)
    call complete(1)
    call MPI_Send(long, 2, MPI_INTEGER, rank, 2, MPI_COMM_WORLD, ierr)
    call complete(3)
    call MPI_Waitall(3, requests, stats, ierr)
    CLASS(MPI_ERR_IN_STATUS)
    do i = 1, 3
      call class_is(ERROR_AT(stats, i), merge(MPI_ERR_TRUNCATE, MPI_SUCCESS, i == 2), __LINE__)
    end do
    call post(requests, data)
    call MPI_Send(long, 2, MPI_INTEGER, rank, 3, MPI_COMM_WORLD, ierr)
    call MPI_Waitsome(3, requests, count, indices, stats, ierr)
    CLASS(MPI_ERR_IN_STATUS)
    SAME(count, 1)
    SAME(indices(1), 3)
    call class_is(ERROR_AT(stats, 1), MPI_ERR_TRUNCATE, __LINE__)
    call complete(1)
    call complete(2)
    call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE, ierr)
    SAME(ierr, MPI_SUCCESS)
  end subroutine errors

  ! An error of a call for one request is its code. The index is set; MPI_ERROR of the status stays.
  subroutine one_error()
    integer, save :: data(3)
    integer, parameter :: long(2) = [1, 2]
    integer :: index
    logical :: flag
    REQUEST :: requests(3)
    STATUS :: stat
    call post(requests, data)
    call MPI_Send(long, 2, MPI_INTEGER, rank, 2, MPI_COMM_WORLD, ierr)
    index = -5
    ERROR_OF(stat) = 123
    call MPI_Waitany(3, requests, index, stat, ierr)
    CLASS(MPI_ERR_TRUNCATE)
    SAME(index, 2)
    SAME(TAG_OF(stat), 2)
    SAME(ERROR_OF(stat), 123)
    call MPI_Send(long, 2, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, ierr)
    flag = .false.
    index = -5
    ierr = MPI_SUCCESS
    do while (.not. flag .and. ierr == MPI_SUCCESS)
      call MPI_Testany(3, requests, index, flag, stat, ierr)
    end do
    CLASS(MPI_ERR_TRUNCATE)
    CHECK(flag)
    SAME(index, 1)
    SAME(ERROR_OF(stat), 123)
    call complete(3)
    call MPI_Wait(requests(3), stat, ierr)
    SAME(ierr, MPI_SUCCESS)
    SAME(ERROR_OF(stat), 123)
  end subroutine one_error

  ! More requests than the library converts without memory from the heap.
  subroutine many()
    integer, parameter :: n = 40
    integer, save :: data(n)
    integer :: i, count, index, indices(n), done
    logical :: seen(n)
    REQUEST :: requests(n)
    STATUSES(stats, n)
    do i = 1, n
      call MPI_Irecv(data(i), 1, MPI_INTEGER, rank, i, MPI_COMM_WORLD, requests(i), ierr)
    end do
    call complete(n)
    call MPI_Waitany(n, requests, index, MPI_STATUS_IGNORE, ierr)
    SAME(index, n)
    do i = 2, n - 1, 2
      call complete(i)
    end do
    seen = .false.
    done = 0
    do while (done < n / 2 - 1)
      call MPI_Waitsome(n, requests, count, indices, stats, ierr)
      do i = 1, count
        SAME(TAG_AT(stats, i), indices(i))
        seen(indices(i)) = .true.
      end do
      done = done + count
    end do
    CHECK(all(seen(2:n - 1:2)) .and. .not. any(seen(1:n - 1:2)))
    do i = 1, n - 1, 2
      call complete(i)
    end do
    call MPI_Waitall(n, requests, stats, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_F_sync_reg(data)
    CHECK(all(data == [(100 + i, i = 1, n)]))
    do i = 1, n
      CHECK(requests(i) == MPI_REQUEST_NULL)
    end do
  end subroutine many

  subroutine fields()
    integer :: value
    integer(kind=MPI_COUNT_KIND) :: large
    logical :: flag
    STATUS :: stat
    call MPI_Status_set_source(stat, 3, ierr)
    call MPI_Status_set_tag(stat, 4, ierr)
    call MPI_Status_set_error(stat, MPI_ERR_TAG, ierr)
    SAME(SOURCE_OF(stat), 3)
    SAME(TAG_OF(stat), 4)
    SAME(ERROR_OF(stat), MPI_ERR_TAG)
    call MPI_Status_get_source(stat, value, ierr)
    SAME(value, 3)
    call MPI_Status_get_tag(stat, value, ierr)
    SAME(value, 4)
    call MPI_Status_get_error(stat, value, ierr)
    SAME(value, MPI_ERR_TAG)
    call MPI_Status_set_elements(stat, MPI_INTEGER, 5, ierr)
    call MPI_Get_count(stat, MPI_INTEGER, value, ierr)
    SAME(value, 5)
    call MPI_Get_count(stat, MPI_DOUBLE_PRECISION, value, ierr)
    SAME(value, MPI_UNDEFINED)
    large = 3000000000_MPI_COUNT_KIND
    call MPI_Status_set_elements_x(stat, MPI_INTEGER, large, ierr)
    large = 0
    call MPI_Get_elements_x(stat, MPI_INTEGER, large, ierr)
    CHECK(large == 3000000000_MPI_COUNT_KIND)
    call MPI_Get_elements(stat, MPI_INTEGER, value, ierr)
    SAME(value, MPI_UNDEFINED)
    call MPI_Status_set_cancelled(stat, .true., ierr)
    call MPI_Test_cancelled(stat, flag, ierr)
    CHECK(flag)
    call MPI_Status_set_cancelled(stat, .false., ierr)
    call MPI_Test_cancelled(stat, flag, ierr)
    CHECK(.not. flag)
  end subroutine fields

#ifndef METHOD_MPIF
  subroutine conversions()
    type(MPI_Status) :: new, back
    integer :: old(MPI_STATUS_SIZE), i
    integer, parameter :: five(1) = [5]
    integer :: got(1)
#ifdef METHOD_F08
    call MPI_Sendrecv(five, 1, MPI_INTEGER, rank, 9, got, 1, MPI_INTEGER, rank, 9, MPI_COMM_WORLD, new)
    call MPI_Status_f082f(new, old)
#else
    call MPI_Sendrecv(five, 1, MPI_INTEGER, rank, 9, got, 1, MPI_INTEGER, rank, 9, MPI_COMM_WORLD, &
        old, ierr)
    call MPI_Status_f2f08(old, new, ierr)
#endif
    SAME(old(MPI_TAG), 9)
    SAME(new%MPI_TAG, 9)
    SAME(new%MPI_SOURCE, rank)
    call MPI_Status_f2f08(old, back, ierr)
    SAME(back%MPI_SOURCE, rank)
    back%MPI_TAG = 10
    call MPI_Status_f082f(back, old, ierr)
    SAME(old(MPI_TAG), 10)
    old = [(100 + i, i = 1, MPI_STATUS_SIZE)]
    call MPI_Status_f2f08(old, back, ierr)
    old = 0
    call MPI_Status_f082f(back, old, ierr)
    CHECK(all(old == [(100 + i, i = 1, MPI_STATUS_SIZE)]))
    SAME(got(1), 5)
  end subroutine conversions
#endif
end program fortran_completion
