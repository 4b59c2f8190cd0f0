! Topologies with LOGICAL arrays and weights, and exchanges with a datatype for each peer.
! test: ranks=4 methods=mpif.h,mpi,mpi_f08
#include "methods.h"
#include "check.h"
program fortran_topology
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer :: rank, ranks, failures, ierr

  call start()
  call cartesian()
  call graph()
  call weighted()
  call groups()
  call exchanges()
  call neighbour_exchanges()
  call intercommunicator()
  call finish()
contains
#include "check.inc"

  subroutine cartesian()
    integer :: dims(2), coords(2), below, above, kind, count, found(3), places(3), place
    logical :: periods(2), got(3), keeps(2)
    COMM :: grid, line
    dims = [0, 2]
    call MPI_Dims_create(ranks, 2, dims, ierr)
    CHECK(all(dims == 2))
    periods = [.true., .false.]
    call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, .false., grid, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Topo_test(grid, kind, ierr)
    SAME(kind, MPI_CART)
    call MPI_Cartdim_get(grid, count, ierr)
    SAME(count, 2)
    found = -1
    got = [.false., .true., .true.]
    coords = -1
    call MPI_Cart_get(grid, 2, dims, got, coords, ierr)
    CHECK(got(1) .and. .not. got(2) .and. got(3))
    CHECK(all(coords == [rank / 2, mod(rank, 2)]))
    ! Room for more dimensions than there are: the rest stays.
    got = [.false., .true., .true.]
    call MPI_Cart_get(grid, 3, found, got, places, ierr)
    CHECK(got(1) .and. .not. got(2) .and. got(3))
    call MPI_Cart_rank(grid, coords, place, ierr)
    SAME(place, rank)
    call MPI_Cart_shift(grid, 0, 1, below, above, ierr)
    SAME(below, mod(rank + 2, 4))
    SAME(above, mod(rank + 2, 4))
    call MPI_Cart_shift(grid, 1, 1, below, above, ierr)
    SAME(below, merge(MPI_PROC_NULL, rank - 1, mod(rank, 2) == 0))
    keeps = [.false., .true.]
    call MPI_Cart_sub(grid, keeps, line, ierr)
    call MPI_Comm_size(line, count, ierr)
    SAME(count, 2)
    call MPI_Cart_get(line, 1, dims, got, coords, ierr)
    CHECK(.not. got(1))
    call MPI_Comm_free(line, ierr)
    call MPI_Cart_map(MPI_COMM_WORLD, 2, [2, 2], periods, place, ierr)
    CHECK(place >= 0 .and. place < 4)
    call MPI_Comm_free(grid, ierr)
  end subroutine cartesian

  subroutine graph()
    integer :: index(4), edges(8), count, nodes, arcs, got(2), i
    COMM :: ring
    index = [2, 4, 6, 8]
    edges = [(mod(i + 3, 4), mod(i + 1, 4), i = 0, 3)]
    call MPI_Graph_create(MPI_COMM_WORLD, 4, index, edges, .false., ring, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Graphdims_get(ring, nodes, arcs, ierr)
    SAME(nodes, 4)
    SAME(arcs, 8)
    call MPI_Graph_neighbors_count(ring, rank, count, ierr)
    SAME(count, 2)
    call MPI_Graph_neighbors(ring, rank, 2, got, ierr)
    CHECK(all(got == [mod(rank + 3, 4), mod(rank + 1, 4)]))
    call MPI_Graph_get(ring, 4, 8, index, edges, ierr)
    SAME(index(4), 8)
    call MPI_Graph_map(MPI_COMM_WORLD, 4, index, edges, nodes, ierr)
    CHECK(nodes >= 0)
    call MPI_Comm_free(ring, ierr)
  end subroutine graph

  subroutine weighted()
    integer :: from(1), to(1), weights(1), got(1), got_weights(1), out(1), out_weights(1)
    integer :: sources, destinations
    logical :: is_weighted
    COMM :: ring
    from = mod(rank + 3, 4)
    to = mod(rank + 1, 4)
    weights = 10 + rank
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, from, [20 + rank], 1, to, weights, &
        MPI_INFO_NULL, .false., ring, ierr)
    call MPI_Dist_graph_neighbors_count(ring, sources, destinations, is_weighted, ierr)
    CHECK(is_weighted .and. sources == 1 .and. destinations == 1)
    call MPI_Dist_graph_neighbors(ring, 1, got, got_weights, 1, out, out_weights, ierr)
    CHECK(all(got == from) .and. all(got_weights == 20 + rank))
    CHECK(all(out == to) .and. all(out_weights == weights))
    call MPI_Comm_free(ring, ierr)
  end subroutine weighted

  subroutine groups()
    integer :: members(2), ranges(3, 1), count, translated(2), compared, place
    GROUP :: all_, part, rest
    COMM :: pair
    call MPI_Comm_group(MPI_COMM_WORLD, all_, ierr)
    members = [3, 1]
    call MPI_Group_incl(all_, 2, members, part, ierr)
    ranges(:, 1) = [0, 2, 2]
    call MPI_Group_range_incl(all_, 1, ranges, rest, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Group_translate_ranks(part, 2, [0, 1], all_, translated, ierr)
    CHECK(all(translated == members))
    call MPI_Group_size(rest, count, ierr)
    SAME(count, 2)
    call MPI_Group_rank(rest, place, ierr)
    SAME(place, merge(rank / 2, MPI_UNDEFINED, mod(rank, 2) == 0))
    call MPI_Group_compare(part, rest, compared, ierr)
    SAME(compared, MPI_UNEQUAL)
    call MPI_Comm_create(MPI_COMM_WORLD, part, pair, ierr)
    if (mod(rank, 2) == 1) then
      call MPI_Comm_rank(pair, place, ierr)
      SAME(place, merge(0, 1, rank == 3))
      call MPI_Comm_free(pair, ierr)
    else
      CHECK(pair == MPI_COMM_NULL)
    end if
    call MPI_Group_free(part, ierr)
    call MPI_Group_free(rest, ierr)
    call MPI_Group_free(all_, ierr)
    CHECK(all_ == MPI_GROUP_NULL)
  end subroutine groups

  ! A different datatype for each peer: rank p gets p + 1 integers, from places in bytes.
  subroutine exchanges()
    integer :: a(16), b(16), ones(4), places(4), i, j
    DATATYPE :: types(4), mine(4)
    REQUEST :: request
    a = [(rank * 100 + i, i = 1, 16)]
    ones = 1
    places = [(16 * i, i = 0, 3)]
    do i = 1, 4
      call MPI_Type_contiguous(i, MPI_INTEGER, types(i), ierr)
      call MPI_Type_commit(types(i), ierr)
      mine(i) = MPI_INTEGER
    end do
    b = -1
    call MPI_Alltoallw(a, ones, places, types, b, [(rank + 1, i = 1, 4)], places, mine, &
        MPI_COMM_WORLD, ierr)
    SAME(ierr, MPI_SUCCESS)
    call expect_exchange(b, __LINE__)
    b = -1
    call MPI_Ialltoallw(a, ones, places, types, b, [(rank + 1, i = 1, 4)], places, mine, &
        MPI_COMM_WORLD, request, ierr)
    ! The arrays of datatypes may be used until the end.
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_F_sync_reg(b)
    call expect_exchange(b, __LINE__)
    call MPI_Alltoallw_init(a, ones, places, types, b, [(rank + 1, i = 1, 4)], places, mine, &
        MPI_COMM_WORLD, MPI_INFO_NULL, request, ierr)
    do j = 1, 2
      b = -1
      call MPI_Start(request, ierr)
      call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
      call MPI_F_sync_reg(b)
      call expect_exchange(b, __LINE__)
    end do
    call MPI_Request_free(request, ierr)
    ! In place the types to send are not read.
    b = [(rank * 100 + i, i = 1, 16)]
    call MPI_Alltoallw(MPI_IN_PLACE, ones, places, types, b, ones, places, mine, MPI_COMM_WORLD, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(all(b(1::4) == [(i * 100 + 4 * rank + 1, i = 0, 3)]))
    do i = 1, 4
      call MPI_Type_free(types(i), ierr)
    end do
  end subroutine exchanges

  subroutine expect_exchange(b, line)
    integer, intent(in) :: b(16), line
    integer :: p, i
    do p = 0, 3
      do i = 1, 4
        call same(int(b(4 * p + i), 8), &
            int(merge(p * 100 + 4 * rank + i, -1, i <= rank + 1), 8), line)
      end do
    end do
  end subroutine expect_exchange

  subroutine neighbour_exchanges()
    integer :: a(2), b(2), ones(2), i
    integer(kind=MPI_ADDRESS_KIND) :: places(2)
    DATATYPE :: types(2)
    REQUEST :: request
    COMM :: ring
    call MPI_Cart_create(MPI_COMM_WORLD, 1, [4], [.true.], .false., ring, ierr)
    a = [rank * 10, rank * 10 + 1]
    b = -1
    ones = 1
    places = [0, 4]
    types = MPI_INTEGER
    call MPI_Neighbor_alltoallw(a, ones, places, types, b, ones, places, types, ring, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(all(b == [mod(rank + 3, 4) * 10 + 1, mod(rank + 1, 4) * 10]))
    b = -1
    call MPI_Ineighbor_alltoallw(a, ones, places, types, b, ones, places, types, ring, request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_F_sync_reg(b)
    CHECK(all(b == [mod(rank + 3, 4) * 10 + 1, mod(rank + 1, 4) * 10]))
    call MPI_Comm_free(ring, ierr)
    ! Different numbers of sources and destinations: a star around rank 0.
    if (rank == 0) then
      call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, a, a, 2, [1, 2], [1, 1], MPI_INFO_NULL, &
          .false., ring, ierr)
      call MPI_Neighbor_alltoallw(a, ones, places, types, b, ones, places, types(1:0), ring, ierr)
    else
      i = merge(1, 0, rank <= 2)
      call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, i, [0], [1], 0, a, a, MPI_INFO_NULL, &
          .false., ring, ierr)
      b = -1
      call MPI_Neighbor_alltoallw(a, ones, places, types(1:0), b, ones, places, types, ring, ierr)
      CHECK(b(1) == merge(rank - 1, -1, rank <= 2))
    end if
    SAME(ierr, MPI_SUCCESS)
    call MPI_Comm_free(ring, ierr)
  end subroutine neighbour_exchanges

  subroutine intercommunicator()
    integer :: count, got(2), ones(2), places(2)
    logical :: flag
    DATATYPE :: types(2)
    COMM :: half, both, merged
    call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, half, ierr)
    call MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - mod(rank, 2), 5, both, ierr)
    call MPI_Comm_test_inter(both, flag, ierr)
    CHECK(flag)
    call MPI_Comm_test_inter(half, flag, ierr)
    CHECK(.not. flag)
    call MPI_Comm_remote_size(both, count, ierr)
    SAME(count, 2)
    ones = 1
    places = [0, 4]
    types = MPI_INTEGER
    call MPI_Alltoallw([rank, rank], ones, places, types, got, ones, places, types, both, ierr)
    CHECK(all(got == 1 - mod(rank, 2) + [0, 2]))
    if (mod(rank, 2) == 0) then
      got(1) = 77
      call MPI_Bcast(got, 1, MPI_INTEGER, merge(MPI_ROOT, MPI_PROC_NULL, rank == 0), both, ierr)
    else
      call MPI_Bcast(got, 1, MPI_INTEGER, 0, both, ierr)
      SAME(got(1), 77)
    end if
    call MPI_Intercomm_merge(both, mod(rank, 2) == 1, merged, ierr)
    call MPI_Comm_rank(merged, count, ierr)
    SAME(count, rank / 2 + 2 * mod(rank, 2))
    call MPI_Comm_free(merged, ierr)
    call MPI_Comm_free(both, ierr)
    call MPI_Comm_free(half, ierr)
  end subroutine intercommunicator
end program fortran_topology
