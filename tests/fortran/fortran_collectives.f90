! Collective operations in three forms: blocking, nonblocking and persistent.
! test: ranks=3 methods=mpif.h,mpi,mpi_f08 variants=check
#include "methods.h"
#include "check.h"
program fortran_collectives
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer :: rank, ranks, failures, ierr, form
  ! Buffers are variables of the program, so that every form of a call sees the same ones.
  integer, save :: a(9), b(9), counts(3), places(3), ones(3), i
  REQUEST :: request
  COMM :: ring

  call start()
  counts = [1, 2, 3]
  places = [0, 1, 3]
  ones = 1
  call MPI_Cart_create(MPI_COMM_WORLD, 1, [3], [.true.], .false., ring, ierr)
  do form = 1, 3
    call gathers()
    call scatters()
    call exchanges()
    call reductions()
    call prefixes()
    call neighbours()
    call synchronisation()
  end do
  call MPI_Comm_free(ring, ierr)
  call finish()
contains
#include "check.inc"

  subroutine fill()
    a = [(rank * 10 + i, i = 1, 9)]
    b = -1
  end subroutine fill

  ! Ends the operation that was begun in this form. A persistent one runs twice.
  subroutine complete()
    SAME(ierr, MPI_SUCCESS)
    if (form == 1) return
    if (form == 3) then
      call MPI_Start(request, ierr)
      call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
      call fill()
      call MPI_Start(request, ierr)
    end if
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_F_sync_reg(b)
    if (form == 3) then
      call MPI_Request_free(request, ierr)
      SAME(ierr, MPI_SUCCESS)
    end if
  end subroutine complete

  subroutine gathers()
    call fill()
    select case (form)
    case (1)
      call MPI_Gather(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, 1, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Igather(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, 1, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Gather_init(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, 1, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    if (rank == 1) CHECK(all(b == [1, 2, 11, 12, 21, 22, -1, -1, -1]))
    call fill()
    select case (form)
    case (1)
      call MPI_Gatherv(a, rank + 1, MPI_INTEGER, b, counts, places, MPI_INTEGER, 2, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Igatherv(a, rank + 1, MPI_INTEGER, b, counts, places, MPI_INTEGER, 2, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Gatherv_init(a, rank + 1, MPI_INTEGER, b, counts, places, MPI_INTEGER, 2, MPI_COMM_WORLD, &
          MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    if (rank == 2) CHECK(all(b == [1, 11, 12, 21, 22, 23, -1, -1, -1]))
    call fill()
    select case (form)
    case (1)
      call MPI_Allgather(a, 1, MPI_INTEGER, b, 1, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Iallgather(a, 1, MPI_INTEGER, b, 1, MPI_INTEGER, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Allgather_init(a, 1, MPI_INTEGER, b, 1, MPI_INTEGER, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    CHECK(all(b(1:4) == [1, 11, 21, -1]))
    call fill()
    select case (form)
    case (1)
      call MPI_Allgatherv(a, rank + 1, MPI_INTEGER, b, counts, places, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Iallgatherv(a, rank + 1, MPI_INTEGER, b, counts, places, MPI_INTEGER, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Allgatherv_init(a, rank + 1, MPI_INTEGER, b, counts, places, MPI_INTEGER, MPI_COMM_WORLD, &
          MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    CHECK(all(b == [1, 11, 12, 21, 22, 23, -1, -1, -1]))
  end subroutine gathers

  subroutine scatters()
    call fill()
    select case (form)
    case (1)
      call MPI_Bcast(a, 3, MPI_INTEGER, 2, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Ibcast(a, 3, MPI_INTEGER, 2, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Bcast_init(a, 3, MPI_INTEGER, 2, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    CHECK(all(a(1:4) == [21, 22, 23, rank * 10 + 4]))
    call fill()
    select case (form)
    case (1)
      call MPI_Scatter(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, 1, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Iscatter(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, 1, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Scatter_init(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, 1, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    CHECK(all(b(1:3) == [11 + 2 * rank, 12 + 2 * rank, -1]))
    call fill()
    select case (form)
    case (1)
      call MPI_Scatterv(a, counts, places, MPI_INTEGER, b, rank + 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Iscatterv(a, counts, places, MPI_INTEGER, b, rank + 1, MPI_INTEGER, 0, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Scatterv_init(a, counts, places, MPI_INTEGER, b, rank + 1, MPI_INTEGER, 0, MPI_COMM_WORLD, &
          MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    CHECK(all(b(1:rank + 1) == [(places(rank + 1) + i, i = 1, rank + 1)]) .and. b(rank + 2) == -1)
  end subroutine scatters

  subroutine exchanges()
    call fill()
    select case (form)
    case (1)
      call MPI_Alltoall(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Ialltoall(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Alltoall_init(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    CHECK(all(b(1:6) == 2 * rank + [1, 2, 11, 12, 21, 22]))
    call fill()
    select case (form)
    case (1)
      call MPI_Alltoallv(a, counts, places, MPI_INTEGER, b, mine(), thirds(), MPI_INTEGER, &
          MPI_COMM_WORLD, ierr)
    case (2)
      ! The arrays are in use until the end.
      call MPI_Ialltoallv(a, counts, places, MPI_INTEGER, b, mine(), thirds(), MPI_INTEGER, MPI_COMM_WORLD, &
          request, ierr)
    case (3)
      call MPI_Alltoallv_init(a, counts, places, MPI_INTEGER, b, mine(), thirds(), MPI_INTEGER, MPI_COMM_WORLD, &
          MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    do i = 0, 2
      CHECK(all(b(3 * i + 1:3 * i + rank + 1) == a(places(rank + 1) + 1:places(rank + 1) + rank + 1) + (i - rank) * 10))
    end do
  end subroutine exchanges

  function mine()
    integer, pointer :: mine(:)
    integer, save, target :: kept(3)
    kept = rank + 1
    mine => kept
  end function mine

  function thirds()
    integer, pointer :: thirds(:)
    integer, save, target :: kept(3) = [0, 3, 6]
    thirds => kept
  end function thirds

  subroutine reductions()
    call fill()
    select case (form)
    case (1)
      call MPI_Reduce(a, b, 2, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Ireduce(a, b, 2, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Reduce_init(a, b, 2, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    if (rank == 0) CHECK(all(b(1:3) == [33, 36, -1]))
    call fill()
    select case (form)
    case (1)
      call MPI_Allreduce(a, b, 2, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Iallreduce(a, b, 2, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Allreduce_init(a, b, 2, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    CHECK(all(b(1:3) == [21, 22, -1]))
    call fill()
    select case (form)
    case (1)
      call MPI_Reduce_scatter(a, b, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Ireduce_scatter(a, b, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Reduce_scatter_init(a, b, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    CHECK(all(b(1:rank + 1) == [(30 + 3 * (places(rank + 1) + i), i = 1, rank + 1)]))
    call fill()
    select case (form)
    case (1)
      call MPI_Reduce_scatter_block(a, b, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Ireduce_scatter_block(a, b, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Reduce_scatter_block_init(a, b, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    CHECK(all(b(1:3) == [33 + 6 * rank, 36 + 6 * rank, -1]))
  end subroutine reductions

  subroutine prefixes()
    call fill()
    select case (form)
    case (1)
      call MPI_Scan(a, b, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Iscan(a, b, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Scan_init(a, b, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    SAME(b(1), sum([(10 * i + 1, i = 0, rank)]))
    call fill()
    select case (form)
    case (1)
      call MPI_Exscan(a, b, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Iexscan(a, b, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Exscan_init(a, b, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    if (rank > 0) SAME(b(1), sum([(10 * i + 1, i = 0, rank - 1)]))
  end subroutine prefixes

  subroutine neighbours()
    integer :: left, right
    left = mod(rank + 2, 3)
    right = mod(rank + 1, 3)
    call fill()
    select case (form)
    case (1)
      call MPI_Neighbor_allgather(a, 1, MPI_INTEGER, b, 1, MPI_INTEGER, ring, ierr)
    case (2)
      call MPI_Ineighbor_allgather(a, 1, MPI_INTEGER, b, 1, MPI_INTEGER, ring, request, ierr)
    case (3)
      call MPI_Neighbor_allgather_init(a, 1, MPI_INTEGER, b, 1, MPI_INTEGER, ring, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    CHECK(all(b(1:3) == [left * 10 + 1, right * 10 + 1, -1]))
    call fill()
    select case (form)
    case (1)
      call MPI_Neighbor_allgatherv(a, 1, MPI_INTEGER, b, ones, places, MPI_INTEGER, ring, ierr)
    case (2)
      call MPI_Ineighbor_allgatherv(a, 1, MPI_INTEGER, b, ones, places, MPI_INTEGER, ring, request, ierr)
    case (3)
      call MPI_Neighbor_allgatherv_init(a, 1, MPI_INTEGER, b, ones, places, MPI_INTEGER, ring, MPI_INFO_NULL, &
          request, ierr)
    end select
    call complete()
    CHECK(all(b(1:3) == [left * 10 + 1, right * 10 + 1, -1]))
    call fill()
    select case (form)
    case (1)
      call MPI_Neighbor_alltoall(a, 1, MPI_INTEGER, b, 1, MPI_INTEGER, ring, ierr)
    case (2)
      call MPI_Ineighbor_alltoall(a, 1, MPI_INTEGER, b, 1, MPI_INTEGER, ring, request, ierr)
    case (3)
      call MPI_Neighbor_alltoall_init(a, 1, MPI_INTEGER, b, 1, MPI_INTEGER, ring, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    CHECK(all(b(1:3) == [left * 10 + 2, right * 10 + 1, -1]))
    call fill()
    select case (form)
    case (1)
      call MPI_Neighbor_alltoallv(a, ones, places, MPI_INTEGER, b, ones, places, MPI_INTEGER, ring, ierr)
    case (2)
      call MPI_Ineighbor_alltoallv(a, ones, places, MPI_INTEGER, b, ones, places, MPI_INTEGER, ring, request, ierr)
    case (3)
      call MPI_Neighbor_alltoallv_init(a, ones, places, MPI_INTEGER, b, ones, places, MPI_INTEGER, ring, &
          MPI_INFO_NULL, request, ierr)
    end select
    call complete()
    CHECK(all(b(1:3) == [left * 10 + 2, right * 10 + 1, -1]))
    call neighbours_with_types(left, right)
  end subroutine neighbours

  ! The handles of the datatypes are in use until the end.
  subroutine neighbours_with_types(left, right)
    integer, intent(in) :: left, right
    integer(kind=MPI_ADDRESS_KIND), save :: bytes(2) = [0, 4]
    DATATYPE, save :: types(2)
    types = MPI_INTEGER
    call fill()
    select case (form)
    case (1)
      call MPI_Neighbor_alltoallw(a, ones, bytes, types, b, ones, bytes, types, ring, ierr)
    case (2)
      call MPI_Ineighbor_alltoallw(a, ones, bytes, types, b, ones, bytes, types, ring, request, ierr)
    case (3)
      call MPI_Neighbor_alltoallw_init(a, ones, bytes, types, b, ones, bytes, types, ring, MPI_INFO_NULL, &
          request, ierr)
    end select
    call complete()
    CHECK(all(b(1:3) == [left * 10 + 2, right * 10 + 1, -1]))
  end subroutine neighbours_with_types

  subroutine synchronisation()
    call fill()
    select case (form)
    case (1)
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
    case (2)
      call MPI_Ibarrier(MPI_COMM_WORLD, request, ierr)
    case (3)
      call MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    end select
    call complete()
  end subroutine synchronisation
end program fortran_collectives
