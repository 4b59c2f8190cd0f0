! Messages: every mode, wildcards, probes, buffers, persistent and partitioned requests.
! test: ranks=2,3 methods=mpif.h,mpi,mpi_f08 variants=check
#include "methods.h"
#include "check.h"
program fortran_messages
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer :: rank, ranks, failures, ierr, right, left
  integer, parameter :: n = 1000

  call start()
  right = mod(rank + 1, ranks)
  left = mod(rank + ranks - 1, ranks)
  call modes()
  call nonblocking_modes()
  call wildcards()
  call special_ranks()
  call probes()
  call exchanges()
  call buffers()
  call automatic_buffer()
  call persistent()
  call persistent_modes()
  call partitioned()
  call cancelled()
  call finish()
contains
#include "check.inc"

  ! Element i of message `seed` from a rank.
  elemental integer function item(from, seed, i)
    integer, intent(in) :: from, seed, i
    item = from * 1000000 + seed * 10000 + i
  end function item

  subroutine fill(array, seed)
    integer, intent(out) :: array(:)
    integer, intent(in) :: seed
    integer :: i
    array = [(item(rank, seed, i), i = 1, size(array))]
  end subroutine fill

  logical function holds(array, from, seed)
    integer, intent(in) :: array(:), from, seed
    integer :: i
    holds = all(array == [(item(from, seed, i), i = 1, size(array))])
  end function holds

  subroutine modes()
    integer :: a(n), b(n), mode, count
    REQUEST :: request
    STATUS :: stat
    do mode = 1, 4
      call fill(a, mode)
      b = 0
      call MPI_Irecv(b, n, MPI_INTEGER, left, mode, MPI_COMM_WORLD, request, ierr)
      ! A ready send needs the receive to be posted.
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
      select case (mode)
      case (1)
        call MPI_Send(a, n, MPI_INTEGER, right, mode, MPI_COMM_WORLD, ierr)
      case (2)
        call MPI_Ssend(a, n, MPI_INTEGER, right, mode, MPI_COMM_WORLD, ierr)
      case (3)
        call MPI_Rsend(a, n, MPI_INTEGER, right, mode, MPI_COMM_WORLD, ierr)
      case (4)
        call MPI_Send(a, 10, MPI_INTEGER, right, mode, MPI_COMM_WORLD, ierr)
      end select
      SAME(ierr, MPI_SUCCESS)
      call MPI_Wait(request, stat, ierr)
      call MPI_F_sync_reg(b)
      CHECK(request == MPI_REQUEST_NULL)
      SAME(SOURCE_OF(stat), left)
      SAME(TAG_OF(stat), mode)
      call MPI_Get_count(stat, MPI_INTEGER, count, ierr)
      SAME(count, merge(10, n, mode == 4))
      CHECK(holds(b(1:count), left, mode))
      CHECK(all(b(count + 1:) == 0))
    end do
  end subroutine modes

  subroutine nonblocking_modes()
    integer :: a(n, 3), b(n, 3), mode
    REQUEST :: requests(6)
    STATUSES(stats, 6)
    do mode = 1, 3
      call MPI_Irecv(b(1, mode), n, MPI_INTEGER, left, mode, MPI_COMM_WORLD, requests(mode), ierr)
      call fill(a(:, mode), 10 + mode)
    end do
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Isend(a(1, 1), n, MPI_INTEGER, right, 1, MPI_COMM_WORLD, requests(4), ierr)
    call MPI_Issend(a(1, 2), n, MPI_INTEGER, right, 2, MPI_COMM_WORLD, requests(5), ierr)
    call MPI_Irsend(a(1, 3), n, MPI_INTEGER, right, 3, MPI_COMM_WORLD, requests(6), ierr)
    call MPI_Waitall(6, requests, stats, ierr)
    SAME(ierr, MPI_SUCCESS)
    do mode = 1, 3
      CHECK(requests(mode) == MPI_REQUEST_NULL)
      CHECK(requests(mode + 3) == MPI_REQUEST_NULL)
      CHECK(holds(b(:, mode), left, 10 + mode))
    end do
  end subroutine nonblocking_modes

  subroutine wildcards()
    integer :: a(1), b(1), i
    logical :: seen(0:ranks - 1)
    REQUEST :: request
    STATUS :: stat
    seen = .false.
    a = rank
    if (rank /= 0) then
      call MPI_Send(a, 1, MPI_INTEGER, 0, 100 + rank, MPI_COMM_WORLD, ierr)
      ! Later messages must not match the wildcards.
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
      return
    end if
    do i = 1, ranks - 1
      if (i == 1) then
        call MPI_Recv(b, 1, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, stat, ierr)
      else
        call MPI_Irecv(b, 1, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, request, ierr)
        call MPI_Wait(request, stat, ierr)
        call MPI_F_sync_reg(b)
      end if
      SAME(SOURCE_OF(stat), b(1))
      SAME(TAG_OF(stat), 100 + b(1))
      seen(b(1)) = .true.
    end do
    CHECK(all(seen(1:)))
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  end subroutine wildcards

  ! MPI_PROC_NULL, and messages of a rank to itself.
  subroutine special_ranks()
    integer :: a(1), b(1), count
    REQUEST :: request
    STATUS :: stat
    b = 7
    call MPI_Send(a, 1, MPI_INTEGER, MPI_PROC_NULL, 1, MPI_COMM_WORLD, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Recv(b, 1, MPI_INTEGER, MPI_PROC_NULL, 1, MPI_COMM_WORLD, stat, ierr)
    SAME(b(1), 7)
    SAME(SOURCE_OF(stat), MPI_PROC_NULL)
    SAME(TAG_OF(stat), MPI_ANY_TAG)
    call MPI_Get_count(stat, MPI_INTEGER, count, ierr)
    SAME(count, 0)
    a = 8
    call MPI_Irecv(b, 1, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, request, ierr)
    call MPI_Send(a, 1, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_F_sync_reg(b)
    SAME(b(1), 8)
  end subroutine special_ranks

  subroutine probes()
    integer :: a(n), b(n), count
    logical :: flag
    MESSAGE :: message_
    REQUEST :: requests(2), request
    STATUS :: stat
    call fill(a, 20)
    call MPI_Isend(a, n, MPI_INTEGER, right, 1, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Isend(a, n / 2, MPI_INTEGER, right, 2, MPI_COMM_WORLD, requests(2), ierr)
    call MPI_Probe(left, 2, MPI_COMM_WORLD, stat, ierr)
    call MPI_Get_count(stat, MPI_INTEGER, count, ierr)
    SAME(count, n / 2)
    flag = .false.
    do while (.not. flag)
      call MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, flag, stat, ierr)
    end do
    SAME(SOURCE_OF(stat), left)
    call MPI_Iprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, flag, MPI_STATUS_IGNORE, ierr)
    CHECK(.not. flag)
    call MPI_Mprobe(left, 2, MPI_COMM_WORLD, message_, stat, ierr)
    CHECK(message_ /= MPI_MESSAGE_NULL)
    b = 0
    call MPI_Mrecv(b, n / 2, MPI_INTEGER, message_, stat, ierr)
    CHECK(message_ == MPI_MESSAGE_NULL)
    CHECK(holds(b(1:n / 2), left, 20))
    flag = .false.
    do while (.not. flag)
      call MPI_Improbe(left, 1, MPI_COMM_WORLD, flag, message_, stat, ierr)
    end do
    call MPI_Imrecv(b, n, MPI_INTEGER, message_, request, ierr)
    call MPI_Wait(request, stat, ierr)
    call MPI_F_sync_reg(b)
    CHECK(holds(b, left, 20))
    call MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, message_, stat, ierr)
    CHECK(message_ == MPI_MESSAGE_NO_PROC)
    call MPI_Mrecv(b, 1, MPI_INTEGER, message_, stat, ierr)
    SAME(SOURCE_OF(stat), MPI_PROC_NULL)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
    call MPI_F_sync_reg(a)
  end subroutine probes

  subroutine exchanges()
    integer :: a(n), b(n)
    REQUEST :: request
    STATUS :: stat
    call fill(a, 30)
    call MPI_Sendrecv(a, n, MPI_INTEGER, right, 1, b, n, MPI_INTEGER, left, 1, &
        MPI_COMM_WORLD, stat, ierr)
    CHECK(holds(b, left, 30))
    SAME(SOURCE_OF(stat), left)
    call MPI_Sendrecv_replace(a, n, MPI_INTEGER, right, 1, left, 1, MPI_COMM_WORLD, stat, ierr)
    CHECK(holds(a, left, 30))
    call fill(a, 31)
    call MPI_Isendrecv(a, n, MPI_INTEGER, right, 1, b, n, MPI_INTEGER, left, 1, &
        MPI_COMM_WORLD, request, ierr)
    call MPI_Wait(request, stat, ierr)
    call MPI_F_sync_reg(b)
    CHECK(holds(b, left, 31))
    call MPI_Isendrecv_replace(a, n, MPI_INTEGER, right, 1, left, 1, MPI_COMM_WORLD, request, ierr)
    call MPI_Wait(request, stat, ierr)
    call MPI_F_sync_reg(a)
    CHECK(holds(a, left, 31))
  end subroutine exchanges

  ! Puts messages into a buffer, and detaches it. mpi_f08 returns the buffer's address, the others do not write it.
  subroutine buffers()
    integer, save, target :: buffer(2 * n + 2 * MPI_BSEND_OVERHEAD)
    integer :: a(n), b(n), bytes
    REQUEST :: request
    call fill(a, 40)
    call MPI_Buffer_attach(buffer, 4 * size(buffer), ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Bsend(a, n, MPI_INTEGER, right, 1, MPI_COMM_WORLD, ierr)
    call MPI_Ibsend(a, n, MPI_INTEGER, right, 2, MPI_COMM_WORLD, request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_Recv(b, n, MPI_INTEGER, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    CHECK(holds(b, left, 40))
    call MPI_Recv(b, n, MPI_INTEGER, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    CHECK(holds(b, left, 40))
    call detach(buffer, bytes)
    SAME(bytes, 4 * size(buffer))
    ! It can be attached to a communicator too.
    call MPI_Comm_attach_buffer(MPI_COMM_WORLD, buffer, 4 * size(buffer), ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Bsend(a, n, MPI_INTEGER, right, 1, MPI_COMM_WORLD, ierr)
    call MPI_Recv(b, n, MPI_INTEGER, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    CHECK(holds(b, left, 40))
    call MPI_Comm_flush_buffer(MPI_COMM_WORLD, ierr)
    SAME(ierr, MPI_SUCCESS)
    call detach_of_comm(buffer, bytes)
    SAME(bytes, 4 * size(buffer))
  end subroutine buffers

#ifdef METHOD_F08
  subroutine detach(buffer, bytes)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_associated, c_loc
    integer, target, intent(in) :: buffer(:)
    integer, intent(out) :: bytes
    type(c_ptr) :: address
    call MPI_Buffer_detach(address, bytes, ierr)
    CHECK(c_associated(address, c_loc(buffer(1))))
  end subroutine detach

  subroutine detach_of_comm(buffer, bytes)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_associated, c_loc
    integer, target, intent(in) :: buffer(:)
    integer, intent(out) :: bytes
    type(c_ptr) :: address
    call MPI_Comm_detach_buffer(MPI_COMM_WORLD, address, bytes, ierr)
    CHECK(c_associated(address, c_loc(buffer(1))))
  end subroutine detach_of_comm

  logical function is_address(address, variable)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_associated, c_loc
    type(c_ptr), intent(in) :: address
    integer, target, intent(in) :: variable
    is_address = c_associated(address, c_loc(variable))
  end function is_address

  subroutine automatic_buffer()
    use, intrinsic :: iso_c_binding, only: c_ptr
    integer :: a(n), b(n), bytes
    type(c_ptr) :: address
    call fill(a, 41)
    call MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Bsend(a, n, MPI_INTEGER, right, 1, MPI_COMM_WORLD, ierr)
    call MPI_Recv(b, n, MPI_INTEGER, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    CHECK(holds(b, left, 41))
    call MPI_Buffer_detach(address, bytes, ierr)
    SAME(ierr, MPI_SUCCESS)
    SAME(bytes, 0)
    CHECK(is_address(address, MPI_BUFFER_AUTOMATIC))
  end subroutine automatic_buffer
#else
  subroutine detach(buffer, bytes)
    integer, intent(in) :: buffer(:)
    integer, intent(out) :: bytes
    integer :: dummy(4)
    dummy = 5
    SAME(size(buffer), size(buffer))
    call MPI_Buffer_detach(dummy, bytes, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(all(dummy == 5))
  end subroutine detach

  subroutine detach_of_comm(buffer, bytes)
    integer, intent(in) :: buffer(:)
    integer, intent(out) :: bytes
    integer :: dummy(4)
    dummy = 5
    SAME(size(buffer), size(buffer))
    call MPI_Comm_detach_buffer(MPI_COMM_WORLD, dummy, bytes, ierr)
    CHECK(all(dummy == 5))
  end subroutine detach_of_comm

  subroutine automatic_buffer()
    integer :: a(n), b(n), bytes, dummy(4)
    call fill(a, 41)
    call MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Bsend(a, n, MPI_INTEGER, right, 1, MPI_COMM_WORLD, ierr)
    call MPI_Recv(b, n, MPI_INTEGER, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    CHECK(holds(b, left, 41))
    dummy = 5
    call MPI_Buffer_detach(dummy, bytes, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(all(dummy == 5))
  end subroutine automatic_buffer
#endif

  subroutine persistent()
    integer :: a(n, 2), b(n, 2), round
    REQUEST :: requests(4)
    logical :: flag
    call MPI_Send_init(a(1, 1), n, MPI_INTEGER, right, 1, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Ssend_init(a(1, 2), n, MPI_INTEGER, right, 2, MPI_COMM_WORLD, requests(2), ierr)
    call MPI_Recv_init(b(1, 1), n, MPI_INTEGER, left, 1, MPI_COMM_WORLD, requests(3), ierr)
    call MPI_Recv_init(b(1, 2), n, MPI_INTEGER, left, 2, MPI_COMM_WORLD, requests(4), ierr)
    do round = 1, 3
      call fill(a(:, 1), 50 + round)
      call fill(a(:, 2), 60 + round)
      if (round == 2) then
        call MPI_Start(requests(1), ierr)
        call MPI_Startall(3, requests(2:4), ierr)
      else
        call MPI_Startall(4, requests, ierr)
      end if
      SAME(ierr, MPI_SUCCESS)
      flag = .false.
      do while (.not. flag)
        call MPI_Testall(4, requests, flag, MPI_STATUSES_IGNORE, ierr)
      end do
      call MPI_F_sync_reg(b)
      CHECK(holds(b(:, 1), left, 50 + round))
      CHECK(holds(b(:, 2), left, 60 + round))
      CHECK(requests(1) /= MPI_REQUEST_NULL)
    end do
    do round = 1, 4
      call MPI_Request_free(requests(round), ierr)
      CHECK(requests(round) == MPI_REQUEST_NULL)
    end do
  end subroutine persistent

  ! Persistent buffered and ready sends; the buffer is flushed, with and without blocking.
  subroutine persistent_modes()
    integer, save :: buffer(2 * n + 2 * MPI_BSEND_OVERHEAD)
    integer, save :: a(n, 2), b(n, 2)
    integer :: i, bytes
    REQUEST :: requests(4), request
    call MPI_Buffer_attach(buffer, 4 * size(buffer), ierr)
    call MPI_Bsend_init(a(1, 1), n, MPI_INTEGER, right, 1, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Rsend_init(a(1, 2), n, MPI_INTEGER, right, 2, MPI_COMM_WORLD, requests(2), ierr)
    call MPI_Recv_init(b(1, 1), n, MPI_INTEGER, left, 1, MPI_COMM_WORLD, requests(3), ierr)
    call MPI_Recv_init(b(1, 2), n, MPI_INTEGER, left, 2, MPI_COMM_WORLD, requests(4), ierr)
    call fill(a(:, 1), 71)
    call fill(a(:, 2), 72)
    call MPI_Startall(2, requests(3:4), ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Startall(2, requests(1:2), ierr)
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_F_sync_reg(b)
    CHECK(holds(b(:, 1), left, 71) .and. holds(b(:, 2), left, 72))
    call MPI_Buffer_flush(ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Buffer_iflush(request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    SAME(ierr, MPI_SUCCESS)
    do i = 1, 4
      call MPI_Request_free(requests(i), ierr)
    end do
    call detach(buffer, bytes)
  end subroutine persistent_modes

  subroutine partitioned()
    integer, parameter :: parts = 4
    integer(kind=MPI_COUNT_KIND), parameter :: each = 100
    integer :: a(each * parts), b(each * parts), i, list(2)
    logical :: flag
    REQUEST :: requests(2)
    call MPI_Psend_init(a, parts, each, MPI_INTEGER, right, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &
        requests(1), ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Precv_init(b, parts, each, MPI_INTEGER, left, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &
        requests(2), ierr)
    SAME(ierr, MPI_SUCCESS)
    call fill(a, 70)
    call MPI_Startall(2, requests, ierr)
    call MPI_Pready(3, requests(1), ierr)
    call MPI_Pready_range(0, 0, requests(1), ierr)
    list = [2, 1]
    call MPI_Pready_list(2, list, requests(1), ierr)
    SAME(ierr, MPI_SUCCESS)
    do i = 0, parts - 1
      flag = .false.
      do while (.not. flag)
        call MPI_Parrived(requests(2), i, flag, ierr)
      end do
    end do
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
    call MPI_F_sync_reg(b)
    CHECK(holds(b, left, 70))
    call MPI_Request_free(requests(1), ierr)
    call MPI_Request_free(requests(2), ierr)
  end subroutine partitioned

  subroutine cancelled()
    integer :: b(1)
    logical :: flag
    REQUEST :: request
    STATUS :: stat
    call MPI_Irecv(b, 1, MPI_INTEGER, left, 999, MPI_COMM_WORLD, request, ierr)
    call MPI_Cancel(request, ierr)
    call MPI_Wait(request, stat, ierr)
    call MPI_Test_cancelled(stat, flag, ierr)
    CHECK(flag)
  end subroutine cancelled
end program fortran_messages
