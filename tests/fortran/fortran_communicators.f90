! Communicators and groups: made, duplicated without blocking, their info objects.
! test: ranks=3 methods=mpif.h,mpi,mpi_f08 mistakes=yes
#include "methods.h"
#include "check.h"
program fortran_communicators
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer :: rank, ranks, failures, ierr

  call start()
  call group_operations()
  call duplicates()
  call infos()
  call parts()
  call two_groups()
  call information()
  call finish()
contains
#include "check.inc"

  ! Ranks of a group in MPI_COMM_WORLD.
  subroutine expect(group_, members, line)
    GROUP, intent(inout) :: group_
    integer, intent(in) :: members(:), line
    integer :: length, i, found(3)
    GROUP :: world
    call MPI_Group_size(group_, length, ierr)
    call same(int(length, 8), int(size(members), 8), line)
    call MPI_Comm_group(MPI_COMM_WORLD, world, ierr)
    call MPI_Group_translate_ranks(group_, length, [(i, i = 0, length - 1)], world, found, ierr)
    call check(all(found(1:length) == members), line)
    call MPI_Group_free(world, ierr)
    if (group_ /= MPI_GROUP_EMPTY) call MPI_Group_free(group_, ierr)
  end subroutine expect

  subroutine group_operations()
    integer :: ranges(3, 1)
    GROUP :: world, low, high, made
    call MPI_Comm_group(MPI_COMM_WORLD, world, ierr)
    call MPI_Group_incl(world, 2, [1, 0], low, ierr)
    call MPI_Group_excl(world, 1, [0], high, ierr)
    call MPI_Group_union(low, high, made, ierr)
    call expect(made, [1, 0, 2], __LINE__)
    call MPI_Group_intersection(low, high, made, ierr)
    call expect(made, [1], __LINE__)
    call MPI_Group_difference(low, high, made, ierr)
    call expect(made, [0], __LINE__)
    ranges(:, 1) = [2, 0, -2]
    call MPI_Group_range_excl(world, 1, ranges, made, ierr)
    call expect(made, [1], __LINE__)
    ranges(:, 1) = [2, 0, -1]
    call MPI_Group_range_incl(world, 1, ranges, made, ierr)
    call expect(made, [2, 1, 0], __LINE__)
    call MPI_Group_free(low, ierr)
    call MPI_Group_free(high, ierr)
    call MPI_Group_free(world, ierr)
  end subroutine group_operations

  subroutine duplicates()
    integer :: compared
    COMM, save :: copy
    INFO :: info_
    REQUEST :: request
    copy = MPI_COMM_NULL
    call MPI_Comm_idup(MPI_COMM_WORLD, copy, request, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_Comm_compare(copy, MPI_COMM_WORLD, compared, ierr)
    SAME(compared, MPI_CONGRUENT)
    call MPI_Barrier(copy, ierr)
    call MPI_Comm_free(copy, ierr)
    call MPI_Info_create(info_, ierr)
    call MPI_Info_set(info_, 'mpi_assert_no_any_tag', 'true', ierr)
    call MPI_Comm_idup_with_info(MPI_COMM_WORLD, info_, copy, request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call expect_key(copy, .true., __LINE__)
    call MPI_Comm_free(copy, ierr)
    call MPI_Comm_dup_with_info(MPI_COMM_WORLD, info_, copy, ierr)
    call expect_key(copy, .true., __LINE__)
    call MPI_Comm_free(copy, ierr)
    call MPI_Info_free(info_, ierr)
  end subroutine duplicates

  subroutine expect_key(comm_, is_set, line)
    COMM, intent(in) :: comm_
    logical, intent(in) :: is_set
    integer, intent(in) :: line
    character(len=10) :: value
    logical :: flag
    INFO :: info_
    call MPI_Comm_get_info(comm_, info_, ierr)
    value = ' '
    call MPI_Info_get(info_, 'mpi_assert_no_any_tag', 10, value, flag, ierr)
    call check((flag .and. value == 'true') .eqv. is_set, line)
    call MPI_Info_free(info_, ierr)
  end subroutine expect_key

  subroutine infos()
    COMM :: copy
    INFO :: info_
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
    call expect_key(copy, .false., __LINE__)
    call MPI_Info_create(info_, ierr)
    call MPI_Info_set(info_, 'mpi_assert_no_any_tag', 'true', ierr)
    call MPI_Comm_set_info(copy, info_, ierr)
    SAME(ierr, MPI_SUCCESS)
    call expect_key(copy, .true., __LINE__)
    call MPI_Info_free(info_, ierr)
    call MPI_Comm_free(copy, ierr)
  end subroutine infos

  subroutine parts()
    integer :: length, place
    GROUP :: world, pair
    COMM :: part
    call MPI_Comm_split(MPI_COMM_WORLD, merge(MPI_UNDEFINED, 7, rank == 1), -rank, part, ierr)
    if (rank == 1) then
      CHECK(part == MPI_COMM_NULL)
    else
      call MPI_Comm_rank(part, place, ierr)
      SAME(place, merge(1, 0, rank == 0))
      call MPI_Comm_free(part, ierr)
    end if
    call MPI_Comm_group(MPI_COMM_WORLD, world, ierr)
    call MPI_Group_incl(world, 2, [2, 0], pair, ierr)
    if (rank /= 1) then
      call MPI_Comm_create_group(MPI_COMM_WORLD, pair, 5, part, ierr)
      SAME(ierr, MPI_SUCCESS)
      call MPI_Comm_size(part, length, ierr)
      SAME(length, 2)
      call MPI_Comm_free(part, ierr)
    end if
    call MPI_Group_free(pair, ierr)
    call MPI_Group_free(world, ierr)
  end subroutine parts

  ! Rank 0 on one side, the others on the other.
  subroutine two_groups()
    integer :: length
    GROUP :: world, mine, theirs
    COMM :: both
    call MPI_Comm_group(MPI_COMM_WORLD, world, ierr)
    if (rank == 0) then
      call MPI_Group_incl(world, 1, [0], mine, ierr)
      call MPI_Group_excl(world, 1, [0], theirs, ierr)
    else
      call MPI_Group_excl(world, 1, [0], mine, ierr)
      call MPI_Group_incl(world, 1, [0], theirs, ierr)
    end if
    call MPI_Intercomm_create_from_groups(mine, 0, theirs, 0, 'fortran communicators', MPI_INFO_NULL, &
        MPI_ERRORS_RETURN, both, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Comm_remote_size(both, length, ierr)
    SAME(length, merge(2, 1, rank == 0))
    call MPI_Group_free(theirs, ierr)
    call MPI_Comm_remote_group(both, theirs, ierr)
    if (rank == 0) then
      call expect(theirs, [1, 2], __LINE__)
    else
      call expect(theirs, [0], __LINE__)
    end if
    call MPI_Comm_free(both, ierr)
    call MPI_Group_free(mine, ierr)
    call MPI_Group_free(world, ierr)
  end subroutine two_groups

  ! Information about the library and the machine.
  subroutine information()
    integer :: count
    INFO :: info_
    call MPI_Abi_get_info(info_, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Info_get_nkeys(info_, count, ierr)
    CHECK(count > 0)
    call MPI_Info_free(info_, ierr)
    ! The first description of Fortran's types counts: it was the one of the Fortran library.
    call MPI_Abi_set_fortran_booleans(4, .true., .false., ierr)
    CLASS(MPI_ERR_ABI)
    call MPI_Abi_get_fortran_info(info_, ierr)
    CHECK(info_ /= MPI_INFO_NULL)
    call MPI_Abi_set_fortran_info(info_, ierr)
    CLASS(MPI_ERR_ABI)
    call MPI_Info_free(info_, ierr)
    call MPI_Get_hw_resource_info(info_, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(info_ /= MPI_INFO_NULL)
    call MPI_Info_free(info_, ierr)
  end subroutine information
end program fortran_communicators
