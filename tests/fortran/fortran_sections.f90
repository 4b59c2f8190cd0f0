! Array sections of mpi_f08: each stands for the contiguous array of its elements.
! test: ranks=2 variants=check
#define METHOD_F08
#include "check.h"
program fortran_sections
  use mpi_f08
  use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
  implicit none
  type :: particle
    integer :: number
    real(8) :: place(3)
    character(len=5) :: name
  end type particle
  integer :: rank, ranks, failures, ierr, other

  call start()
  other = 1 - rank
  call constants_()
  call blocking()
  call nonblocking()
  call ranks_to_15()
  call empty()
  call substrings()
  call components()
  call partial_counts()
  call assumed_size(reshape([1, 2, 3, 4, 5, 6], [2, 3]))
  call bytes_and_pairs()
  call datatypes_with_gaps()
  call persistent()
  call collectives()
  call nonblocking_collectives()
  call in_place()
  call windows()
  call files()
  call packing()
  call addresses()
  call finish()
contains
#include "check.inc"

  subroutine constants_()
    CHECK(MPI_SUBARRAYS_SUPPORTED)
    CHECK(MPI_ASYNC_PROTECTS_NONBLOCKING)
  end subroutine constants_

  ! Numbers that differ between ranks.
  subroutine fill(array, seed)
    integer, intent(out) :: array(:)
    integer, intent(in) :: seed
    integer :: i
    array = [(rank * 100000 + seed * 1000 + i, i = 1, size(array))]
  end subroutine fill

  function filled(length, from, seed) result(array)
    integer, intent(in) :: length, from, seed
    integer :: array(length), i
    array = [(from * 100000 + seed * 1000 + i, i = 1, length)]
  end function filled

  subroutine blocking()
    integer :: a(10), b(10), expected(10)
    type(MPI_Status) :: stat
    integer :: count
    call fill(a, 1)
    b = -1
    call MPI_Sendrecv(a(1:10:2), 5, MPI_INTEGER, other, 1, b(10:1:-2), 5, MPI_INTEGER, other, 1, &
        MPI_COMM_WORLD, stat)
    expected = filled(10, other, 1)
    CHECK(all(b(10:1:-2) == expected(1:10:2)))
    CHECK(all(b(1:9:2) == -1))
    call MPI_Get_count(stat, MPI_INTEGER, count)
    SAME(count, 5)
    if (rank == 0) then
      call MPI_Send(a(10:1:-3), 4, MPI_INTEGER, other, 2, MPI_COMM_WORLD)
      call MPI_Ssend(a(2::3), 3, MPI_INTEGER, other, 3, MPI_COMM_WORLD)
    else
      b = -1
      call MPI_Recv(b(1:4), 4, MPI_INTEGER, other, 2, MPI_COMM_WORLD, stat)
      CHECK(all(b(1:4) == expected(10:1:-3)))
      b = -1
      call MPI_Recv(b(1:10:3), 4, MPI_INTEGER, other, 3, MPI_COMM_WORLD, stat)
      call MPI_Get_count(stat, MPI_INTEGER, count)
      SAME(count, 3)
      ! What the message does not fill stays.
      CHECK(all(b(1:7:3) == expected(2::3)))
      CHECK(b(10) == -1 .and. all(b(2:3) == -1))
    end if
    call fill(a, 2)
    call MPI_Sendrecv_replace(a(2:10:2), 5, MPI_INTEGER, other, 1, other, 1, MPI_COMM_WORLD, stat)
    expected = filled(10, other, 2)
    CHECK(all(a(2:10:2) == expected(2:10:2)))
    expected = filled(10, rank, 2)
    CHECK(all(a(1:9:2) == expected(1:9:2)))
  end subroutine blocking

  subroutine nonblocking()
    integer, asynchronous :: a(6, 7), b(6, 7)
    integer :: expected(6, 7)
    type(MPI_Request) :: requests(4)
    call fill2(a, rank)
    call fill2(expected, other)
    b = -1
    ! Below a strided dimension: rows of a matrix, in blocks.
    call MPI_Irecv(b(6:1:-3, 7:2:-2), 6, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Irecv(b(1:5:2, 1), 3, MPI_INTEGER, other, 2, MPI_COMM_WORLD, requests(2))
    call MPI_Isend(a(2:4:2, 1:5:2), 6, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(3))
    call MPI_Issend(a(3, 1:3), 3, MPI_INTEGER, other, 2, MPI_COMM_WORLD, requests(4))
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
    CHECK(all(b(6:1:-3, 7:2:-2) == expected(2:4:2, 1:5:2)))
    CHECK(all(b(1:5:2, 1) == expected(3, 1:3)))
    SAME(count(b /= -1), 9)
  end subroutine nonblocking

  subroutine fill2(array, from)
    integer, intent(out) :: array(:, :)
    integer, intent(in) :: from
    integer :: i, j
    array = reshape([((from * 100000 + j * 1000 + i, i = 1, size(array, 1)), j = 1, size(array, 2))], &
        shape(array))
  end subroutine fill2

  subroutine ranks_to_15()
    integer, asynchronous, save :: a(2,2,2,2,2,2,2,2,2,2,2,2,2,2,2), &
        b(2,2,2,2,2,2,2,2,2,2,2,2,2,2,2)
    integer, asynchronous :: scalar, copy, c(4, 4, 4), d(4, 4, 4)
    integer :: i
    type(MPI_Request) :: requests(2)
    scalar = 40 + rank
    call MPI_Sendrecv(scalar, 1, MPI_INTEGER, other, 1, copy, 1, MPI_INTEGER, other, 1, &
        MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    SAME(copy, 40 + other)
    a = reshape([(i, i = 1, 2**15)], shape(a))
    b = 0
    ! Every dimension backwards, but for the first: blocking, and then not.
    call MPI_Sendrecv(a(:,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,&
        2:1:-1,2:1:-1,2:1:-1), 2**15, MPI_INTEGER, other, 1, b, 2**15, MPI_INTEGER, other, 1, &
        MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    ! Pairs in opposite order.
    CHECK(all(reshape(b, [2**15]) == [(2**15 - i + merge(0, 2, mod(i, 2) == 1), i = 1, 2**15)]))
    b = 0
    call MPI_Irecv(b(:,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,2:1:-1,&
        2:1:-1,2:1:-1,2:1:-1), 2**15, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(a, 2**15, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    CHECK(all(reshape(b, [2**15]) == [(2**15 - i + merge(0, 2, mod(i, 2) == 1), i = 1, 2**15)]))
    ! A dimension of one element has any stride.
    c = reshape([(rank * 1000 + i, i = 1, 64)], [4, 4, 4])
    d = -1
    call MPI_Irecv(d(1:3:2, 2:2, 1:4:3), 4, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(c(2:2, :, 3:3), 4, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    c = c + (other - rank) * 1000
    CHECK(all(reshape(d(1:3:2, 2:2, 1:4:3), [4]) == c(2, :, 3)))
    SAME(count(d /= -1), 4)
  end subroutine ranks_to_15

  subroutine empty()
    integer, asynchronous :: a(10), b(10)
    character(len=5), asynchronous :: text(4)
    type(MPI_Request) :: requests(2)
    integer :: n
    text = 'abcde'
    a = 1
    b = -1
    do n = 3, 5
      ! Sections without elements, in several forms.
      call MPI_Sendrecv(a(n:n - 1), 0, MPI_INTEGER, other, 1, b(n:1), 0, MPI_INTEGER, other, 1, &
          MPI_COMM_WORLD, MPI_STATUS_IGNORE)
      call MPI_Irecv(b(n:n - 1:2), 0, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(1))
      call MPI_Isend(a(n - 2:n:-1), 0, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(2), ierr)
      SAME(ierr, MPI_SUCCESS)
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
      ! A section with elements and no count.
      call MPI_Irecv(b(1:9:2), 0, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(1), ierr)
      SAME(ierr, MPI_SUCCESS)
      call MPI_Isend(a(1:9:n), 0, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(2), ierr)
      SAME(ierr, MPI_SUCCESS)
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    end do
#if !defined(__GFORTRAN__) || __GNUC__ >= 12
    ! Substrings without characters, which gfortran 11 cannot pass.
    call MPI_Irecv(text(1:4:2)(3:2), 0, MPI_CHARACTER, other, 1, MPI_COMM_WORLD, requests(1), ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Isend(text(1:4:3)(3:2), 0, MPI_CHARACTER, other, 1, MPI_COMM_WORLD, requests(2), ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    call MPI_Sendrecv(text(1:4:2)(3:2), 0, MPI_CHARACTER, other, 1, b(1:9:4), 0, MPI_DOUBLE_PRECISION, &
        other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
#endif
    ! A datatype that does not describe the elements.
    call MPI_Irecv(b(1:9:2), 0, MPI_DOUBLE_PRECISION, other, 1, MPI_COMM_WORLD, requests(1), ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Isend(b(1:9:2), 0, MPI_DOUBLE_PRECISION, other, 1, MPI_COMM_WORLD, requests(2), ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    CHECK(all(b == -1))
  end subroutine empty

  subroutine substrings()
    character(len=10), asynchronous :: a(4), b(4)
    type(MPI_Request) :: requests(2)
    a = ['abcdefghij', 'klmnopqrst', 'uvwxyzABCD', 'EFGHIJKLMN']
    b = '..........'
    call MPI_Sendrecv(a(:)(3:5), 12, MPI_CHARACTER, other, 1, b(4:1:-1)(8:10), 12, MPI_CHARACTER, &
        other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    CHECK(all(b == ['.......GHI', '.......wxy', '.......mno', '.......cde']))
    b = '..........'
    call MPI_Irecv(b(1:3:2)(1:2), 4, MPI_CHARACTER, other, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(a(2:4:2)(9:10), 4, MPI_CHARACTER, other, 1, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    CHECK(all(b == ['st........', '..........', 'MN........', '..........']))
    ! A part of one string.
    call MPI_Sendrecv(a(1)(2:4), 3, MPI_CHARACTER, other, 1, b(2)(5:7), 3, MPI_CHARACTER, &
        other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    CHECK(b(2) == '....bcd...')
  end subroutine substrings

  subroutine components()
    type(particle), asynchronous :: a(5), b(5)
    type(MPI_Request) :: requests(4)
    integer :: i
    do i = 1, 5
      a(i) = particle(rank * 10 + i, [1d0, 2d0, 3d0] * i + rank, achar(96 + i) // 'name')
    end do
    b = particle(-1, -1d0, 'none')
    call MPI_Sendrecv(a%number, 5, MPI_INTEGER, other, 1, b%number, 5, MPI_INTEGER, other, 1, &
        MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    CHECK(all(b%number == [(other * 10 + i, i = 1, 5)]))
    call MPI_Irecv(b%place(2), 5, MPI_DOUBLE_PRECISION, other, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Irecv(b(2:4:2)%name, 10, MPI_CHARACTER, other, 2, MPI_COMM_WORLD, requests(2))
    call MPI_Isend(a%place(3), 5, MPI_DOUBLE_PRECISION, other, 1, MPI_COMM_WORLD, requests(3))
    call MPI_Isend(a(1:2)%name, 10, MPI_CHARACTER, other, 2, MPI_COMM_WORLD, requests(4))
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
    CHECK(all(abs(b%place(2) - [(3d0 * i + other, i = 1, 5)]) < 1d-9))
    CHECK(all(abs(b%place(1) + 1) < 1d-9))
    CHECK(b(2)%name == 'aname' .and. b(4)%name == 'bname' .and. b(3)%name == 'none')
  end subroutine components

  ! Counts smaller than the section: its first elements.
  subroutine partial_counts()
    integer, asynchronous :: a(4, 4, 4), b(4, 4, 4)
    integer :: flat(64), n, i, at
    type(MPI_Request) :: requests(2)
    a = reshape([(rank * 1000 + i, i = 1, 64)], [4, 4, 4])
    flat = [(other * 1000 + i, i = 1, 64)]
    do n = 1, 27
      b = -1
      call MPI_Irecv(b(4:2:-1, 1:3, 2:4), n, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(1))
      call MPI_Isend(a(1:3, 2:4, 1:3), n, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(2))
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
      SAME(count(b /= -1), n)
      do i = 0, n - 1
        at = 1 + mod(i, 3) + 4 * (1 + mod(i / 3, 3)) + 16 * (i / 9)
        SAME(b(4 - mod(i, 3), 1 + mod(i / 3, 3), 2 + i / 9), flat(at))
      end do
    end do
  end subroutine partial_counts

  subroutine assumed_size(shape_only)
    integer, intent(in) :: shape_only(2, 3)
    integer, asynchronous :: a(2, 3), b(2, 3)
    a = shape_only + rank * 100
    b = 0
    call exchange(a, b)
    CHECK(all(b == shape_only + other * 100))
  end subroutine assumed_size

  subroutine exchange(a, b)
    integer, asynchronous, intent(in) :: a(2, *)
    integer, asynchronous, intent(inout) :: b(*)
    type(MPI_Request) :: requests(2)
    call MPI_Irecv(b, 6, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(a, 6, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    call MPI_Sendrecv(a, 6, MPI_INTEGER, other, 1, b, 6, MPI_INTEGER, other, 1, MPI_COMM_WORLD, &
        MPI_STATUS_IGNORE)
    ! Sections of it have their own extents.
    call MPI_Irecv(b(1:5:4), 2, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(a(1, 1:3:2), 2, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
  end subroutine exchange

  ! Datatypes smaller than the elements of the section.
  subroutine bytes_and_pairs()
    complex(8), asynchronous :: a(6), b(6)
    type(MPI_Request) :: requests(2)
    integer :: i
    a = [(cmplx(i, rank, 8), i = 1, 6)]
    b = 0
    call MPI_Irecv(b(1:5:2), 6, MPI_DOUBLE_PRECISION, other, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(a(2:6:2), 6, MPI_DOUBLE_PRECISION, other, 1, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    CHECK(all(abs(b(1:5:2) - [(cmplx(i, other, 8), i = 2, 6, 2)]) < 1d-9))
    b = 0
    call MPI_Irecv(b(6:1:-4), 32, MPI_BYTE, other, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(a(1:4:3), 32, MPI_BYTE, other, 1, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    CHECK(abs(b(6) - cmplx(1, other, 8)) < 1d-9 .and. abs(b(2) - cmplx(4, other, 8)) < 1d-9)
  end subroutine bytes_and_pairs

  ! A datatype with gaps is applied to the copy of a section.
  subroutine datatypes_with_gaps()
    integer :: a(12), b(6), i
    type(MPI_Datatype) :: every_second
    type(MPI_Request) :: request
    a = [(rank * 100 + i, i = 1, 12)]
    b = 0
    call MPI_Type_vector(3, 1, 2, MPI_INTEGER, every_second)
    call MPI_Type_commit(every_second)
    call MPI_Sendrecv(a(1:12:2), 1, every_second, other, 1, b, 3, MPI_INTEGER, other, 1, &
        MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    CHECK(all(b(1:3) == other * 100 + [1, 5, 9]))
    call MPI_Isend(a(1:12:2), 1, every_second, other, 1, MPI_COMM_WORLD, request, ierr)
    CLASS(MPI_ERR_BUFFER)
    call MPI_Type_free(every_second)
  end subroutine datatypes_with_gaps

  subroutine persistent()
    integer, asynchronous :: a(8), b(8)
    integer :: round, i
    type(MPI_Request) :: requests(2)
    call MPI_Recv_init(b(8:1:-2), 4, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Send_init(a(1:8:2), 4, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(2))
    do round = 1, 3
      a = [(round * 1000 + rank * 100 + i, i = 1, 8)]
      b = -1
      call MPI_Startall(2, requests)
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
      CHECK(all(b(8:1:-2) == round * 1000 + other * 100 + [1, 3, 5, 7]))
      CHECK(all(b(1:7:2) == -1))
    end do
    call MPI_Request_free(requests(1))
    call MPI_Request_free(requests(2))
  end subroutine persistent

  subroutine collectives()
    integer :: a(8), b(8), c(0:15), i
    integer :: counts(2), places(2)
    a = [(rank * 100 + i, i = 1, 8)]
    if (rank == 0) then
      call MPI_Bcast(a(8:1:-2), 4, MPI_INTEGER, 0, MPI_COMM_WORLD)
    else
      call MPI_Bcast(a(1:8:2), 4, MPI_INTEGER, 0, MPI_COMM_WORLD)
      CHECK(all(a == [8, 102, 6, 104, 4, 106, 2, 108]))
    end if
    a = [(rank * 100 + i, i = 1, 8)]
    b = -1
    call MPI_Allreduce(a(1:8:2), b(2:8:2), 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    CHECK(all(b == [-1, 102, -1, 106, -1, 110, -1, 114]))
    c = -1
    call MPI_Allgather(a(2:4:2), 2, MPI_INTEGER, c(0:6:2), 2, MPI_INTEGER, MPI_COMM_WORLD)
    CHECK(all(c(0:7) == [2, -1, 4, -1, 102, -1, 104, -1]))
    c = -1
    counts = [2, 1]
    places = [0, 3]
    call MPI_Allgatherv(a(8:1:-4), counts(rank + 1), MPI_INTEGER, c(14:1:-2), counts, places, MPI_INTEGER, &
        MPI_COMM_WORLD)
    CHECK(c(14) == 8 .and. c(12) == 4 .and. c(10) == -1 .and. c(8) == 108)
    b = -1
    call MPI_Alltoall(a(1:7:2), 2, MPI_INTEGER, b(7:1:-2), 2, MPI_INTEGER, MPI_COMM_WORLD)
    if (rank == 0) then
      CHECK(all(b(7:1:-2) == [1, 3, 101, 103]))
    else
      CHECK(all(b(7:1:-2) == [5, 7, 105, 107]))
    end if
    b = -1
    call MPI_Reduce(a(1:8:2), b(1:8:2), 4, MPI_INTEGER, MPI_MAX, 1, MPI_COMM_WORLD)
    if (rank == 1) then
      CHECK(all(b == [101, -1, 103, -1, 105, -1, 107, -1]))
    else
      CHECK(all(b == -1))
    end if
    b = -1
    call MPI_Scatter(a(1:7:2), 2, MPI_INTEGER, b(1:4:3), 2, MPI_INTEGER, 0, MPI_COMM_WORLD)
    CHECK(b(1) == 1 + 4 * rank .and. b(4) == 3 + 4 * rank .and. b(2) == -1)
    call MPI_Scan(a(1:8:2), b(1:8:2), 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    CHECK(all(b(1:8:2) == merge([1, 3, 5, 7], [102, 106, 110, 114], rank == 0)))
    call MPI_Reduce_scatter_block(a(1:4:3), b(1:1), 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    SAME(b(1), merge(102, 108, rank == 0))
  end subroutine collectives

  subroutine in_place()
    integer :: a(8), i
    a = [(rank * 100 + i, i = 1, 8)]
    call MPI_Allreduce(MPI_IN_PLACE, a(1:8:2), 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    CHECK(all(a(1:8:2) == [102, 106, 110, 114]))
    CHECK(all(a(2:8:2) == rank * 100 + [2, 4, 6, 8]))
    a = [(rank * 100 + i, i = 1, 8)]
    call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a(8:1:-2), 2, MPI_INTEGER, MPI_COMM_WORLD)
    CHECK(all(a(8:1:-2) == [8, 6, 104, 102]))
    a = [(rank * 100 + i, i = 1, 8)]
    if (rank == 0) then
      call MPI_Reduce(MPI_IN_PLACE, a(1:8:2), 4, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
      CHECK(all(a(1:8:2) == [102, 106, 110, 114]))
      call MPI_Gather(MPI_IN_PLACE, 0, MPI_INTEGER, a(1:4:2), 1, MPI_INTEGER, 0, MPI_COMM_WORLD)
      CHECK(a(3) == 101)
    else
      call MPI_Reduce(a(1:8:2), a, 4, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
      call MPI_Gather(a(1:8:2), 1, MPI_INTEGER, a, 1, MPI_INTEGER, 0, MPI_COMM_WORLD)
    end if
  end subroutine in_place

  subroutine nonblocking_collectives()
    integer, asynchronous :: a(8), b(8)
    integer :: i
    type(MPI_Request) :: request
    a = [(rank * 100 + i, i = 1, 8)]
    if (rank == 0) then
      call MPI_Ibcast(a(8:1:-2), 4, MPI_INTEGER, 0, MPI_COMM_WORLD, request)
    else
      call MPI_Ibcast(a(1:8:2), 4, MPI_INTEGER, 0, MPI_COMM_WORLD, request)
    end if
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    if (rank == 1) CHECK(all(a == [8, 102, 6, 104, 4, 106, 2, 108]))
    a = [(rank * 100 + i, i = 1, 8)]
    b = -1
    call MPI_Igather(a(1:8:4), 2, MPI_INTEGER, b, 2, MPI_INTEGER, 0, MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    if (rank == 0) CHECK(all(b(1:4) == [1, 5, 101, 105]))
    b = -1
    call MPI_Iscatter(a, 2, MPI_INTEGER, b(8:1:-3), 2, MPI_INTEGER, 1, MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    CHECK(b(8) == 101 + 2 * rank .and. b(5) == 102 + 2 * rank .and. b(7) == -1)
  end subroutine nonblocking_collectives

  subroutine windows()
    integer(kind=MPI_ADDRESS_KIND) :: bytes
    integer, pointer, asynchronous :: memory(:)
    integer, asynchronous :: a(8), b(8)
    integer :: i
    type(c_ptr) :: address
    type(MPI_Win) :: win
    type(MPI_Request) :: request
    bytes = 32
    call MPI_Win_allocate(bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, address, win)
    call MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN)
    call c_f_pointer(address, memory, [8])
    memory = -1
    a = [(rank * 100 + i, i = 1, 8)]
    b = -1
    call MPI_Win_fence(0, win)
    call MPI_Put(a(8:1:-2), 4, MPI_INTEGER, other, 0_MPI_ADDRESS_KIND, 4, MPI_INTEGER, win)
    call MPI_Win_fence(0, win)
    CHECK(all(memory == [other * 100 + [8, 6, 4, 2], -1, -1, -1, -1]))
    call MPI_Get(b(1:8:2), 4, MPI_INTEGER, other, 0_MPI_ADDRESS_KIND, 4, MPI_INTEGER, win)
    call MPI_Win_fence(0, win)
    CHECK(all(b == [rank * 100 + 8, -1, rank * 100 + 6, -1, rank * 100 + 4, -1, rank * 100 + 2, -1]))
    call MPI_Accumulate(a(1:8:2), 4, MPI_INTEGER, other, 0_MPI_ADDRESS_KIND, 4, MPI_INTEGER, MPI_SUM, win)
    call MPI_Win_fence(0, win)
    CHECK(all(memory(1:4) == other * 200 + 9))
    call MPI_Win_lock(MPI_LOCK_SHARED, other, 0, win)
    b = -1
    call MPI_Rget(b(7:1:-2), 4, MPI_INTEGER, other, 0_MPI_ADDRESS_KIND, 4, MPI_INTEGER, win, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    CHECK(all(b(1:7:2) == rank * 200 + 9))
    call MPI_Win_unlock(other, win)
    call MPI_Win_fence(0, win)
    b = -1
    call MPI_Get_accumulate(a(1:8:2), 4, MPI_INTEGER, b(2:8:2), 4, MPI_INTEGER, other, 0_MPI_ADDRESS_KIND, 4, &
        MPI_INTEGER, MPI_REPLACE, win)
    call MPI_Win_fence(0, win)
    CHECK(all(b(2:8:2) == rank * 200 + 9) .and. all(b(1:8:2) == -1))
    CHECK(all(memory(1:4) == other * 100 + [1, 3, 5, 7]))
    ! Errors of buffers go to the window's handler.
    call MPI_Put(a(1:8:2), 5, MPI_INTEGER, other, 0_MPI_ADDRESS_KIND, 5, MPI_INTEGER, win, ierr)
    CLASS(MPI_ERR_BUFFER)
    call MPI_Win_fence(0, win)
    call MPI_Win_free(win)
  end subroutine windows

  subroutine files()
    character(len=200) :: folder
    integer, asynchronous :: a(8), b(8)
    integer :: i, length, count
    integer(kind=MPI_OFFSET_KIND) :: offset
    type(MPI_File) :: file
    type(MPI_Request) :: request
    type(MPI_Status) :: stat
    call get_environment_variable('TMPDIR', folder, length)
    if (length == 0) folder = '/tmp'
    call MPI_File_open(MPI_COMM_WORLD, trim(folder) // '/fortran_sections', &
        MPI_MODE_CREATE + MPI_MODE_RDWR + MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, file, ierr)
    SAME(ierr, MPI_SUCCESS)
    a = [(rank * 100 + i, i = 1, 8)]
    offset = rank * 16
    call MPI_File_write_at(file, offset, a(8:1:-2), 4, MPI_INTEGER, stat)
    call MPI_Get_count(stat, MPI_INTEGER, count)
    SAME(count, 4)
    b = -1
    call MPI_File_iread_at(file, offset, b(1:8:2), 4, MPI_INTEGER, request)
    call MPI_Wait(request, stat)
    CHECK(all(b(1:8:2) == rank * 100 + [8, 6, 4, 2]) .and. all(b(2:8:2) == -1))
    call MPI_File_write_at_all_begin(file, offset, a(1:8:2), 4, MPI_INTEGER)
    call MPI_File_write_at_all_end(file, a(1:8:2), stat)
    b = -1
    call MPI_File_read_at_all_begin(file, offset, b(8:1:-2), 4, MPI_INTEGER)
    call MPI_File_read_at_all_end(file, b(8:1:-2), stat)
    CHECK(all(b(8:1:-2) == rank * 100 + [1, 3, 5, 7]) .and. all(b(1:8:2) == -1))
    ! Errors of buffers go to the file's handler.
    call MPI_File_iwrite_at(file, offset, a(1:8:2), 5, MPI_INTEGER, request, ierr)
    CLASS(MPI_ERR_BUFFER)
    call MPI_File_close(file)
  end subroutine files

  subroutine packing()
    integer :: a(8), b(8), position, i
    integer(kind=MPI_ADDRESS_KIND) :: packed_at
    character :: packed(100)
    a = [(i, i = 1, 8)]
    position = 0
    call MPI_Pack(a(8:1:-2), 4, MPI_INTEGER, packed, 100, position, MPI_COMM_SELF)
    call MPI_Pack(a(1:2), 2, MPI_INTEGER, packed, 100, position, MPI_COMM_SELF)
    b = -1
    position = 0
    call MPI_Unpack(packed, 100, position, b(1:8:2), 4, MPI_INTEGER, MPI_COMM_SELF)
    CHECK(all(b == [8, -1, 6, -1, 4, -1, 2, -1]))
    call MPI_Unpack(packed, 100, position, b(8:7:-1), 2, MPI_INTEGER, MPI_COMM_SELF)
    CHECK(b(8) == 1 .and. b(7) == 2)
    packed = 'x'
    packed_at = 0
    call MPI_Pack_external('external32', a(8:1:-2), 4, MPI_INTEGER, packed, 100_MPI_ADDRESS_KIND, &
        packed_at)
    SAME(packed_at, 16)
    SAME(ichar(packed(4)), 8)
  end subroutine packing

  subroutine addresses()
    integer, target :: a(10)
    integer(kind=MPI_ADDRESS_KIND) :: whole, part, back
    call MPI_Get_address(a, whole)
    call MPI_Get_address(a(3:9:2), part)
    SAME(part - whole, 8)
    call MPI_Get_address(a(9:3:-2), back)
    SAME(back - whole, 32)
    SAME(MPI_Aint_diff(back, part), 24)
    CHECK(MPI_Aint_add(whole, 8_MPI_ADDRESS_KIND) == part)
  end subroutine addresses
end program fortran_sections
