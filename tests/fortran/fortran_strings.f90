! Strings: padded and cut off, without blanks at their ends; lengths without the zero byte of C.
! test: ranks=1,2 methods=mpif.h,mpi,mpi_f08
#include "methods.h"
#include "check.h"
#define TEXT(actual, expected) call same_text(actual, expected, __LINE__)
program fortran_strings
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer :: rank, ranks, failures, ierr

  call start()
  call names()
  call infos()
  call info_lengths()
  call errors()
  call versions()
  call sets()
  call finish()
contains
#include "check.inc"

  subroutine names()
    character(len=MPI_MAX_OBJECT_NAME) :: name
    integer :: length
    integer(kind=MPI_ADDRESS_KIND) :: bytes
    integer :: memory(1)
    COMM :: copy
    DATATYPE :: pair
    WINDOW :: win
    name = repeat('x', len(name))
    call MPI_Comm_get_name(MPI_COMM_WORLD, name, length, ierr)
    SAME(length, 14)
    TEXT(name, 'MPI_COMM_WORLD')
    CHECK(name(15:) == ' ')
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
    call MPI_Comm_set_name(copy, '  a name   ', ierr)
    call MPI_Comm_get_name(copy, name, length, ierr)
    SAME(length, 8)
    TEXT(name(1:10), '  a name  ')
    name = ' '
    call MPI_Comm_set_name(copy, name, ierr)
    call MPI_Comm_get_name(copy, name, length, ierr)
    SAME(length, 0)
    CHECK(name == ' ')
    name = repeat('n', len(name))
    call MPI_Comm_set_name(copy, name, ierr)
    SAME(ierr, MPI_SUCCESS)
    name = ' '
    call MPI_Comm_get_name(copy, name, length, ierr)
    SAME(length, MPI_MAX_OBJECT_NAME)
    TEXT(name, repeat('n', MPI_MAX_OBJECT_NAME))
    call MPI_Comm_free(copy, ierr)
    call MPI_Type_get_name(MPI_INTEGER, name, length, ierr)
    TEXT(name, 'MPI_INTEGER')
    SAME(length, 11)
    call MPI_Type_contiguous(2, MPI_INTEGER, pair, ierr)
    call MPI_Type_set_name(pair, 'pair', ierr)
    call MPI_Type_get_name(pair, name, length, ierr)
    TEXT(name, 'pair')
    call MPI_Type_free(pair, ierr)
    bytes = 4
    call MPI_Win_create(memory, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
    call MPI_Win_set_name(win, 'window', ierr)
    call MPI_Win_get_name(win, name, length, ierr)
    TEXT(name, 'window')
    SAME(length, 6)
    call MPI_Win_free(win, ierr)
  end subroutine names

  subroutine infos()
    character(len=MPI_MAX_INFO_KEY) :: key
    character(len=20) :: value
    character(len=MPI_MAX_INFO_VAL) :: long
    integer :: length, count
    logical :: flag
    INFO :: info_, copy
    call MPI_Info_create(info_, ierr)
    call MPI_Info_set(info_, '  key one  ', '  value one  ', ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Info_set(info_, 'second', 'two', ierr)
    call MPI_Info_get_nkeys(info_, count, ierr)
    SAME(count, 2)
    call MPI_Info_get_nthkey(info_, 0, key, ierr)
    TEXT(key, 'key one')
    value = 'xxxxxxxxxxxxxxxxxxxx'
    call MPI_Info_get(info_, 'key one', 20, value, flag, ierr)
    CHECK(flag)
    TEXT(value, 'value one')
    call MPI_Info_get_valuelen(info_, ' second', length, flag, ierr)
    CHECK(flag)
    SAME(length, 3)
    value = 'unchanged'
    call MPI_Info_get(info_, 'missing', 20, value, flag, ierr)
    CHECK(.not. flag)
    TEXT(value, 'unchanged')
    call MPI_Info_dup(info_, copy, ierr)
    call MPI_Info_delete(info_, 'second  ', ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Info_get_nkeys(info_, count, ierr)
    SAME(count, 1)
    call MPI_Info_get_nkeys(copy, count, ierr)
    SAME(count, 2)
    long = repeat('v', len(long))
    call MPI_Info_set(copy, 'long', long, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Info_get_valuelen(copy, 'long', length, flag, ierr)
    SAME(length, MPI_MAX_INFO_VAL)
    long = ' '
    call MPI_Info_get(copy, 'long', MPI_MAX_INFO_VAL, long, flag, ierr)
    CHECK(long == repeat('v', MPI_MAX_INFO_VAL))
    call MPI_Info_free(copy, ierr)
    call MPI_Info_free(info_, ierr)
    CHECK(info_ == MPI_INFO_NULL)
    call MPI_Info_create_env(info_, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Info_get_nkeys(info_, count, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Info_free(info_, ierr)
  end subroutine infos

  ! Lengths of MPI_Info_get_string: the room on input, the length of the whole value on output.
  subroutine info_lengths()
    character(len=10) :: value
    character(len=3) :: short
    integer :: length
    logical :: flag
    INFO :: info_
    call MPI_Info_create(info_, ierr)
    call MPI_Info_set(info_, 'key', 'abcdefgh', ierr)
    value = 'xxxxxxxxxx'
    length = 10
    call MPI_Info_get_string(info_, 'key', length, value, flag, ierr)
    CHECK(flag)
    SAME(length, 8)
    TEXT(value, 'abcdefgh  ')
    value = 'xxxxxxxxxx'
    length = 0
    call MPI_Info_get_string(info_, 'key', length, value, flag, ierr)
    CHECK(flag)
    SAME(length, 8)
    TEXT(value, 'xxxxxxxxxx')
    length = 3
    call MPI_Info_get_string(info_, 'key', length, short, flag, ierr)
    SAME(length, 8)
    TEXT(short, 'abc')
    length = 8
    call MPI_Info_get_string(info_, ' key', length, value, flag, ierr)
    SAME(length, 8)
    TEXT(value, 'abcdefgh  ')
    length = 10
    value = 'xxxxxxxxxx'
    call MPI_Info_get_string(info_, 'none', length, value, flag, ierr)
    CHECK(.not. flag)
    SAME(length, 10)
    TEXT(value, 'xxxxxxxxxx')
    call MPI_Info_free(info_, ierr)
  end subroutine info_lengths

  subroutine errors()
    character(len=MPI_MAX_ERROR_STRING) :: text, own
    integer :: length, class, code, found
    call MPI_Error_string(MPI_ERR_TAG, text, length, ierr)
    CHECK(length > 0 .and. length <= len(text))
    CHECK(text(length:length) /= ' ' .and. text(length + 1:) == ' ')
    CHECK(index(text, 'MPI_ERR_TAG') > 0)
    call MPI_Add_error_class(class, ierr)
    call MPI_Add_error_code(class, code, ierr)
    call MPI_Add_error_string(code, 'an error of ours   ', ierr)
    call MPI_Error_string(code, text, length, ierr)
    SAME(length, 16)
    TEXT(text, 'an error of ours')
    call MPI_Error_class(code, found, ierr)
    SAME(found, class)
    own = repeat('e', len(own))
    call MPI_Add_error_string(code, own, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Error_string(code, text, length, ierr)
    SAME(length, MPI_MAX_ERROR_STRING)
    CHECK(text == own)
    call MPI_Remove_error_string(code, ierr)
    call MPI_Remove_error_code(code, ierr)
    call MPI_Remove_error_class(class, ierr)
    SAME(ierr, MPI_SUCCESS)
  end subroutine errors

  subroutine versions()
    character(len=MPI_MAX_LIBRARY_VERSION_STRING) :: text
    character(len=MPI_MAX_PROCESSOR_NAME) :: name
    integer :: length, version, subversion
    call MPI_Get_library_version(text, length, ierr)
    TEXT(text(1:9), 'Fastpath ')
    CHECK(text(length + 1:) == ' ')
    call MPI_Get_processor_name(name, length, ierr)
    CHECK(length > 0 .and. len_trim(name) == length)
    call MPI_Get_version(version, subversion, ierr)
    SAME(version, MPI_VERSION)
    SAME(subversion, MPI_SUBVERSION)
    call MPI_Abi_get_version(version, subversion, ierr)
    SAME(version, MPI_ABI_VERSION)
  end subroutine versions

  ! Names of process sets.
  subroutine sets()
    character(len=MPI_MAX_PSET_NAME_LEN) :: name
    character(len=5) :: short
    integer :: count, i, length, room
    logical :: has_world
    SESSION :: session_
    call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, session_, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Session_get_num_psets(session_, MPI_INFO_NULL, count, ierr)
    CHECK(count >= 2)
    has_world = .false.
    do i = 0, count - 1
      length = 0
      call MPI_Session_get_nth_pset(session_, MPI_INFO_NULL, i, length, name, ierr)
      CHECK(length > 0)
      room = length
      call MPI_Session_get_nth_pset(session_, MPI_INFO_NULL, i, length, name, ierr)
      SAME(length, room)
      SAME(len_trim(name), length)
      if (name == 'mpi://WORLD') then
        has_world = .true.
        SAME(length, 11)
        length = 5
        call MPI_Session_get_nth_pset(session_, MPI_INFO_NULL, i, length, short, ierr)
        TEXT(short, 'mpi:/')
        SAME(length, 11)
      end if
    end do
    CHECK(has_world)
    call MPI_Session_finalize(session_, ierr)
  end subroutine sets
end program fortran_strings
