! Special addresses are recognised: buffers, statuses, weights. Other jobs compile it as position-dependent code and as
! a shared library (-DAS_LIBRARY).
! test: ranks=2 methods=mpif.h,mpi,mpi_f08
#include "methods.h"
#include "check.h"
#ifdef AS_LIBRARY
subroutine fortran_constants()
#else
program fortran_constants
#endif
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer :: rank, ranks, failures, ierr, other

  call start()
  other = 1 - rank
  call bottom()
  call in_place()
  call ignored_statuses()
  call weights()
  call finish()
contains
#include "check.inc"

  ! Data at absolute addresses. The status is written through an address too.
  subroutine bottom()
    integer, save :: a(3), b(3)
    integer(kind=MPI_ADDRESS_KIND) :: places(1)
    integer :: lengths(1), i
    DATATYPE :: types(2), list(1)
    call MPI_Get_address(MPI_BOTTOM, places(1), ierr)
    SAME(places(1), 0)
    a = [(rank * 10 + i, i = 1, 3)]
    b = -1
    lengths = 3
    list = MPI_INTEGER
    call MPI_Get_address(a, places(1), ierr)
    call MPI_Type_create_hindexed(1, lengths, places, MPI_INTEGER, types(1), ierr)
    call MPI_Get_address(b, places(1), ierr)
    call MPI_Type_create_struct(1, lengths, places, list, types(2), ierr)
    do i = 1, 2
      call MPI_Type_commit(types(i), ierr)
    end do
    call MPI_Sendrecv(MPI_BOTTOM, 1, types(1), other, 1, MPI_BOTTOM, 1, types(2), other, 1, &
        MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_F_sync_reg(b)
    CHECK(all(b == [(other * 10 + i, i = 1, 3)]))
    if (rank == 0) then
      call MPI_Bcast(MPI_BOTTOM, 1, types(1), 0, MPI_COMM_WORLD, ierr)
    else
      call MPI_Bcast(MPI_BOTTOM, 1, types(2), 0, MPI_COMM_WORLD, ierr)
      call MPI_F_sync_reg(b)
      CHECK(all(b == [1, 2, 3]))
    end if
    do i = 1, 2
      call MPI_Type_free(types(i), ierr)
    end do
  end subroutine bottom

  subroutine in_place()
    integer :: a(4), counts(2), places(2)
    REQUEST :: request
    a = rank + 1
    call MPI_Allreduce(MPI_IN_PLACE, a, 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(all(a == 3))
    a = [rank, rank, rank, rank]
    call MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, 2, MPI_INTEGER, MPI_COMM_WORLD, &
        request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_F_sync_reg(a)
    CHECK(all(a == [0, 0, 1, 1]))
    a = 10 * rank + [1, 2, 3, 4]
    call MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, 2, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    CHECK(all(a == merge([1, 2, 11, 12], [3, 4, 13, 14], rank == 0)))
    a = rank
    if (rank == 0) then
      a = [5, 6, 7, 8]
      call MPI_Scatter(a, 2, MPI_INTEGER, MPI_IN_PLACE, 0, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    else
      call MPI_Scatter(a, 2, MPI_INTEGER, a, 2, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
      CHECK(all(a(1:2) == [7, 8]))
    end if
    counts = 2
    places = [2, 0]
    a = [rank, rank, 10 + rank, 10 + rank]
    if (rank == 0) then
      call MPI_Gatherv(MPI_IN_PLACE, 0, MPI_INTEGER, a, counts, places, MPI_INTEGER, 0, &
          MPI_COMM_WORLD, ierr)
      CHECK(all(a == [11, 11, 10, 10]))
    else
      call MPI_Gatherv(a(3:4), 2, MPI_INTEGER, a, counts, places, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    end if
  end subroutine in_place

  subroutine ignored_statuses()
    integer :: b(2), count, indices(2), index
    logical :: flag
    REQUEST :: requests(2)
    b = -1
    call MPI_Irecv(b(1), 1, MPI_INTEGER, other, 1, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Irecv(b(2), 1, MPI_INTEGER, other, 2, MPI_COMM_WORLD, requests(2), ierr)
    call MPI_Send(rank, 1, MPI_INTEGER, other, 2, MPI_COMM_WORLD, ierr)
    call MPI_Waitany(2, requests, index, MPI_STATUS_IGNORE, ierr)
    SAME(index, 2)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Send(rank, 1, MPI_INTEGER, other, 1, MPI_COMM_WORLD, ierr)
    call MPI_Waitsome(2, requests, count, indices, MPI_STATUSES_IGNORE, ierr)
    SAME(count, 1)
    call MPI_Testall(2, requests, flag, MPI_STATUSES_IGNORE, ierr)
    CHECK(flag)
    call MPI_F_sync_reg(b)
    CHECK(all(b == other))
    call MPI_Recv(b, 1, MPI_INTEGER, MPI_PROC_NULL, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  end subroutine ignored_statuses

  subroutine weights()
    integer :: sources, destinations, list(1), degrees(1), sizes(1), out(1), to(1), to_weights(1)
    logical :: is_weighted
    COMM :: graph
    list = other
    sizes = 7
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, list, MPI_UNWEIGHTED, 1, list, &
        MPI_UNWEIGHTED, MPI_INFO_NULL, .false., graph, ierr)
    SAME(ierr, MPI_SUCCESS)
    is_weighted = .true.
    call MPI_Dist_graph_neighbors_count(graph, sources, destinations, is_weighted, ierr)
    SAME(sources, 1)
    CHECK(.not. is_weighted)
    to = -1
    call MPI_Dist_graph_neighbors(graph, 1, out, MPI_UNWEIGHTED, 1, to, MPI_UNWEIGHTED, ierr)
    SAME(out(1), other)
    SAME(to(1), other)
    call MPI_Comm_free(graph, ierr)
    ! Weights, and none of them at a rank without neighbours.
    degrees = 1
    if (rank == 0) then
      call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, list, MPI_WEIGHTS_EMPTY, 1, list, sizes, &
          MPI_INFO_NULL, .false., graph, ierr)
    else
      call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, list, sizes, 0, list, MPI_WEIGHTS_EMPTY, &
          MPI_INFO_NULL, .false., graph, ierr)
    end if
    SAME(ierr, MPI_SUCCESS)
    call MPI_Dist_graph_neighbors_count(graph, sources, destinations, is_weighted, ierr)
    CHECK(is_weighted)
    SAME(sources, rank)
    SAME(destinations, 1 - rank)
    if (rank == 0) then
      to_weights = -1
      call MPI_Dist_graph_neighbors(graph, 0, out, out, 1, to, to_weights, ierr)
      SAME(to_weights(1), 7)
    end if
    call MPI_Comm_free(graph, ierr)
    call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, [rank], degrees, list, MPI_UNWEIGHTED, MPI_INFO_NULL, &
        .true., graph, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Dist_graph_neighbors_count(graph, sources, destinations, is_weighted, ierr)
    SAME(destinations, 1)
    CHECK(.not. is_weighted)
    call MPI_Comm_free(graph, ierr)
  end subroutine weights
end
