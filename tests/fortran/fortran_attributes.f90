! Attributes: copied and deleted by functions of the program, set in one language and read in the other, predefined.
! test: ranks=2 methods=mpif.h,mpi,mpi_f08 with=fortran_attributes.c
#include "methods.h"
#include "check.h"
module attribute_callbacks
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer :: copies, deletes
  integer(kind=MPI_ADDRESS_KIND) :: seen_state, deleted
  logical :: fails
contains
  ! Copies the value plus one, but no negative value.
  subroutine copy_comm(comm_, key, state, value, new_value, flag, code)
    COMM :: comm_
    integer :: key, code
    integer(kind=MPI_ADDRESS_KIND) :: state, value, new_value
    logical :: flag
    copies = copies + 1
    seen_state = state
    if (value >= 0) new_value = value + 1
    flag = value >= 0 .and. key /= MPI_KEYVAL_INVALID
    code = merge(MPI_ERR_ARG, MPI_SUCCESS, fails .or. comm_ == MPI_COMM_NULL)
  end subroutine copy_comm

  subroutine delete_comm(comm_, key, value, state, code)
    COMM :: comm_
    integer :: key, code
    integer(kind=MPI_ADDRESS_KIND) :: value, state
    deletes = deletes + 1
    deleted = value
    seen_state = state
    code = merge(MPI_ERR_ARG, MPI_SUCCESS, fails .or. comm_ == MPI_COMM_NULL .or. key < 0)
  end subroutine delete_comm

  subroutine copy_type(datatype_, key, state, value, new_value, flag, code)
    DATATYPE :: datatype_
    integer :: key, code
    integer(kind=MPI_ADDRESS_KIND) :: state, value, new_value
    logical :: flag
    copies = copies + 1
    new_value = 2 * value + 0 * state
    flag = datatype_ /= MPI_DATATYPE_NULL .and. key /= MPI_KEYVAL_INVALID
    code = MPI_SUCCESS
  end subroutine copy_type

  subroutine delete_type(datatype_, key, value, state, code)
    DATATYPE :: datatype_
    integer :: key, code
    integer(kind=MPI_ADDRESS_KIND) :: value, state
    deletes = deletes + 1
    deleted = value + 0 * (state + key)
    code = merge(MPI_ERR_ARG, MPI_SUCCESS, datatype_ == MPI_DATATYPE_NULL)
  end subroutine delete_type

  subroutine delete_win(win, key, value, state, code)
    WINDOW :: win
    integer :: key, code
    integer(kind=MPI_ADDRESS_KIND) :: value, state
    deletes = deletes + 1
    deleted = value + 0 * (state + key)
    code = merge(MPI_ERR_ARG, MPI_SUCCESS, win == MPI_WIN_NULL)
  end subroutine delete_win

#ifndef METHOD_F08
  ! Functions of MPI-1: all values are INTEGER.
  subroutine copy_old(comm_, key, state, value, new_value, flag, code)
    integer :: comm_, key, state, value, new_value, code
    logical :: flag
    copies = copies + 1
    seen_state = state
    new_value = value - 1
    flag = comm_ /= MPI_COMM_NULL .and. key /= MPI_KEYVAL_INVALID
    code = MPI_SUCCESS
  end subroutine copy_old

  subroutine delete_old(comm_, key, value, state, code)
    integer :: comm_, key, value, state, code
    deletes = deletes + 1
    deleted = value
    seen_state = state
    code = merge(MPI_ERR_ARG, MPI_SUCCESS, comm_ == MPI_COMM_NULL .or. key < 0)
  end subroutine delete_old
#endif
end module attribute_callbacks

program fortran_attributes
  use attribute_callbacks
  implicit none
  integer, parameter :: wide = MPI_ADDRESS_KIND
  integer(kind=wide), parameter :: large = 123456789012345_wide
  integer :: rank, ranks, failures, ierr
  external :: c_create_key, c_set, c_get, c_get_int, c_has, c_calls

  call start()
  fails = .false.
  call communicators()
  call failing_callbacks()
  call predefined_callbacks()
  call types()
  call windows()
  call set_in_fortran()
  call set_in_c()
  call predefined()
