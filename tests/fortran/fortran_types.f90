! Datatypes: made, taken apart, of Fortran's kinds; sizes of variables; large counts.
! test: ranks=2 methods=mpif.h,mpi,mpi_f08
#include "methods.h"
#include "check.h"
program fortran_types
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer, parameter :: wide = MPI_ADDRESS_KIND
  integer :: rank, ranks, failures, ierr, other

  call start()
  other = 1 - rank
  call sequence_type()
  call blocks()
  call arrays()
  call contents()
  call kinds()
  call optional_types()
  call resized()
  call further()
#ifndef METHOD_MPIF
  call sizes()
#endif
#ifdef METHOD_F08
  call large_counts()
  call handles()
#endif
  call packed()
  call finish()
contains
#include "check.inc"

  ! A derived type of the program, by its components' addresses.
  subroutine sequence_type()
    type :: body
      sequence
      integer :: number
      real(8) :: place(3)
      character(len=3) :: name
    end type body
    type(body) :: a(2), b(2)
    integer :: lengths(3)
    integer(kind=wide) :: places(3), base, next
    DATATYPE :: types(3), made, whole
    call MPI_Get_address(a(1), base, ierr)
    call MPI_Get_address(a(1)%number, places(1), ierr)
    call MPI_Get_address(a(1)%place, places(2), ierr)
    call MPI_Get_address(a(1)%name, places(3), ierr)
    call MPI_Get_address(a(2), next, ierr)
    places = places - base
    lengths = [1, 3, 3]
    types(1) = MPI_INTEGER
    types(2) = MPI_DOUBLE_PRECISION
    types(3) = MPI_CHARACTER
    call MPI_Type_create_struct(3, lengths, places, types, made, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Type_create_resized(made, 0_wide, next - base, whole, ierr)
    call MPI_Type_commit(whole, ierr)
    a(1)%number = rank
    a(2)%number = rank + 10
    a(1)%place = rank + 0.5d0
    a(2)%place = rank + 0.25d0
    a(1)%name = 'abc'
    a(2)%name = 'def'
    b%number = -1
    b%name = '...'
    call MPI_Sendrecv(a, 2, whole, other, 1, b, 2, whole, other, 1, MPI_COMM_WORLD, &
        MPI_STATUS_IGNORE, ierr)
    CHECK(b(1)%number == other .and. b(2)%number == other + 10)
    CHECK(all(abs(b(2)%place - other - 0.25d0) < 1d-9) .and. b(1)%name == 'abc' .and. b(2)%name == 'def')
    call MPI_Type_free(whole, ierr)
    call MPI_Type_free(made, ierr)
    CHECK(made == MPI_DATATYPE_NULL)
  end subroutine sequence_type

  subroutine blocks()
    integer :: a(12), b(12), i, size
    DATATYPE :: made
    a = [(rank * 100 + i, i = 1, 12)]
    call MPI_Type_indexed(2, [2, 1], [1, 5], MPI_INTEGER, made, ierr)
    call MPI_Type_commit(made, ierr)
    call MPI_Type_size(made, size, ierr)
    SAME(size, 12)
    b = -1
    call MPI_Sendrecv(a, 1, made, other, 1, b, 3, MPI_INTEGER, other, 1, MPI_COMM_WORLD, &
        MPI_STATUS_IGNORE, ierr)
    CHECK(all(b(1:4) == [other * 100 + [2, 3, 6], -1]))
    call MPI_Type_free(made, ierr)
    call MPI_Type_create_indexed_block(2, 2, [0, 6], MPI_INTEGER, made, ierr)
    call MPI_Type_commit(made, ierr)
    b = -1
    call MPI_Sendrecv(a, 4, MPI_INTEGER, other, 1, b, 1, made, other, 1, MPI_COMM_WORLD, &
        MPI_STATUS_IGNORE, ierr)
    CHECK(all(b([1, 2, 7, 8]) == other * 100 + [1, 2, 3, 4]) .and. b(3) == -1)
    call MPI_Type_free(made, ierr)
    call MPI_Type_create_hvector(3, 1, 16_wide, MPI_INTEGER, made, ierr)
    call MPI_Type_commit(made, ierr)
    b = -1
    call MPI_Sendrecv(a, 1, made, other, 1, b, 3, MPI_INTEGER, other, 1, MPI_COMM_WORLD, &
        MPI_STATUS_IGNORE, ierr)
    CHECK(all(b(1:3) == other * 100 + [1, 5, 9]))
    call MPI_Type_free(made, ierr)
  end subroutine blocks

  ! Parts of arrays in the order of Fortran.
  subroutine arrays()
    integer :: a(4, 5), b(4), i, j, size
    integer(kind=wide) :: lower, extent
    DATATYPE :: made
    a = reshape([((rank * 1000 + 10 * i + j, i = 1, 4), j = 1, 5)], [4, 5])
    call MPI_Type_create_subarray(2, [4, 5], [2, 2], [1, 3], MPI_ORDER_FORTRAN, MPI_INTEGER, made, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Type_commit(made, ierr)
    call MPI_Type_get_extent(made, lower, extent, ierr)
    SAME(extent, 80)
    call MPI_Sendrecv(a, 1, made, other, 1, b, 4, MPI_INTEGER, other, 1, MPI_COMM_WORLD, &
        MPI_STATUS_IGNORE, ierr)
    CHECK(all(b == other * 1000 + [24, 34, 25, 35]))
    call MPI_Type_free(made, ierr)
    call MPI_Type_create_darray(2, rank, 2, [4, 5], [MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE], &
        [MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG], [2, 1], MPI_ORDER_FORTRAN, &
        MPI_INTEGER, made, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Type_size(made, size, ierr)
    SAME(size, 40)
    call MPI_Type_get_true_extent(made, lower, extent, ierr)
    SAME(lower, 8 * rank)
    call MPI_Type_free(made, ierr)
  end subroutine arrays

  subroutine contents()
    integer :: integers, addresses, types, combiner, list(10)
    integer(kind=wide) :: places(10)
    DATATYPE :: made, copy, parts(10)
    call MPI_Type_create_struct(2, [2, 3], [0_wide, 1234567890123_wide], [MPI_INTEGER, MPI_REAL], made, ierr)
    call MPI_Type_get_envelope(made, integers, addresses, types, combiner, ierr)
    SAME(combiner, MPI_COMBINER_STRUCT)
    SAME(integers, 3)
    SAME(addresses, 2)
    SAME(types, 2)
    list = -1
    parts = MPI_DATATYPE_NULL
    call MPI_Type_get_contents(made, 10, 10, 10, list, places, parts, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(all(list(1:3) == [2, 2, 3]))
    CHECK(list(4) == -1)
    SAME(places(2), 1234567890123_wide)
    CHECK(parts(1) == MPI_INTEGER .and. parts(2) == MPI_REAL .and. parts(3) == MPI_DATATYPE_NULL)
    call MPI_Type_dup(made, copy, ierr)
    call MPI_Type_get_envelope(copy, integers, addresses, types, combiner, ierr)
    SAME(combiner, MPI_COMBINER_DUP)
    call MPI_Type_free(copy, ierr)
    call MPI_Type_free(made, ierr)
    call MPI_Type_get_envelope(MPI_INTEGER, integers, addresses, types, combiner, ierr)
    SAME(combiner, MPI_COMBINER_NAMED)
  end subroutine contents

  ! Datatypes by the precision of Fortran's kinds.
  subroutine kinds()
    integer, parameter :: long = selected_int_kind(15), exact = selected_real_kind(13, 200)
    integer(kind=long) :: a(2), b(2)
    complex(kind=exact) :: c(1), d(1)
    integer :: size, integers, addresses, types, combiner, list(3)
    integer(kind=wide) :: places(1)
    DATATYPE :: made, none(1)
    call MPI_Type_create_f90_integer(15, made, ierr)
    call MPI_Type_size(made, size, ierr)
    SAME(size, 8)
    a = [1234567890123_long + rank, -1_long]
    call MPI_Sendrecv(a, 2, made, other, 1, b, 2, made, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    CHECK(b(1) == 1234567890123_long + other .and. b(2) == -1)
    call MPI_Type_get_envelope(made, integers, addresses, types, combiner, ierr)
    SAME(combiner, MPI_COMBINER_F90_INTEGER)
    call MPI_Type_get_contents(made, 3, 0, 0, list, places, none, ierr)
    SAME(list(1), 15)
    call MPI_Type_create_f90_real(6, MPI_UNDEFINED, made, ierr)
    call MPI_Type_size(made, size, ierr)
    SAME(size, 4)
    call MPI_Type_create_f90_complex(13, 200, made, ierr)
    call MPI_Type_size(made, size, ierr)
    SAME(size, 16)
    c = cmplx(rank + 1, -rank, exact)
    call MPI_Allreduce(c, d, 1, made, MPI_SUM, MPI_COMM_WORLD, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(abs(d(1) - cmplx(3, -1, exact)) < 1d-9)
    call MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, made, ierr)
    CHECK(made == MPI_DOUBLE_PRECISION .or. made == MPI_REAL8)
  end subroutine kinds

  subroutine optional_types()
    integer(1) :: a(2), b(2)
    integer(8) :: e(1), f(1)
    logical :: g(2), h(2)
    integer :: size
    a = [int(100, 1), int(-100, 1)]
    call MPI_Allreduce(a, b, 2, MPI_INTEGER1, MPI_MAX, MPI_COMM_WORLD, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(all(a == b))
    e = huge(e) - 1 + rank
    call MPI_Allreduce(e, f, 1, MPI_INTEGER8, MPI_MAX, MPI_COMM_WORLD, ierr)
    CHECK(f(1) == huge(f))
    g = [.true., .false.]
    h = .true.
    call MPI_Sendrecv(g, 2, MPI_LOGICAL, other, 1, h, 2, MPI_LOGICAL, other, 1, MPI_COMM_WORLD, &
        MPI_STATUS_IGNORE, ierr)
    CHECK(h(1) .and. .not. h(2))
    call MPI_Type_size(MPI_2DOUBLE_PRECISION, size, ierr)
    SAME(size, 16)
    call MPI_Type_size(MPI_COMPLEX16, size, ierr)
    SAME(size, 16)
    call locations()
  end subroutine optional_types

  subroutine locations()
    integer :: a(2), b(2)
    real :: c(2), d(2)
    a = [10 - rank, rank]
    call MPI_Allreduce(a, b, 1, MPI_2INTEGER, MPI_MINLOC, MPI_COMM_WORLD, ierr)
    CHECK(all(b == [9, 1]))
    c = [real(rank), real(rank)]
    call MPI_Allreduce(c, d, 1, MPI_2REAL, MPI_MAXLOC, MPI_COMM_WORLD, ierr)
    CHECK(all(abs(d - 1.0) < 1e-6))
  end subroutine locations

  subroutine resized()
    integer(kind=wide) :: lower, extent, big
    DATATYPE :: made
    integer :: size
    big = 5000000000_wide
    call MPI_Type_create_resized(MPI_INTEGER, -8_wide, big, made, ierr)
    call MPI_Type_get_extent(made, lower, extent, ierr)
    SAME(lower, -8)
    SAME(extent, big)
    call MPI_Type_size(made, size, ierr)
    SAME(size, 4)
    call MPI_Type_get_true_extent(made, lower, extent, ierr)
    SAME(lower, 0)
    SAME(extent, 4)
    call MPI_Type_free(made, ierr)
  end subroutine resized

#ifndef METHOD_MPIF
  subroutine sizes()
    integer(1) :: tiny_
    integer(8) :: long(3)
    complex(8) :: matrix(2, 2)
    character :: letter
    logical :: truth(5)
    integer :: size
    tiny_ = 1
    long = 1
    matrix = 0
    letter = 'a'
    truth = .true.
    call MPI_Sizeof(tiny_, size, ierr)
    SAME(size, 1)
    call MPI_Sizeof(long, size, ierr)
    SAME(size, 8)
    call MPI_Sizeof(matrix, size, ierr)
    SAME(size, 16)
    call MPI_Sizeof(matrix(:, 1), size, ierr)
    SAME(size, 16)
    call MPI_Sizeof(letter, size, ierr)
    SAME(size, 1)
    call MPI_Sizeof(truth, size, ierr)
    SAME(size, 4)
    SAME(ierr, MPI_SUCCESS)
  end subroutine sizes
#endif

  ! Sizes of count kind, pairs of value and index, blocks at places in bytes.
  subroutine further()
    integer(kind=MPI_COUNT_KIND) :: large, lower, extent
    integer :: size
    DATATYPE :: made
    call MPI_Type_contiguous(2000000000, MPI_DOUBLE_PRECISION, made, ierr)
    call MPI_Type_size_x(made, large, ierr)
    CHECK(large == 16000000000_MPI_COUNT_KIND)
    call MPI_Type_size(made, size, ierr)
    SAME(size, MPI_UNDEFINED)
    call MPI_Type_get_extent_x(made, lower, extent, ierr)
    CHECK(lower == 0 .and. extent == large)
    call MPI_Type_get_true_extent_x(made, lower, extent, ierr)
    CHECK(lower == 0 .and. extent == large)
    call MPI_Type_free(made, ierr)
    call MPI_Type_create_hindexed_block(2, 3, [0_wide, 100_wide], MPI_INTEGER, made, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Type_size_x(made, large, ierr)
    SAME(large, 24)
    call MPI_Type_get_extent_x(made, lower, extent, ierr)
    SAME(extent, 112)
    call MPI_Type_free(made, ierr)
    call MPI_Type_get_value_index(MPI_DOUBLE_PRECISION, MPI_INTEGER, made, ierr)
    SAME(ierr, MPI_SUCCESS)
  end subroutine further

#ifdef METHOD_F08
  ! The generic names take counts of both kinds, alone and in arrays.
  subroutine large_counts()
    integer, parameter :: count = MPI_COUNT_KIND
    integer :: a(4), b(8), i
    integer(kind=count) :: n, size, elements, integers, addresses, larges, types, counts(2), places(2)
    integer(kind=count) :: list(3)
    integer :: combiner, no_integer(1)
    integer(kind=wide) :: no_address(1)
    integer, asynchronous :: c(10), d(10)
    type(MPI_Datatype) :: made, parts(1)
    type(MPI_Request) :: requests(2)
    type(MPI_Status) :: stat
    a = [(rank * 10 + i, i = 1, 4)]
    n = 4
    call MPI_Sendrecv(a, n, MPI_INTEGER, other, 1, b, n, MPI_INTEGER, other, 1, MPI_COMM_WORLD, stat)
    CHECK(all(b(1:4) == [(other * 10 + i, i = 1, 4)]))
    elements = 0
    call MPI_Get_count(stat, MPI_INTEGER, elements)
    SAME(elements, 4)
    call MPI_Get_elements(stat, MPI_INTEGER, elements)
    SAME(elements, 4)
    n = 3000000000_count
    call MPI_Type_contiguous(n, MPI_INTEGER, made)
    call MPI_Type_size(made, size)
    SAME(size, 12000000000_count)
    call MPI_Type_get_envelope(made, integers, addresses, larges, types, combiner)
    SAME(larges, 1)
    SAME(combiner, MPI_COMBINER_CONTIGUOUS)
    call MPI_Type_get_contents(made, integers, addresses, larges, types, no_integer, no_address, list, parts)
    SAME(list(1), n)
    CHECK(parts(1) == MPI_INTEGER)
    call MPI_Type_free(made)
    counts = [2_count, 1_count]
    places = [1_count, 4_count]
    call MPI_Allgatherv(a, counts(rank + 1), MPI_INTEGER, b, counts, places, MPI_INTEGER, MPI_COMM_WORLD)
    CHECK(all(b([2, 3, 5]) == [1, 2, 11]))
    ! Sections, with a large count.
    c = [(rank * 100 + i, i = 1, 10)]
    d = -1
    n = 5
    call MPI_Irecv(d(10:1:-2), n, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(c(1:10:2), n, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    CHECK(all(d(10:1:-2) == other * 100 + [1, 3, 5, 7, 9]))
  end subroutine large_counts

  ! Handles compare with == and /=, also elementally, and convert.
  subroutine handles()
    type(MPI_Request) :: requests(3)
    type(MPI_Comm) :: one, two
    type(MPI_Info) :: info_
    one = MPI_COMM_WORLD
    two = MPI_COMM_SELF
    CHECK(one /= two)
    CHECK(.not. one == two)
    two%MPI_VAL = one%MPI_VAL
    CHECK(one == two)
    requests = MPI_REQUEST_NULL
    CHECK(all(requests == MPI_REQUEST_NULL))
    CHECK(.not. any(requests /= MPI_REQUEST_NULL))
    CHECK(MPI_SUM == MPI_SUM .and. MPI_SUM /= MPI_MAX)
    CHECK(MPI_FILE_NULL == MPI_File(MPI_FILE_NULL%MPI_VAL))
    CHECK(MPI_GROUP_EMPTY /= MPI_GROUP_NULL .and. MPI_MESSAGE_NULL /= MPI_MESSAGE_NO_PROC)
    CHECK(MPI_ERRORS_RETURN /= MPI_ERRORS_ARE_FATAL .and. MPI_WIN_NULL == MPI_WIN_NULL)
    CHECK(MPI_SESSION_NULL == MPI_SESSION_NULL .and. MPI_INTEGER /= MPI_REAL)
    info_ = MPI_INFO_NULL
    CHECK(info_ == MPI_INFO_NULL .and. info_ /= MPI_INFO_ENV)
  end subroutine handles
#endif

  subroutine packed()
    character :: buffer(200)
    integer :: position, bytes, a(3), b(3)
    real(8) :: c(2), d(2)
    a = [1, 2, 3]
    c = [4d0, 5d0]
    position = 0
    call MPI_Pack_size(3, MPI_INTEGER, MPI_COMM_WORLD, bytes, ierr)
    CHECK(bytes >= 12)
    call MPI_Pack(a, 3, MPI_INTEGER, buffer, 200, position, MPI_COMM_WORLD, ierr)
    call MPI_Pack(c, 2, MPI_DOUBLE_PRECISION, buffer, 200, position, MPI_COMM_WORLD, ierr)
    bytes = position
    position = 0
    call MPI_Unpack(buffer, bytes, position, b, 3, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    call MPI_Unpack(buffer, bytes, position, d, 2, MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, ierr)
    CHECK(all(a == b) .and. all(abs(c - d) < 1d-9))
    call external32()
  end subroutine packed

  subroutine external32()
    character :: buffer(8)
    integer :: a(2), b(2)
    integer(kind=wide) :: position, bytes
    a = [258, -1]
    position = 0
    bytes = 0
    call MPI_Pack_external_size('external32', 2, MPI_INTEGER, bytes, ierr)
    SAME(bytes, 8)
    call MPI_Pack_external('external32', a, 2, MPI_INTEGER, buffer, bytes, position, ierr)
    SAME(position, 8)
    CHECK(all(ichar(buffer) == [0, 0, 1, 2, 255, 255, 255, 255]))
    position = 0
    call MPI_Unpack_external('external32 ', buffer, bytes, position, b, 2, MPI_INTEGER, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(all(a == b))
  end subroutine external32
end program fortran_types
