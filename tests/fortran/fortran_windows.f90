! Windows: memory that MPI allocates, shared memory, one-sided access.
! test: ranks=2 methods=mpif.h,mpi,mpi_f08 variants=check
#include "methods.h"
#include "check.h"
program fortran_windows
  USE_METHOD
  use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer, c_associated
  implicit none
  INCLUDE_METHOD
  integer, parameter :: wide = MPI_ADDRESS_KIND
  integer :: rank, ranks, failures, ierr, other

  call start()
  other = 1 - rank
  call fences()
  call locks()
  call groups()
  call further()
  call dynamic()
#ifndef METHOD_MPIF
  call allocated()
  call shared()
  call memory_of_mpi()
#endif
  call integer_addresses()
  call finish()
contains
#include "check.inc"

  subroutine fences()
    integer, save :: memory(8)
    integer :: a(4), b(4), i
    WINDOW :: win
    memory = [(rank * 100 + i, i = 1, 8)]
    call MPI_Win_create(memory, 32_wide, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
    SAME(ierr, MPI_SUCCESS)
    a = [(rank * 1000 + i, i = 1, 4)]
    b = -1
    call MPI_Win_fence(MPI_MODE_NOPRECEDE, win, ierr)
    call MPI_Put(a, 4, MPI_INTEGER, other, 2_wide, 4, MPI_INTEGER, win, ierr)
    call MPI_Get(b, 2, MPI_INTEGER, other, 0_wide, 2, MPI_INTEGER, win, ierr)
    call MPI_Win_fence(0, win, ierr)
    call MPI_F_sync_reg(memory)
    call MPI_F_sync_reg(b)
    CHECK(all(memory(3:6) == [(other * 1000 + i, i = 1, 4)]))
    CHECK(all(b(1:2) == other * 100 + [1, 2]))
    call MPI_Accumulate(a, 2, MPI_INTEGER, other, 6_wide, 2, MPI_INTEGER, MPI_SUM, win, ierr)
    call MPI_Win_fence(MPI_MODE_NOSUCCEED, win, ierr)
    call MPI_F_sync_reg(memory)
    CHECK(all(memory(7:8) == rank * 100 + [7, 8] + other * 1000 + [1, 2]))
    call MPI_Win_free(win, ierr)
    CHECK(win == MPI_WIN_NULL)
  end subroutine fences

  subroutine locks()
    integer, save :: memory(4)
    integer :: a, b, c(2), d(2)
    REQUEST :: request
    WINDOW :: win
    memory = [10, 20, 30, 40] * (rank + 1)
    call MPI_Win_create(memory, 16_wide, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
    call MPI_Win_lock_all(0, win, ierr)
    a = 5
    call MPI_Fetch_and_op(a, b, MPI_INTEGER, other, 0_wide, MPI_SUM, win, ierr)
    call MPI_Win_flush(other, win, ierr)
    call MPI_F_sync_reg(b)
    SAME(b, 10 * (other + 1))
    call MPI_Compare_and_swap(7, 20 * (other + 1), b, MPI_INTEGER, other, 1_wide, win, ierr)
    call MPI_Win_flush(other, win, ierr)
    call MPI_F_sync_reg(b)
    SAME(b, 20 * (other + 1))
    c = [1, 2]
    call MPI_Get_accumulate(c, 2, MPI_INTEGER, d, 2, MPI_INTEGER, other, 2_wide, 2, MPI_INTEGER, &
        MPI_REPLACE, win, ierr)
    call MPI_Win_flush_local(other, win, ierr)
    call MPI_F_sync_reg(d)
    CHECK(all(d == [30, 40] * (other + 1)))
    call MPI_Win_unlock_all(win, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win, ierr)
    call MPI_F_sync_reg(memory)
    CHECK(all(memory == [10 * (rank + 1) + 5, 7, 1, 2]))
    call MPI_Win_unlock(rank, win, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Win_lock(MPI_LOCK_EXCLUSIVE, other, 0, win, ierr)
    call MPI_Rput(a, 1, MPI_INTEGER, other, 3_wide, 1, MPI_INTEGER, win, request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_Win_unlock(other, win, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win, ierr)
    call MPI_F_sync_reg(memory)
    SAME(memory(4), 5)
    call MPI_Win_unlock(rank, win, ierr)
    call MPI_Win_free(win, ierr)
  end subroutine locks

  subroutine groups()
    integer, save :: memory(1)
    logical :: flag
    GROUP :: all_, peer
    WINDOW :: win
    memory = -1
    call MPI_Win_create(memory, 4_wide, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
    call MPI_Win_get_group(win, all_, ierr)
    call MPI_Group_incl(all_, 1, [other], peer, ierr)
    call MPI_Win_post(peer, 0, win, ierr)
    call MPI_Win_start(peer, 0, win, ierr)
    call MPI_Put(rank, 1, MPI_INTEGER, other, 0_wide, 1, MPI_INTEGER, win, ierr)
    call MPI_Win_complete(win, ierr)
    if (rank == 0) then
      flag = .false.
      do while (.not. flag)
        call MPI_Win_test(win, flag, ierr)
      end do
    else
      call MPI_Win_wait(win, ierr)
    end if
    call MPI_F_sync_reg(memory)
    SAME(memory(1), other)
    call MPI_Group_free(peer, ierr)
    call MPI_Group_free(all_, ierr)
    call MPI_Win_free(win, ierr)
  end subroutine groups

  ! Accesses with requests, flushes, info objects, error handlers and deleted attributes.
  subroutine further()
    integer, save :: memory(4), a(2), b(2)
    integer :: key
    integer(kind=wide) :: value
    logical :: flag
    REQUEST :: request
    INFO :: info_
    ERRHANDLER :: handler
    WINDOW :: win
    memory = rank
    a = [5, 6]
    b = -1
    call MPI_Win_create(memory, 16_wide, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
    call MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN, ierr)
    call MPI_Win_get_errhandler(win, handler, ierr)
    CHECK(handler == MPI_ERRORS_RETURN)
    call MPI_Win_call_errhandler(win, MPI_ERR_ARG, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Win_get_info(win, info_, ierr)
    call MPI_Win_set_info(win, info_, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Info_free(info_, ierr)
    call MPI_Win_create_keyval(MPI_WIN_DUP_FN, MPI_WIN_NULL_DELETE_FN, key, 0_wide, ierr)
    call MPI_Win_set_attr(win, key, 3_wide, ierr)
    call MPI_Win_delete_attr(win, key, ierr)
    call MPI_Win_get_attr(win, key, value, flag, ierr)
    CHECK(.not. flag)
    call MPI_Win_free_keyval(key, ierr)
    call MPI_Win_lock_all(0, win, ierr)
    call MPI_Raccumulate(a, 2, MPI_INTEGER, other, 0_wide, 2, MPI_INTEGER, MPI_SUM, win, request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_Win_flush_all(win, ierr)
    call MPI_Rget_accumulate(a, 2, MPI_INTEGER, b, 2, MPI_INTEGER, other, 0_wide, 2, MPI_INTEGER, &
        MPI_NO_OP, win, request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_F_sync_reg(b)
    CHECK(all(b == other + [5, 6]))
    call MPI_Win_flush_local_all(win, ierr)
    call MPI_Win_sync(win, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Win_unlock_all(win, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Win_free(win, ierr)
  end subroutine further

  subroutine dynamic()
    integer, save :: memory(4)
    integer(kind=wide) :: place, theirs
    integer :: b
    WINDOW :: win
    memory = rank + 50
    call MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
    call MPI_Win_attach(win, memory, 16_wide, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Get_address(memory(2), place, ierr)
    call MPI_Sendrecv(place, 1, MPI_AINT, other, 1, theirs, 1, MPI_AINT, other, 1, MPI_COMM_WORLD, &
        MPI_STATUS_IGNORE, ierr)
    call MPI_Win_lock(MPI_LOCK_SHARED, other, 0, win, ierr)
    call MPI_Get(b, 1, MPI_INTEGER, other, theirs, 1, MPI_INTEGER, win, ierr)
    call MPI_Win_unlock(other, win, ierr)
    call MPI_F_sync_reg(b)
    SAME(b, other + 50)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_Win_detach(win, memory, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Win_free(win, ierr)
  end subroutine dynamic

#ifndef METHOD_MPIF
  subroutine allocated()
    type(c_ptr) :: address
    integer, pointer :: memory(:)
    integer(kind=wide) :: value
    logical :: flag
    WINDOW :: win
    call MPI_Win_allocate(40_wide, 4, MPI_INFO_NULL, MPI_COMM_WORLD, address, win, ierr)
    SAME(ierr, MPI_SUCCESS)
    call c_f_pointer(address, memory, [10])
    memory = 3
    call MPI_Win_get_attr(win, MPI_WIN_BASE, value, flag, ierr)
    CHECK(flag)
    SAME(value, transfer(address, value))
    call MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, value, flag, ierr)
    SAME(value, MPI_WIN_FLAVOR_ALLOCATE)
    call MPI_Win_fence(0, win, ierr)
    call MPI_Put(rank, 1, MPI_INTEGER, other, 9_wide, 1, MPI_INTEGER, win, ierr)
    call MPI_Win_fence(0, win, ierr)
    SAME(memory(10), other)
    SAME(memory(9), 3)
    call MPI_Win_free(win, ierr)
  end subroutine allocated

  subroutine shared()
    type(c_ptr) :: address, theirs
    integer, pointer :: mine(:), peer(:)
    integer(kind=wide) :: bytes
    integer :: unit
    COMM :: node
    WINDOW :: win
    call MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, node, ierr)
    call MPI_Win_allocate_shared(16_wide, 4, MPI_INFO_NULL, node, address, win, ierr)
    SAME(ierr, MPI_SUCCESS)
    call c_f_pointer(address, mine, [4])
    mine = rank + 70
    call MPI_Win_fence(0, win, ierr)
    call MPI_Win_shared_query(win, other, bytes, unit, theirs, ierr)
    SAME(ierr, MPI_SUCCESS)
    SAME(bytes, 16)
    SAME(unit, 4)
    call c_f_pointer(theirs, peer, [4])
    CHECK(all(peer == other + 70))
    call MPI_Win_fence(0, win, ierr)
    call MPI_Win_free(win, ierr)
    call MPI_Comm_free(node, ierr)
  end subroutine shared

  subroutine memory_of_mpi()
    type(c_ptr) :: address
    integer, pointer :: memory(:)
    call MPI_Alloc_mem(400_wide, MPI_INFO_NULL, address, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(c_associated(address))
    call c_f_pointer(address, memory, [100])
    memory = rank
    call MPI_Allreduce(MPI_IN_PLACE, memory, 100, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    CHECK(all(memory == 1))
    call MPI_Free_mem(memory, ierr)
    SAME(ierr, MPI_SUCCESS)
  end subroutine memory_of_mpi
#endif

  ! mpif.h and module mpi take an integer for the address too.
  subroutine integer_addresses()
#ifndef METHOD_F08
    integer(kind=wide) :: address, bytes
    integer :: unit
    WINDOW :: win
    address = 0
    call MPI_Alloc_mem(400_wide, MPI_INFO_NULL, address, ierr)
    CHECK(address /= 0)
    call give_back(address)
    address = 0
    call MPI_Win_allocate_shared(16_wide, 4, MPI_INFO_NULL, MPI_COMM_SELF, address, win, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(address /= 0)
    bytes = 0
    call MPI_Win_shared_query(win, 0, bytes, unit, address, ierr)
    SAME(bytes, 16)
    call MPI_Win_free(win, ierr)
#endif
  end subroutine integer_addresses

#ifndef METHOD_F08
  subroutine give_back(address)
    integer(kind=wide), intent(in) :: address
    integer, pointer :: memory(:)
    call c_f_pointer(transfer(address, pointer_mold()), memory, [100])
    memory = 5
    call MPI_Free_mem(memory(1), ierr)
    SAME(ierr, MPI_SUCCESS)
  end subroutine give_back

  type(c_ptr) function pointer_mold()
    use, intrinsic :: iso_c_binding, only: c_null_ptr
    pointer_mold = c_null_ptr
  end function pointer_mold
#endif
end program fortran_windows