#ifndef METHOD_F08
  call old()
#endif
  call set_on_self()
  call finish()
  ! MPI_Finalize deletes the attributes of MPI_COMM_SELF first.
  if (deletes /= 1 .or. deleted /= large) error stop 'the attribute of MPI_COMM_SELF was not deleted'
contains
#include "check.inc"

  subroutine communicators()
    integer :: key
    integer(kind=wide) :: value
    logical :: flag
    COMM :: copy
    copies = 0
    deletes = 0
    call MPI_Comm_create_keyval(copy_comm, delete_comm, key, large, ierr)
    SAME(ierr, MPI_SUCCESS)
    value = -8
    call MPI_Comm_get_attr(MPI_COMM_WORLD, key, value, flag, ierr)
    CHECK(.not. flag)
    call MPI_Comm_set_attr(MPI_COMM_WORLD, key, large + rank, ierr)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, key, value, flag, ierr)
    CHECK(flag)
    SAME(value, large + rank)
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
    SAME(copies, 1)
    SAME(seen_state, large)
    call MPI_Comm_get_attr(copy, key, value, flag, ierr)
    CHECK(flag)
    SAME(value, large + rank + 1)
    call MPI_Comm_free(copy, ierr)
    SAME(deletes, 1)
    SAME(deleted, large + rank + 1)
    ! A new value deletes the old one. A negative one is not copied.
    call MPI_Comm_set_attr(MPI_COMM_WORLD, key, -large, ierr)
    SAME(deletes, 2)
    SAME(deleted, large + rank)
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
    call MPI_Comm_get_attr(copy, key, value, flag, ierr)
    CHECK(.not. flag)
    call MPI_Comm_free(copy, ierr)
    SAME(deletes, 2)
    call MPI_Comm_delete_attr(MPI_COMM_WORLD, key, ierr)
    SAME(deletes, 3)
    SAME(deleted, -large)
    call MPI_Comm_free_keyval(key, ierr)
    SAME(key, MPI_KEYVAL_INVALID)
  end subroutine communicators

  ! An error of a callback is that of the call; the attribute stays.
  subroutine failing_callbacks()
    integer :: key
    integer(kind=wide) :: value
    logical :: flag
    COMM :: copy
    call MPI_Comm_create_keyval(copy_comm, delete_comm, key, 0_wide, ierr)
    call MPI_Comm_set_attr(MPI_COMM_WORLD, key, 5_wide, ierr)
    fails = .true.
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
    CHECK(ierr /= MPI_SUCCESS)
    call MPI_Comm_delete_attr(MPI_COMM_WORLD, key, ierr)
    CHECK(ierr /= MPI_SUCCESS)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, key, value, flag, ierr)
    CHECK(flag)
    SAME(value, 5)
    fails = .false.
    call MPI_Comm_delete_attr(MPI_COMM_WORLD, key, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Comm_free_keyval(key, ierr)
  end subroutine failing_callbacks

  subroutine set_on_self()
    integer :: key
    call MPI_Comm_create_keyval(copy_comm, delete_comm, key, 0_wide, ierr)
    call MPI_Comm_set_attr(MPI_COMM_SELF, key, large, ierr)
    call MPI_Comm_free_keyval(key, ierr)
    deletes = 0
  end subroutine set_on_self

  subroutine predefined_callbacks()
    integer :: keys(2), i
    integer(kind=wide) :: value
    logical :: flag
    COMM :: copy
    call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, keys(1), 0_wide, ierr)
    call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, keys(2), 0_wide, ierr)
    do i = 1, 2
      call MPI_Comm_set_attr(MPI_COMM_WORLD, keys(i), large * i, ierr)
    end do
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
    call MPI_Comm_get_attr(copy, keys(1), value, flag, ierr)
    CHECK(flag)
    SAME(value, large)
    call MPI_Comm_get_attr(copy, keys(2), value, flag, ierr)
    CHECK(.not. flag)
    call MPI_Comm_free(copy, ierr)
    do i = 1, 2
      call MPI_Comm_delete_attr(MPI_COMM_WORLD, keys(i), ierr)
      call MPI_Comm_free_keyval(keys(i), ierr)
      SAME(ierr, MPI_SUCCESS)
    end do
  end subroutine predefined_callbacks

  subroutine types()
    integer :: key
    integer(kind=wide) :: value
    logical :: flag
    DATATYPE :: one, copy
    copies = 0
    deletes = 0
    call MPI_Type_create_keyval(copy_type, delete_type, key, large, ierr)
    call MPI_Type_contiguous(2, MPI_INTEGER, one, ierr)
    call MPI_Type_set_attr(one, key, large, ierr)
    call MPI_Type_dup(one, copy, ierr)
    call MPI_Type_get_attr(copy, key, value, flag, ierr)
    CHECK(flag)
    SAME(value, 2 * large)
    call MPI_Type_free(copy, ierr)
    SAME(deleted, 2 * large)
    call MPI_Type_delete_attr(one, key, ierr)
    SAME(deleted, large)
    SAME(deletes, 2)
    call MPI_Type_free(one, ierr)
    call MPI_Type_free_keyval(key, ierr)
  end subroutine types

  ! Attributes of windows, also those that MPI sets.
  subroutine windows()
    integer :: key, memory(10)
    integer(kind=wide) :: value, place, bytes
    logical :: flag
    WINDOW :: win
    bytes = 40
    call MPI_Win_create(memory, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
    call MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, delete_win, key, 0_wide, ierr)
    call MPI_Win_set_attr(win, key, large, ierr)
    call MPI_Win_get_attr(win, key, value, flag, ierr)
    CHECK(flag)
    SAME(value, large)
    call MPI_Get_address(memory, place, ierr)
    call MPI_Win_get_attr(win, MPI_WIN_BASE, value, flag, ierr)
    CHECK(flag)
    SAME(value, place)
    call MPI_Win_get_attr(win, MPI_WIN_SIZE, value, flag, ierr)
    SAME(value, 40)
    call MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, value, flag, ierr)
    SAME(value, 4)
    call MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, value, flag, ierr)
    SAME(value, MPI_WIN_FLAVOR_CREATE)
    call MPI_Win_get_attr(win, MPI_WIN_MODEL, value, flag, ierr)
    SAME(value, MPI_WIN_UNIFIED)
    deletes = 0
    call MPI_Win_free(win, ierr)
    SAME(deletes, 1)
    SAME(deleted, large)
    call MPI_Win_free_keyval(key, ierr)
  end subroutine windows

  subroutine set_in_fortran()
    integer :: key, flag
    integer(kind=wide) :: value
    COMM :: copy
    call MPI_Comm_create_keyval(copy_comm, delete_comm, key, 0_wide, ierr)
    call MPI_Comm_set_attr(MPI_COMM_WORLD, key, large, ierr)
    call c_get(HANDLE_VALUE(MPI_COMM_WORLD), key, value, flag)
    SAME(flag, 1)
    SAME(value, large)
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
    call c_get(HANDLE_VALUE(copy), key, value, flag)
    SAME(value, large + 1)
    call MPI_Comm_free(copy, ierr)
    call MPI_Comm_delete_attr(MPI_COMM_WORLD, key, ierr)
    call MPI_Comm_free_keyval(key, ierr)
  end subroutine set_in_fortran

  ! With a key of C, whose functions copy and delete values of both languages.
  subroutine set_in_c()
    integer :: key, which, is_same, copied, deleted_, flag_
    integer(kind=wide) :: value, place
    logical :: flag
    COMM :: copy
    call c_create_key(key)
    do which = 0, 1
      call c_set(HANDLE_VALUE(MPI_COMM_WORLD), key, which, place)
      call MPI_Comm_get_attr(MPI_COMM_WORLD, key, value, flag, ierr)
      CHECK(flag)
      SAME(value, place)
      call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
      call MPI_Comm_get_attr(copy, key, value, flag, ierr)
      SAME(value, place)
      call c_has(HANDLE_VALUE(copy), key, which, is_same)
      SAME(is_same, 1)
      call MPI_Comm_free(copy, ierr)
    end do
    call c_calls(copied, deleted_)
    SAME(copied, 2)
    SAME(deleted_, 3)
    call MPI_Comm_set_attr(MPI_COMM_WORLD, key, large, ierr)
    call c_get(HANDLE_VALUE(MPI_COMM_WORLD), key, value, flag_)
    SAME(value, large)
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
    call MPI_Comm_get_attr(copy, key, value, flag, ierr)
    SAME(value, large)
    call MPI_Comm_free(copy, ierr)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, key, value, flag, ierr)
    SAME(value, large)
    call MPI_Comm_delete_attr(MPI_COMM_WORLD, key, ierr)
    call MPI_Comm_free_keyval(key, ierr)
    ! With a key of Fortran, whose function gets an address.
    call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, key, 0_wide, ierr)
    call c_set(HANDLE_VALUE(MPI_COMM_WORLD), key, 1, place)
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
    call MPI_Comm_get_attr(copy, key, value, flag, ierr)
    SAME(value, place)
    call c_has(HANDLE_VALUE(copy), key, 1, is_same)
    SAME(is_same, 1)
    call MPI_Comm_free(copy, ierr)
    call MPI_Comm_delete_attr(MPI_COMM_WORLD, key, ierr)
    call MPI_Comm_free_keyval(key, ierr)
  end subroutine set_in_c

  subroutine predefined()
    integer(kind=wide) :: value
    logical :: flag
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierr)
    CHECK(flag)
    CHECK(value >= 32767 .and. value <= 2147483647)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, value, flag, ierr)
    SAME(ierr, MPI_SUCCESS)
    if (flag) CHECK(value >= ranks .and. value < 1000000)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, value, flag, ierr)
    CHECK(flag)
    CHECK(value == 0 .or. value == 1)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, value, flag, ierr)
    CHECK(flag)
    SAME(value, MPI_ANY_SOURCE)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, value, flag, ierr)
    CHECK(flag)
    SAME(value, 0)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, value, flag, ierr)
    CHECK(flag)
    CHECK(value >= MPI_ERR_LASTCODE)
  end subroutine predefined

#ifndef METHOD_F08
  subroutine old()
    integer :: key, value, copy, flag_
    integer(kind=wide) :: wide_value
    logical :: flag
    copies = 0
    deletes = 0
    call MPI_Keyval_create(copy_old, delete_old, key, 77, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Attr_put(MPI_COMM_WORLD, key, -5, ierr)
    value = 0
    call MPI_Attr_get(MPI_COMM_WORLD, key, value, flag, ierr)
    CHECK(flag)
    SAME(value, -5)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, key, wide_value, flag, ierr)
    SAME(wide_value, -5)
    call c_get_int(MPI_COMM_WORLD, key, value, flag_)
    SAME(value, -5)
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
    call MPI_Attr_get(copy, key, value, flag, ierr)
    CHECK(flag)
    SAME(value, -6)
    SAME(seen_state, 77)
    call MPI_Comm_free(copy, ierr)
    SAME(deleted, -6)
    call MPI_Attr_delete(MPI_COMM_WORLD, key, ierr)
    SAME(deletes, 2)
    call MPI_Keyval_free(key, ierr)
    SAME(key, MPI_KEYVAL_INVALID)
    call MPI_Keyval_create(MPI_DUP_FN, MPI_NULL_DELETE_FN, key, 0, ierr)
    call MPI_Attr_put(MPI_COMM_WORLD, key, 9, ierr)
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
    call MPI_Attr_get(copy, key, value, flag, ierr)
    SAME(value, 9)
    call MPI_Comm_free(copy, ierr)
    call MPI_Attr_delete(MPI_COMM_WORLD, key, ierr)
    call MPI_Keyval_free(key, ierr)
    call MPI_Attr_get(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierr)
    CHECK(flag .and. value >= 32767)
  end subroutine old
#endif
end program fortran_attributes
